//! What is to run, and running it.

use burn_gguf::device::Backend;
use burn_gguf::{GgmlType, computable_types};

use crate::cell::Cell;
use crate::devices::Target;
use crate::error::MatrixError;
use crate::op::{Kind, Op};
use crate::report::{DeviceInfo, Report, Row, Status};
use crate::weights::Weights;
use crate::{layers, machine};

/// A selection of devices, types and operations.
pub struct Suite {
    /// See [`targets`](crate::targets).
    pub devices: Vec<Target>,
    /// See [`types`](crate::types).
    pub types: Vec<GgmlType>,
    /// See [`ops`](crate::ops).
    pub ops: Vec<&'static Op>,
    /// Whether devices other than the CPU run every shape too, instead of those that cover.
    pub full: bool,
    /// Runs of the timed cases, of which the median counts; 0 leaves those cases out.
    pub runs: usize,
}

impl Suite {
    /// Runs everything. `say` is given the lines of a table as they are done, then what failed and what ran.
    ///
    /// # Errors
    /// If none of the operations takes any of the types.
    pub fn run(&self, say: &mut dyn FnMut(&str)) -> Result<Report, MatrixError> {
        let taken = |op: &&Op| self.types.iter().any(|&ty| op.takes(ty));
        if !self.ops.iter().copied().any(|op| taken(&op)) {
            let names = self.ops.iter().map(|op| op.name).collect::<Vec<_>>();
            let types = self.types.iter().map(|ty| ty.name()).collect::<Vec<_>>();
            return Err(MatrixError::NothingToRun {
                ops: names.join(", "),
                types: types.join(", "),
            });
        }
        let mut report = Report {
            machine: machine::machine(),
            date: machine::now(),
            devices: self.devices.iter().map(|t| self.info(t)).collect(),
            rows: Vec::new(),
        };
        for device in &report.devices {
            if let Some(why) = &device.missing {
                say(&format!("skipped: {}: {why}", device.name));
            } else if device.reduced {
                say(&format!(
                    "{}: the shapes that cover each size and each pattern once, not their product",
                    device.name
                ));
            }
        }
        self.header(say);
        for &ty in &self.types {
            let weights = Weights::new(ty, self.runs);
            let ops = self
                .ops
                .iter()
                .filter(|op| op.is_on_weights() && op.takes(ty));
            for &op in ops {
                self.line(op, ty, say, &mut report, |cell| match op.kind {
                    Kind::Dequantize(dtype) => weights.dequantize(dtype, cell),
                    Kind::GatherRows => weights.gather_rows(cell),
                    Kind::Linear(arithmetic) => weights.linear(arithmetic, cell),
                    Kind::LinearPair(arithmetic) => weights.linear_pair(arithmetic, cell),
                    Kind::LinearTriple(arithmetic) => weights.linear_triple(arithmetic, cell),
                    Kind::LinearF16Input => weights.linear_f16_input(cell),
                    Kind::LinearExperts(arithmetic) => weights.linear_experts(arithmetic, cell),
                    Kind::SwitchOver(arithmetic) => weights.switch_over(arithmetic, cell),
                    Kind::Layer(_) => {}
                });
            }
        }
        for &op in &self.ops {
            if let Kind::Layer(layer) = op.kind
                && self.types.contains(&layer.ggml_type())
            {
                let ty = layer.ggml_type();
                self.line(op, ty, say, &mut report, |cell| layers::run(layer, cell));
            }
        }
        report.conclude(say);
        Ok(report)
    }

    fn info(&self, target: &Target) -> DeviceInfo {
        DeviceInfo {
            name: target.name.clone(),
            device: target.device.as_ref().ok().map(|d| format!("{d:?}")),
            missing: target.device.as_ref().err().cloned(),
            reduced: target.device.is_ok() && !self.every_shape(target),
        }
    }

    fn every_shape(&self, target: &Target) -> bool {
        self.full || target.is_cpu()
    }

    fn header(&self, say: &mut dyn FnMut(&str)) {
        let mut line = format!("{:<30}", "operation, type");
        for target in self.devices.iter().filter(|target| target.device.is_ok()) {
            line += &format!(" | {:<32}", target.name);
        }
        say(&line);
        say(&"-".repeat(line.len()));
    }

    /// One operation on one type on every device.
    fn line(
        &self,
        op: &'static Op,
        ty: GgmlType,
        say: &mut dyn FnMut(&str),
        report: &mut Report,
        body: impl Fn(&mut Cell<'_>),
    ) {
        let mut line = format!("{:<30}", format!("{} {ty}", op.name));
        for target in &self.devices {
            let rows = match &target.device {
                Err(why) => vec![Row::missing(op, ty, &target.name, why)],
                Ok(device) => {
                    let cell = Cell::new(op, ty, &target.name, device, self.every_shape(target));
                    match unsupported(op, ty, device) {
                        Some(why) => cell.run(|cell| cell.skip("", &why)),
                        None => cell.run(&body),
                    }
                }
            };
            if target.device.is_ok() {
                line += &format!(" | {:<32}", text(&rows));
            }
            report.rows.extend(rows);
        }
        say(line.trim_end());
    }
}

/// Why the device has no operations on weights of the type, if it has none.
fn unsupported(op: &Op, ty: GgmlType, device: &burn::tensor::Device) -> Option<String> {
    if !op.is_on_weights() {
        return None;
    }
    match Backend::of(device) {
        Err(error) => Some(error.to_string()),
        Ok(backend) if computable_types(backend).contains(&ty) => None,
        Ok(backend) => Some(format!("no {ty} kernels on {} devices", backend.name())),
    }
}

/// A cell of the printed table: the largest errors, and the speed where it was measured.
fn text(rows: &[Row]) -> String {
    let failed = rows
        .iter()
        .filter(|row| row.status == Status::Failed)
        .count();
    if failed > 0 {
        return format!("FAILED: {failed} of {} shapes", rows.len());
    }
    let worst = |error: fn(&Row) -> Option<f64>| rows.iter().filter_map(error).reduce(f64::max);
    match (worst(|row| row.error), worst(|row| row.nmse)) {
        (Some(max), Some(nmse)) => match worst(|row| row.gb_per_s) {
            Some(speed) => format!("{max:.1e} / {nmse:.1e}, {speed:.1} GB/s"),
            None => format!("{max:.1e} / {nmse:.1e}"),
        },
        _ => match rows.iter().find_map(|row| row.reason.as_deref()) {
            Some(why) => format!("skipped: {why}"),
            None => "skipped".into(),
        },
    }
}
