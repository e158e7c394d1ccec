//! Rendered text and media to the rows of a prompt.

use std::sync::Arc;

use crate::auto::AutoModel;
use crate::chat::{Chat, ChatError, Media};
use crate::generation::GenerateError;
use crate::prompt::{ImageRows, Prompt};
use crate::vision::{VideoRows, Vision, VisionError};

/// What a chat's image or video became.
#[derive(Clone, Debug)]
pub enum MediaRows {
    /// A picture.
    Image(Arc<ImageRows>),
    /// A video, temporal patch by temporal patch.
    Video(Vec<VideoRows>),
}

impl From<Arc<ImageRows>> for MediaRows {
    fn from(rows: Arc<ImageRows>) -> Self {
        Self::Image(rows)
    }
}

/// The place of an image in a text that a user writes.
pub const MEDIA_MARKER: &str = "<__media__>";

impl AutoModel {
    /// A conversation as a prompt, through the file's chat template. Images become markers before the template sees them,
    /// so that it need not know of images; the markers' places become the images.
    ///
    /// # Errors
    /// If the template is missing, refuses the conversation or loses an image, if an image cannot be read, or if the model
    /// reads none.
    pub fn chat_prompt(&self, chat: &Chat) -> Result<Prompt, GenerateError> {
        let template = self.chat_template()?;
        if !chat.has_media() {
            let tokens = self.tokenizer()?.encode_prompt(template.render(chat)?)?;
            return Ok(tokens.into());
        }
        let vision = self.vision()?;
        let nonce = unused_nonce(chat);
        let marker = |i: usize| format!("<__media_{nonce}_{i}__>");
        let (text, media) = chat.with_markers(marker)?;
        let rendered = template.render(&text)?;
        let rows = media
            .iter()
            .map(|media| encode(vision, media))
            .collect::<Result<Vec<_>, _>>()?;
        let mut places = Vec::new();
        for (i, rows) in rows.iter().enumerate() {
            let marker = marker(i);
            let found: Vec<_> = rendered.match_indices(&marker).collect();
            if found.len() != 1 {
                return Err(GenerateError::Chat(ChatError::MediaPlaces {
                    template: "the rendered chat template".to_owned(),
                    image: i + 1,
                    images: media.len(),
                    found: found.len(),
                }));
            }
            places.push((found[0].0, marker.len(), rows));
        }
        places.sort_by_key(|(at, ..)| *at);
        self.assemble(vision, &rendered, &places)
    }

    /// A text, fed as it is, as a prompt: each [`MEDIA_MARKER`] in it becomes the next of `media`.
    ///
    /// # Errors
    /// If there are more markers than media or fewer, or the model reads no images.
    pub fn text_prompt(&self, text: &str, media: &[MediaRows]) -> Result<Prompt, GenerateError> {
        if media.is_empty() && !text.contains(MEDIA_MARKER) {
            return Ok(self.tokenizer()?.encode_prompt(text)?.into());
        }
        let found = text.matches(MEDIA_MARKER).count();
        if found != media.len() {
            return Err(GenerateError::Chat(ChatError::MarkerCount {
                marker: MEDIA_MARKER,
                found,
                images: media.len(),
            }));
        }
        let places: Vec<_> = text
            .match_indices(MEDIA_MARKER)
            .zip(media)
            .map(|((at, marker), rows)| (at, marker.len(), rows))
            .collect();
        self.assemble(self.vision()?, text, &places)
    }

    /// The text with media in the place of the markers at `places` (start, length).
    fn assemble(
        &self,
        vision: &Vision,
        text: &str,
        places: &[(usize, usize, &MediaRows)],
    ) -> Result<Prompt, GenerateError> {
        let tokenizer = self.tokenizer()?;
        let media = vision.media_tokens();
        let (begin, end) = (
            media.begin.unwrap_or_default(),
            media.end.unwrap_or_default(),
        );
        let mut prompt = Prompt::new();
        let mut first = true;
        let mut flush = |prompt: &mut Prompt, text: &str| -> Result<(), GenerateError> {
            let tokens = match std::mem::take(&mut first) {
                true => tokenizer.encode_prompt(text)?,
                false => tokenizer.encode(text, false, true)?,
            };
            prompt.push_tokens(tokens);
            Ok(())
        };
        let mut pending = String::new();
        let mut from = 0;
        for &(at, len, rows) in places {
            pending.push_str(&text[from..at]);
            from = at + len;
            let pieces: Vec<(&str, &Arc<ImageRows>)> = match rows {
                MediaRows::Image(rows) => vec![("", rows)],
                MediaRows::Video(video) => video
                    .iter()
                    .map(|piece| (piece.timestamp.as_str(), &piece.rows))
                    .collect(),
            };
            for (before, rows) in pieces {
                pending.push_str(before);
                pending.push_str(begin);
                flush(&mut prompt, &pending)?;
                prompt.push_image(rows.clone());
                pending = end.to_owned();
            }
        }
        pending.push_str(&text[from..]);
        flush(&mut prompt, &pending)?;
        Ok(prompt)
    }
}

/// The rows of an image or a video.
fn encode(vision: &Vision, media: &Media) -> Result<MediaRows, VisionError> {
    Ok(match media {
        Media::Image(input) => {
            let image = input.decode(&vision.processor().decode_options())?;
            MediaRows::Image(vision.encode(&image)?)
        }
        Media::Video(video) => MediaRows::Video(vision.encode_video(video)?),
    })
}

/// A number that no marker written in the conversation has.
fn unused_nonce(chat: &Chat) -> usize {
    let text = serde_json::to_string(&chat.messages).unwrap_or_default();
    (0..)
        .find(|nonce| !text.contains(&format!("<__media_{nonce}_")))
        .unwrap_or_default()
}
