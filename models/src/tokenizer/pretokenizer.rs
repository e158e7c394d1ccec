//! Splitting text into words before byte-level BPE, by `tokenizer.ggml.pre`.
//!
//! A rule is a sequence of regular expressions: each cuts every piece so far into its matches
//! and the text between them. Most end in `\s+(?!\S)|\s+`, a lookahead that the backtracking
//! engines run out of stack or patience for on a megabyte of spaces. Here that tail is written
//! `\s+` and the lookahead is done by hand: of a run of spaces that something follows, the last
//! one is given back. What remains is regular and takes linear time.

use std::ops::Range;

use regex::Regex;

use super::TokenizerError;

/// Expands to the tail of nearly all rules; see the module's text for the lookahead.
macro_rules! with_spaces {
    ($($pattern:expr),+) => {
        concat!($($pattern),+, r"|\s*[\r\n]+|\s+")
    };
}

/// English contractions. Spelled out, because `(?i)` would also match U+017F, the long s.
macro_rules! contraction {
    () => {
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}

macro_rules! words {
    ($numbers:literal) => {
        with_spaces!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
        )
    };
}

/// Words of any case followed by lower case, or of upper case followed by any.
macro_rules! cased_words {
    ($contraction:expr, $numbers:literal) => {
        with_spaces!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $contraction,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $contraction,
            "|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
        )
    };
}

const QWEN2: &str = words!(r"\p{N}");
const LLAMA3: &str = words!(r"\p{N}{1,3}");
const QWEN35: &str = with_spaces!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
);
/// As published with the models. llama.cpp approximates the case classes by "a letter other
/// than a-z" and "other than A-Z", which differs on letters outside of ASCII.
const GPT4O: &str = cased_words!(concat!(contraction!(), "?"), r"\p{N}{1,3}");
const TEKKEN: &str = cased_words!("", r"\p{N}");
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";

const CJK: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
const DEEPSEEK_V3_WORDS: &str = with_spaces!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
);
/// Cased letters as DeepSeek LLM's tokenizer lists them.
const DEEPSEEK_LLM_WORDS: &str = concat!(
    r"\s?[",
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}",
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}",
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}",
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}",
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}",
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}",
    r"\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}",
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}",
    r"\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}",
    r"\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}",
    r"\x{2183}-\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3}",
    r"\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}",
    r"\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}",
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}",
    r"\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
    r"]+"
);
const DEEPSEEK_LLM_PUNCTUATION: &str =
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const DEEPSEEK_CJK: &str = r"[\x{0800}-\x{9FA5}\x{AC00}-\x{D7FF}]+";

/// Everything `tokenizer.ggml.pre` decides.
struct Rule {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// Whether a word that is a token as a whole is that token, whatever the merges say.
    ignore_merges: bool,
    /// Whether BOS is added when `tokenizer.ggml.add_bos_token` is absent.
    add_bos: bool,
}

const fn rule(names: &'static [&'static str], patterns: &'static [&'static str]) -> Rule {
    Rule {
        names,
        patterns,
        ignore_merges: false,
        add_bos: false,
    }
}

const RULES: &[Rule] = &[
    rule(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
            "f2llmv2",
        ],
        &[QWEN2],
    ),
    rule(&["qwen35"], &[QWEN35]),
    Rule {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
    },
    rule(&["chatglm-bpe", "dbrx", "smaug-bpe"], &[LLAMA3]),
    Rule {
        names: &["glm4", "glm5"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: false,
    },
    rule(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[r"\p{N}{1,3}", CJK, DEEPSEEK_V3_WORDS],
    ),
    rule(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            DEEPSEEK_LLM_WORDS,
            DEEPSEEK_LLM_PUNCTUATION,
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ],
    ),
    rule(
        &["deepseek-coder"],
        &[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            DEEPSEEK_CJK,
            r"\p{N}",
        ],
    ),
    rule(
        &["minimax-m2", "gpt-4o", "llama4", "kanana2", "talkie"],
        &[GPT4O],
    ),
    Rule {
        names: &["tekken"],
        patterns: &[TEKKEN],
        ignore_merges: true,
        add_bos: true,
    },
    rule(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
            "gigachat",
            "mellum",
        ],
        &[GPT2],
    ),
    rule(
        &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[r"\p{N}", GPT2],
    ),
    rule(
        &["falcon"],
        &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    ),
];

