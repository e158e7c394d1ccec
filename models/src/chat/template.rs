//! The template of a file, compiled, and what it is rendered with.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use burn_gguf::gguf::Metadata;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use regex::Regex;
use serde_json::Map;

use super::python::{self, Dumps};
use super::{Chat, ChatError, Location, clock};
use crate::tokenizer::Tokenizer;

const KEY: &str = "tokenizer.chat_template";

/// Instructions a rendering may take: a conversation takes a few hundred per message.
const STEPS: u64 = 50_000_000;

type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A compiled chat template.
///
/// ```
/// use burn_gguf_models::chat::{Chat, ChatTemplate, Message};
///
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}";
/// let template = ChatTemplate::new(source)?;
/// assert_eq!(template.render(&Chat::new().with(Message::user(" Hi ")))?, "<user>Hi\n");
/// # Ok::<(), burn_gguf_models::chat::ChatError>(())
/// ```
pub struct ChatTemplate {
    name: String,
    source: String,
    environment: Environment<'static>,
    tokens: Map<String, serde_json::Value>,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ChatTemplate")
            .field("name", &self.name)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// The default template of a file; `tokenizer` tells how BOS and EOS are written.
    ///
    /// # Errors
    /// [`ChatError::NoTemplate`] for a base model, [`ChatError::Syntax`] for a template that
    /// cannot be compiled.
    pub fn from_metadata(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        let source = metadata
            .get_optional::<&str>(KEY)?
            .ok_or(ChatError::NoTemplate)?;
        Self::compile(KEY.to_owned(), source, tokenizer)
    }

    /// The template of a file that is named, such as `tool_use`.
    ///
    /// # Errors
    /// [`ChatError::UnknownVariant`] lists the names there are; else as [`Self::from_metadata`].
    pub fn variant(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
        name: &str,
    ) -> Result<Self, ChatError> {
        let key = format!("{KEY}.{name}");
        match metadata.get_optional::<&str>(&key)? {
            Some(source) => Self::compile(key, source, tokenizer),
            None => Err(ChatError::UnknownVariant {
                name: name.to_owned(),
                available: Self::variants(metadata)?,
            }),
        }
    }

    /// Names of the templates a file has beside the default one.
    ///
    /// # Errors
    /// [`ChatError::Metadata`] if `tokenizer.chat_templates` is no list of strings.
    pub fn variants(metadata: &Metadata) -> Result<Vec<String>, ChatError> {
        Ok(metadata
            .get_optional("tokenizer.chat_templates")?
            .unwrap_or_default())
    }

    /// A template from a text.
    ///
    /// # Errors
    /// [`ChatError::Syntax`].
    pub fn new(source: &str) -> Result<Self, ChatError> {
        let name = "chat_template".to_owned();
        let source = without_generation_tags(source);
        let mut environment = environment(Arc::new(SystemTime::now));
        let result = environment.add_template_owned(name.clone(), source.clone());
        result.map_err(|error| syntax(&name, &error))?;
        Ok(Self {
            name,
            source,
            environment,
            tokens: Map::new(),
        })
    }

    fn compile(name: String, source: &str, tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        let mut template = Self::new(source).map_err(|error| match error {
            ChatError::Syntax { at, message } => ChatError::Syntax {
                at: Location {
                    template: name.clone(),
                    ..at
                },
                message,
            },
            other => other,
        })?;
        template.name = name;
        let special = tokenizer.special();
        for (key, id) in [("bos_token", special.bos), ("eos_token", special.eos)] {
            if let Some(text) = id.and_then(|id| tokenizer.token_text(id).ok()) {
                template = template.with_token(key, &text);
            }
        }
        Ok(template)
    }

    /// Sets a variable that holds a token's text, such as `bos_token`.
    #[must_use]
    pub fn with_token(mut self, name: &str, text: &str) -> Self {
        self.tokens.insert(name.to_owned(), text.into());
        self
    }

