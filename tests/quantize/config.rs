//! Configurations and their serialized forms.

use burn_gguf::quantize::{QuantConfig, QuantError, QuantSpec, RuleAction};

fn spec(text: &str) -> QuantSpec {
    text.parse().unwrap()
}

fn sample() -> QuantConfig {
    QuantConfig::new(spec("q4_k_m"))
        .with_rule(r"attn_v\.weight$", spec("q6_k"))
        .unwrap()
        .with_rule("attn", spec("q8_0"))
        .unwrap()
        .with_skip(r"^blk\.0\.")
        .unwrap()
}

fn error_of(json: &str) -> String {
    serde_json::from_str::<QuantConfig>(json)
        .unwrap_err()
        .to_string()
}

#[test]
fn the_first_matching_rule_decides() {
    let config = sample();
    assert_eq!(config.choose("blk.1.attn_v.weight"), Some(spec("q6_k")));
    assert_eq!(config.choose("blk.1.attn_v.bias"), Some(spec("q8_0")));
    assert_eq!(config.choose("blk.1.ffn_up.weight"), Some(spec("q4_k_m")));
}

#[test]
fn a_negative_rule_excludes_whatever_stands_before_it() {
    let config = sample();
    assert_eq!(config.choose("blk.0.attn_v.weight"), None);
    assert_eq!(config.choose("blk.0.ffn_up.weight"), None);
    assert_eq!(config.choose("blk.10.ffn_up.weight"), Some(spec("q4_k_m")));
}

#[test]
fn json_and_toml_round_trip() {
    let config = sample();
    let json = serde_json::to_string(&config).unwrap();
    assert_eq!(
        json,
        r#"{"bits":4,"format":"q_k_m","dynamic":[{"regex":"attn_v\\.weight$","bits":6,"format":"q_k"},{"regex":"attn","bits":8,"format":"q_0"},{"regex":"^blk\\.0\\.","skip":true}]}"#
    );
    assert_eq!(serde_json::from_str::<QuantConfig>(&json).unwrap(), config);
    let text = toml::to_string(&config).unwrap();
    assert_eq!(
        toml::from_str::<QuantConfig>(&text).unwrap(),
        config,
        "{text}"
    );
    for spec in QuantSpec::all() {
        let config = QuantConfig::new(spec);
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<QuantConfig>(&json).unwrap(), config);
    }
}

#[test]
fn rules_are_read_from_a_map_too() {
    let json = r#"{"format":"q4_k_m","dynamic":{
        "+:attn_v\\.weight$":{"bits":6,"format":"q_k"},
        "attn":{"format":"q8_0"},
        "-:^blk\\.0\\.":{}}}"#;
    assert_eq!(serde_json::from_str::<QuantConfig>(json).unwrap(), sample());
    let text =
        "format = \"q4_k\"\n[dynamic]\n\"-:output\" = {}\n\"x\" = { bits = 8, format = \"q_0\" }\n";
    let config: QuantConfig = toml::from_str(text).unwrap();
    assert_eq!(config.choose("output"), None);
    assert_eq!(config.choose("x"), Some(spec("q8_0")));
}

#[test]
fn a_rule_takes_what_it_does_not_state_from_the_configuration() {
    let json = r#"{"bits":4,"format":"q_k_m","dynamic":[{"regex":"a","format":"q_0"},{"regex":"b","bits":4}]}"#;
    let config: QuantConfig = serde_json::from_str(json).unwrap();
    assert_eq!(config.choose("a"), Some(spec("q4_0")));
    assert_eq!(config.choose("b"), Some(spec("q4_k_m")));
    assert_eq!(
        config.rules()[0].action(),
        RuleAction::Quantize(spec("q4_0"))
    );
}

#[test]
fn bits_alone_mean_the_default_of_the_width() {
    let config: QuantConfig = serde_json::from_str(r#"{"bits":5}"#).unwrap();
    assert_eq!(config.spec(), spec("q5_k_m"));
}

#[test]
fn rule_width_without_format() {
    let text = error_of(r#"{"format":"q4_k_m","dynamic":[{"regex":"attn","bits":8}]}"#);
    assert!(
        text.contains("\"attn\"") && text.contains("8 bits") && text.contains("q4_k_m"),
        "{text}"
    );
}

#[test]
fn width_conflict_in_a_configuration_and_in_a_rule() {
    let text = error_of(r#"{"bits":3,"format":"q4_k_m"}"#);
    assert!(
        text.contains("bits = 3") && text.contains("q4_k_m"),
        "{text}"
    );
    let text = error_of(r#"{"bits":3,"dynamic":[{"regex":"a","bits":4,"format":"q8_0"}]}"#);
    assert!(text.contains("bits = 4") && text.contains("q8_0"), "{text}");
}

#[test]
fn empty_rule_and_skip_with_format() {
    let text = error_of(r#"{"bits":4,"dynamic":[{"regex":"attn"}]}"#);
    assert!(text.contains("\"attn\"") && text.contains("skip"), "{text}");
    let text = error_of(r#"{"bits":4,"dynamic":{"-:attn":{"bits":8,"format":"q_0"}}}"#);
    assert!(text.contains("skips"), "{text}");
}

#[test]
fn bad_regex() {
    let error = QuantConfig::new(spec("q4_0")).with_skip("a(").unwrap_err();
    assert!(matches!(&error, QuantError::BadRegex { regex, .. } if regex == "a("));
    assert!(error_of(r#"{"bits":4,"dynamic":[{"regex":"a(","skip":true}]}"#).contains("a("));
}

#[test]
fn misspelt_keys_and_missing_values_are_errors() {
    assert!(error_of(r#"{"bit":4}"#).contains("bit"));
    assert!(error_of(r#"{"bits":4,"dynamic":[{"regex":"a","fromat":"q8_0"}]}"#).contains("fromat"));
    assert!(error_of("{}").contains("neither bits nor a format"));
}
