//! The report as a picture: one self-contained page.

use std::fmt::{self, Write};

use crate::op::Op;
use crate::report::{CellSummary, DeviceInfo, Report, Status};
use crate::tolerance::tolerance;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// The upper bounds of the colours, in shares of the tolerance: its decades, the last one in halves.
const BOUNDS: [(f64, &str); 6] = [
    (0.0, "bit-equal"),
    (1e-3, "\u{2264} 0.001"),
    (1e-2, "\u{2264} 0.01"),
    (1e-1, "\u{2264} 0.1"),
    (0.5, "\u{2264} 0.5"),
    (1.0, "\u{2264} 1"),
];

impl Report {
    /// A page with a table of types by device and operation and one of layer operations by device: colour by the share
    /// of the tolerance that the worst shape uses up, a bar by GB/s, hatching where something was skipped.
    pub fn to_html(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write_html(&mut out);
        out
    }

    fn write_html(&self, out: &mut String) -> fmt::Result {
        let cells = self.cells();
        let count = |status| cells.iter().filter(|cell| cell.status == status).count();
        let counts = [Status::Ok, Status::Failed, Status::Skipped].map(count);
        writeln!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>burn-gguf matrix</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>burn-gguf matrix</h1>"
        )?;
        let failed = if counts[1] > 0 { " class=\"bad\"" } else { "" };
        writeln!(
            out,
            "<p>{}<br>{}</p>\n<p><b>{}</b> cells ok, <b{failed}>{} failed</b>, {} skipped; {} shapes computed</p>",
            escape(&self.machine),
            escape(&self.date),
            counts[0],
            counts[1],
            counts[2],
            cells.iter().map(|cell| cell.shapes).sum::<usize>(),
        )?;
        self.devices(&cells, out)?;
        legend(out)?;
        self.weights(&cells, out)?;
        self.layers(&cells, out)?;
        failures(&cells, out)?;
        writeln!(
            out,
            "<div id=\"detail\" aria-live=\"polite\">Point at a cell for its worst shape and numbers.</div>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>"
        )
    }

    fn devices(&self, cells: &[CellSummary<'_>], out: &mut String) -> fmt::Result {
        writeln!(out, "<ul>")?;
        for DeviceInfo {
            name,
            device,
            missing,
            reduced,
        } in &self.devices
        {
            write!(out, "<li><b>{}</b>", escape(name))?;
            if let Some(device) = device {
                write!(out, " {}", escape(device))?;
            }
            match missing {
                Some(why) => write!(out, ": not run, {}", escape(why))?,
                None if *reduced => write!(out, ": each size and pattern once")?,
                None => write!(out, ": every shape")?,
            }
            let fastest = fastest(cells, name);
            if fastest > 0.0 {
                write!(out, "; full bar {fastest:.1} GB/s")?;
            }
            writeln!(out, "</li>")?;
        }
        writeln!(out, "</ul>")
    }

    fn weights(&self, cells: &[CellSummary<'_>], out: &mut String) -> fmt::Result {
        let (ops, types) = (self.ops(true), self.types());
        if types.is_empty() {
            return Ok(());
        }
        writeln!(out, "<div class=\"scroll\"><table>\n<thead><tr><th></th>")?;
        for device in &self.devices {
            let (span, name) = (columns(device, &ops), escape(&device.name));
            writeln!(out, "<th class=\"device\" colspan=\"{span}\">{name}</th>")?;
        }
        writeln!(out, "</tr><tr><th></th>")?;
        for device in &self.devices {
            for (i, op) in ops.iter().take(columns(device, &ops)).enumerate() {
                let name = match device.missing {
                    Some(_) => "not run",
                    None => op.name,
                };
                let first = if i == 0 { " first" } else { "" };
                writeln!(out, "<th class=\"op{first}\"><span>{name}</span></th>")?;
            }
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for ty in types {
            writeln!(out, "<tr><th class=\"row\">{ty}</th>")?;
            for device in &self.devices {
                let fastest = fastest(cells, &device.name);
                for (i, op) in ops.iter().take(columns(device, &ops)).enumerate() {
                    let cell = Self::find(cells, op.name, ty, &device.name);
                    write_cell(cell, fastest, i == 0, out)?;
                }
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div>")
    }

    fn layers(&self, cells: &[CellSummary<'_>], out: &mut String) -> fmt::Result {
        let ops = self.ops(false);
        if ops.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "<h2>Layer operations</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th></th>"
        )?;
        for device in &self.devices {
            writeln!(
                out,
                "<th class=\"op first\"><span>{}</span></th>",
                escape(&device.name)
            )?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for op in ops {
            writeln!(out, "<tr><th class=\"row\">{}</th>", op.name)?;
            for device in &self.devices {
                let is = |c: &&CellSummary<'_>| c.op == op.name && c.device == device.name;
                write_cell(cells.iter().find(is), 0.0, true, out)?;
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div>")
    }
}

/// Columns of a device: one an operation, or a single one for a device that did not run.
fn columns(device: &DeviceInfo, ops: &[&Op]) -> usize {
    if device.missing.is_some() {
        1
    } else {
        ops.len()
    }
}

fn fastest(cells: &[CellSummary<'_>], device: &str) -> f64 {
    let mine = cells.iter().filter(|cell| cell.device == device);
    mine.filter_map(|cell| cell.gb_per_s).fold(0.0, f64::max)
}

fn legend(out: &mut String) -> fmt::Result {
    write!(
        out,
        "<p class=\"legend\">error of the worst shape / tolerance: "
    )?;
    for (i, (_, name)) in BOUNDS.iter().enumerate() {
        write!(out, "<span><i class=\"e{i}\"></i>{name}</span> ")?;
    }
    writeln!(
        out,
        "<span><i class=\"bad-cell\">\u{2715}</i>failed</span> <span><i class=\"skip\"></i>skipped</span> \
         <span><i class=\"e1\"><u style=\"width:60%\"></u></i>bar: GB of weights a second</span></p>"
    )
}

fn write_cell(
    cell: Option<&CellSummary<'_>>,
    fastest: f64,
    first: bool,
    out: &mut String,
) -> fmt::Result {
    let first = if first { " first" } else { "" };
    let Some(cell) = cell else {
        return writeln!(out, "<td class=\"none{first}\"></td>");
    };
    let (class, mark) = match cell.status {
        Status::Ok => {
            let color = BOUNDS.iter().position(|(bound, _)| cell.share <= *bound);
            (format!("e{}", color.unwrap_or(BOUNDS.len() - 1)), "")
        }
        Status::Failed => ("bad-cell".into(), "\u{2715}"),
        Status::Skipped => ("skip".into(), ""),
    };
    let bar = match cell.gb_per_s {
        Some(speed) if fastest > 0.0 => {
            format!("<u style=\"width:{:.0}%\"></u>", 100.0 * speed / fastest)
        }
        _ => String::new(),
    };
    let title = escape(&describe(cell));
    writeln!(
        out,
        "<td class=\"{class}{first}\" title=\"{title}\">{mark}{bar}</td>"
    )
}

/// Everything about a cell, in lines.
fn describe(cell: &CellSummary<'_>) -> String {
    let mut text = format!("{} {} on {}", cell.op, cell.ty, cell.device);
    let row = cell.worst;
    let reason = row.reason.as_deref().unwrap_or_default();
    // Writing to a string does not fail.
    let _ = match cell.status {
        Status::Skipped => write!(text, "\nskipped: {reason}"),
        Status::Failed => write!(
            text,
            "\n{} of {} shapes failed\n{}: {reason}",
            cell.failed, cell.shapes, row.shape
        ),
        Status::Ok => {
            let allowed = tolerance(cell.op, cell.ty);
            let (max, nmse) = (row.error.unwrap_or(0.0), row.nmse.unwrap_or(0.0));
            write!(
                text,
                "\n{} shapes ok; worst: {}\nmax error {max:.1e} of {:.0e}, NMSE {nmse:.1e} of {:.0e}",
                cell.shapes, row.shape, allowed.max, allowed.nmse
            )
        }
    };
    if let Some(speed) = cell.gb_per_s {
        let _ = write!(text, "\n{speed:.2} GB/s");
    }
    let mut reasons = cell.skipped.clone();
    reasons.dedup();
    if !reasons.is_empty() {
        let _ = write!(
            text,
            "\n{} shapes skipped: {}",
            cell.skipped.len(),
            reasons.join("; ")
        );
    }
    text
}

fn failures(cells: &[CellSummary<'_>], out: &mut String) -> fmt::Result {
    let failed: Vec<_> = cells
        .iter()
        .filter(|cell| cell.status == Status::Failed)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2 class=\"bad\">Failures</h2>\n<ul>")?;
    for cell in failed {
        writeln!(
            out,
            "<li>{}</li>",
            escape(&describe(cell)).replace('\n', "; ")
        )?;
    }
    writeln!(out, "</ul>")
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_needs_nothing_else() {
        let page = crate::report::example().to_html();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn cells_have_colour_bar_and_detail() {
        let page = crate::report::example().to_html();
        assert!(page.contains(
            "<td class=\"e4 first\" title=\"linear_exact Q4_K on flex\n2 shapes ok; worst: n=9"
        ));
        assert!(page.contains("<u style=\"width:100%\">"));
        assert!(page.contains("class=\"bad-cell first\""));
        assert!(page.contains("value 3 is NaN instead of &lt;1&gt;"));
        assert!(page.contains(
            "<td class=\"skip first\" title=\"linear_exact Q4_K on cuda\nskipped: no driver"
        ));
        assert!(page.contains("<b>flex</b> Some&lt;Device&gt;: every shape"));
        let open = page.matches("<td").count();
        assert_eq!((open, page.matches("</td>").count()), (6, 6));
    }
}