    /// Sets where `strftime_now` takes the time from; by default the system clock. The date is
    /// given in UTC.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        add_clock(&mut self.environment, Arc::new(clock));
        self
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt for a conversation.
    ///
    /// # Errors
    /// [`ChatError::Raised`] if the template refuses the conversation, [`ChatError::Runaway`] if
    /// it does not end, [`ChatError::Render`] if something else fails.
    pub fn render(&self, chat: &Chat) -> Result<String, ChatError> {
        let mut variables = self.tokens.clone();
        let mut set = |name: &str, value| variables.insert(name.to_owned(), value);
        let messages = serde_json::to_value(&chat.messages).map_err(|error| ChatError::Render {
            at: self.at(None),
            message: error.to_string(),
        })?;
        set("messages", messages);
        set("tools", chat.tools.clone().into());
        set("documents", serde_json::Value::Null);
        set("add_generation_prompt", chat.add_generation_prompt.into());
        variables.extend(chat.options.clone());

        self.environment
            .get_template("chat_template")
            .and_then(|template| template.render(Value::from_serialize(&variables)))
            .map_err(|error| self.failure(&error))
    }

    fn at(&self, line: Option<usize>) -> Location {
        Location {
            template: self.name.clone(),
            line,
        }
    }

    fn failure(&self, error: &Error) -> ChatError {
        let at = self.at(error.line());
        if error.kind() == ErrorKind::OutOfFuel {
            return ChatError::Runaway { at, steps: STEPS };
        }
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(cause) = source {
            if let Some(Raised(message)) = cause.downcast_ref() {
                return ChatError::Raised {
                    at,
                    message: message.clone(),
                };
            }
            source = cause.source();
        }
        ChatError::Render {
            at,
            message: describe(error),
        }
    }
}

fn syntax(name: &str, error: &Error) -> ChatError {
    let at = Location {
        template: name.to_owned(),
        line: error.line(),
    };
    ChatError::Syntax {
        at,
        message: describe(error),
    }
}

/// What is wrong, without the location that minijinja appends.
fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// The message of `raise_exception`, carried as the source of an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// `{% generation %}` marks the assistant's text for training and does nothing here; minijinja
/// has no tags of one's own, so a condition that always holds takes its place.
fn without_generation_tags(source: &str) -> String {
    static TAG: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a valid pattern")
    });
    TAG.replace_all(source, |found: &regex::Captures<'_>| {
        let [open, close] = [1, 3].map(|group| found.get(group).map_or("", |mark| mark.as_str()));
        let tag = if found.get(2).is_some() {
            "endif"
        } else {
            "if true"
        };
        format!("{{%{open} {tag} {close}%}}")
    })
    .into_owned()
}

fn environment(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(STEPS));
    environment.set_formatter(|out, _, value| {
        let written = match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&python::str(value)),
        };
        written.map_err(Error::from)
    });
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_filter("from_json", from_json);
    environment.add_filter("string", |value: &Value| python::str(value));
    // Jinja2 turns any value into a string first; the built-in filters turn it into another one.
    environment.add_filter("upper", |value: &Value| python::str(value).to_uppercase());
    environment.add_filter("lower", |value: &Value| python::str(value).to_lowercase());
    // The built-in test also accepts `none`.
    environment.add_test("iterable", |value: &Value| {
        value.kind() != ValueKind::None && value.try_iter().is_ok()
    });
    environment.add_function(
        "raise_exception",
        |message: Value| -> Result<Value, Error> {
            let message = python::str(&message);
            Err(Error::new(ErrorKind::InvalidOperation, message.clone())
                .with_source(Raised(message)))
        },
    );
    add_clock(&mut environment, clock);
    environment
}

fn add_clock(environment: &mut Environment<'static>, clock: Clock) {
    environment.add_function("strftime_now", move |format: &str| {
        clock::strftime(clock(), format)
    });
}

