//! Pieces of a message: text, images, videos.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::vision::VideoInput;
use crate::vision::image::ImageInput;

/// One part of a message's content. In JSON, pixels and frames stay out: `{"type": "image"}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its pixels; `None` for the mere place of one.
        input: Option<ImageInput>,
    },
    /// A video.
    Video {
        /// Its frames; `None` for the mere place of one.
        input: Option<VideoInput>,
    },
    /// Anything else, as JSON. Images written as `{"type": "image", "image": PATH}`, with `url` or `path` for `image`, or
    /// as `{"type": "image_url", "image_url": {"url": URL}}` are understood.
    Other(Value),
}

/// What a part shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Media {
    /// An image.
    Image(ImageInput),
    /// A video.
    Video(VideoInput),
}

impl Part {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// An image: a path, bytes, a data URL or a picture in memory.
    pub fn image(image: impl Into<ImageInput>) -> Self {
        Self::Image {
            input: Some(image.into()),
        }
    }

    /// A video.
    pub fn video(video: VideoInput) -> Self {
        Self::Video { input: Some(video) }
    }

    /// The part's `type`.
    pub(super) fn kind(&self) -> &str {
        match self {
            Self::Text { .. } => "text",
            Self::Image { .. } => "image",
            Self::Video { .. } => "video",
            Self::Other(value) => value
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or("unknown"),
        }
    }

    /// `None` for a part that shows nothing, `Some(None)` for one that does not say what.
    pub(super) fn media(&self) -> Option<Option<Media>> {
        match self {
            Self::Text { .. } => None,
            Self::Image { input } => Some(input.clone().map(Media::Image)),
            Self::Video { input } => Some(input.clone().map(Media::Video)),
            Self::Other(value) => match self.kind() {
                "image" | "image_url" | "input_image" => {
                    let source = ["image", "image_url", "url", "path"]
                        .iter()
                        .find_map(|key| value.get(key));
                    let text = source.and_then(|source| match source {
                        Value::String(text) => Some(text.as_str()),
                        nested => nested.get("url").and_then(Value::as_str),
                    });
                    Some(text.map(|text| Media::Image(ImageInput::parse(text))))
                }
                _ => None,
            },
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = match self {
            Self::Text { text } => json!({"type": "text", "text": text}),
            Self::Image { .. } => json!({"type": "image"}),
            Self::Video { .. } => json!({"type": "video"}),
            Self::Other(value) => return value.serialize(serializer),
        };
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let kind = value.get("type").and_then(Value::as_str);
        let fields = value.as_object().map_or(0, serde_json::Map::len);
        Ok(match (kind, fields) {
            (Some("text"), 2) => match value.get("text").and_then(Value::as_str) {
                Some(text) => Self::text(text),
                None => Self::Other(value),
            },
            (Some("image"), 1) => Self::Image { input: None },
            (Some("video"), 1) => Self::Video { input: None },
            _ => Self::Other(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_fields() {
        for value in [
            json!({"type": "text", "text": "a"}),
            json!({"type": "image"}),
            json!({"type": "image", "image": "a.png", "detail": "low"}),
            json!({"type": "text", "text": "a", "cache": true}),
            json!({"type": "audio", "url": "x"}),
            json!("bare"),
        ] {
            let part: Part = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_string(&part).unwrap(), value.to_string());
        }
    }

    #[test]
    fn images_in_json_are_found() {
        for value in [
            json!({"type": "image", "image": "a.png"}),
            json!({"type": "image", "url": "a.png"}),
            json!({"type": "image", "path": "a.png"}),
            json!({"type": "image_url", "image_url": {"url": "a.png"}}),
            json!({"type": "image_url", "image_url": "a.png"}),
        ] {
            let part: Part = serde_json::from_value(value).unwrap();
            let expected = Media::Image(ImageInput::parse("a.png"));
            assert_eq!(part.media(), Some(Some(expected)), "{part:?}");
        }
        let part = Part::Other(json!({"type": "image_url"}));
        assert_eq!(part.media(), Some(None));
        assert_eq!(Part::text("a").media(), None);
    }
}
