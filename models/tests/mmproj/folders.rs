//! Where vision files are looked for, and what is passed over (bug case 56).

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufWriter, Value, shard_paths, write_shards};
use burn_gguf_models::vision::discover::{How, Match, VisionSource};
use burn_gguf_models::vision::mmproj::{MmprojError, check_main_model};

use super::files::{Folder, Tower, find_in, qwen, text};

#[test]
fn a_file_beside_the_model_is_found() {
    let folder = Folder::new()
        .text("m.gguf", &qwen(""))
        .tower("MMPROJ.GGUF", &Tower::bf16());
    let outcome = folder.find("m.gguf");
    outcome.is(Some("MMPROJ.GGUF"), &[], &[]);
    let bytes = Tower::bf16().read().unwrap().byte_len() as f64;
    assert_eq!(
        outcome.load_line,
        format!(
            "vision: MMPROJ.GGUF (found beside the model), projector qwen3vl_merger, BF16 -> F32, {:.1} KiB",
            bytes / 1024.0
        )
    );
}

/// A model's own file is no candidate, whatever it is called.
#[test]
fn a_model_that_is_named_like_a_vision_file() {
    let folder = Folder::new()
        .text("a-mmproj-merged.gguf", &qwen(""))
        .tower("mmproj.gguf", &Tower::bf16());
    let outcome = folder.find("a-mmproj-merged.gguf");
    outcome.is(Some("mmproj.gguf"), &[], &[]);
}

#[test]
fn nothing_beside_the_model_is_text_only() {
    let folder = Folder::new().text("m.gguf", &qwen(""));
    let outcome = folder.find("m.gguf");
    outcome.is(None, &[], &[]);
    let reason = "no mmproj file lies in FOLDER; put the model's there or give it with --mmproj";
    assert_eq!(outcome.reason.as_deref(), Some(reason));
    assert_eq!(outcome.load_line, format!("vision: text only: {reason}"));
}

#[test]
fn every_reason_to_pass_a_file_over_is_said() {
    let error = |tower: &Tower| tower.error().replace("<GGUF in memory>", "");
    let unknown = Tower::bf16().key("clip.projector_type", "ldpv2");
    let folder = Folder::new()
        .text("Model-4B-Q4_0.gguf", &qwen("Model 4B"))
        .raw("a-mmproj.gguf", b"GGUF")
        .raw("b-mmproj.gguf", b"")
        .tower("c-mmproj.gguf", &Tower::bf16().wide(64))
        .tower("d-mmproj.gguf", &Tower::bf16().deepstack(0))
        .tower("e-mmproj.gguf", &unknown)
        .tower(
            "f-mmproj.gguf",
            &Tower::bf16().key("general.architecture", "qwen3vl"),
        )
        .tower(
            "g-mmproj.gguf",
            &Tower::bf16()
                .key("clip.has_audio_encoder", true)
                .key("clip.has_vision_encoder", false),
        )
        .tower("h-mmproj.gguf", &Tower::named(GgmlType::BF16, "Model 8B"));
    let outcome = folder.find("Model-4B-Q4_0.gguf");
    let unreadable = Gguf::open(folder.path("a-mmproj.gguf"))
        .unwrap_err()
        .to_string();
    let unreadable = unreadable.rsplit('/').next().unwrap().to_owned();
    outcome.is(
        None,
        &[
            &format!("vision: skipped {unreadable}"),
            "vision: skipped b-mmproj.gguf: the file is empty; download it again",
            "vision: skipped c-mmproj.gguf: the output is 64 wide (1 of 64), the model takes 32; it is the mmproj file of another model",
            "vision: skipped d-mmproj.gguf: the output is 64 wide (2 of 32), the model takes 32; it is the mmproj file of another model",
            &format!("vision: skipped e-mmproj.gguf{}", error(&unknown)),
            "vision: skipped f-mmproj.gguf: a text model, not an mmproj file: `general.architecture` is \"qwen3vl\"; give the mmproj file of the model, whose architecture is \"clip\"",
            "vision: skipped g-mmproj.gguf: audio only: the file has an audio encoder and no vision encoder",
            "vision: skipped h-mmproj.gguf: it belongs to another model: `general.name` is \"Model 8B\", the model's is \"Model 4B\"",
        ],
        &[],
    );
    let reason = "none of the 8 mmproj files in FOLDER is this model's; give one with --mmproj";
    assert_eq!(outcome.reason.as_deref(), Some(reason));
}

