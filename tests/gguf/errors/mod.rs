//! One test per rule, named after its variant (see `every_variant_has_a_test`).

mod header;
mod queries;
mod tensors;

/// Asserts the variant (and fields), and that the message holds each text.
macro_rules! assert_error {
    ($error:expr, $pattern:pat $(if $guard:expr)?, $($text:expr),+) => {{
        let error: burn_gguf::gguf::GgufError = $error;
        assert!(matches!(&error, $pattern $(if $guard)?), "{error:?}");
        let message = error.to_string();
        $(assert!(message.contains($text), "{:?} not in {message:?}", $text);)+
    }};
}

use assert_error;

#[test]
fn every_variant_has_a_test() {
    let source = include_str!("../../../src/gguf/error.rs");
    let body = source.split("pub enum GgufError").nth(1).unwrap();
    let body = &body[..body.find("\n}").unwrap()];
    let tests = concat!(
        include_str!("header.rs"),
        include_str!("tensors.rs"),
        include_str!("queries.rs"),
        include_str!("../rows.rs"),
        include_str!("../shards.rs"),
        include_str!("../../../src/gguf/mmap.rs")
    );
    let mut variants = 0;
    for line in body.lines() {
        let Some(name) = line
            .strip_prefix("    ")
            .and_then(|l| l.split_once(" {"))
            .map(|(name, _)| name)
            .filter(|n| n.starts_with(|c: char| c.is_ascii_uppercase()))
        else {
            continue;
        };
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        assert!(
            tests.contains(&format!("fn {snake}()")),
            "no test named {snake}"
        );
        variants += 1;
    }
    assert!(variants > 40, "only {variants} variants found");
}
