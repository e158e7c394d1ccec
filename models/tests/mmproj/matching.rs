//! Which of several files that fit is the model's.

use burn_gguf::GgmlType;
use burn_gguf::gguf::GgufWriter;

use super::files::{Folder, Tower, qwen, text};

const F32: GgmlType = GgmlType::F32;
const F16: GgmlType = GgmlType::F16;
const BF16: GgmlType = GgmlType::BF16;
const Q8_0: GgmlType = GgmlType::Q8_0;

fn with(name: &str, keys: &[(&str, &str)]) -> GgufWriter<'static> {
    let mut writer = qwen(name);
    for (key, value) in keys {
        writer.set_metadata(key, *value);
    }
    writer
}

#[test]
fn the_type_decides_between_equals() {
    let folder = Folder::new()
        .text("m-Q4_0.gguf", &qwen(""))
        .tower("mmproj-Q8_0.gguf", &Tower::new(Q8_0));
    folder.find("m-Q4_0.gguf").is(
        Some("mmproj-Q8_0.gguf"),
        &[],
        &["vision: mmproj-Q8_0.gguf is quantized (Q8_0): images are seen less exactly; a BF16 file is better"],
    );
    let folder = folder.tower("mmproj-F16.gguf", &Tower::new(F16));
    folder.find("m-Q4_0.gguf").is(
        Some("mmproj-F16.gguf"),
        &["vision: not used: mmproj-Q8_0.gguf (Q8_0; F16 is preferred)"],
        &[],
    );
    let folder = folder.tower("mmproj-F32.gguf", &Tower::new(F32));
    folder.find("m-Q4_0.gguf").is(
        Some("mmproj-F32.gguf"),
        &["vision: not used: mmproj-F16.gguf (F16; F32 is preferred), mmproj-Q8_0.gguf (Q8_0; F32 is preferred)"],
        &[],
    );
    let folder = folder.tower("mmproj-BF16.gguf", &Tower::new(BF16));
    let outcome = folder.find("m-Q4_0.gguf");
    assert_eq!(outcome.file.as_deref(), Some("mmproj-BF16.gguf"));
    assert_eq!(outcome.lines.len(), 1);
}

/// The metadata stand before the name, and the name before the type.
#[test]
fn metadata_then_name_then_type() {
    let folder = Folder::new()
        .text("Model-4B-Q4_K_M.gguf", &qwen("Model 4B"))
        .tower("mmproj-BF16.gguf", &Tower::bf16())
        .tower("mmproj-Model-4B-F16.gguf", &Tower::new(F16));
    let outcome = folder.find("Model-4B-Q4_K_M.gguf");
    outcome.is(
        Some("mmproj-Model-4B-F16.gguf"),
        &["vision: not used: mmproj-BF16.gguf (mmproj-Model-4B-F16.gguf is named more like the model)"],
        &[],
    );
    assert!(
        outcome
            .load_line
            .contains("(found beside the model, by its name)")
    );

    let folder = folder.tower("mmproj-x.gguf", &Tower::named(Q8_0, "model-4b"));
    let outcome = folder.find("Model-4B-Q4_K_M.gguf");
    assert_eq!(outcome.file.as_deref(), Some("mmproj-x.gguf"));
    assert_eq!(
        outcome.lines,
        [
            "vision: not used: mmproj-Model-4B-F16.gguf (the metadata of mmproj-x.gguf are closer), mmproj-BF16.gguf (the metadata of mmproj-x.gguf are closer)"
        ]
    );
    assert!(
        outcome
            .load_line
            .contains("(found beside the model, by its metadata)")
    );
    // Between files of the same metadata the type decides, whether or not they have a name of their own.
    let folder = folder
        .tower("mmproj-F32.gguf", &Tower::named(F32, "Model 4B"))
        .tower("mmproj-Model-4B-Q8_0.gguf", &Tower::named(Q8_0, "Model 4B"));
    assert_eq!(
        folder.find("Model-4B-Q4_K_M.gguf").file.as_deref(),
        Some("mmproj-F32.gguf")
    );
}

