//! What names of files, folders and models have in common.

use std::path::Path;

/// Words that say nothing about which model it is.
const GENERIC: &[&str] = &[
    "checkpoint",
    "clip",
    "encoder",
    "gguf",
    "hf",
    "merged",
    "mmproj",
    "model",
    "models",
    "output",
    "projector",
    "snapshot",
    "snapshots",
    "tower",
    "unknown",
    "vision",
    "vit",
];

/// What quantizations are called, without what follows an underscore.
const PLAIN: &[&str] = &[
    "bf16", "f16", "f32", "fp16", "fp32", "fp8", "int4", "int8", "mxfp4", "nvfp4",
];

/// What follows the first part of a quantization's name: `Q4_K_M`, `IQ2_XXS`, `Q8_0`, `MXFP4_MOE`.
const SUFFIXES: &[&str] = &["k", "s", "m", "l", "xl", "xs", "xxs", "nl", "moe"];

/// What stands before it: Unsloth's dynamic types, and importance matrices.
const PREFIXES: &[&str] = &["ud", "i1", "imat", "imatrix"];

/// The words of a model's name in lower case, without its quantization and words that say nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Words(Vec<String>);

impl Words {
    /// Of a name as in metadata, or of a file's name without its extension.
    pub fn of(name: &str) -> Self {
        let mut words = split(name).words;
        words.retain(|word| !GENERIC.contains(&word.as_str()));
        // A folder of a download cache is no name.
        if let [word] = words.as_slice()
            && word.len() >= 12
            && word.bytes().all(|b| b.is_ascii_hexdigit())
        {
            words.clear();
        }
        Self(words)
    }

    /// Of a file's name: without extension and the number of a shard.
    pub fn of_file(path: &Path) -> Self {
        Self::of(&stem(path))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn joined(&self) -> String {
        self.0.concat()
    }

    /// The same name, however it is divided.
    pub fn same(&self, other: &Self) -> bool {
        !self.is_empty() && self.joined() == other.joined()
    }

    /// All words of the shorter name are in the other: one is a version of the other.
    pub fn related(&self, other: &Self) -> bool {
        let (short, long) = match self.0.len() <= other.0.len() {
            true => (self, other),
            false => (other, self),
        };
        let within = short.0.iter().all(|word| long.0.contains(word));
        !short.is_empty() && (within || self.same(other))
    }

    /// Words both have.
    pub fn shared(&self, other: &Self) -> usize {
        self.0.iter().filter(|word| other.0.contains(word)).count()
    }

    /// The numbers of parameters in the name: `27b`, `0.6b`, `e4b`.
    pub fn sizes(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .map(String::as_str)
            .filter(|word| is_size(word))
    }
}

fn is_size(word: &str) -> bool {
    let Some(number) = word.strip_suffix(['b', 'm']) else {
        return false;
    };
    let number = number.strip_prefix('e').unwrap_or(number);
    number.starts_with(|c: char| c.is_ascii_digit())
        && number
            .chars()
            .all(|c| c.is_ascii_digit() || c == '.' || c == 'x')
}

/// Whether a folder is named after one quantization of a model: `Q4_K_M`, `UD-Q4_K_XL`, `gguf-q8_0`.
pub(super) fn names_quantization(folder: &str) -> bool {
    split(folder).quantized
}

/// A file's name without `.gguf` and without `-00001-of-00003`.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = match name
        .len()
        .checked_sub(5)
        .and_then(|at| name.split_at_checked(at))
    {
        Some((stem, extension)) if extension.eq_ignore_ascii_case(".gguf") => stem,
        _ => &*name,
    };
    shard(stem).map_or(stem, |(stem, _)| stem).to_owned()
}

/// The name and the number of a shard.
pub(super) fn shard(stem: &str) -> Option<(&str, u32)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits(number) && digits(count)).then(|| Some((name, number.parse().ok()?)))?
}

struct Split {
    words: Vec<String>,
    quantized: bool,
}

