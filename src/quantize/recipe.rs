//! Whole-model recipes: which kinds of tensors get more or fewer bits, as data.
//!
//! The mixes are those of llama.cpp's `llama-quantize` (`src/llama-quant.cpp`, "mostly" types), so that a file made here
//! has the same type for each tensor. Not followed: the special cases of the Falcon and BailingMoE-3 architectures.

use std::fmt;
use std::str::FromStr;

use burn_gguf_kernels::GgmlType::{self, *};

use super::error::QuantError;
use super::spec::{QuantSpec, normalized};

/// What must hold of a model and of a tensor's place in it for a [`Clause`] to apply.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// At least four query heads share a key-value head.
    GroupedQueries,
    /// [`GroupedQueries`](When::GroupedQueries), or at least four experts.
    GroupedQueriesOrExperts,
    /// Exactly eight experts.
    EightExperts,
    /// Not exactly eight.
    NotEightExperts,
    /// An importance matrix is used.
    Importance,
    /// None is.
    NoImportance,
    /// One of the first tensors of its kind.
    Before(usize),
    /// In the first of so many parts of the layers.
    FirstPart(usize),
    /// As [`FirstPart`](When::FirstPart), counting tensors of the kind where a model of experts has several in a layer.
    FirstPartCounted(usize),
    /// In the first or last eighth of the layers, or every third between: where more bits pay most.
    MoreBits,
    /// In neither the first nor the last eighth.
    Middle,
}

/// A type, and what must hold for it: all of the conditions.
pub(super) type Clause = (&'static [When], GgmlType);

/// The types of a recipe. Where a kind of tensor has clauses, the first that holds decides; else it gets `base`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// What tensors become for which nothing else is said.
    pub base: GgmlType,
    /// The output matrix, and the token embedding where it is the output matrix, too.
    pub output: GgmlType,
    /// The token embedding of a model with an output matrix.
    pub token_embedding: GgmlType,
    /// `attn_v`, and fused matrices that contain it.
    pub attn_v: &'static [Clause],
    pub attn_k: &'static [Clause],
    pub attn_q: &'static [Clause],
    pub attn_output: &'static [Clause],
    pub ffn_down: &'static [Clause],
    /// `ffn_gate` and `ffn_up`.
    pub ffn_in: &'static [Clause],
    /// What tensors become that are no stack of matrices (experts); the clauses do not matter then.
    pub unless_stacked: Option<GgmlType>,
    /// `attn_v` follows the rules of the smallest recipes: no further increase for large models.
    pub smallest: bool,
}

const fn plain(base: GgmlType) -> Mix {
    Mix {
        base,
        output: Q6K,
        token_embedding: base,
        attn_v: &[(&[When::EightExperts], Q8_0)],
        attn_k: &[(&[When::EightExperts], Q8_0)],
        attn_q: &[],
        attn_output: &[],
        ffn_down: &[],
        ffn_in: &[],
        unless_stacked: None,
        smallest: false,
    }
}

/// One type for every tensor.
const fn uniform(base: GgmlType) -> Mix {
    Mix {
        output: base,
        attn_v: &[],
        attn_k: &[],
        ..plain(base)
    }
}

/// Below three bits: `better` for the sensitive tensors, `embedding` for the token embedding.
const fn smallest(
    base: GgmlType,
    attn_v: &'static [Clause],
    attn_output: &'static [Clause],
    ffn_down: &'static [Clause],
    embedding: GgmlType,
) -> Mix {
    Mix {
        output: Q5K,
        token_embedding: embedding,
        attn_v,
        attn_k: &[(&[When::EightExperts], Q4K)],
        attn_output,
        ffn_down,
        smallest: true,
        ..plain(base)
    }
}

const SMALL_V: &[Clause] = &[(&[When::GroupedQueriesOrExperts], Q4K), (&[], Q2K)];
const SMALL_V_2S: &[Clause] = &[(&[When::GroupedQueriesOrExperts], Q4K), (&[], IQ3S)];
const SMALL_DOWN: &[Clause] = &[(&[When::FirstPartCounted(8)], Q2K)];
const SMALL_DOWN_2S: &[Clause] = &[(&[When::FirstPartCounted(8)], IQ3S)];
const SMALL_OUT_1: &[Clause] = &[(&[When::EightExperts], Q5K), (&[], IQ2XXS)];
const SMALL_OUT_2: &[Clause] = &[(&[When::EightExperts], Q5K)];
const SMALL_OUT_2S: &[Clause] = &[(&[When::EightExperts], Q5K), (&[], IQ3S)];

/// The clause for models of eight experts stands before the recipe's own in `attn_v`.
macro_rules! attn_v {
    ($($clause:expr),* $(,)?) => {
        &[(&[When::EightExperts], Q8_0), $($clause),*]
    };
}

const EIGHT_EXPERTS_OUT: &[Clause] = &[(&[When::EightExperts], Q5K)];
const FOUR_BIT_OUT: &[Clause] = &[(&[When::EightExperts], Q5K), (&[], Q4K)];
const THREE_BIT_DOWN_UNTIL: &[Clause] = &[
    (&[When::NoImportance, When::FirstPart(8)], Q4K),
    (&[When::NoImportance], Q3K),
];
const FIVE_BIT_DOWN_UNTIL: &[Clause] = &[(&[When::NoImportance, When::FirstPart(8)], Q5K)];