#[test]
fn each_of_several_models_has_its_own() {
    let folder = Folder::new()
        .text("Alpha-4B-Q4_K_M.gguf", &qwen(""))
        .text("Alpha-4B-Q8_0.gguf", &qwen(""))
        .text("Beta-4B-Q4_K_M.gguf", &qwen(""))
        .tower("Alpha-4B-mmproj-F16.gguf", &Tower::new(F16))
        .tower("mmproj-Beta-4B-BF16.gguf", &Tower::bf16());
    for quantization in ["Q4_K_M", "Q8_0"] {
        folder.find(&format!("Alpha-4B-{quantization}.gguf")).is(
            Some("Alpha-4B-mmproj-F16.gguf"),
            &["vision: skipped mmproj-Beta-4B-BF16.gguf: it is named like another model of the folder, Beta-4B-Q4_K_M"],
            &[],
        );
    }
    folder.find("Beta-4B-Q4_K_M.gguf").is(
        Some("mmproj-Beta-4B-BF16.gguf"),
        &["vision: skipped Alpha-4B-mmproj-F16.gguf: it is named like another model of the folder, Alpha-4B-Q4_K_M"],
        &[],
    );
}

#[test]
fn with_several_models_a_name_must_decide() {
    let folder = Folder::new()
        .text("Alpha-4B-Q4_0.gguf", &qwen(""))
        .text("Beta-4B-Q4_0.gguf", &qwen(""))
        .tower("mmproj-BF16.gguf", &Tower::bf16());
    let one = "one mmproj file for several models is in FOLDER and nothing tells which is this model's: mmproj-BF16.gguf; give one with --mmproj";
    let outcome = folder.find("Alpha-4B-Q4_0.gguf");
    outcome.is(None, &[], &[&format!("vision: {one}")]);
    assert_eq!(outcome.reason.as_deref(), Some(one));

    let folder = folder.tower("mmproj-F16.gguf", &Tower::new(F16));
    let two = "vision: 2 mmproj files are in FOLDER and nothing tells which is this model's: mmproj-BF16.gguf, mmproj-F16.gguf; give one with --mmproj";
    folder.find("Alpha-4B-Q4_0.gguf").is(None, &[], &[two]);

    // A name that both models share decides nothing.
    let folder = Folder::new()
        .text("Alpha-4B-Q4_0.gguf", &qwen(""))
        .text("Alpha-4B-Coder-Q4_0.gguf", &qwen(""))
        .tower("mmproj-Alpha-BF16.gguf", &Tower::bf16());
    let outcome = folder.find("Alpha-4B-Coder-Q4_0.gguf");
    assert!(
        outcome.file.is_none() && outcome.warnings.len() == 1,
        "{outcome:?}"
    );

    // One of them is named by the metadata.
    let folder = folder.tower("mmproj-F32.gguf", &Tower::named(F32, "Alpha 4B"));
    let folder = folder.text("Alpha-4B-Q4_0.gguf", &qwen("Alpha 4B"));
    let outcome = folder.find("Alpha-4B-Q4_0.gguf");
    assert_eq!(outcome.file.as_deref(), Some("mmproj-F32.gguf"));
}

/// The longer name is the better match for the longer model, and the shorter for the shorter.
#[test]
fn the_closest_name_wins() {
    let folder = Folder::new()
        .text("Alpha-4B.gguf", &qwen(""))
        .text("Alpha-4B-Coder.gguf", &qwen(""))
        .tower("mmproj-Alpha-4B-BF16.gguf", &Tower::bf16())
        .tower("mmproj-Alpha-4B-Coder-BF16.gguf", &Tower::bf16());
    let plain = folder.find("Alpha-4B.gguf");
    assert_eq!(plain.file.as_deref(), Some("mmproj-Alpha-4B-BF16.gguf"));
    let coder = folder.find("Alpha-4B-Coder.gguf");
    assert_eq!(
        coder.file.as_deref(),
        Some("mmproj-Alpha-4B-Coder-BF16.gguf")
    );
}

