//! The whole suite as a test, and tests beside it of what the suite leans on.
//!
//! `BURN_GGUF_DEVICES=flex,vulkan` picks the devices; without it every one compiled in runs, and those that this
//! machine lacks are named as skipped. `BURN_GGUF_MATRIX_FULL=1` runs every shape on every device.

#[cfg(all(feature = "autodiff", feature = "flex"))]
mod autodiff;
mod goldens;
#[cfg(all(feature = "autodiff", feature = "flex"))]
mod linear_attention;
mod zero_copy;

use std::io::Write;

use burn_gguf_matrix::{Pattern, Suite, blocks, ops, targets, types};

/// Prints a line past the test harness, which would keep it back when the test passes.
fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("standard output is open");
}

#[test]
fn every_operation_on_every_type_and_device() {
    let names = std::env::var("BURN_GGUF_DEVICES").unwrap_or_default();
    let names: Vec<_> = names
        .split(',')
        .filter(|name| !name.trim().is_empty())
        .collect();
    let none: [&str; 0] = [];
    let suite = Suite {
        devices: targets(&names).unwrap_or_else(|error| panic!("BURN_GGUF_DEVICES: {error}")),
        types: types(&none).unwrap(),
        ops: ops(&none).unwrap(),
        full: std::env::var_os("BURN_GGUF_MATRIX_FULL").is_some(),
        runs: 0,
    };
    let report = suite.run(&mut say).unwrap();
    let failures = report.failures().count();
    assert_eq!(failures, 0, "{failures} shapes failed, see above");
    // Every device must have computed something of its own.
    for device in report
        .devices
        .iter()
        .filter(|device| device.missing.is_none())
    {
        let mut rows = report.rows.iter().filter(|row| row.device == device.name);
        assert!(
            rows.any(|row| row.error.is_some()),
            "{}: nothing was computed",
            device.name
        );
    }
}

/// Blocks of a weight of `rows` rows.
fn weight(ty: burn_gguf::GgmlType, rows: usize, cols: usize) -> Vec<u8> {
    blocks(ty, rows, cols, Pattern::Random, 1).expect("random blocks")
}