/// A recipe: its name, llama.cpp's number for it (`general.file_type`), and its mix.
struct Entry {
    name: &'static str,
    file_type: Option<u32>,
    mix: Mix,
}

macro_rules! recipes {
    ($($name:literal $number:expr => $mix:expr;)*) => {
        &[$(Entry { name: $name, file_type: $number, mix: $mix }),*]
    };
}

const RECIPES: &[Entry] = recipes! {
    "F32" Some(0) => uniform(F32);
    "F16" Some(1) => uniform(F16);
    "BF16" Some(32) => uniform(BF16);

    "Q1_0" Some(40) => plain(Q1_0);
    "Q2_0" Some(41) => Mix { token_embedding: Q4K, ..plain(Q2_0) };
    "Q4_0" Some(2) => Mix {
        ffn_down: &[(&[When::Importance, When::FirstPart(8)], Q4_1)],
        ..plain(Q4_0)
    };
    "Q4_1" Some(3) => plain(Q4_1);
    "Q5_0" Some(8) => Mix {
        ffn_down: &[(&[When::Importance, When::FirstPart(8)], Q5_1)],
        ..plain(Q5_0)
    };
    "Q5_1" Some(9) => plain(Q5_1);
    "Q8_0" Some(7) => Mix { output: Q8_0, ..plain(Q8_0) };

    "Q2_K" Some(10) => Mix {
        attn_v: attn_v![(&[When::GroupedQueries], Q4K), (&[], Q3K)],
        attn_output: &[(&[When::EightExperts], Q5K), (&[], Q3K)],
        ffn_down: &[(&[], Q3K)],
        ..plain(Q2K)
    };
    "Q2_K_S" Some(21) => Mix {
        attn_v: attn_v![(&[When::GroupedQueries], Q4K)],
        ffn_down: &[(&[When::FirstPart(8)], Q4K)],
        ..plain(Q2K)
    };
    "Q3_K_S" Some(11) => Mix { attn_output: EIGHT_EXPERTS_OUT, ..plain(Q3K) };
    "Q3_K_M" Some(12) => Mix {
        attn_v: attn_v![(&[When::Before(2)], Q5K), (&[], Q4K)],
        attn_output: FOUR_BIT_OUT,
        ffn_down: &[(&[When::FirstPart(16)], Q5K), (&[], Q4K)],
        ..plain(Q3K)
    };
    "Q3_K_L" Some(13) => Mix {
        attn_v: attn_v![(&[], Q5K)],
        attn_output: &[(&[When::NotEightExperts], Q5K)],
        ffn_down: &[(&[], Q5K)],
        ..plain(Q3K)
    };
    "Q4_K_S" Some(14) => Mix {
        attn_v: attn_v![(&[When::Before(4)], Q5K)],
        attn_output: EIGHT_EXPERTS_OUT,
        ffn_down: &[(&[When::FirstPart(8)], Q5K)],
        ..plain(Q4K)
    };
    "Q4_K_M" Some(15) => Mix {
        attn_v: attn_v![(&[When::MoreBits], Q6K)],
        attn_output: EIGHT_EXPERTS_OUT,
        ffn_down: &[(&[When::MoreBits], Q6K)],
        ..plain(Q4K)
    };
    "Q5_K_S" Some(16) => plain(Q5K);
    "Q5_K_M" Some(17) => Mix {
        attn_v: attn_v![(&[When::MoreBits], Q6K)],
        ffn_down: &[(&[When::MoreBits], Q6K)],
        ..plain(Q5K)
    };
    "Q6_K" Some(18) => plain(Q6K);

    "IQ1_S" Some(24) => smallest(IQ1S, SMALL_V, SMALL_OUT_1, SMALL_DOWN, Q2K);
    "IQ1_M" Some(31) => smallest(IQ1M, SMALL_V, SMALL_OUT_1, SMALL_DOWN, Q2K);
    "IQ2_XXS" Some(19) => smallest(IQ2XXS, SMALL_V, SMALL_OUT_2, SMALL_DOWN, Q2K);
    "IQ2_XS" Some(20) => smallest(IQ2XS, SMALL_V, SMALL_OUT_2, SMALL_DOWN, Q2K);
    "IQ2_S" Some(28) => smallest(IQ2XS, SMALL_V_2S, SMALL_OUT_2S, SMALL_DOWN_2S, IQ3S);
    "IQ2_M" Some(29) => smallest(IQ2S, SMALL_V_2S, SMALL_OUT_2S, SMALL_DOWN_2S, IQ3S);
    "IQ3_XXS" Some(23) => Mix {
        output: Q5K,
        token_embedding: IQ3S,
        attn_v: attn_v![(&[When::GroupedQueries], Q4K), (&[When::NoImportance], IQ3S)],
        attn_k: &[(&[When::EightExperts], Q8_0), (&[], IQ2S)],
        attn_q: &[(&[], IQ2S)],
        attn_output: &[(&[When::EightExperts], Q5K), (&[], IQ3S)],
        ffn_down: THREE_BIT_DOWN_UNTIL,
        ..plain(IQ3XXS)
    };
    "IQ3_XS" Some(22) => Mix {
        attn_v: attn_v![(&[When::GroupedQueries], Q4K)],
        attn_k: &[(&[When::EightExperts], Q8_0), (&[], IQ3XXS)],
        attn_q: &[(&[], IQ3XXS)],
        attn_output: EIGHT_EXPERTS_OUT,
        ffn_in: &[(&[When::Middle], IQ3XXS)],
        ..plain(IQ3S)
    };
    "IQ3_S" Some(26) => Mix {
        attn_v: attn_v![(&[When::GroupedQueries], Q4K)],
        attn_output: EIGHT_EXPERTS_OUT,
        ..plain(IQ3S)
    };
    "IQ3_M" Some(27) => Mix {
        attn_v: attn_v![(&[], Q4K)],
        attn_output: FOUR_BIT_OUT,
        ffn_down: &[
            (&[When::FirstPart(8)], Q4K),
            (&[When::EightExperts, When::MoreBits], Q4K),
        ],
        ..plain(IQ3S)
    };
    "IQ4_NL" Some(25) => Mix {
        attn_v: attn_v![(&[When::GroupedQueries], Q5K)],
        attn_output: EIGHT_EXPERTS_OUT,
        ffn_down: FIVE_BIT_DOWN_UNTIL,
        ..plain(IQ4NL)
    };
    "IQ4_XS" Some(30) => Mix {
        attn_v: attn_v![(&[When::GroupedQueries], Q5K)],
        attn_output: EIGHT_EXPERTS_OUT,
        ffn_down: FIVE_BIT_DOWN_UNTIL,
        ..plain(IQ4XS)
    };

    "TQ1_0" Some(36) => Mix { token_embedding: Q4K, ..plain(TQ1_0) };
    "TQ2_0" Some(37) => Mix { token_embedding: Q4K, ..plain(TQ2_0) };
    "MXFP4_MOE" Some(38) => Mix { output: Q8_0, unless_stacked: Some(Q8_0), ..uniform(MXFP4) };

    // Not recipes of llama.cpp: every tensor of the one type.
    "MXFP4" Some(38) => uniform(MXFP4);
    "NVFP4" Some(39) => uniform(NVFP4);
    "Q8_1" None => uniform(Q8_1);
    "Q8_K" None => uniform(Q8K);
};

