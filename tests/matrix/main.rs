//! One suite for every operation on every block type on every device.
//!
//! Each row of the table is an operation (on a block type where it takes weights), each column a device, each cell the
//! largest error relative to the largest expected value and the normalized mean square error, or why there is none.
//! The expected values come from `oracle`, host code in f64 over the scalar block decoders.
//!
//! `BURN_GGUF_DEVICES=flex,vulkan` picks the devices; without it every one compiled in runs, and those that this
//! machine lacks are named as skipped.

#[cfg(all(feature = "autodiff", feature = "flex"))]
mod autodiff;
mod blocks;
mod devices;
mod goldens;
mod layers;
mod oracle;
mod report;
mod tolerance;
mod weights;
mod zero_copy;

use report::Table;

#[test]
fn every_operation_on_every_type_and_device() {
    let devices = devices::picked();
    assert!(!devices.is_empty(), "no device to run on");
    let mut table = Table::new(devices);
    weights::run(&mut table);
    layers::run(&mut table);
    table.finish();
}
