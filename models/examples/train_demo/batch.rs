//! Pictures and captions as tensors.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_gguf_models::demo::{CELLS, PROMPTS, Picture, Split};
use burn_gguf_models::layers::Positions;
use burn_gguf_models::tokenizer::Tokenizer;
use burn_gguf_models::vision::image::Image;
use burn_gguf_models::vision::processor::ImageProcessor;

/// Tokens of the longest caption, its end included.
pub const CAPTION: usize = 10;
/// Rows of an image.
pub const IMAGE: usize = CELLS * CELLS;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The tokens around pictures and captions.
pub struct Words {
    tokenizer: Tokenizer,
    /// What stands before the picture.
    pub before: Vec<u32>,
    /// What stands between picture and caption, for each prompt.
    pub after: Vec<Vec<u32>>,
    end: u32,
    nothing: u32,
}

impl Words {
    /// The prompts in the form the chat template gives them.
    ///
    /// # Errors
    /// If a word is not one token.
    pub fn new(tokenizer: Tokenizer) -> Result<Self, Error> {
        let special = |text: &str| {
            let id = tokenizer.token_id(text);
            id.ok_or_else(|| format!("the vocabulary has no {text}"))
        };
        let (end, nothing) = (special("<|im_end|>")?, special("<|image_pad|>")?);
        let before = tokenizer.encode("<|im_start|>user\n<|vision_start|>", false, true)?;
        let after = |prompt: &str| {
            let text = format!("<|vision_end|>{prompt}<|im_end|>\n<|im_start|>assistant\n");
            tokenizer.encode(text, false, true)
        };
        let after = PROMPTS.map(after).into_iter().collect::<Result<_, _>>()?;
        Ok(Self {
            tokenizer,
            before,
            after,
            end,
            nothing,
        })
    }

    /// The tokens of a caption, its end included.
    fn caption(&self, picture: &Picture) -> Result<Vec<u32>, Error> {
        let caption = picture.caption();
        let mut ids = self.tokenizer.encode(&caption, false, false)?;
        if ids.len() != caption.split(' ').count() || ids.len() >= CAPTION {
            return Err(format!("`{caption}` is not a token per word: {ids:?}").into());
        }
        ids.push(self.end);
        Ok(ids)
    }

    /// Colour and shape in each cell, as the words of captions.
    fn cells(&self, picture: &Picture) -> Result<Vec<[u32; 2]>, Error> {
        let word = |word: &str| {
            let id = self.tokenizer.token_id(&format!("Ġ{word}"));
            id.ok_or_else(|| format!("`{word}` is not one token"))
        };
        let cell = |group: &Option<_>| -> Result<[u32; 2], Error> {
            match group {
                None => Ok([self.nothing; 2]),
                Some(burn_gguf_models::demo::Group { colour, shape, .. }) => {
                    Ok([word(colour.word())?, word(shape.words()[0])?])
                }
            }
        };
        picture.cells.iter().map(cell).collect()
    }
}

/// Pictures of one prompt, on the host.
pub struct Batch {
    /// Number of pictures.
    pub len: usize,
    /// Index of the prompt.
    pub prompt: usize,
    pixels: Vec<f32>,
    captions: Vec<u32>,
    // 1 where a caption has a token.
    counts: Vec<f32>,
    cells: Vec<[u32; 2]>,
    /// Rows and columns of the patches.
    pub patches: Vec<[u32; 2]>,
}

