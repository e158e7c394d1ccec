//! Values written as Python writes them: templates were made for Jinja2, where `{{ x }}` is
//! `str(x)` and `tojson` is `json.dumps`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Python's `str(value)`.
pub(crate) fn str(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        _ => {
            let mut out = String::new();
            repr(value, &mut out);
            out
        }
    }
}

/// Python's `repr(value)`.
fn repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => repr_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => list(out, ['{', '}'], value, |key, out| {
            repr(key, out);
            out.push_str(": ");
            repr(&value.get_item(key).unwrap_or_default(), out);
        }),
        ValueKind::Seq | ValueKind::Iterable => list(out, ['[', ']'], value, repr),
        _ => out.push_str(&value.to_string()),
    }
}

fn list(
    out: &mut String,
    [open, close]: [char; 2],
    value: &Value,
    mut item: impl FnMut(&Value, &mut String),
) {
    out.push(open);
    for (index, element) in value.try_iter().into_iter().flatten().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        item(&element, out);
    }
    out.push(close);
}

fn repr_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Integers as they are, floats by `float.__repr__`.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) => float_repr(float),
        Err(_) => value.to_string(),
    }
}

/// The shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = value.abs();
    if value != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value:?}")
}

/// Keyword arguments of `json.dumps`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dumps {
    /// Write everything outside of ASCII as `\uXXXX`. Off by default, unlike in Python: that is
    /// how `transformers` defines the filter.
    pub ensure_ascii: bool,
    /// Spaces per level; none means one line.
    pub indent: Option<usize>,
    /// Between items and between key and value.
    pub separators: Option<(String, String)>,
    /// Order keys instead of keeping them as they were inserted.
    pub sort_keys: bool,
}

/// Deeper values than this are taken for a mistake.
const DEEPEST: usize = 256;

impl Dumps {
    /// Python's `json.dumps(value, ...)`.
    pub(crate) fn dumps(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, 0, &mut out)?;
        Ok(out)
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let refuse = |what: &str| {
            Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("{what} is not JSON serializable"),
            ))
        };
        if depth > DEEPEST {
            return refuse("a value nested so deeply");
        }
        match value.kind() {
            ValueKind::Undefined => return refuse("an undefined value"),
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&match number(value).as_str() {
                "nan" => "NaN".to_owned(),
                "inf" => "Infinity".to_owned(),
                "-inf" => "-Infinity".to_owned(),
                number => number.to_owned(),
            }),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.container(['{', '}'], keys, depth, out, |key, out| {
                    match key.kind() {
                        ValueKind::String => self.string(key.as_str().unwrap_or_default(), out),
                        // Other keys are written as strings of their JSON.
                        _ => {
                            let text = self.dumps(key)?;
                            self.string(&text, out);
                        }
                    }
                    out.push_str(self.separators.as_ref().map_or(": ", |(_, key)| key));
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.collect();
                self.container(['[', ']'], items, depth, out, |item, out| {
                    self.write(item, depth + 1, out)
                })?;
            }
            _ => return refuse(&format!("`{value}`")),
        }
        Ok(())
    }

    fn container(
        &self,
        [open, close]: [char; 2],
        items: Vec<Value>,
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(&Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let separator = match (&self.separators, self.indent) {
            (Some((item, _)), _) => item,
            (None, Some(_)) => ",",
            (None, None) => ", ",
        };
        let line = |depth: usize, out: &mut String| {
            if let Some(indent) = self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(separator);
            }
            line(depth + 1, out);
            write(item, out)?;
        }
        if !items.is_empty() {
            line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(json: serde_json::Value) -> Value {
        Value::from_serialize(json)
    }

    #[test]
    fn floats_as_python_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.25, "0.25"),
            (1.0, "1.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (float, text) in cases {
            assert_eq!(float_repr(float), text);
        }
    }

    #[test]
    fn str_and_repr() {
        assert_eq!(str(&value(json!("it's"))), "it's");
        assert_eq!(str(&value(json!(null))), "None");
        assert_eq!(str(&value(json!(true))), "True");
        assert_eq!(str(&Value::UNDEFINED), "");
        assert_eq!(
            str(&value(json!({"b": [1, 2.0, "it's", "a\n\"'"], "a": {}}))),
            r#"{'b': [1, 2.0, "it's", 'a\n"\''], 'a': {}}"#
        );
    }

    #[test]
    fn dumps_with_every_argument() {
        let data = value(
            json!({"z": [1, {"k": null}], "a": "é\u{1F642}\u{7f}\"\u{1}", "e": [], "f": 0.5}),
        );
        let plain = Dumps::default();
        assert_eq!(
            plain.dumps(&data).unwrap(),
            "{\"z\": [1, {\"k\": null}], \"a\": \"é\u{1F642}\u{7f}\\\"\\u0001\", \"e\": [], \"f\": 0.5}"
        );
        let ascii = Dumps {
            ensure_ascii: true,
            sort_keys: true,
            ..Dumps::default()
        };
        assert_eq!(
            ascii.dumps(&data).unwrap(),
            r#"{"a": "\u00e9\ud83d\ude42\u007f\"\u0001", "e": [], "f": 0.5, "z": [1, {"k": null}]}"#
        );
        let indented = Dumps {
            indent: Some(2),
            ..Dumps::default()
        };
        assert_eq!(
            indented.dumps(&value(json!({"a": [1, []]}))).unwrap(),
            "{\n  \"a\": [\n    1,\n    []\n  ]\n}"
        );
        let tight = Dumps {
            separators: Some((",".into(), ":".into())),
            ..Dumps::default()
        };
        assert_eq!(
            tight.dumps(&value(json!({"a": [1, 2]}))).unwrap(),
            r#"{"a":[1,2]}"#
        );
        assert!(plain.dumps(&Value::UNDEFINED).is_err());
    }
}
