//! Text generation: choosing a token from logits, deciding when to stop, counting, and [`Generation`],
//! the loop that puts them together with a model.
//!
//! The parts know no tensors and serve loops of one's own, with a
//! [`DecodeStream`](crate::tokenizer::DecodeStream):
//!
//! ```no_run
//! # use burn_gguf_models::generation::{Sampler, SamplingParams, StopChecker};
//! # use burn_gguf_models::tokenizer::{DecodeStream, Tokenizer};
//! # fn run(tokenizer: Tokenizer, mut forward: impl FnMut(u32) -> Vec<f32>, mut logits: Vec<f32>)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! let special = tokenizer.special();
//! let mut sampler = Sampler::new(SamplingParams::default())?.with_suppressed(&special.suppressed);
//! let mut stop = StopChecker::for_tokenizer(&tokenizer).with_max_tokens(256);
//! let mut decoder = DecodeStream::new(&tokenizer, false);
//! loop {
//!     let id = sampler.sample(&mut logits)?;
//!     let step = stop.push(id, &decoder.push(id)?);
//!     print!("{}", step.text);
//!     if step.stop.is_some() {
//!         break;
//!     }
//!     logits = forward(id);
//! }
//! stop.push_rest(&decoder.flush());
//! print!("{}", stop.flush());
//! # Ok(())
//! # }
//! ```

mod error;
mod generate;
mod params;
mod random;
mod sampler;
mod stats;
mod stop;

pub use error::SamplingError;
pub use generate::{GenerateError, GenerateOptions, Generation, Piece};
pub use params::SamplingParams;
pub use sampler::Sampler;
pub use stats::GenerationStats;
pub use stop::{Step, StopChecker, StopReason};
