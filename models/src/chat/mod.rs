//! Conversations to prompts, by the chat template of the GGUF file.
//!
//! Templates are Jinja2 as `transformers` runs it: blocks are trimmed, values print as in Python,
//! strings and dictionaries have their Python methods, and there are the globals
//! `raise_exception`, `strftime_now`, `namespace`, `range`, `dict`, the filters `tojson` and
//! `from_json`, and loop controls.

mod clock;
mod error;
mod message;
mod part;
mod python;
mod template;

pub use error::{ChatError, Location};
pub use message::{Chat, Content, FunctionCall, Message, ToolCall, UserMessage};
pub use part::{Media, Part};
pub use template::ChatTemplate;
