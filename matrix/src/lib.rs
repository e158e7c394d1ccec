//! The cross-device test matrix: every operation on every block type on every device, over the shapes at which kernels
//! differ, against an oracle in f64 on the host.
//!
//! [`Suite::run`] gives a [`Report`] of one [`Row`] per operation, type, device and shape, which can be written as JSON,
//! as a picture in HTML and as Markdown. Weights are made here ([`Pattern`]); no file is needed. The expected values
//! come from the scalar block decoders, which have tests of their own against ggml's.
//!
//! Inputs have 0, 1, 2, 6..9, 63..65 and 512 rows; weights 1, 13, 37 and 64 rows of one block, four blocks and 512 + 256
//! values. CPU devices run the product of these; other devices, unless told to run all, each size once in a common
//! setting. Weights of every [`Pattern`] meet activations of usual size, activations whose sums over a block exceed
//! `f16`, and rows of zeros.

mod blocks;
mod blocks_of_keys;
mod cell;
mod compare;
mod devices;
mod error;
mod html;
mod layers;
mod machine;
mod markdown;
mod op;
mod oracle;
mod random;
mod report;
mod suite;
mod tolerance;
mod weights;

pub use blocks::{Pattern, blocks};
pub use compare::{Error, Expected, compare};
pub use devices::{Target, targets};
pub use error::MatrixError;
pub use op::{OPS, Op, ops, types};
pub use oracle::decode;
pub use random::Random;
pub use report::{CellSummary, DeviceInfo, Report, Row, Status};
pub use suite::Suite;
pub use tolerance::{Tolerance, tolerance};
