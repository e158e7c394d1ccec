//! One operation on one type on one device: its cases are run, timed and judged one by one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use burn_gguf::GgmlType;

use crate::compare::{Error, Expected, compare};
use crate::op::Op;
use crate::report::{Row, Status};
use crate::tolerance::{Tolerance, tolerance};

/// Time after which no further run of a timed case is started.
const ENOUGH: Duration = Duration::from_millis(500);

/// Collects the rows of a cell.
pub(crate) struct Cell<'a> {
    op: &'static Op,
    ty: GgmlType,
    name: &'a str,
    /// The device.
    pub device: &'a Device,
    /// Whether all shapes are to run, or those that cover.
    pub full: bool,
    tolerance: Tolerance,
    rows: Vec<Row>,
}

/// What a timed case is measured by.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// Runs after the first, which is not counted.
    pub runs: usize,
    /// Bytes of the weight it reads.
    pub bytes: usize,
}

impl<'a> Cell<'a> {
    pub fn new(
        op: &'static Op,
        ty: GgmlType,
        name: &'a str,
        device: &'a Device,
        full: bool,
    ) -> Self {
        Self {
            op,
            ty,
            name,
            device,
            full,
            tolerance: tolerance(op.name, ty.name()),
            rows: Vec::new(),
        }
    }

    /// Runs `body`, which adds the cases. If it panics outside of a case, that is a failure of its own.
    pub fn run(mut self, body: impl FnOnce(&mut Self)) -> Vec<Row> {
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut self)));
        if let Err(panic) = result {
            self.push(
                "",
                Err(format!("panicked: {}", message(&*panic))),
                None,
                None,
            );
        }
        if self.rows.is_empty() {
            self.push("", Err("no case ran".into()), None, None);
        }
        self.rows
    }

    /// A case of one output of these dimensions.
    pub fn case<const D: usize>(
        &mut self,
        shape: &str,
        want: &Expected,
        dims: [usize; D],
        run: impl Fn() -> Tensor<D>,
    ) {
        self.cases(shape, &[(want, dims)], || vec![run()]);
    }

    /// A case of several outputs, the worst of which counts.
    pub fn cases<const D: usize>(
        &mut self,
        shape: &str,
        want: &[(&Expected, [usize; D])],
        run: impl Fn() -> Vec<Tensor<D>>,
    ) {
        let start = Instant::now();
        let result = caught(|| judge(run(), want));
        self.push(shape, result, Some(start.elapsed()), None);
    }

    /// A case that also tells the speed: the median of several runs.
    pub fn timed<const D: usize>(
        &mut self,
        shape: &str,
        timing: Timing,
        want: &Expected,
        dims: [usize; D],
        run: impl Fn() -> Tensor<D>,
    ) {
        let device = self.device;
        let result = caught(|| {
            let error = judge(vec![run()], &[(want, dims)])?;
            let mut times = Vec::new();
            let begin = Instant::now();
            while times.len() < timing.runs.max(1) && (times.is_empty() || begin.elapsed() < ENOUGH)
            {
                let start = Instant::now();
                let out = run();
                device.sync().map_err(|e| e.to_string())?;
                times.push(start.elapsed());
                drop(out);
            }
            times.sort();
            Ok((error, times[times.len() / 2]))
        });
        let time = result.as_ref().ok().map(|(_, time)| *time);
        let speed = time.map(|time| timing.bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9);
        self.push(shape, result.map(|(error, _)| error), time, speed);
    }

    /// Says why a case, or without a shape the whole cell, does not exist on the device.
    pub fn skip(&mut self, shape: &str, why: &str) {
        let mut row = self.row(shape, Status::Skipped);
        row.reason = Some(why.into());
        self.rows.push(row);
    }

    fn push(
        &mut self,
        shape: &str,
        result: Result<Error, String>,
        time: Option<Duration>,
        gb_per_s: Option<f64>,
    ) {
        let mut row = self.row(shape, Status::Ok);
        row.time_s = time.map(|time| time.as_secs_f64());
        row.gb_per_s = gb_per_s;
        match result {
            Ok(error) => {
                (row.error, row.nmse) = (Some(error.max), Some(error.nmse));
                let share = self.tolerance.share(error);
                row.share = share;
                if share > 1.0 {
                    row.status = Status::Failed;
                    let (max, nmse) = (error.max, error.nmse);
                    row.reason = Some(format!(
                        "max {max:.1e}, NMSE {nmse:.1e}; allowed: {}",
                        self.tolerance
                    ));
                }
            }
            Err(why) => {
                row.status = Status::Failed;
                row.reason = Some(why);
            }
        }
        self.rows.push(row);
    }

    fn row(&self, shape: &str, status: Status) -> Row {
        Row {
            op: self.op.name,
            ty: self.ty.name(),
            device: self.name.to_string(),
            shape: shape.to_string(),
            status,
            error: None,
            nmse: None,
            tolerance: self.tolerance.max,
            tolerance_nmse: self.tolerance.nmse,
            time_s: None,
            gb_per_s: None,
            reason: None,
            share: 0.0,
        }
    }
}

fn judge<const D: usize>(
    got: Vec<Tensor<D>>,
    want: &[(&Expected, [usize; D])],
) -> Result<Error, String> {
    if got.len() != want.len() {
        return Err(format!(
            "{} outputs where {} are due",
            got.len(),
            want.len()
        ));
    }
    let mut worst = Error::default();
    for (i, (got, (want, dims))) in got.into_iter().zip(want).enumerate() {
        if got.dims() != *dims {
            return Err(format!(
                "output {i} is {:?} where {dims:?} is due",
                got.dims()
            ));
        }
        let error = compare(&values(got)?, want).map_err(|why| format!("output {i}: {why}"))?;
        worst = worst.worst(error);
    }
    Ok(worst)
}

/// The values of a tensor, widened to f32 where they are not.
pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, String> {
    let data = tensor.into_data().convert::<f32>();
    data.try_into_vec().map_err(|e| format!("{e:?}"))
}

/// The result, or the panic's message.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into())
}
