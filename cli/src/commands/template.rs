//! `burn-gguf template`: what a conversation looks like to the model.

use std::io::Write;

use burn_gguf::gguf::Gguf;
use burn_gguf_models::MEDIA_MARKER;
use burn_gguf_models::chat::{Chat, ChatTemplate, Message};
use burn_gguf_models::tokenizer::Tokenizer;
use serde_json::Value;

use super::CommandResult;
use crate::args::TemplateArgs;
use crate::source::resolve;

pub fn run(args: TemplateArgs) -> CommandResult {
    let gguf = Gguf::open(resolve(&args.model)?)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let template = match &args.name {
        Some(name) => ChatTemplate::variant(gguf.metadata(), &tokenizer, name)?,
        None => ChatTemplate::from_metadata(gguf.metadata(), &tokenizer)?,
    };
    let file = args.messages.display();
    let text = std::fs::read_to_string(&args.messages).map_err(|e| format!("{file}: {e}"))?;
    let json: Value = serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))?;
    let mut chat = chat(json).map_err(|e| format!("{file}: {e}"))?;
    if args.no_generation_prompt {
        chat.add_generation_prompt = false;
    }
    if chat.has_media() {
        chat = chat.with_markers(|_| MEDIA_MARKER.to_owned())?.0;
    }
    writeln!(std::io::stdout(), "{}", template.render(&chat)?)?;
    Ok(())
}

/// A list of messages, or an object that has one beside tools and variables.
fn chat(json: Value) -> CommandResult<Chat> {
    let mut chat = Chat::new();
    let (messages, rest) = match json {
        Value::Object(mut object) => match object.remove("messages") {
            Some(messages) => (messages, object),
            None => return Err("the object has no `messages`".into()),
        },
        other => (other, Default::default()),
    };
    chat.messages = serde_json::from_value::<Vec<Message>>(messages)
        .map_err(|e| format!("not a list of messages: {e}"))?;
    for (key, value) in rest {
        match (key.as_str(), value) {
            ("tools", Value::Null) => {}
            ("tools", Value::Array(tools)) => chat.tools = Some(tools),
            ("tools", _) => return Err("`tools` is not a list".into()),
            ("add_generation_prompt", Value::Bool(add)) => chat.add_generation_prompt = add,
            ("kwargs", Value::Object(variables)) => chat.options.extend(variables),
            (_, value) => {
                chat.options.insert(key, value);
            }
        }
    }
    Ok(chat)
}