/// A pre-tokenizer, compiled.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    steps: Vec<Step>,
    ignore_merges: bool,
    add_bos: bool,
}

#[derive(Debug)]
struct Step {
    regex: Regex,
    tail: Tail,
}

/// What the last alternative of a pattern is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Nothing special.
    None,
    /// `\s+` for `\s+(?!\S)|\s+`, after line breaks were matched by an alternative before it.
    Spaces,
    /// The same without such an alternative.
    Whitespace,
}

impl Tail {
    fn of(pattern: &str) -> Self {
        if pattern.ends_with(r"|\s*[\r\n]+|\s+") {
            Self::Spaces
        } else if pattern.ends_with(r"|\s+") {
            Self::Whitespace
        } else {
            Self::None
        }
    }

    /// Length of the last character of `found` if a run of spaces has to give it back to what
    /// follows, else 0.
    fn given_back(self, found: &str) -> usize {
        let Some(last) = found.chars().next_back() else {
            return 0;
        };
        // No other alternative matches anything that ends in such a character.
        let is_run = match self {
            Self::None => false,
            Self::Spaces => last.is_whitespace() && last != '\n' && last != '\r',
            Self::Whitespace => last.is_whitespace(),
        };
        if is_run && found.len() > last.len_utf8() {
            last.len_utf8()
        } else {
            0
        }
    }
}

impl PreTokenizer {
    /// The rule that `tokenizer.ggml.pre` names.
    pub(crate) fn new(name: &str) -> Result<Self, TokenizerError> {
        let rule = RULES
            .iter()
            .find(|rule| rule.names.contains(&name))
            .ok_or_else(|| TokenizerError::UnknownPre(name.to_owned()))?;
        let steps = rule
            .patterns
            .iter()
            .map(|pattern| {
                Ok(Step {
                    regex: Regex::new(pattern)?,
                    tail: Tail::of(pattern),
                })
            })
            .collect::<Result<_, regex::Error>>()
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        Ok(Self {
            steps,
            ignore_merges: rule.ignore_merges,
            add_bos: rule.add_bos,
        })
    }

    pub(crate) fn ignore_merges(&self) -> bool {
        self.ignore_merges
    }

