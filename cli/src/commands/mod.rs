//! One file per subcommand.

pub mod bench;
pub mod demo;
pub mod devices;
pub mod imatrix;
pub mod inspect;
mod load;
pub mod logits;
pub mod matrix;
pub mod quantize;
pub mod run;
pub mod template;
pub mod tensor;
pub mod tokenize;
pub mod vision;

/// What a command returns; the error is printed as it is.
pub type CommandResult<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
