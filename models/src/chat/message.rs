//! Conversations as templates read them.
//!
//! Field names and their order are those of the OpenAI-style dictionaries that templates were
//! written for; everything can be read from and written to that JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::vision::VideoInput;
use crate::vision::image::ImageInput;

use super::{ChatError, Media, Part};

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or what else a template knows.
    pub role: String,
    /// What was said; may be empty next to tool calls.
    #[serde(default)]
    pub content: Content,
    /// The thinking that preceded an assistant's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tools that the assistant called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the tool or of the participant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fields that only some templates read.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Nothing (`null`), as beside tool calls.
    #[default]
    None,
    /// Plain text.
    Text(String),
    /// Text and media in order.
    Parts(Vec<Part>),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Connects the call with its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(default = "function_type")]
    pub r#type: String,
    /// What is called.
    pub function: FunctionCall,
}

fn function_type() -> String {
    "function".to_owned()
}

/// Name and arguments of a called function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Its name.
    pub name: String,
    /// Usually an object; a string of JSON where a client sends one.
    pub arguments: Value,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            extra: Map::new(),
        }
    }

    /// Instructions.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new("user", content)
    }

    /// What the model answered.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new("assistant", content)
    }

    /// What a tool answered to the call `id`.
    pub fn tool(id: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            tool_call_id: Some(id.into()),
            ..Self::new("tool", content)
        }
    }

    /// Adds the thinking before an answer.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning_content = Some(reasoning.into());
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn with_tool_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: Value,
    ) -> Self {
        let function = FunctionCall {
            name: name.into(),
            arguments,
        };
        self.tool_calls.push(ToolCall {
            id: Some(id.into()),
            r#type: function_type(),
            function,
        });
        self
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Part>> for Content {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

/// A conversation and what else the template gets to see.
///
/// ```
/// use burn_gguf_models::chat::{Chat, Message};
///
/// let chat = Chat::new()
///     .with(Message::system("Be brief."))
///     .with(Message::user("1+1?"))
///     .with_option("enable_thinking", false);
/// assert_eq!(chat.messages.len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Chat {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// JSON schemas of the tools on offer; none is not the same as an empty list to a template.
    pub tools: Option<Vec<Value>>,
    /// Whether the prompt ends in the beginning of an assistant's answer.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`.
    pub options: Map<String, Value>,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: None,
            add_generation_prompt: true,
            options: Map::new(),
        }
    }
}

impl Chat {
    /// An empty conversation that asks for an answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message.
    #[must_use]
    pub fn with(mut self, message: impl Into<Message>) -> Self {
        self.messages.push(message.into());
        self
    }

    /// Adds a tool's JSON schema.
    #[must_use]
    pub fn with_tool(mut self, schema: Value) -> Self {
        self.tools.get_or_insert_default().push(schema);
        self
    }

    /// Sets a variable of the template.
    #[must_use]
    pub fn with_option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Begins a message of the user's that may have images: `Chat::user().image(path).text("What is this?")`.
    pub fn user() -> UserMessage {
        UserMessage::default()
    }

    /// The images and videos in order, and the conversation with `marker(i)` as text in the place of the `i`-th: lists of
    /// parts become plain strings, which every template can print.
    ///
    /// # Errors
    /// [`ChatError::MissingMedia`] for an image without pixels or path, [`ChatError::PartNotText`] for parts that are
    /// neither text nor media.
    pub fn with_markers(
        &self,
        marker: impl Fn(usize) -> String,
    ) -> Result<(Self, Vec<Media>), ChatError> {
        let mut chat = self.clone();
        let mut media = Vec::new();
        for (index, message) in chat.messages.iter_mut().enumerate() {
            let Content::Parts(parts) = &message.content else {
                continue;
            };
            let mut text = String::new();
            for (i, part) in parts.iter().enumerate() {
                match (part, part.media()) {
                    (Part::Text { text: piece }, _) => text.push_str(piece),
                    (_, Some(Some(found))) => {
                        text.push_str(&marker(media.len()));
                        media.push(found);
                    }
                    (_, Some(None)) => {
                        return Err(ChatError::MissingMedia {
                            message: index,
                            part: i,
                            kind: part.kind().to_owned(),
                        });
                    }
                    (_, None) => {
                        return Err(ChatError::PartNotText {
                            message: index,
                            kind: part.kind().to_owned(),
                        });
                    }
                }
            }
            message.content = Content::Text(text);
        }
        Ok((chat, media))
    }

    /// Whether a message has an image or a video.
    pub fn has_media(&self) -> bool {
        self.messages.iter().any(|message| match &message.content {
            Content::Parts(parts) => parts.iter().any(|part| part.media().is_some()),
            _ => false,
        })
    }
}

/// A message of the user's in the making; see [`Chat::user`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserMessage {
    parts: Vec<Part>,
}

impl UserMessage {
    /// Adds an image: a path, bytes, a data URL or a picture in memory.
    #[must_use]
    pub fn image(mut self, image: impl Into<ImageInput>) -> Self {
        self.parts.push(Part::image(image));
        self
    }

    /// Adds a video.
    #[must_use]
    pub fn video(mut self, video: VideoInput) -> Self {
        self.parts.push(Part::video(video));
        self
    }

    /// Adds text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::text(text));
        self
    }
}

impl From<UserMessage> for Message {
    fn from(message: UserMessage) -> Self {
        Self::user(message.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_keep_their_json() {
        for value in [
            json!({"role": "user", "content": "hi"}),
            json!({"role": "assistant", "content": null}),
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}),
            json!({"role": "user", "content": [{"type": "audio", "url": "x"}]}),
            json!({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": [2]}}}]}),
            json!({"role": "tool", "content": "4", "tool_call_id": "c", "name": "f", "unheard_of": true}),
        ] {
            let message: Message = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_string(&message).unwrap(), value.to_string());
        }
    }

    #[test]
    fn builders() {
        let message =
            Message::assistant("")
                .with_reasoning("hm")
                .with_tool_call("c", "f", json!({"x": 1}));
        let expected = json!({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]});
        assert_eq!(serde_json::to_value(message).unwrap(), expected);
        let chat = Chat::new()
            .with(Message::tool("c", "4"))
            .with_tool(json!({"type": "function"}));
        assert_eq!(chat.tools, Some(vec![json!({"type": "function"})]));
    }

    #[test]
    fn media_become_markers() {
        let chat = Chat::new()
            .with(Message::system("Look."))
            .with(Chat::user().image("a.png").text(" and ").image("b.png"));
        assert!(chat.has_media());
        let (text, media) = chat.with_markers(|i| format!("<{i}>")).unwrap();
        assert_eq!(text.messages[0].content, "Look.".into());
        assert_eq!(text.messages[1].content, "<0> and <1>".into());
        let image = |path: &str| Media::Image(ImageInput::parse(path));
        assert_eq!(media, [image("a.png"), image("b.png")]);
    }

    #[test]
    fn what_is_no_text_and_no_media_is_refused() {
        let marked = |parts: Vec<Part>| {
            let chat = Chat::new().with(Message::user(parts));
            chat.with_markers(|_| String::new()).unwrap_err()
        };
        let error = marked(vec![Part::Other(json!({"type": "audio"}))]);
        assert!(error.to_string().contains("`audio`"), "{error}");
        let bare = Part::Image { input: None };
        let error = marked(vec![Part::text("a"), bare]);
        assert!(
            matches!(&error, ChatError::MissingMedia { message: 0, part: 1, kind } if kind == "image"),
            "{error}"
        );
    }
}
