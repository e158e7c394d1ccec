//! Quantizing models: names of quantizations, and which tensor becomes what.

mod config;
mod error;
mod spec;

pub use config::{QuantConfig, QuantRule, RuleAction};
pub use error::QuantError;
pub use spec::QuantSpec;