impl Batch {
    /// The pictures of the given numbers.
    ///
    /// # Errors
    /// If a caption cannot be encoded.
    pub fn new(
        split: Split,
        numbers: impl Iterator<Item = u64>,
        prompt: usize,
        words: &Words,
        processor: &ImageProcessor,
    ) -> Result<Self, Error> {
        let mut batch = Self {
            len: 0,
            prompt,
            pixels: Vec::new(),
            captions: Vec::new(),
            counts: Vec::new(),
            cells: Vec::new(),
            patches: Vec::new(),
        };
        for number in numbers {
            let picture = Picture::new(split, number);
            let image = Image::from_rgb(picture.to_image())?;
            let values = processor.process_resized(&image)?.pixel_values();
            // A row holds each channel twice, for the two frames of a temporal patch, which are equal here.
            let plane = values.row_len / 6;
            for channel in values.values.chunks_exact(2 * plane) {
                batch.pixels.extend(&channel[..plane]);
            }
            let mut caption = words.caption(&picture)?;
            batch
                .counts
                .extend((0..CAPTION).map(|i| f32::from(u8::from(i < caption.len()))));
            caption.resize(CAPTION, words.end);
            batch.captions.extend(caption);
            batch.cells.extend(words.cells(&picture)?);
            batch.patches = values.positions;
            batch.len += 1;
        }
        Ok(batch)
    }

    /// `[len, patches, 3 * patch^2]`.
    pub fn pixels(&self, device: &Device) -> Tensor<3> {
        let patches = self.patches.len();
        let row = self.pixels.len() / (self.len * patches);
        Tensor::from_data(
            TensorData::new(self.pixels.clone(), [self.len, patches, row]),
            device,
        )
    }

    /// All tokens a model reads, `[len, tokens]`: before the picture, behind it, and the caption without its end.
    pub fn tokens(&self, words: &Words, device: &Device) -> Tensor<2, Int> {
        let prompt: Vec<u32> = [&words.before[..], &words.after[self.prompt]].concat();
        let tokens: Vec<i32> = self
            .captions
            .chunks_exact(CAPTION)
            .flat_map(|caption| prompt.iter().chain(&caption[..CAPTION - 1]))
            .map(|&id| id as i32)
            .collect();
        let width = prompt.len() + CAPTION - 1;
        Tensor::from_data(TensorData::new(tokens, [self.len, width]), device)
    }

    /// Where the rows stand.
    pub fn positions(&self, words: &Words) -> Positions {
        let mut positions = Positions::default();
        positions.push_text(0, words.before.len());
        positions.push_grid(0, CELLS, CELLS);
        positions.push_text(0, words.after[self.prompt].len() + CAPTION - 1);
        positions
    }

    /// The captions, `[len * CAPTION, 1]`, and 1 where they have a token.
    pub fn captions(&self, device: &Device) -> (Tensor<2, Int>, Tensor<2>) {
        let ids = self.captions.iter().map(|&id| id as i32).collect();
        let counts = TensorData::new(self.counts.clone(), [self.counts.len(), 1]);
        (column(ids, device), Tensor::from_data(counts, device))
    }

    /// Colours and shapes of the cells, each `[len * IMAGE, 1]`.
    pub fn cells(&self, device: &Device) -> [Tensor<2, Int>; 2] {
        [0, 1].map(|part| {
            column(
                self.cells.iter().map(|cell| cell[part] as i32).collect(),
                device,
            )
        })
    }

    /// Of each caption, the place of the first word that is not the most likely token; `tokens` are `[len * CAPTION]`.
    pub fn mistakes<'a>(&'a self, tokens: &'a [i32]) -> impl Iterator<Item = Option<usize>> + 'a {
        let captions = self
            .captions
            .chunks_exact(CAPTION)
            .zip(self.counts.chunks_exact(CAPTION));
        captions
            .zip(tokens.chunks_exact(CAPTION))
            .map(|((caption, counts), tokens)| {
                (0..CAPTION).find(|&i| counts[i] != 0.0 && caption[i] as i32 != tokens[i])
            })
    }
}

/// Rows that a caption's tokens are read from: behind the last token of the prompt.
pub fn caption_rows(words: &Words, prompt: usize) -> std::ops::Range<usize> {
    let first = words.before.len() + IMAGE + words.after[prompt].len() - 1;
    first..first + CAPTION
}

fn column(values: Vec<i32>, device: &Device) -> Tensor<2, Int> {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len, 1]), device)
}
