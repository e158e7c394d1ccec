//! A tiny vision model that comes with the crate, and the pictures it was trained on.
//!
//! Two GGUF files, about two megabytes, that describe pictures of coloured shapes. They are `qwen3vl` files like any
//! other; the example `train_demo` makes them.
//!
//! ```
//! use burn::tensor::Device;
//! use burn_gguf::Arithmetic;
//! use burn_gguf_models::demo::{self, PROMPTS, Picture, Split};
//!
//! let picture = Picture::new(Split::HeldOut, 4);
//! let model = demo::load(&Device::flex(), Arithmetic::Exact)?;
//! let caption = demo::describe(&model, picture.to_image(), PROMPTS[0])?;
//! assert_eq!(caption, "a green triangle left of an orange star");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pictures;
mod random;
mod scene;

use burn::tensor::Device;
use burn_gguf::Arithmetic;
use burn_gguf::gguf::Gguf;

use crate::auto::AutoModel;
use crate::chat::Chat;
use crate::error::ModelError;
use crate::generation::{GenerateError, GenerateOptions, SamplingParams};
use crate::load::LoadOptions;
use crate::vision::discover::VisionSource;
use crate::vision::image::ImageInput;
use crate::vision::mmproj::Mmproj;
use crate::vision::{MmprojDtype, Vision, VisionOptions};

pub use pictures::{CELLS, Picture, SIDE, Split};
pub use scene::{Colour, Group, Relation, Scene, Shape};

/// The text model, a GGUF file.
pub const TEXT: &[u8] = include_bytes!("../../assets/demo/shapes-Q8_0.gguf");
/// Its vision tower, an mmproj file.
pub const MMPROJ: &[u8] = include_bytes!("../../assets/demo/mmproj-shapes-Q8_0.gguf");

/// What to ask. The model knows these requests only.
pub const PROMPTS: [&str; 4] = [
    "Describe the picture.",
    "What is in the picture?",
    "What do you see?",
    "Caption this image.",
];

/// Most tokens of an answer; a caption has nine.
const MAX_TOKENS: usize = 32;

/// Loads the model.
///
/// # Errors
/// If the device cannot hold it.
pub fn load(device: &Device, arithmetic: Arithmetic) -> Result<AutoModel, ModelError> {
    let vision = VisionOptions {
        source: VisionSource::Off,
        dtype: MmprojDtype::Packed,
        ..VisionOptions::default()
    };
    // Copied, as the program's own memory has no alignment for blocks.
    let text = Gguf::from_bytes(TEXT.to_vec().into())?;
    let mmproj = Gguf::from_bytes(MMPROJ.to_vec().into())?;
    let failed = |error| ModelError::Vision(Box::new(error));
    let mmproj = Mmproj::from_gguf(mmproj).map_err(|error| failed(error.into()))?;
    let eyes = Vision::load(&mmproj, device, &vision, arithmetic).map_err(failed)?;
    let options = LoadOptions {
        arithmetic,
        vision,
        ..LoadOptions::default()
    };
    Ok(AutoModel::load(text, device, options)?.with_vision(eyes))
}

/// The model's answer to a picture, the likeliest token at each place.
///
/// # Errors
/// A picture that cannot be read, or a model that reads none.
pub fn describe(
    model: &AutoModel,
    image: impl Into<ImageInput>,
    prompt: &str,
) -> Result<String, GenerateError> {
    let chat = Chat::new().with(Chat::user().image(image).text(prompt));
    let options = GenerateOptions {
        sampling: SamplingParams::greedy(),
        max_tokens: Some(MAX_TOKENS),
        ..GenerateOptions::default()
    };
    let pieces = model.generate(model.chat_prompt(&chat)?, options)?;
    pieces.map(|piece| Ok(piece?.text)).collect()
}