/// Files that fit, with names of nothing in common, beside a single model.
#[test]
fn two_towers_for_one_model_are_not_guessed_between() {
    let folder = Folder::new()
        .text("m.gguf", &qwen(""))
        .tower("mmproj-Alpha-BF16.gguf", &Tower::bf16());
    folder
        .find("m.gguf")
        .is(Some("mmproj-Alpha-BF16.gguf"), &[], &[]);
    let folder = folder.tower("mmproj-Beta-BF16.gguf", &Tower::bf16());
    folder.find("m.gguf").is(
        None,
        &[],
        &["vision: 2 mmproj files are in FOLDER and nothing tells which is this model's: mmproj-Alpha-BF16.gguf, mmproj-Beta-BF16.gguf; give one with --mmproj"],
    );
}

/// What lies beside a model and is no model does not count as one.
#[test]
fn other_files_are_no_models() {
    let mut adapter = qwen("");
    adapter.set_metadata("general.type", "adapter");
    let mut imatrix = GgufWriter::new();
    imatrix.metadata("general.type", "imatrix");
    let folder = Folder::new()
        .text("Alpha-4B-Q4_0.gguf", &qwen(""))
        .text("style-lora.gguf", &adapter)
        .text("importance.gguf", &imatrix)
        .text("tower-under-another-name.gguf", &Tower::bf16().writer())
        .tower("mmproj.gguf", &Tower::bf16());
    folder
        .find("Alpha-4B-Q4_0.gguf")
        .is(Some("mmproj.gguf"), &[], &[]);
    // Half a download may be a model.
    let folder = folder.raw("Beta-4B.gguf", b"GGUF");
    assert!(folder.find("Alpha-4B-Q4_0.gguf").file.is_none());
    // The same model under another name is not another one.
    let folder = Folder::new()
        .text("a.gguf", &qwen("Alpha 4B"))
        .text("b.gguf", &qwen("Alpha-4B"))
        .tower("mmproj.gguf", &Tower::bf16());
    folder.find("a.gguf").is(Some("mmproj.gguf"), &[], &[]);
}

