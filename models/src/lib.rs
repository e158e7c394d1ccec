//! Text model families as [Burn](https://burn.dev) modules fed from GGUF files.

mod auto;
pub mod decoder;
mod error;
pub mod families;
pub mod layers;
mod load;
mod model;
mod session;

pub use auto::AutoModel;
pub use error::ModelError;
pub use load::{LoadOptions, LoadReport};
pub use model::{LogitsOf, TextModel};
pub use session::{Session, SessionOptions};
