//! Tensor names in a file against parameter paths in a module.

/// Pairs of a GGUF tensor name and a module path. A `{}` in both stands for the same number (a layer, an expert).
/// Names that match no pair stay as they are.
#[derive(Clone, Debug, Default)]
pub struct NameMap {
    pairs: Vec<(String, String)>,
}

impl NameMap {
    /// A map of these `(file name, module path)` pairs; the first that matches counts.
    pub fn new(pairs: &[(&str, &str)]) -> Self {
        Self::default().with(pairs)
    }

    /// Adds pairs.
    pub fn with(mut self, pairs: &[(&str, &str)]) -> Self {
        let owned = pairs.iter().map(|(a, b)| (a.to_string(), b.to_string()));
        self.pairs.extend(owned);
        self
    }

    /// The module path of a file's tensor.
    pub fn to_module(&self, name: &str) -> String {
        self.pairs
            .iter()
            .find_map(|(file, module)| translate(name, file, module))
            .unwrap_or_else(|| name.to_string())
    }

    /// The file's tensor name of a module path.
    pub fn to_file(&self, path: &str) -> String {
        self.pairs
            .iter()
            .find_map(|(file, module)| translate(path, module, file))
            .unwrap_or_else(|| path.to_string())
    }
}

/// `text` matched against `from` and written as `to`.
fn translate(text: &str, from: &str, to: &str) -> Option<String> {
    match from.split_once("{}") {
        None => (text == from).then(|| to.to_string()),
        Some((head, tail)) => {
            let number = text.strip_prefix(head)?.strip_suffix(tail)?;
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| to.replacen("{}", number, 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel_both_ways() {
        let map = NameMap::new(&[
            ("token_embd.weight", "embedding.weight"),
            ("blk.{}.attn_q.weight", "layers.{}.attention.q.weight"),
        ]);
        assert_eq!(
            map.to_module("blk.12.attn_q.weight"),
            "layers.12.attention.q.weight"
        );
        assert_eq!(
            map.to_file("layers.12.attention.q.weight"),
            "blk.12.attn_q.weight"
        );
        assert_eq!(map.to_module("token_embd.weight"), "embedding.weight");
        assert_eq!(map.to_module("blk.x.attn_q.weight"), "blk.x.attn_q.weight");
        assert_eq!(map.to_module("other"), "other");
    }
}
