//! What the suite found: one row per operation, type, device and shape, and cells that sum the shapes up.

use serde::Serialize;

use burn_gguf::GgmlType;

use crate::op::{OPS, Op};
use crate::tolerance::tolerance;

/// How a case or a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Within tolerance.
    Ok,
    /// Out of tolerance, or no result.
    Failed,
    /// Not there on the device; the reason is given.
    Skipped,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The operation.
    pub op: &'static str,
    /// The type, as ggml spells it.
    #[serde(rename = "type")]
    pub ty: &'static str,
    /// The device, as it was named.
    pub device: String,
    /// Input, weight and pattern in words; empty where the row stands for a whole cell.
    pub shape: String,
    /// How it ended.
    pub status: Status,
    /// The largest error, relative to the largest expected value.
    pub error: Option<f64>,
    /// The normalized mean square error.
    pub nmse: Option<f64>,
    /// What `error` may be.
    pub tolerance: f64,
    /// What `nmse` may be.
    pub tolerance_nmse: f64,
    /// Seconds: of the only run, compilation and copies included, or the median of several where the shape is timed.
    pub time_s: Option<f64>,
    /// Bytes of the weight over the time, in 1e9 a second, where the shape is timed.
    pub gb_per_s: Option<f64>,
    /// Why it failed or was skipped.
    pub reason: Option<String>,
    /// The share of the tolerance that the errors use up.
    #[serde(skip)]
    pub(crate) share: f64,
}

impl Row {
    /// The row of a device that this machine lacks.
    pub(crate) fn missing(op: &Op, ty: GgmlType, device: &str, why: &str) -> Self {
        let allowed = tolerance(op.name, ty.name());
        Self {
            op: op.name,
            ty: ty.name(),
            device: device.into(),
            shape: String::new(),
            status: Status::Skipped,
            error: None,
            nmse: None,
            tolerance: allowed.max,
            tolerance_nmse: allowed.nmse,
            time_s: None,
            gb_per_s: None,
            reason: Some(why.into()),
            share: 0.0,
        }
    }
}

/// A device of the report.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// What burn calls it.
    pub device: Option<String>,
    /// Why it did not run.
    pub missing: Option<String>,
    /// Whether it ran the covering shapes only.
    pub reduced: bool,
}

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The CPU and system.
    pub machine: String,
    /// When it started, in UTC.
    pub date: String,
    /// The devices, in order.
    pub devices: Vec<DeviceInfo>,
    /// All cases, by type, operation and device.
    pub rows: Vec<Row>,
}

/// The rows of one operation, type and device in one.
#[derive(Clone, Debug)]
pub struct CellSummary<'a> {
    /// The operation.
    pub op: &'static str,
    /// The type, as ggml spells it.
    pub ty: &'static str,
    /// The device.
    pub device: &'a str,
    /// Failed if any shape did, skipped if all were.
    pub status: Status,
    /// Shapes computed.
    pub shapes: usize,
    /// Shapes that failed.
    pub failed: usize,
    /// The row that uses up most of the tolerance, or the first that failed or, in a skipped cell, was skipped.
    pub worst: &'a Row,
    /// The share of the tolerance that it uses up; infinite where it failed without a number.
    pub share: f64,
    /// The speed of the timed shape.
    pub gb_per_s: Option<f64>,
    /// Reasons of shapes skipped in a cell that was computed.
    pub skipped: Vec<&'a str>,
}

impl Report {
    /// The cells, in the order of the rows.
    pub fn cells(&self) -> Vec<CellSummary<'_>> {
        let same = |a: &Row, b: &Row| (a.op, a.ty, &a.device) == (b.op, b.ty, &b.device);
        self.rows.chunk_by(same).filter_map(summary).collect()
    }

    /// A cell by its names.
    pub(crate) fn find<'a, 'b>(
        cells: &'b [CellSummary<'a>],
        op: &str,
        ty: &str,
        device: &str,
    ) -> Option<&'b CellSummary<'a>> {
        let is = |cell: &&CellSummary<'_>| (cell.op, cell.ty, cell.device) == (op, ty, device);
        cells.iter().find(is)
    }

    /// The rows that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.status == Status::Failed)
    }

    /// The operations on weights (or those of layers) that the report has, in order.
    pub(crate) fn ops(&self, on_weights: bool) -> Vec<&'static Op> {
        let has = |op: &&Op| self.rows.iter().any(|row| row.op == op.name);
        OPS.iter()
            .filter(|op| op.is_on_weights() == on_weights)
            .filter(has)
            .collect()
    }

    /// The types of operations on weights, in order.
    pub(crate) fn types(&self) -> Vec<&'static str> {
        let mut types: Vec<&'static str> = Vec::new();
        let ops = self.ops(true);
        for row in &self.rows {
            if !types.contains(&row.ty) && ops.iter().any(|op| op.name == row.op) {
                types.push(row.ty);
            }
        }
        types
    }

    /// The rows as a JSON array of objects, one a line.
    pub fn to_json(&self) -> String {
        let row = |row| serde_json::to_string(row).expect("a row is plain data");
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }

    /// Says what failed, how much was computed and which devices ran.
    pub(crate) fn conclude(&self, say: &mut dyn FnMut(&str)) {
        for row in self.failures() {
            let reason = row.reason.as_deref().unwrap_or("no reason");
            say(&format!(
                "FAILED: {} {} on {}, {}: {reason}",
                row.op, row.ty, row.device, row.shape
            ));
        }
        let cells = self.cells();
        let count = |status| cells.iter().filter(|cell| cell.status == status).count();
        let shapes: usize = cells.iter().map(|cell| cell.shapes).sum();
        say(&format!(
            "{} cells ok, {} failed, {} skipped; {shapes} shapes computed; a cell is max error / NMSE",
            count(Status::Ok),
            count(Status::Failed),
            count(Status::Skipped),
        ));
        let ran = self
            .devices
            .iter()
            .filter(|device| device.missing.is_none());
        let ran: Vec<_> = ran.map(|device| device.name.as_str()).collect();
        say(&format!("devices run: {}", ran.join(", ")));
    }
}