/// The width is right and the family is not.
#[test]
fn a_tower_of_another_family_is_passed_over() {
    let gemma = text("gemma4", &[]);
    let folder = Folder::new()
        .text("gemma.gguf", &gemma)
        .tower("mmproj.gguf", &Tower::bf16());
    folder.find("gemma.gguf").is(
        None,
        &["vision: skipped mmproj.gguf: projector \"qwen3vl_merger\" belongs to another family: architecture \"gemma4\" takes \"gemma4v\" or \"gemma4uv\""],
        &[],
    );
}

#[test]
fn tokens_that_the_model_lacks_are_named() {
    let key = "tokenizer.ggml.tokens";
    let blind = text("qwen35", &[(key, Value::from(vec!["a", "b"]))]);
    let folder = Folder::new()
        .text("m.gguf", &blind)
        .tower("mmproj.gguf", &Tower::bf16());
    folder.find("m.gguf").is(
        None,
        &["vision: skipped mmproj.gguf: projector \"qwen3vl_merger\" puts <|vision_start|> and <|vision_end|> around images, which the model's tokenizer does not have"],
        &[],
    );
}

#[test]
fn the_folder_above_that_of_a_quantization_is_looked_in() {
    for quantization in ["Q4_K_M", "UD-Q4_K_XL", "BF16", "gguf-q8_0"] {
        let model = format!("{quantization}/m.gguf");
        let folder = Folder::new()
            .text(&model, &qwen(""))
            .tower("mmproj-F16.gguf", &Tower::new(GgmlType::F16));
        let outcome = folder.find(&model);
        let line = format!(
            "vision: looking in FOLDER too: {quantization} is the folder of one quantization"
        );
        outcome.is(Some("mmproj-F16.gguf"), &[&line], &[]);
        let says = "(found above the model's folder), projector qwen3vl_merger, F16 -> F32";
        assert!(outcome.load_line.contains(says), "{outcome:?}");

        let folder = folder.tower(&format!("{quantization}/mmproj.gguf"), &Tower::bf16());
        let own = format!("{quantization}/mmproj.gguf");
        folder.find(&model).is(Some(&own), &[], &[]);
    }
    let folder = Folder::new()
        .text("models/m.gguf", &qwen(""))
        .tower("mmproj-F16.gguf", &Tower::new(GgmlType::F16));
    folder.find("models/m.gguf").is(None, &[], &[]);
}

#[test]
fn a_split_model_is_one_model() {
    let folder = Folder::new().tower("mmproj.gguf", &Tower::bf16());
    let mut second = GgufWriter::new();
    second.tensor("x", &[1], GgmlType::F32, vec![0_u8; 4]);
    let path = folder.path("m.gguf");
    write_shards(&path, &mut [qwen(""), second]).unwrap();
    let paths = shard_paths(&path, 2);
    assert!(paths[1].ends_with("m-00002-of-00002.gguf"));
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        folder.find(&name).is(Some("mmproj.gguf"), &[], &[]);
    }
}

#[cfg(unix)]
#[test]
fn links_and_folders_are_handled() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new()
        .text("store/blob-1", &qwen(""))
        .tower("store/blob-2", &Tower::bf16());
    std::fs::create_dir(folder.path("a-mmproj.gguf")).unwrap();
    symlink("nowhere", folder.path("b-mmproj.gguf")).unwrap();
    symlink("store/blob-2", folder.path("c-mmproj.gguf")).unwrap();
    symlink("c-mmproj.gguf", folder.path("d-mmproj.gguf")).unwrap();
    symlink("store/blob-1", folder.path("m.gguf")).unwrap();
    folder.find("m.gguf").is(
        Some("c-mmproj.gguf"),
        &[
            "vision: skipped a-mmproj.gguf: a folder, not a file",
            "vision: skipped b-mmproj.gguf: a link to a file that is not there",
        ],
        &[],
    );
}

#[test]
fn a_given_file_must_fit() {
    let folder = Folder::new()
        .text("m.gguf", &qwen("Model 4B"))
        .tower("right.gguf", &Tower::named(GgmlType::F32, "Model 8B"))
        .tower("wide.gguf", &Tower::bf16().wide(64))
        .tower("mmproj.gguf", &Tower::bf16());
    let text = Gguf::open(folder.path("m.gguf")).unwrap();
    let given = |name: &str| find_in(&text, &VisionSource::File(folder.path(name)));
    // Whoever gives a file is believed about whose it is.
    let found = given("right.gguf").unwrap();
    assert_eq!(found.how, How::Given);
    let line = found.load_line("BF16").text;
    assert!(line.contains("right.gguf (given), projector qwen3vl_merger, F32 -> BF16"));
    let warning = &found.log[0].text;
    assert!(warning.ends_with("right.gguf is used as given, though it belongs to another model: `general.name` is \"Model 8B\", the model's is \"Model 4B\""), "{warning}");
    assert!(given("mmproj.gguf").unwrap().log.is_empty());

    assert!(matches!(given("wide.gguf"), Err(MmprojError::Width { .. })));
    assert!(matches!(
        given("m.gguf"),
        Err(MmprojError::TextModel { .. })
    ));
    let missing = given("no.gguf").unwrap_err().to_string();
    assert!(missing.ends_with("no.gguf: no such file"), "{missing}");
    let gemma = super::files::text("gemma4", &[]);
    let gemma = Gguf::from_bytes(gemma.to_bytes().unwrap()).unwrap();
    let family = find_in(&gemma, &VisionSource::File(folder.path("right.gguf")));
    assert!(matches!(family, Err(MmprojError::Family { .. })));
}

