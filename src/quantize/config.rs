//! Which tensors or modules become which type: one spec, and rules for names that differ.

use std::fmt;

use regex::Regex;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::QuantError;
use super::spec::QuantSpec;

/// How to quantize a model: a spec for everything, and rules by name.
///
/// A rule's regular expression is searched in the tensor's or module's name (anchor it with `^` and `$` where the whole
/// name must match). A rule that skips wins over every other; else the first rule that matches decides.
///
/// The serialized form has the width and the format apart. A rule's width defaults to the configuration's; a rule with
/// another width must state its format, too:
///
/// ```
/// use burn_gguf::quantize::QuantConfig;
///
/// let config: QuantConfig = toml::from_str(r#"
///     bits = 4
///     format = "q_k_m"
///     [[dynamic]]
///     regex = "attn_v"
///     bits = 6
///     format = "q_k"
///     [[dynamic]]
///     regex = "^output$"
///     skip = true
/// "#)?;
/// assert_eq!(config.choose("blk.0.attn_v").unwrap().name(), "q6_k");
/// assert_eq!(config.choose("blk.0.attn_q").unwrap().name(), "q4_k_m");
/// assert_eq!(config.choose("output"), None);
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// `dynamic` is also read from a map of regular expressions, `-:` before one that skips and optionally `+:` before the
/// others: `{"-:^output$": {}, "attn_v": {"bits": 6, "format": "q_k"}}`. (TOML maps have no order; use the list there
/// if several rules match one name.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawConfig", into = "RawConfig")]
pub struct QuantConfig {
    spec: QuantSpec,
    rules: Vec<QuantRule>,
}

/// One rule of a [`QuantConfig`].
#[derive(Clone, Debug)]
pub struct QuantRule {
    regex: Regex,
    action: RuleAction,
}

/// What a rule does with a name it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Quantize to this spec.
    Quantize(QuantSpec),
    /// Leave as it is.
    Skip,
}

impl QuantConfig {
    /// Everything to `spec`.
    pub fn new(spec: QuantSpec) -> Self {
        QuantConfig {
            spec,
            rules: Vec::new(),
        }
    }

    /// Adds a rule: names that `regex` finds something in become `spec`.
    ///
    /// # Errors
    /// [`BadRegex`](QuantError::BadRegex).
    pub fn with_rule(mut self, regex: &str, spec: QuantSpec) -> Result<Self, QuantError> {
        self.rules
            .push(QuantRule::new(regex, RuleAction::Quantize(spec))?);
        Ok(self)
    }

    /// Adds a negative rule: names that `regex` finds something in stay as they are.
    ///
    /// # Errors
    /// [`BadRegex`](QuantError::BadRegex).
    pub fn with_skip(mut self, regex: &str) -> Result<Self, QuantError> {
        self.rules.push(QuantRule::new(regex, RuleAction::Skip)?);
        Ok(self)
    }

    /// The spec of names without a rule.
    pub fn spec(&self) -> QuantSpec {
        self.spec
    }

    /// The rules in order.
    pub fn rules(&self) -> &[QuantRule] {
        &self.rules
    }

    /// What `name` becomes; `None` to leave it as it is.
    pub fn choose(&self, name: &str) -> Option<QuantSpec> {
        match first_match(&self.rules, name) {
            Some(RuleAction::Skip) => None,
            Some(RuleAction::Quantize(spec)) => Some(spec),
            None => Some(self.spec),
        }
    }
}

/// What the rules say of `name`; skipping wins.
pub(super) fn first_match(rules: &[QuantRule], name: &str) -> Option<RuleAction> {
    let mut matching = rules.iter().filter(|rule| rule.matches(name));
    let first = matching.next()?.action;
    match first == RuleAction::Skip || matching.any(|rule| rule.action == RuleAction::Skip) {
        true => Some(RuleAction::Skip),
        false => Some(first),
    }
}

impl QuantRule {
    /// A rule for the names that `regex` finds something in.
    ///
    /// # Errors
    /// [`BadRegex`](QuantError::BadRegex).
    pub fn new(regex: &str, action: RuleAction) -> Result<Self, QuantError> {
        let regex = Regex::new(regex).map_err(|source| QuantError::BadRegex {
            regex: regex.to_owned(),
            source: Box::new(source),
        })?;
        Ok(QuantRule { regex, action })
    }