    pub(crate) fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// The words of `text`: non-empty ranges that cover it in order.
    pub(crate) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = std::iter::once(0..text.len()).collect();
        for step in &self.steps {
            let mut cut = Vec::with_capacity(pieces.len() * 2);
            for piece in pieces {
                step.split(text, piece, &mut cut);
            }
            pieces = cut;
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

impl Step {
    fn split(&self, text: &str, piece: Range<usize>, out: &mut Vec<Range<usize>>) {
        let words = &text[piece.clone()];
        let mut at = 0;
        while let Some(found) = self.regex.find_at(words, at) {
            let mut end = found.end();
            if end < words.len() {
                end -= self.tail.given_back(found.as_str());
            }
            if found.start() > at {
                out.push(piece.start + at..piece.start + found.start());
            }
            out.push(piece.start + found.start()..piece.start + end);
            at = end;
        }
        if at < words.len() {
            out.push(piece.start + at..piece.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split<'a>(pre: &str, text: &'a str) -> Vec<&'a str> {
        PreTokenizer::new(pre)
            .unwrap()
            .split(text)
            .into_iter()
            .map(|range| &text[range])
            .collect()
    }

    #[test]
    fn every_rule_compiles_and_covers_the_text() {
        let text = "It's 12345 naïve  ǅ東京\u{3000}x\r\n\n\t y ''  ";
        for name in RULES.iter().flat_map(|rule| rule.names) {
            assert_eq!(split(name, text).concat(), text, "{name}");
            assert_eq!(split(name, "").len(), 0, "{name}");
        }
    }

    #[test]
    fn the_last_space_of_a_run_joins_the_next_word() {
        assert_eq!(split("qwen2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(split("qwen2", "a   1"), ["a", "  ", " ", "1"]);
        assert_eq!(split("qwen2", "a   "), ["a", "   "]);
        assert_eq!(split("qwen2", "a \n b"), ["a", " \n", " b"]);
        assert_eq!(split("gpt-2", "a \n b"), ["a", " \n", " b"]);
        assert_eq!(split("gpt-2", "a \nb"), ["a", " ", "\n", "b"]);
        assert_eq!(
            split("qwen2", "a\u{a0}\u{a0}1"),
            ["a", "\u{a0}", "\u{a0}", "1"]
        );
    }

    #[test]
    fn numbers_and_contractions_by_rule() {
        assert_eq!(split("qwen2", "I'M 123"), ["I", "'M", " ", "1", "2", "3"]);
        assert_eq!(split("glm4", "1234"), ["123", "4"]);
        assert_eq!(split("qwen2", "x'ſ"), ["x", "'ſ"]);
        assert_eq!(
            split("gpt-4o", "HTTPServer don't"),
            ["HTTPServer", " don't"]
        );
        assert_eq!(split("gpt-4o", "aB"), ["a", "B"]);
        assert_eq!(split("falcon", "1234"), ["123", "4"]);
    }

    #[test]
    fn combining_marks_belong_to_words_in_qwen35_only() {
        assert_eq!(split("qwen35", "e\u{301}a"), ["e\u{301}a"]);
        assert_eq!(split("qwen2", "e\u{301}a"), ["e", "\u{301}a"]);
    }

    #[test]
    fn deepseek_splits_in_sequence() {
        assert_eq!(
            split("deepseek-v3", "12345東京abc.x"),
            ["123", "45", "東京", "abc", ".x"]
        );
        assert_eq!(
            split("deepseek-llm", "a b\n12  "),
            ["a", " b", "\n", "12", "  "]
        );
    }

    /// Against a backtracking engine that has the lookahead.
    #[test]
    fn equals_the_published_patterns_on_random_text() {
        use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString};

        let alphabet: Vec<char> = " \n\r\t  aBs1'./é東\u{301}\u{a0}\u{3000}".chars().collect();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        for (name, pattern) in [
            ("qwen2", QWEN2),
            ("qwen35", QWEN35),
            ("glm4", LLAMA3),
            ("gpt-4o", GPT4O),
            ("tekken", TEKKEN),
            ("gpt-2", GPT2),
        ] {
            let published = format!(r"{}|\s+(?!\S)|\s+", pattern.strip_suffix(r"|\s+").unwrap());
            let oracle = Split::new(
                SplitPattern::Regex(published),
                tokenizers::SplitDelimiterBehavior::Isolated,
                false,
            );
            let oracle = oracle.unwrap();
            let pre = PreTokenizer::new(name).unwrap();
            for _ in 0..3000 {
                let length = 1 + random(14);
                let text: String = (0..length)
                    .map(|_| alphabet[random(alphabet.len())])
                    .collect();
                let mut pieces = PreTokenizedString::from(text.as_str());
                tokenizers::PreTokenizer::pre_tokenize(&oracle, &mut pieces).unwrap();
                let expected: Vec<&str> = pieces
                    .get_splits(OffsetReferential::Original, OffsetType::Byte)
                    .into_iter()
                    .map(|(piece, ..)| piece)
                    .collect();
                let got: Vec<&str> = pre
                    .split(&text)
                    .into_iter()
                    .map(|range| &text[range])
                    .collect();
                assert_eq!(got, expected, "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn unknown_pre() {
        let error = PreTokenizer::new("no-such-rule").unwrap_err();
        assert!(
            matches!(&error, TokenizerError::UnknownPre(name) if name == "no-such-rule"),
            "{error}"
        );
        assert!(error.to_string().contains("from_json"), "{error}");
    }

    #[test]
    fn a_megabyte_of_one_kind_takes_linear_time() {
        for text in [
            " ", "a", "\n", " \n", "'", "東", "1", "\u{301}", " a", "\u{3000}",
        ] {
            let text = text.repeat((1 << 20) / text.len());
            for name in ["qwen2", "qwen35", "deepseek-v3", "deepseek-llm", "gpt-4o"] {
                let start = std::time::Instant::now();
                let pieces = PreTokenizer::new(name).unwrap().split(&text).len();
                let elapsed = start.elapsed();
                assert!(
                    pieces > 0 && elapsed.as_secs() < 20,
                    "{name}: {pieces} pieces in {elapsed:?}"
                );
            }
        }
    }
}