#[test]
fn a_vision_file_as_the_model_is_refused_with_advice() {
    let folder = Folder::new().tower("mmproj.gguf", &Tower::bf16());
    let gguf = Gguf::open(folder.path("mmproj.gguf")).unwrap();
    let error = check_main_model(&gguf).unwrap_err().to_string();
    assert!(error.ends_with("mmproj.gguf: an mmproj file (a vision tower), not a model; give the text model as the model and this file with --mmproj"), "{error}");
}

#[test]
fn vision_can_be_left_off() {
    let folder = Folder::new()
        .text("m.gguf", &qwen(""))
        .tower("mmproj.gguf", &Tower::bf16());
    let text = Gguf::open(folder.path("m.gguf")).unwrap();
    let found = find_in(&text, &VisionSource::Off).unwrap();
    assert!(found.mmproj.is_none() && found.log.is_empty());
    assert_eq!(
        (found.how, found.reason.as_deref()),
        (How::Off, Some("vision is turned off"))
    );
}

#[test]
fn families_without_vision_never_look() {
    let folder = Folder::new()
        .text("m.gguf", &text("qwen3", &[]))
        .raw("mmproj.gguf", b"not even read");
    let outcome = folder.find("m.gguf");
    outcome.is(None, &[], &[]);
    let reason = "a model of architecture \"qwen3\" takes text only";
    assert_eq!(outcome.reason.as_deref(), Some(reason));
    let text = Gguf::open(folder.path("m.gguf")).unwrap();
    let given = VisionSource::File(folder.path("mmproj.gguf"));
    let error = find_in(&text, &given).unwrap_err().to_string();
    assert!(error.ends_with("mmproj.gguf: of no use here: a model of architecture \"qwen3\" takes text only; leave it out"), "{error}");
}

#[test]
fn a_quantized_file_is_taken_with_a_warning() {
    for (ty, name) in [(GgmlType::Q8_0, "Q8_0"), (GgmlType::Q4K, "Q4_K")] {
        let folder = Folder::new()
            .text("m.gguf", &qwen(""))
            .tower("mmproj.gguf", &Tower::new(ty));
        let warning = format!(
            "vision: mmproj.gguf is quantized ({name}): images are seen less exactly; a BF16 file is better"
        );
        folder
            .find("m.gguf")
            .is(Some("mmproj.gguf"), &[], &[&warning]);
    }
}

#[test]
fn a_model_in_memory_has_no_folder() {
    let text = Gguf::from_bytes(qwen("").to_bytes().unwrap()).unwrap();
    let found = find_in(&text, &VisionSource::Auto).unwrap();
    assert_eq!(found.how, How::Nowhere);
    assert!(found.reason.unwrap().starts_with("the model is in memory"));
    assert_eq!(
        How::Above(Match::Metadata).to_string(),
        "found above the model's folder, by its metadata"
    );
}

/// GLM-4 text files are converted with positions for images or without.
#[test]
fn glm_needs_positions_for_images() {
    let tokens = vec!["<|begin_of_image|>", "<|end_of_image|>"];
    let plain = text(
        "glm4moe",
        &[("tokenizer.ggml.tokens", tokens.clone().into())],
    );
    let glm = Tower::bf16()
        .key("clip.projector_type", "glm4v")
        .tensor("mm.down.weight", &[64, 32]);
    let folder = Folder::new()
        .text("m.gguf", &plain)
        .tower("mmproj.gguf", &glm);
    folder.find("m.gguf").is(
        None,
        &["vision: skipped mmproj.gguf: projector \"glm4v\" needs `glm4moe.rope.dimension_sections`, which the model does not have; it was converted for text only"],
        &[],
    );
    let sections: Value = vec![8_i32, 12, 12, 0].into();
    let positions = [
        ("tokenizer.ggml.tokens", tokens.into()),
        ("glm4moe.rope.dimension_sections", sections),
    ];
    let folder = folder.text("m.gguf", &text("glm4moe", &positions));
    folder.find("m.gguf").is(Some("mmproj.gguf"), &[], &[]);
}
