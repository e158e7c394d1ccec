//! Pictures from files, bytes, `data:` URLs and memory, as upright 8-bit RGB.
//!
//! ```
//! # use burn_gguf_models::vision::image::{DecodeOptions, ImageInput};
//! let input = ImageInput::parse("data:image/gif;base64,R0lGODdhAQABAIAAAP8AAAAAACwAAAAAAQABAAACAkQBADs=");
//! let picture = input.decode(&DecodeOptions::default())?;
//! assert_eq!((picture.width(), picture.height()), (1, 1));
//! # Ok::<(), burn_gguf_models::vision::image::ImageError>(())
//! ```

mod alpha;
mod data_url;
mod decode;
mod error;
mod format;
mod frames;
mod hash;
mod input;
pub mod resample;

pub use alpha::Alpha;
pub use decode::DecodeOptions;
pub use error::ImageError;
pub use frames::{Frame, frame_folder};
pub use hash::ContentHash;
pub use input::{Image, ImageInput, Origin};