fn summary(rows: &[Row]) -> Option<CellSummary<'_>> {
    let first = rows.first()?;
    let rank = |row: &Row| match (row.status, row.error) {
        (Status::Failed, None) => f64::INFINITY,
        (Status::Skipped, _) => -1.0,
        _ => row.share,
    };
    let mut worst = first;
    for row in rows {
        if rank(row) > rank(worst) {
            worst = row;
        }
    }
    let failed = rows
        .iter()
        .filter(|row| row.status == Status::Failed)
        .count();
    let skipped = rows.iter().filter(|row| row.status == Status::Skipped);
    let reasons: Vec<_> = skipped.filter_map(|row| row.reason.as_deref()).collect();
    let shapes = rows.len() - reasons.len();
    Some(CellSummary {
        op: first.op,
        ty: first.ty,
        device: &first.device,
        status: match (failed, shapes) {
            (0, 0) => Status::Skipped,
            (0, _) => Status::Ok,
            _ => Status::Failed,
        },
        shapes,
        failed,
        worst,
        share: rank(worst),
        gb_per_s: rows.iter().find_map(|row| row.gb_per_s),
        skipped: if shapes > 0 { reasons } else { Vec::new() },
    })
}

/// A report of a few cells of every kind.
#[cfg(test)]
pub(crate) fn example() -> Report {
    let device = |name: &str, missing: Option<&str>| DeviceInfo {
        name: name.into(),
        device: missing.is_none().then(|| "Some<Device>".to_string()),
        missing: missing.map(Into::into),
        reduced: name == "vulkan",
    };
    let op = |name| OPS.iter().find(|op| op.name == name).unwrap();
    let row = |name, ty, device: &str, status| {
        let mut row = Row::missing(op(name), ty, device, "no driver");
        row.status = status;
        row.shape = "n=9".into();
        if status == Status::Ok {
            (row.error, row.nmse, row.reason) = (Some(1e-6), Some(1e-13), None);
            row.share = 0.5;
        }
        row
    };
    let mut fast = row("linear_exact", GgmlType::Q4K, "flex", Status::Ok);
    (fast.gb_per_s, fast.time_s, fast.share) = (Some(12.5), Some(1e-3), 0.1);
    let mut failed = row("linear_exact", GgmlType::Q4K, "vulkan", Status::Failed);
    failed.reason = Some("value 3 is NaN instead of <1>".into());
    Report {
        machine: "A CPU, 2 threads, linux".into(),
        date: "2026-01-31 12:34 UTC".into(),
        devices: vec![
            device("flex", None),
            device("vulkan", None),
            device("cuda", Some("no driver")),
        ],
        rows: vec![
            row("linear_exact", GgmlType::Q4K, "flex", Status::Ok),
            fast,
            row("linear_exact", GgmlType::Q4K, "flex", Status::Skipped),
            failed,
            row("linear_exact", GgmlType::Q4K, "cuda", Status::Skipped),
            row("rms_norm", GgmlType::F32, "flex", Status::Ok),
            row("rms_norm", GgmlType::F32, "vulkan", Status::Ok),
            row("rms_norm", GgmlType::F32, "cuda", Status::Skipped),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_its_worst_shape() {
        let report = example();
        let cells = report.cells();
        let cell = |op, device| Report::find(&cells, op, "Q4_K", device).unwrap();
        let flex = cell("linear_exact", "flex");
        assert_eq!((flex.status, flex.shapes, flex.share), (Status::Ok, 2, 0.5));
        assert_eq!(flex.gb_per_s, Some(12.5));
        assert_eq!(flex.skipped, ["no driver"]);
        let vulkan = cell("linear_exact", "vulkan");
        assert_eq!((vulkan.status, vulkan.failed), (Status::Failed, 1));
        assert_eq!(vulkan.share, f64::INFINITY);
        assert_eq!(cell("linear_exact", "cuda").status, Status::Skipped);
        assert_eq!(report.failures().count(), 1);
    }

    #[test]
    fn json_rows_name_everything() {
        let rows: serde_json::Value = serde_json::from_str(&example().to_json()).unwrap();
        let row = &rows[1];
        assert_eq!(row["op"], "linear_exact");
        assert_eq!(row["type"], "Q4_K");
        assert_eq!(row["device"], "flex");
        assert_eq!(row["shape"], "n=9");
        assert_eq!(row["status"], "ok");
        assert_eq!(row["error"], 1e-6);
        assert_eq!(row["tolerance"], 2e-6);
        assert_eq!(row["gb_per_s"], 12.5);
        assert_eq!(rows[3]["status"], "failed");
        assert_eq!(rows[4]["reason"], "no driver");
    }

    #[test]
    fn the_conclusion_names_failures_and_devices() {
        let mut lines = Vec::new();
        example().conclude(&mut |line| lines.push(line.to_string()));
        assert!(lines[0].starts_with("FAILED: linear_exact Q4_K on vulkan, n=9: value 3"));
        assert!(lines[1].starts_with("3 cells ok, 1 failed, 2 skipped; 5 shapes"));
        assert_eq!(lines[2], "devices run: flex, vulkan");
    }
}
