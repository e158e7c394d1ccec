//! The table: cells are computed one by one, printed row by row, judged at the end.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Device;

use crate::tolerance::tolerance;

/// Prints a line past the test harness, which would keep it back when the test passes.
pub fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("standard output is open");
}

/// What one operation gave on one device.
pub enum Outcome {
    /// Values and what they should be.
    Values(Vec<f32>, Vec<f64>),
    /// Why the operation does not exist there.
    Skipped(String),
}

/// Error of `got`: largest, relative to the largest expected value, and squared, relative to the squared expectation.
#[derive(Clone, Copy, Default)]
struct Error {
    max: f64,
    nmse: f64,
}

fn error(got: &[f32], want: &[f64]) -> Result<Error, String> {
    if got.len() != want.len() {
        return Err(format!("{} values where {} are due", got.len(), want.len()));
    }
    if let Some(at) = got.iter().position(|v| !v.is_finite()) {
        return Err(format!("value {at} is {} instead of {}", got[at], want[at]));
    }
    let size = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    let square: f64 = want.iter().map(|v| v * v).sum();
    if size == 0.0 {
        // A block of zeros, of which the goldens have some.
        return match got.iter().all(|&v| v == 0.0) {
            true => Ok(Error::default()),
            false => Err("zeros are due".into()),
        };
    }
    let differences = got.iter().zip(want).map(|(&g, w)| f64::from(g) - w);
    let (max, sum) = differences.fold((0f64, 0f64), |(max, sum), d| {
        (max.max(d.abs()), sum + d * d)
    });
    Ok(Error {
        max: max / size,
        nmse: sum / square,
    })
}

/// The devices, and what has failed so far.
pub struct Table {
    devices: Vec<(String, Device)>,
    failures: Vec<String>,
    computed: usize,
}

impl Table {
    pub fn new(devices: Vec<(String, Device)>) -> Self {
        let mut line = format!("{:<34}", "operation, type");
        for (name, _) in &devices {
            line += &format!(" | {name:<24}");
        }
        say(&line);
        say(&"-".repeat(line.len()));
        Self {
            devices,
            failures: Vec::new(),
            computed: 0,
        }
    }

    /// Runs `cases` on each device and adds the row; a cell shows the worst of them.
    pub fn row(&mut self, op: &str, ty: &str, cases: impl Fn(&Device) -> Vec<(String, Outcome)>) {
        let allowed = tolerance(op);
        let mut line = format!("{:<34}", format!("{op} {ty}"));
        for (name, device) in self.devices.clone() {
            let result = catch_unwind(AssertUnwindSafe(|| cases(&device)));
            let cell = match result {
                Err(panic) => Err(format!("panicked: {}", message(&panic))),
                Ok(outcomes) => self.judge(outcomes, allowed.max, allowed.nmse),
            };
            let text = match cell {
                Ok(text) => text,
                Err(reason) => {
                    self.failures
                        .push(format!("{op} {ty} on {name}: {reason}; allowed: {allowed}"));
                    "FAILED".to_string()
                }
            };
            line += &format!(" | {text:<24}");
        }
        say(&line);
    }

    fn judge(
        &mut self,
        outcomes: Vec<(String, Outcome)>,
        max: f64,
        nmse: f64,
    ) -> Result<String, String> {
        let mut worst: Option<Error> = None;
        let mut skipped = None;
        for (case, outcome) in outcomes {
            match outcome {
                Outcome::Skipped(why) => skipped = Some(why),
                Outcome::Values(got, want) => {
                    let e = error(&got, &want).map_err(|why| format!("{case}: {why}"))?;
                    if e.max > max || e.nmse > nmse {
                        return Err(format!("{case}: max {:.1e}, NMSE {:.1e}", e.max, e.nmse));
                    }
                    let w = worst.get_or_insert_default();
                    (w.max, w.nmse) = (w.max.max(e.max), w.nmse.max(e.nmse));
                }
            }
        }
        match (worst, skipped) {
            (Some(e), None) => {
                self.computed += 1;
                Ok(format!("{:.1e} / {:.1e}", e.max, e.nmse))
            }
            (_, Some(why)) => Ok(format!("skipped: {why}")),
            (None, None) => Err("no case ran".into()),
        }
    }

    /// Says what ran and fails if anything did.
    pub fn finish(self) {
        let names: Vec<_> = self.devices.iter().map(|(name, _)| name.as_str()).collect();
        say(&format!(
            "{} cells computed; a cell is max error / NMSE",
            self.computed
        ));
        say(&format!("devices run: {}", names.join(", ")));
        assert!(
            self.failures.is_empty(),
            "{} failures:\n{}",
            self.failures.len(),
            self.failures.join("\n")
        );
        assert!(self.computed > 0, "nothing was computed");
    }
}

fn message(panic: &Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into())
}