#[test]
fn what_the_metadata_say_about_whose_it_is() {
    let name = |name: &str| Tower::named(BF16, name);
    let basename = |value: &str| Tower::bf16().key("general.basename", value);
    let tuned = [
        ("general.basename", "Alpha"),
        ("general.finetune", "Instruct"),
    ];
    let cases: &[(&str, GgufWriter<'_>, Tower, Option<&str>)] = &[
        (
            "the same name, written otherwise",
            qwen("Alpha 3.5 4B"),
            name("alpha3.5-4b-BF16"),
            None,
        ),
        (
            "a version of it",
            qwen("Alpha-4B-heretic"),
            name("Alpha 4B"),
            None,
        ),
        (
            "another size",
            qwen("Alpha 4B"),
            name("Alpha 8B"),
            Some("`general.name` is \"Alpha 8B\""),
        ),
        (
            "another version",
            qwen("Alpha3 4B"),
            name("Alpha3.5 4B"),
            Some("`general.name`"),
        ),
        (
            "another tuning",
            qwen("Alpha 4B Instruct"),
            name("Alpha 4B Thinking"),
            Some("`general.name`"),
        ),
        (
            "a name that is none",
            qwen("Alpha 4B"),
            name("hf_model"),
            None,
        ),
        (
            "a cache's folder",
            qwen("Alpha 4B"),
            name("0123456789abcdef0123"),
            None,
        ),
        (
            "the model it was made from",
            with("Mine", &[("general.base_model.0.name", "Alpha 4B")]),
            name("Alpha 4B"),
            None,
        ),
        (
            "basenames alone",
            with("", &[("general.basename", "Alpha")]),
            basename("Alpha"),
            None,
        ),
        (
            "another basename",
            with("", &[("general.basename", "Alpha")]),
            basename("Beta"),
            Some("`general.basename` is \"Beta\", the model's is \"Alpha\""),
        ),
        (
            "another basename with its size",
            with("Alpha 4B", &[]),
            basename("Alpha-8B"),
            Some("`general.basename` is \"Alpha-8B\""),
        ),
        (
            "one basename under two names",
            with("Mine", &[("general.basename", "Alpha")]),
            name("Alpha Original").key("general.basename", "Alpha"),
            None,
        ),
        (
            "one basename, tuned apart",
            with("Alpha Instruct", &tuned),
            name("Alpha Thinking")
                .key("general.basename", "Alpha")
                .key("general.finetune", "Thinking"),
            Some("`general.name` is \"Alpha Thinking\""),
        ),
        (
            "size labels of models",
            with("", &[("general.size_label", "4B")]),
            Tower::bf16().key("general.size_label", "8B"),
            Some("`general.size_label` is \"8B\", the model's is \"4B\""),
        ),
        (
            "size labels that agree",
            with("", &[("general.size_label", "4.4B")]),
            Tower::bf16().key("general.size_label", "4B"),
            None,
        ),
        // The tower has 214k values, counted by whoever wrote it.
        (
            "a size label of the tower itself",
            with("", &[("general.size_label", "4B")]),
            Tower::bf16().key("general.size_label", "219K"),
            None,
        ),
        (
            "experts",
            with("", &[("general.size_label", "8x7B")]),
            Tower::bf16().key("general.size_label", "4B"),
            None,
        ),
    ];
    for (what, text, tower, refused) in cases {
        let folder = Folder::new()
            .text("m.gguf", text)
            .tower("mmproj.gguf", tower);
        let outcome = folder.find("m.gguf");
        match refused {
            None => outcome.is(Some("mmproj.gguf"), &[], &[]),
            Some(part) => {
                assert!(outcome.file.is_none(), "{what}: {outcome:?}");
                let said = "vision: skipped mmproj.gguf: it belongs to another model: ";
                let line = outcome.lines.first().map_or("", String::as_str);
                assert!(
                    line.starts_with(said) && line.contains(part),
                    "{what}: {outcome:?}"
                );
            }
        }
    }
}

/// The tower of a model whose version this is, among several models.
#[test]
fn a_version_of_the_name_decides_too() {
    let folder = Folder::new()
        .text("tuned.gguf", &qwen("Alpha 4B tuned"))
        .text("beta.gguf", &qwen("Beta 4B"))
        .tower("mmproj.gguf", &Tower::named(BF16, "Alpha 4B"));
    let outcome = folder.find("tuned.gguf");
    outcome.is(Some("mmproj.gguf"), &[], &[]);
    assert!(outcome.load_line.contains("by its metadata"));
}

/// A base model's tower goes with what was made from it, where there is no closer one.
#[test]
fn the_closest_metadata_win() {
    let tuned = with("Mine 4B", &[("general.base_model.0.name", "Alpha 4B")]);
    let folder = Folder::new()
        .text("mine.gguf", &tuned)
        .text(
            "alpha.gguf",
            &text("qwen35", &[("general.name", "Alpha 4B".into())]),
        )
        .tower("mmproj-alpha.gguf", &Tower::named(F32, "Alpha 4B"));
    folder
        .find("mine.gguf")
        .is(Some("mmproj-alpha.gguf"), &[], &[]);
    let folder = folder.tower("mmproj-mine.gguf", &Tower::named(F16, "Mine 4B"));
    folder.find("mine.gguf").is(
        Some("mmproj-mine.gguf"),
        &["vision: not used: mmproj-alpha.gguf (the metadata of mmproj-mine.gguf are closer)"],
        &[],
    );
}