/// Divides a name at everything but letters, digits and the points inside numbers, and leaves out quantizations.
fn split(name: &str) -> Split {
    let name = name.to_lowercase();
    let chars: Vec<char> = name.chars().collect();
    // Each word, and whether an underscore stands before it.
    let mut parts: Vec<(String, bool)> = vec![(String::new(), false)];
    for (i, &c) in chars.iter().enumerate() {
        let digit = |at: Option<usize>| {
            at.and_then(|at| chars.get(at))
                .is_some_and(char::is_ascii_digit)
        };
        let point = c == '.' && digit(i.checked_sub(1)) && digit(Some(i + 1));
        if c.is_alphanumeric() || point {
            parts.last_mut().expect("it starts with one").0.push(c);
        } else {
            parts.push((String::new(), c == '_'));
        }
    }
    parts.retain(|(word, _)| !word.is_empty());

    let mut words: Vec<String> = Vec::new();
    let mut quantized = false;
    let mut parts = parts.into_iter().peekable();
    while let Some((word, _)) = parts.next() {
        if !is_quantization(&word) {
            words.push(word);
            continue;
        }
        quantized = true;
        let suffix = |(word, underscore): &(String, bool)| {
            let digits = word.bytes().all(|b| b.is_ascii_digit());
            *underscore && (digits || SUFFIXES.contains(&word.as_str()))
        };
        while parts.next_if(suffix).is_some() {}
        if words
            .last()
            .is_some_and(|last| PREFIXES.contains(&last.as_str()))
        {
            words.pop();
        }
    }
    Split { words, quantized }
}

fn is_quantization(word: &str) -> bool {
    let digits = word
        .strip_prefix("iq")
        .or_else(|| word.strip_prefix("tq"))
        .or_else(|| word.strip_prefix('q'));
    PLAIN.contains(&word)
        || matches!(digits, Some(d) if d.len() == 1 && d.as_bytes()[0].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str) -> String {
        Words::of(name).0.join(" ")
    }

    #[test]
    fn quantizations_and_generic_words_are_left_out() {
        for (name, expected) in [
            ("Qwen3-VL-4B-Instruct-UD-Q4_K_XL", "qwen3 vl 4b instruct"),
            ("qwen3_vl_4b_q4_k_m", "qwen3 vl 4b"),
            ("Qwen3.5-27B.i1-IQ2_XXS", "qwen3.5 27b"),
            ("mmproj-Qwen3.5-27B-BF16", "qwen3.5 27b"),
            ("gemma-4-26B-A4B-it-MXFP4_MOE", "gemma 4 26b a4b it"),
            ("mmproj-model-f16", ""),
            ("mmproj-F32", ""),
            ("0123456789abcdef0123", ""),
            ("q9x", "q9x"),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }

    #[test]
    fn folders_of_a_quantization() {
        for folder in [
            "Q4_K_M",
            "UD-Q4_K_XL",
            "BF16",
            "gguf-q8_0",
            "iq3_xxs",
            "tq1_0",
        ] {
            assert!(names_quantization(folder), "{folder}");
        }
        for folder in ["models", "Qwen3-4B", "q", "quantized", "Q4KM-notes"] {
            assert!(!names_quantization(folder), "{folder}");
        }
    }

    #[test]
    fn shards_have_the_name_of_their_model() {
        assert_eq!(stem(Path::new("a/M-Q4_0-00002-of-00003.GGUF")), "M-Q4_0");
        assert_eq!(shard("M-00002-of-00003"), Some(("M", 2)));
        assert_eq!(shard("M-two-of-three"), None);
        assert_eq!(stem(Path::new("é")), "é");
    }

    #[test]
    fn versions_are_related_and_numbers_are_not() {
        let related = |a: &str, b: &str| Words::of(a).related(&Words::of(b));
        assert!(related("Qwen3.5-27B", "Huihui-Qwen3.5-27B-heretic"));
        assert!(related("Qwen3VL-4B", "Qwen3 VL 4B"));
        assert!(!related("Qwen3-4B", "Qwen3.5-4B"));
        assert!(!related("", "Qwen3-4B"));
        let sizes: Vec<_> = Words::of("Gemma 4 E4B 0.6b 8x7b a4b b2b").0;
        let sizes: Vec<_> = Words(sizes).sizes().map(str::to_owned).collect();
        assert_eq!(sizes, ["e4b", "0.6b", "8x7b"]);
    }
}