/// Other names for recipes.
const ALIASES: &[(&str, &str)] = &[
    ("q1_0_g128", "Q1_0"),
    ("q2_k_m", "Q2_K"),
    ("q3_k", "Q3_K_M"),
    ("q4_k", "Q4_K_M"),
    ("q5_k", "Q5_K_M"),
];

/// How the tensors of a whole model are quantized: a type for most of them, others for those that gain or suffer most.
///
/// Parsed like a [`QuantSpec`]; every spec names a recipe. `COPY` changes no tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recipe(Option<usize>);

impl Recipe {
    /// Every tensor stays as it is.
    pub const COPY: Recipe = Recipe(None);

    /// Every recipe but [`COPY`](Recipe::COPY).
    pub fn all() -> impl Iterator<Item = Recipe> {
        (0..RECIPES.len()).map(|i| Recipe(Some(i)))
    }

    /// llama.cpp's name, for example `Q4_K_M`.
    pub fn name(self) -> &'static str {
        self.0.map_or("COPY", |i| RECIPES[i].name)
    }

    /// llama.cpp's number of the recipe, written as `general.file_type`; `None` where it has none.
    pub fn file_type(self) -> Option<u32> {
        self.0.and_then(|i| RECIPES[i].file_type)
    }

    /// The type of most tensors; `None` for [`COPY`](Recipe::COPY).
    pub fn base(self) -> Option<GgmlType> {
        self.mix().map(|mix| mix.base)
    }

    pub(super) fn mix(self) -> Option<&'static Mix> {
        self.0.map(|i| &RECIPES[i].mix)
    }
}

impl From<QuantSpec> for Recipe {
    fn from(spec: QuantSpec) -> Self {
        find(spec.name()).expect("every spec names a recipe; a test goes through them")
    }
}

fn find(key: &str) -> Option<Recipe> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == key);
    let name = alias.map_or(key, |(_, name)| name);
    if name.eq_ignore_ascii_case("copy") {
        return Some(Recipe::COPY);
    }
    RECIPES
        .iter()
        .position(|entry| entry.name.eq_ignore_ascii_case(name))
        .map(|i| Recipe(Some(i)))
}

impl FromStr for Recipe {
    type Err = QuantError;

    fn from_str(text: &str) -> Result<Self, QuantError> {
        find(&normalized(text)).ok_or_else(|| {
            let names: Vec<_> = Recipe::all().map(Recipe::name).collect();
            QuantError::UnknownRecipe {
                name: text.trim().to_owned(),
                known: names.join(", ") + ", COPY",
            }
        })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({})", self.name())
    }
}
