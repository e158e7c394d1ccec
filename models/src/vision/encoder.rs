//! Pictures to rows of a prompt: processor, tower, and a cache of what was seen.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use burn_gguf::gguf::Gguf;

use super::image::{ContentHash, Image};
use super::mmproj::MediaTokens;
use super::processor::{ImageProcessor, ProcessedImage, ProcessorKind};
use super::towers::VisionTower;
use super::video::{TimedFrame, timestamp};
use super::{VideoInput, VisionError};
use crate::fingerprint::Fingerprint;
use crate::prompt::ImageRows;

/// Bytes of embeddings kept for pictures that are shown again.
const CACHE_BYTES: usize = 256 << 20;

/// The eyes of a model.
pub struct Vision {
    tower: Box<dyn VisionTower>,
    processor: ImageProcessor,
    kind: ProcessorKind,
    source: Option<(Gguf, &'static str)>,
    cache: Mutex<Cache>,
}

/// The rows of a piece of a video and the text that stands before it.
#[derive(Clone, Debug)]
pub struct VideoRows {
    /// When it is shown, as the model reads it.
    pub timestamp: String,
    /// The rows.
    pub rows: Arc<ImageRows>,
}

impl Vision {
    /// A tower, and the processor that prepares pictures for it.
    pub fn new(tower: Box<dyn VisionTower>, processor: ImageProcessor) -> Self {
        Self {
            tower,
            kind: processor.config().kind,
            processor,
            source: None,
            cache: Mutex::default(),
        }
    }

    /// As loaded from this file, its weights made this type.
    pub(super) fn loaded_from(mut self, gguf: Gguf, dtype: &'static str) -> Self {
        self.source = Some((gguf, dtype));
        self
    }

    /// What tells the tower from others, if it comes from a file: rows of pictures may only be used again by the same one.
    /// Reads samples of the file.
    pub(crate) fn identity(&self) -> Option<String> {
        let (gguf, dtype) = self.source.as_ref()?;
        let mut fingerprint = Fingerprint::default();
        Some(fingerprint.add(gguf).add_bytes(dtype.as_bytes()).finish())
    }

    /// The tower.
    pub fn tower(&self) -> &dyn VisionTower {
        &*self.tower
    }

    /// The processor.
    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// What stands around an image in the text.
    pub fn media_tokens(&self) -> MediaTokens {
        MediaTokens::of(self.kind)
    }

    /// The rows of a picture.
    ///
    /// # Errors
    /// A picture the processor refuses.
    pub fn encode(&self, image: &Image) -> Result<Arc<ImageRows>, VisionError> {
        self.encode_processed(&self.processor.process(image)?)
    }

    /// The rows of a picture that is resized already.
    ///
    /// # Errors
    /// What the tower cannot read.
    pub fn encode_processed(&self, image: &ProcessedImage) -> Result<Arc<ImageRows>, VisionError> {
        let rows = self.rows(image, &[image.hash()])?;
        Ok(rows.into_iter().next().expect("a picture has rows"))
    }

    /// The rows of a video, temporal patch by temporal patch.
    ///
    /// # Errors
    /// Frames that cannot be decoded or differ in size, or a tower that reads no videos.
    pub fn encode_video(&self, video: &VideoInput) -> Result<Vec<VideoRows>, VisionError> {
        let frames = video.decode(&self.processor.decode_options())?;
        let pictures: Vec<Image> = frames.iter().map(|f| f.image.clone()).collect();
        let processed = self.processor.process_video(&pictures)?;
        let per_patch = self.processor.config().temporal_patch_size.max(1) as usize;
        let patches = processed.frames().chunks(per_patch);
        let hashes: Vec<ContentHash> = patches.map(ContentHash::of).collect();
        let rows = self.rows(&processed, &hashes)?;
        let timed = |(rows, times): (Arc<ImageRows>, &[TimedFrame])| VideoRows {
            timestamp: timestamp(times),
            rows,
        };
        let times = frames.chunks(per_patch);
        Ok(rows.into_iter().zip(times).map(timed).collect())
    }

    /// The rows of each temporal patch, from the cache where all of them are there.
    fn rows(
        &self,
        image: &ProcessedImage,
        hashes: &[ContentHash],
    ) -> Result<Vec<Arc<ImageRows>>, VisionError> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = {
            let mut cache = cache();
            hashes.iter().map(|&hash| cache.get(hash)).collect()
        };
        if let Some(rows) = known {
            return Ok(rows);
        }
        // Not locked: another picture may be embedded meanwhile.
        let grid = image.token_grid();
        let encoded = self.tower.encode(image)?.into_iter().zip(hashes);
        let rows: Vec<_> = encoded
            .map(|(embeddings, &hash)| {
                Arc::new(ImageRows {
                    embeddings,
                    grid,
                    hash,
                })
            })
            .collect();
        let mut cache = cache();
        rows.iter().for_each(|rows| cache.put(rows.clone()));
        Ok(rows)
    }
}

/// The rows last used, the latest at the back.
#[derive(Default)]
struct Cache {
    rows: VecDeque<Arc<ImageRows>>,
}

impl Cache {
    fn get(&mut self, hash: ContentHash) -> Option<Arc<ImageRows>> {
        let at = self.rows.iter().position(|rows| rows.hash == hash)?;
        let rows = self.rows.remove(at)?;
        self.rows.push_back(rows.clone());
        Some(rows)
    }

    fn put(&mut self, rows: Arc<ImageRows>) {
        self.rows.retain(|known| known.hash != rows.hash);
        self.rows.push_back(rows);
        let bytes = |rows: &Arc<ImageRows>| rows.embeddings.shape().num_elements() * 4;
        let mut held: usize = self.rows.iter().map(bytes).sum();
        while held > CACHE_BYTES && self.rows.len() > 1 {
            held -= self.rows.pop_front().map_or(0, |rows| bytes(&rows));
        }
    }
}
