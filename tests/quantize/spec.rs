//! Names and what they mean.

use burn_gguf::GgmlType::{self, *};
use burn_gguf::quantize::{QuantError, QuantSpec};

fn spec(text: &str) -> QuantSpec {
    text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

#[test]
fn every_name_is_its_type_with_the_type_s_geometry() {
    #[rustfmt::skip]
    let table: &[(&str, GgmlType, usize, usize)] = &[
        ("q1_0", Q1_0, 128, 18), ("q1_0_g128", Q1_0, 128, 18), ("q2_0", Q2_0, 64, 18),
        ("q4_0", Q4_0, 32, 18), ("q4_1", Q4_1, 32, 20), ("q5_0", Q5_0, 32, 22), ("q5_1", Q5_1, 32, 24),
        ("q8_0", Q8_0, 32, 34), ("q8_1", Q8_1, 32, 36),
        ("q2_k", Q2K, 256, 84), ("q2_k_s", Q2K, 256, 84), ("q2_k_m", Q2K, 256, 84),
        ("q3_k", Q3K, 256, 110), ("q3_k_s", Q3K, 256, 110), ("q3_k_m", Q3K, 256, 110), ("q3_k_l", Q3K, 256, 110),
        ("q4_k", Q4K, 256, 144), ("q4_k_s", Q4K, 256, 144), ("q4_k_m", Q4K, 256, 144),
        ("q5_k", Q5K, 256, 176), ("q5_k_s", Q5K, 256, 176), ("q5_k_m", Q5K, 256, 176),
        ("q6_k", Q6K, 256, 210), ("q8_k", Q8K, 256, 292),
        ("iq1_s", IQ1S, 256, 50), ("iq1_m", IQ1M, 256, 56),
        ("iq2_xxs", IQ2XXS, 256, 66), ("iq2_xs", IQ2XS, 256, 74), ("iq2_s", IQ2S, 256, 82),
        ("iq3_xxs", IQ3XXS, 256, 98), ("iq3_s", IQ3S, 256, 110),
        ("iq4_nl", IQ4NL, 32, 18), ("iq4_xs", IQ4XS, 256, 136),
        ("tq1_0", TQ1_0, 256, 54), ("tq2_0", TQ2_0, 256, 66), ("mxfp4", MXFP4, 32, 17), ("nvfp4", NVFP4, 64, 36),
    ];
    for &(name, ty, block, bytes) in table {
        let spec = spec(name);
        assert_eq!(spec.ggml_type(), ty, "{name}");
        assert_eq!((ty.block_len(), ty.block_bytes()), (block, bytes), "{name}");
        if name != "q1_0_g128" {
            assert_eq!(spec.to_string(), name);
        }
    }
    let named: Vec<_> = QuantSpec::all().map(QuantSpec::ggml_type).collect();
    for ty in table.iter().map(|row| row.1).chain([F16, BF16, F32]) {
        assert!(named.contains(&ty));
        assert_eq!(QuantSpec::of_type(ty).unwrap().ggml_type(), ty);
    }
    assert_eq!(QuantSpec::of_type(I32), None);
}

#[test]
fn space_case_and_dashes_do_not_matter() {
    for text in ["q4_k_m", " Q4_K_M\n", "q4-k-m", "Q4-k_M"] {
        assert_eq!(spec(text).name(), "q4_k_m", "{text:?}");
    }
    assert_eq!(spec("Q1-0-G128").name(), "q1_0");
    assert_eq!(spec("BF16").ggml_type(), BF16);
}

#[test]
fn the_public_form_and_the_width_name_the_spec() {
    for (name, public) in [
        ("q4_k_m", "q_k_m"),
        ("q8_0", "q_0"),
        ("iq2_xxs", "iq_xxs"),
        ("tq1_0", "tq_0"),
        ("q6_k", "q_k"),
        ("mxfp4", "mxfp"),
    ] {
        assert_eq!(spec(name).public_form(), public);
    }
    for spec in QuantSpec::all() {
        let digits = spec.bits().to_string();
        assert_eq!(spec.name().replacen(&digits, "", 1), spec.public_form());
        let again = QuantSpec::new(Some(spec.bits()), Some(spec.public_form())).unwrap();
        assert_eq!(again, spec);
        assert_eq!(
            QuantSpec::new(Some(spec.bits()), Some(spec.name())).unwrap(),
            spec
        );
    }
}

#[test]
fn each_width_has_its_default() {
    for (bits, name) in [
        (1, "q1_0"),
        (2, "q2_0"),
        (3, "q3_k"),
        (4, "q4_0"),
        (5, "q5_k_m"),
        (6, "q6_k"),
        (8, "q8_0"),
    ] {
        assert_eq!(QuantSpec::new(Some(bits), None).unwrap().name(), name);
    }
}

#[test]
fn nothing_named() {
    assert!(matches!(
        QuantSpec::new(None, None),
        Err(QuantError::NothingNamed)
    ));
}

#[test]
fn unknown_format() {
    for text in ["q4_z", "", "q", "q4__0", "q9_0", "q44_0"] {
        let error = text.parse::<QuantSpec>().unwrap_err();
        assert!(
            matches!(&error, QuantError::UnknownFormat { format, .. } if format == text),
            "{text:?}: {error}"
        );
        assert!(error.to_string().contains("q4_k_m"), "{error}");
    }
}

#[test]
fn width_conflict_names_both() {
    let error = QuantSpec::new(Some(3), Some("Q4_K_M")).unwrap_err();
    assert!(matches!(
        error,
        QuantError::WidthConflict {
            bits: 3,
            format_bits: 4,
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains("bits = 3") && text.contains("\"Q4_K_M\""),
        "{text}"
    );
}

#[test]
fn no_such_width() {
    let error = QuantSpec::new(Some(6), Some("q_k_m")).unwrap_err();
    assert!(matches!(error, QuantError::NoSuchWidth { bits: 6, .. }));
    assert!(error.to_string().contains("2, 3, 4, 5"), "{error}");
}

#[test]
fn width_missing() {
    let error = "q_k_m".parse::<QuantSpec>().unwrap_err();
    assert!(matches!(error, QuantError::WidthMissing { .. }));
    assert!(error.to_string().contains("2, 3, 4, 5"), "{error}");
}

#[test]
fn no_default() {
    let error = QuantSpec::new(Some(7), None).unwrap_err();
    assert!(matches!(error, QuantError::NoDefault { bits: 7, .. }));
    assert!(error.to_string().contains("7 bits"), "{error}");
}

#[test]
fn serialized_as_its_name() {
    let json = serde_json::to_string(&spec("q4_k_m")).unwrap();
    assert_eq!(json, "\"q4_k_m\"");
    assert_eq!(
        serde_json::from_str::<QuantSpec>("\"Q4-K-M\"").unwrap(),
        spec("q4_k_m")
    );
    assert!(serde_json::from_str::<QuantSpec>("\"q4_z\"").is_err());
}
