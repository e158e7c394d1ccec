//! The report as Markdown tables.

use std::fmt::Write;

use crate::report::{CellSummary, Report, Status};

/// The operation whose speed stands in the table.
const SPEED: &str = "linear_fast";

impl Report {
    /// A table of types by device and one of layer operations by device. A cell of the first sums all operations of a
    /// type up: `ok`, the largest share of its tolerance that any operation used, and the speed of the product with one
    /// row in GB of weights a second where it was timed.
    pub fn to_markdown(&self) -> String {
        let cells = self.cells();
        let mut out = String::new();
        let (types, layers) = (self.types(), self.ops(false));
        if !types.is_empty() {
            let ops = self.ops(true).len();
            self.head("type", &mut out);
            for ty in types {
                self.line(ty, &mut out, |device| {
                    let mine = cells.iter().filter(|c| c.ty == ty && c.device == device);
                    sum(
                        &mine
                            .filter(|c| self.is_on_weights(c.op))
                            .collect::<Vec<_>>(),
                        ops,
                    )
                });
            }
            out += "\n";
        }
        if !layers.is_empty() {
            self.head("operation", &mut out);
            for op in layers {
                self.line(op.name, &mut out, |device| {
                    let mine = cells
                        .iter()
                        .filter(|c| c.op == op.name && c.device == device);
                    sum(&mine.collect::<Vec<_>>(), 1)
                });
            }
            out += "\n";
        }
        let _ = writeln!(out, "{}; {}.", self.machine, self.date);
        out += &self.notes(&cells);
        out
    }

    fn is_on_weights(&self, name: &str) -> bool {
        self.ops(true).iter().any(|op| op.name == name)
    }

    fn head(&self, first: &str, out: &mut String) {
        let _ = write!(out, "| {first} |");
        for device in &self.devices {
            let _ = write!(out, " {} |", device.name);
        }
        let _ = writeln!(out, "\n|{}", "---|".repeat(1 + self.devices.len()));
    }

    fn line(&self, name: &str, out: &mut String, cell: impl Fn(&str) -> String) {
        let _ = write!(out, "| {name} |");
        for device in &self.devices {
            let _ = write!(out, " {} |", cell(&device.name).replace('|', "\\|"));
        }
        out.push('\n');
    }

    /// Reduced and missing devices, and every reason for which something was skipped.
    fn notes(&self, cells: &[CellSummary<'_>]) -> String {
        let mut notes: Vec<String> = Vec::new();
        for device in &self.devices {
            match &device.missing {
                Some(why) => notes.push(format!("{}: not run, {why}", device.name)),
                None if device.reduced => notes.push(format!("{}: covering shapes", device.name)),
                None => {}
            }
        }
        for cell in cells.iter().filter(|cell| cell.status == Status::Skipped) {
            let missing = |d: &&crate::DeviceInfo| d.name == cell.device && d.missing.is_some();
            if self.devices.iter().any(|device| missing(&device)) {
                continue;
            }
            let why = cell.worst.reason.as_deref().unwrap_or_default();
            let note = format!("{} on {}: skipped, {why}", cell.op, cell.device);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
            .iter()
            .fold(String::new(), |out, note| out + "- " + note + "\n")
    }
}

/// Several cells in one, out of `all` operations.
fn sum(cells: &[&CellSummary<'_>], all: usize) -> String {
    let with = |status| cells.iter().filter(move |cell| cell.status == status);
    let failed = with(Status::Failed).count();
    if failed > 0 {
        let names: Vec<_> = with(Status::Failed).map(|cell| cell.op).collect();
        return format!("**failed**: {}", names.join(", "));
    }
    let ok = with(Status::Ok).count();
    if ok == 0 {
        return "skipped".into();
    }
    let share = with(Status::Ok).fold(0.0, |most: f64, cell| most.max(cell.share));
    let mut text = match ok == all {
        true => format!("ok, {share:.2}"),
        false => format!("ok ({ok} of {all}), {share:.2}"),
    };
    let speed = cells
        .iter()
        .find(|cell| cell.op == SPEED)
        .and_then(|cell| cell.gb_per_s);
    if let Some(speed) = speed {
        let _ = write!(text, ", {speed:.1} GB/s");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_are_types_and_layer_operations() {
        let text = crate::report::example().to_markdown();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "| type | flex | vulkan | cuda |");
        assert_eq!(
            lines[2],
            "| Q4_K | ok, 0.50 | **failed**: linear_exact | skipped |"
        );
        assert_eq!(lines[6], "| rms_norm | ok, 0.50 | ok, 0.50 | skipped |");
        assert!(
            text.contains("\n- vulkan: covering shapes\n- cuda: not run, no driver\n"),
            "{text}"
        );
    }
}