fn from_json(text: &str) -> Result<Value, Error> {
    serde_json::from_str::<serde_json::Value>(text)
        .map(Value::from_serialize)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("from_json: {error}")))
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !matches!(value.kind(), ValueKind::None | ValueKind::Undefined)))
    };
    let separators = match argument(2, "separators")? {
        None => None,
        Some(pair) => match pair.try_iter()?.collect::<Vec<_>>().as_slice() {
            [item, key] => Some((python::str(item), python::str(key))),
            _ => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "tojson: separators must be a pair",
                ));
            }
        },
    };
    let dumps = Dumps {
        ensure_ascii: argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
        indent: argument(1, "indent")?.map(usize::try_from).transpose()?,
        separators,
        sort_keys: argument(3, "sort_keys")?.is_some_and(|value| value.is_true()),
    };
    named.assert_all_used()?;
    dumps.dumps(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Message;
    use serde_json::json;
    use std::time::{Duration, UNIX_EPOCH};

    fn render(source: &str) -> Result<String, ChatError> {
        let chat = Chat::new()
            .with(Message::user("Hi"))
            .with_option("data", json!({"b": [1, true, null], "a": "<é>"}))
            .with_option("text", "a=b=c");
        ChatTemplate::new(source)?.render(&chat)
    }

    fn check(source: &str, expected: &str) {
        match render(source) {
            Ok(text) => assert_eq!(text, expected, "{source}"),
            Err(error) => panic!("{source}: {error}"),
        }
    }

    #[test]
    fn json_filters() {
        check(
            "{{ data | tojson }}",
            r#"{"b": [1, true, null], "a": "<é>"}"#,
        );
        check(
            "{{ data | tojson(ensure_ascii=true) }}",
            r#"{"b": [1, true, null], "a": "<\u00e9>"}"#,
        );
        check(
            "{{ data | tojson(ensure_ascii=False, indent=1) }}",
            "{\n \"b\": [\n  1,\n  true,\n  null\n ],\n \"a\": \"<é>\"\n}",
        );
        check(
            "{{ data | tojson(separators=(',', ':'), sort_keys=True) }}",
            r#"{"a":"<é>","b":[1,true,null]}"#,
        );
        check(
            "{{ '[1, {\"k\": 2}]' | from_json | tojson }}",
            r#"[1, {"k": 2}]"#,
        );
        assert!(render("{{ data | tojson(indnt=2) }}").is_err());
        assert!(render("{{ '[1' | from_json }}").is_err());
    }

    #[test]
    fn python_methods_and_printing() {
        check(
            "{{ text.split('=')[-1] }}{{ ' x '.strip() }}{{ 'xxay'.lstrip('x').rstrip('y') }}",
            "cxa",
        );
        check(
            "{{ text.startswith('a') }} {{ data.get('z') }} {{ data.get('z', 1.0) }}",
            "True None 1.0",
        );
        check(
            "{% for k, v in data.items() %}{{ k }}:{{ v }};{% endfor %}",
            "b:[1, True, None];a:<é>;",
        );
        check(
            "{{ messages[::-1][0].content }}{{ 'abc'[1:] }}{{ [1, 2, 3][::-1] }}",
            "Hibc[3, 2, 1]",
        );
        check(
            "{{ missing }}|{{ missing is defined }}|{% for x in missing %}x{% endfor %}",
            "|False|",
        );
        check(
            "{{ true | string }}{{ 1 ~ 'a' }}{{ ['x', none] | upper }}",
            "True1a['X', NONE]",
        );
        check(
            "{{ none is iterable }} {{ [] is iterable }} {{ missing is iterable }} {{ 1 is iterable }}",
            "False True True False",
        );
    }

    #[test]
    fn loop_controls_namespaces_and_macros() {
        check(
            "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}\
             {% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
        );
        check(
            "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
            "3210",
        );
        check(
            "{% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem }}{% endfor %}",
            "False2True",
        );
    }

    #[test]
    fn blocks_are_trimmed_as_by_transformers() {
        check("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc");
    }

    #[test]
    fn generation_tags_are_ignored() {
        check("a {%- generation -%} b {%- endgeneration -%} c", "abc");
        check("a {% generation %}b{% endgeneration %} c", "a b c");
    }

    #[test]
    fn the_clock_is_the_callers() {
        let template = ChatTemplate::new("{{ strftime_now('%d %b %Y') }}").unwrap();
        let template = template.with_clock(|| UNIX_EPOCH + Duration::from_secs(1_768_469_400));
        assert_eq!(template.render(&Chat::new()).unwrap(), "15 Jan 2026");
    }

    #[test]
    fn raised() {
        let error = render("x\n{{ raise_exception('No system ' ~ 'role') }}").unwrap_err();
        assert!(
            matches!(&error, ChatError::Raised { at: Location { line: Some(2), .. }, message } if message == "No system role"),
            "{error:?}"
        );
        let error =
            render("{% macro f() %}\n{{ raise_exception('inner') }}{% endmacro %}{{ f() }}")
                .unwrap_err();
        assert!(
            matches!(&error, ChatError::Raised { message, .. } if message == "inner"),
            "{error:?}"
        );
    }

    #[test]
    fn syntax_and_render_errors_say_where() {
        let error = render("a\n{% if %}").unwrap_err();
        assert!(
            matches!(
                &error,
                ChatError::Syntax {
                    at: Location { line: Some(2), .. },
                    ..
                }
            ),
            "{error:?}"
        );
        let error = render("a\n\n{{ missing.field }}").unwrap_err();
        assert!(
            matches!(
                &error,
                ChatError::Render {
                    at: Location { line: Some(3), .. },
                    ..
                }
            ),
            "{error:?}"
        );
    }

    #[test]
    fn templates_of_a_file() {
        use crate::tokenizer::tests::Entry::{Id, Text, Texts};
        let keys = || {
            vec![
                ("model", Text("llama")),
                ("tokens", Texts(&["<unk>", "<s>", "</s>"])),
                ("bos_token_id", Id(1)),
            ]
        };
        let open = |entries: &[_]| {
            let gguf = crate::tokenizer::tests::gguf(entries);
            let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
            (gguf, tokenizer)
        };
        let (gguf, tokenizer) = open(&keys());
        let error = ChatTemplate::from_metadata(gguf.metadata(), &tokenizer).unwrap_err();
        assert!(
            matches!(error, ChatError::NoTemplate) && error.to_string().contains("--raw"),
            "{error}"
        );

        let mut entries = keys();
        entries.push((
            "chat_template",
            Text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"),
        ));
        entries.push(("chat_template.tool_use", Text("{{ tools | length }}")));
        entries.push(("chat_template.broken", Text("\n{{ }")));
        entries.push(("chat_templates", Texts(&["tool_use", "broken"])));
        let (gguf, tokenizer) = open(&entries);
        let chat = Chat::new().with(Message::user("Hi")).with_tool(json!({}));
        let template = ChatTemplate::from_metadata(gguf.metadata(), &tokenizer).unwrap();
        assert_eq!(template.render(&chat).unwrap(), "<s>Hi</s>");
        let variant = |name| ChatTemplate::variant(gguf.metadata(), &tokenizer, name);
        assert_eq!(variant("tool_use").unwrap().render(&chat).unwrap(), "1");
        let error = variant("broken").unwrap_err().to_string();
        assert!(
            error.contains("tokenizer.chat_template.broken, line 2"),
            "{error}"
        );
        let error = variant("rag").unwrap_err();
        assert!(
            matches!(&error, ChatError::UnknownVariant { available, .. } if available.len() == 2),
            "{error}"
        );
    }

    #[test]
    fn runaway() {
        let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        let error = render(nested).unwrap_err();
        assert!(matches!(error, ChatError::Runaway { .. }), "{error:?}");
        let error = render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").unwrap_err();
        assert!(matches!(error, ChatError::Render { .. }), "{error:?}");
    }
}