    /// The regular expression.
    pub fn regex(&self) -> &str {
        self.regex.as_str()
    }

    /// What it does.
    pub fn action(&self) -> RuleAction {
        self.action
    }

    /// Whether the rule is about `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }
}

impl PartialEq for QuantRule {
    fn eq(&self, other: &Self) -> bool {
        self.regex() == other.regex() && self.action == other.action
    }
}

/// The serialized form, not yet checked.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "rules"
    )]
    dynamic: Vec<RawRule>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    regex: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skip: bool,
}

/// The value of a map of rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverride {
    bits: Option<u32>,
    format: Option<String>,
    #[serde(default)]
    skip: bool,
}

/// Rules as a list, or as a map of regular expressions.
fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RawRule>, D::Error> {
    struct Rules;

    impl<'de> Visitor<'de> for Rules {
        type Value = Vec<RawRule>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of rules, or a map of regular expressions to rules")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut rules = Vec::new();
            while let Some(rule) = list.next_element()? {
                rules.push(rule);
            }
            Ok(rules)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut rules = Vec::new();
            while let Some((key, value)) = map.next_entry::<String, RawOverride>()? {
                let (regex, skip) = match (key.strip_prefix("-:"), key.strip_prefix("+:")) {
                    (Some(regex), _) => (regex, true),
                    (None, Some(regex)) => (regex, value.skip),
                    (None, None) => (key.as_str(), value.skip),
                };
                rules.push(RawRule {
                    regex: regex.to_owned(),
                    bits: value.bits,
                    format: value.format,
                    skip,
                });
            }
            Ok(rules)
        }
    }

    deserializer.deserialize_any(Rules)
}

impl TryFrom<RawConfig> for QuantConfig {
    type Error = QuantError;

    fn try_from(raw: RawConfig) -> Result<Self, QuantError> {
        let spec = QuantSpec::new(raw.bits, raw.format.as_deref())?;
        let rules = raw.dynamic.into_iter().map(|rule| {
            let action = action(&rule, spec)?;
            QuantRule::new(&rule.regex, action)
        });
        Ok(QuantConfig {
            spec,
            rules: rules.collect::<Result<_, _>>()?,
        })
    }
}

fn action(rule: &RawRule, base: QuantSpec) -> Result<RuleAction, QuantError> {
    let spec = match (rule.skip, rule.bits, rule.format.as_deref()) {
        (true, None, None) => return Ok(RuleAction::Skip),
        (true, _, _) => {
            return Err(QuantError::SkipWithFormat {
                regex: rule.regex.clone(),
            });
        }
        (false, None, None) => {
            return Err(QuantError::EmptyRule {
                regex: rule.regex.clone(),
            });
        }
        (false, Some(bits), None) if bits != base.bits() => {
            return Err(QuantError::RuleWidthWithoutFormat {
                regex: rule.regex.clone(),
                bits,
                base: base.name(),
            });
        }
        (false, Some(_), None) => base,
        (false, Some(bits), Some(format)) => QuantSpec::new(Some(bits), Some(format))?,
        // A whole name states its own width; a public form has the configuration's.
        (false, None, Some(format)) => match QuantSpec::new(None, Some(format)) {
            Err(QuantError::WidthMissing { .. }) => {
                QuantSpec::new(Some(base.bits()), Some(format))?
            }
            other => other?,
        },
    };
    Ok(RuleAction::Quantize(spec))
}

impl From<QuantConfig> for RawConfig {
    fn from(config: QuantConfig) -> Self {
        let dynamic = config.rules.iter().map(|rule| {
            let spec = match rule.action {
                RuleAction::Quantize(spec) => Some(spec),
                RuleAction::Skip => None,
            };
            RawRule {
                regex: rule.regex().to_owned(),
                bits: spec.map(QuantSpec::bits),
                format: spec.map(|spec| spec.public_form().to_owned()),
                skip: spec.is_none(),
            }
        });
        RawConfig {
            bits: Some(config.spec.bits()),
            format: Some(config.spec.public_form().to_owned()),
            dynamic: dynamic.collect(),
        }
    }
}
