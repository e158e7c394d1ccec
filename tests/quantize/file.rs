//! Whole files: what is written, carried, refused and reported.

use std::fs;
use std::path::Path;

use burn_gguf::GgmlType::{self, *};
use burn_gguf::gguf::{Gguf, GgufWriter, TensorInfo, write_shards};
use burn_gguf::quantize::{
    Note, Progress, QuantRule, QuantizeFileError, QuantizeOptions, QuantizePlan, QuantizeReport,
    RuleAction, quantize_file,
};
use burn_gguf_kernels::cpu::dequantize;
use burn_gguf_kernels::quantize::quantize;
use tempfile::TempDir;

pub const COLS: usize = 256;

/// Values that no two tensors share.
pub fn values(seed: usize, len: usize) -> Vec<f32> {
    let value = |i: usize| (((i * 7919 + seed * 104_729) % 2003) as f32 - 1001.0) / 500.0;
    (0..len).map(value).collect()
}

pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Names and shapes of the test model.
const TENSORS: &[(&str, &[u64])] = &[
    ("token_embd.weight", &[256, 6]),
    ("blk.0.attn_norm.weight", &[256]),
    ("blk.0.attn_q.weight", &[256, 4]),
    ("blk.0.ffn_down_exps.weight", &[256, 3, 2]),
    ("blk.0.ffn_gate_inp.weight", &[256, 2]),
    ("blk.0.narrow.weight", &[96, 2]),
    ("blk.0.odd.weight", &[20, 2]),
    ("output.weight", &[256, 6]),
];

pub fn tensor_values(index: usize) -> Vec<f32> {
    let len: u64 = TENSORS[index].1.iter().product();
    values(index, len as usize)
}

pub fn model<'a>() -> GgufWriter<'a> {
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.architecture", "qwen3moe")
        .metadata("general.file_type", 0u32)
        .metadata("qwen3moe.block_count", 1u32)
        .metadata("qwen3moe.expert_count", 2u32)
        .metadata("tokenizer.ggml.tokens", vec!["a", "b"]);
    for (index, (name, shape)) in TENSORS.iter().enumerate() {
        writer.tensor(*name, shape, F32, bytes_of(&tensor_values(index)));
    }
    writer
}

pub fn opened(writer: &GgufWriter<'_>) -> Gguf {
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

pub fn options(recipe: &str) -> QuantizeOptions {
    QuantizeOptions::new(recipe.parse().unwrap())
}

pub fn run(
    gguf: &Gguf,
    out: &Path,
    options: &QuantizeOptions,
) -> Result<QuantizeReport, QuantizeFileError> {
    quantize_file(gguf, out, options, &mut |_| {})
}

fn decoded(tensor: &TensorInfo) -> Vec<f32> {
    let mut out = vec![0.0; tensor.n_elements() as usize];
    dequantize(tensor.usable_type().unwrap(), tensor.data(), &mut out).unwrap();
    out
}

pub fn packed(ty: GgmlType, values: &[f32], cols: usize, importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
    quantize(ty, values, cols, importance, &mut out).unwrap();
    out
}

fn files_in(dir: &TempDir) -> Vec<String> {
    let names = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<_> = names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_tensors_of_the_plan_and_their_errors() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.gguf");
    let report = run(&opened(&model()), &out, &options("Q8_0")).unwrap();
    let written = Gguf::open(&out).unwrap();

    let types: Vec<_> = written
        .tensors()
        .map(|t| t.usable_type().unwrap())
        .collect();
    assert_eq!(types, [Q8_0, F32, Q8_0, Q8_0, F32, Q8_0, F16, Q8_0]);
    assert_eq!(written.tensors().len(), report.plan.tensors.len());
    let mut worst = (0, 0.0);
    for (index, tensor) in written.tensors().enumerate() {
        let (name, shape) = TENSORS[index];
        let (ty, original) = (tensor.usable_type().unwrap(), tensor_values(index));
        assert_eq!((tensor.name(), tensor.shape()), (name, shape));
        let plan = &report.plan.tensors[index];
        assert_eq!(plan.bytes_to, tensor.byte_len() as u64, "{name}");
        assert_eq!(plan.bytes_from, original.len() as u64 * 4, "{name}");
        if ty == F32 {
            assert_eq!(tensor.data(), bytes_of(&original), "{name}");
            assert_eq!((plan.to, report.rmse[index]), (None, None), "{name}");
            continue;
        }
        let expected = packed(ty, &original, shape[0] as usize, None);
        assert_eq!(tensor.data(), expected, "{name}");
        assert_eq!(plan.to, Some(ty), "{name}");
        let result = decoded(tensor);
        let squares = result
            .iter()
            .zip(&original)
            .map(|(a, b)| f64::from(a - b).powi(2));
        let rmse = (squares.sum::<f64>() / original.len() as f64).sqrt();
        assert!(rmse > 0.0, "{name}");
        assert!(
            (report.rmse[index].unwrap() - rmse).abs() < rmse * 1e-9,
            "{name}"
        );
        if rmse > worst.1 {
            worst = (index, rmse);
        }
    }
    assert_eq!(report.worst().unwrap().0.name, TENSORS[worst.0].0);
    assert_eq!(report.files, std::slice::from_ref(&out));
    assert_eq!(report.file_bytes, fs::metadata(&out).unwrap().len());
    assert_eq!(
        report.plan.tensors[6].notes,
        [Note::Fallback { wanted: Q8_0 }]
    );
    let bits = report.plan.bytes_to() as f64 * 8.0 / report.plan.values() as f64;
    assert_eq!(report.plan.bits_per_weight(), bits);
}

#[test]
fn metadata_is_carried_and_says_what_was_done() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.gguf");
    run(&opened(&model()), &out, &options("Q8_0")).unwrap();
    let written = Gguf::open(&out).unwrap();
    let metadata = written.metadata();
    assert_eq!(metadata.get::<u32>("general.file_type").unwrap(), 7);
    assert_eq!(
        metadata.get::<u32>("general.quantization_version").unwrap(),
        2
    );
    let tokens: Vec<String> = metadata.get("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens, ["a", "b"]);
    assert_eq!(metadata.len(), 6);
    assert!(!metadata.contains("quantize.imatrix.file"));
}

#[test]
fn copy_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.gguf");
    let source = opened(&model());
    let report = run(&source, &out, &options("copy")).unwrap();
    assert!(report.plan.tensors.iter().all(|t| t.to.is_none()));
    assert_eq!(fs::read(&out).unwrap(), model().to_bytes().unwrap());
    assert_eq!(report.worst().map(|(t, _)| &t.name), None);
}

#[test]
fn progress_names_each_tensor_once_and_ends_with_all_bytes() {
    let dir = TempDir::new().unwrap();
    let source = opened(&model());
    let mut seen: Vec<(String, usize, u64)> = Vec::new();
    let report = quantize_file(
        &source,
        dir.path().join("out.gguf"),
        &options("Q8_0"),
        &mut |p: Progress<'_>| {
            assert_eq!(p.tensors, TENSORS.len());
            seen.push((p.tensor.to_owned(), p.done, p.bytes_done));
        },
    )
    .unwrap();
    let last = seen.pop().unwrap();
    assert_eq!(
        last,
        (String::new(), TENSORS.len(), report.plan.bytes_from())
    );
    let names: Vec<_> = seen.iter().map(|s| s.0.as_str()).collect();
    assert_eq!(names, TENSORS.iter().map(|t| t.0).collect::<Vec<_>>());
    assert!(seen.windows(2).all(|w| w[0].1 < w[1].1 && w[0].2 < w[1].2));
}

#[test]
fn rules_come_before_the_recipe() {
    let rule = |regex: &str, action| QuantRule::new(regex, action).unwrap();
    let mut options = options("Q8_0");
    options.rules = vec![
        rule("attn_q", RuleAction::Quantize("q4_0".parse().unwrap())),
        rule("exps", RuleAction::Skip),
        rule("attn_norm", RuleAction::Quantize("q4_0".parse().unwrap())),
        rule("nowhere", RuleAction::Skip),
    ];
    let plan = QuantizePlan::new(&opened(&model()), &options).unwrap();
    let to: Vec<_> = plan.tensors.iter().map(|t| t.to).collect();
    assert_eq!(to[1..4], [None, Some(Q4_0), None]);
    assert_eq!(plan.unused_rules, ["attn_norm", "nowhere"]);
}

#[test]
fn output_and_embeddings_have_types_of_their_own() {
    let mut options = options("Q4_K_M");
    let source = opened(&model());
    let types = |options: &QuantizeOptions| {
        let plan = QuantizePlan::new(&source, options).unwrap();
        (plan.tensors[0].to.unwrap(), plan.tensors[7].to.unwrap())
    };
    assert_eq!(types(&options), (Q4K, Q6K));
    options.pure = true;
    assert_eq!(types(&options), (Q4K, Q4K));
    options.output_type = Some(Q8_0);
    assert_eq!(types(&options), (Q4K, Q8_0));
    options.token_embedding_type = Some(Q5_0);
    assert_eq!(types(&options), (Q5_0, Q8_0));
}

#[test]
fn a_quantized_source_is_decoded_or_copied() {
    let dir = TempDir::new().unwrap();
    let values = values(1, 2 * COLS);
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.architecture", "qwen2")
        .metadata("qwen2.block_count", 1u32);
    for (name, ty) in [("a.weight", Q4_0), ("b.weight", Q8_0), ("c.weight", BF16)] {
        writer.tensor(name, &[COLS as u64, 2], ty, packed(ty, &values, COLS, None));
    }
    let out = dir.path().join("out.gguf");
    let source = opened(&writer);
    let report = run(&source, &out, &options("Q8_0")).unwrap();
    let written = Gguf::open(&out).unwrap();
    let notes: Vec<_> = report.plan.tensors.iter().map(|t| &t.notes[..]).collect();
    assert_eq!(notes, [&[Note::Requantized][..], &[], &[]]);
    assert_eq!(report.plan.tensors[1].to, None);
    for tensor in written.tensors() {
        let source = source.require(tensor.name()).unwrap();
        assert_eq!(tensor.data(), packed(Q8_0, &decoded(source), COLS, None));
    }
}

#[test]
fn integers_and_encoders_of_images_are_handled_as_llama_cpp_does() {
    let mut writer = GgufWriter::new();
    let tensor = values(2, 2 * COLS);
    writer
        .metadata("general.architecture", "clip")
        .metadata("clip.has_vision_encoder", true)
        .tensor("v.blk.0.attn_q.weight", &[256, 2], F32, bytes_of(&tensor))
        .tensor("v.patch_embd.weight", &[256, 2], F32, bytes_of(&tensor))
        .tensor("v.position_embd.weight", &[256, 2], F32, bytes_of(&tensor))
        .tensor("mm.0.weight", &[256, 2], F32, bytes_of(&tensor))
        .tensor("mm.0.bias", &[256, 2], F32, bytes_of(&tensor))
        .tensor("ids.weight", &[4, 2], I32, vec![0u8; 32]);
    let plan = QuantizePlan::new(&opened(&writer), &options("Q4_0")).unwrap();
    let to: Vec<_> = plan.tensors.iter().map(|t| t.to).collect();
    assert_eq!(to, [Some(Q4_0), None, None, Some(Q4_0), None, None]);
}

#[test]
fn shards_are_merged_or_kept() {
    let dir = TempDir::new().unwrap();
    let whole = opened(&model());
    let mut shards = [GgufWriter::new(), GgufWriter::new(), GgufWriter::new()];
    shards[0].copy_metadata(whole.metadata());
    for (index, tensor) in whole.tensors().enumerate() {
        shards[index / 3].copy_tensor(tensor);
    }
    let base = dir.path().join("in.gguf");
    write_shards(&base, &mut shards).unwrap();
    let source = Gguf::open(dir.path().join("in-00002-of-00003.gguf")).unwrap();
    assert_eq!(source.tensors().len(), TENSORS.len());

    let (one, kept) = (dir.path().join("one.gguf"), dir.path().join("kept.gguf"));
    run(&source, &one, &options("Q8_0")).unwrap();
    let mut keeping = options("Q8_0");
    keeping.keep_split = true;
    let report = run(&source, &kept, &keeping).unwrap();
    assert_eq!(
        files_in(&dir),
        [
            "in-00001-of-00003.gguf",
            "in-00002-of-00003.gguf",
            "in-00003-of-00003.gguf",
            "kept-00001-of-00003.gguf",
            "kept-00002-of-00003.gguf",
            "kept-00003-of-00003.gguf",
            "one.gguf",
        ]
    );
    assert_eq!(report.files.len(), 3);
    let sizes = report.files.iter().map(|f| fs::metadata(f).unwrap().len());
    assert_eq!(report.file_bytes, sizes.sum::<u64>());

    let (one, kept) = (
        Gguf::open(&one).unwrap(),
        Gguf::open(&report.files[0]).unwrap(),
    );
    assert!(!one.metadata().contains("split.count"));
    assert_eq!(one.metadata().len() + 3, kept.metadata().len());
    assert_eq!(kept.shards().count(), 3);
    for (a, b) in one.tensors().zip(kept.tensors()) {
        assert_eq!(
            (a.name(), a.type_id(), a.data()),
            (b.name(), b.type_id(), b.data())
        );
    }
    let from: Vec<_> = source.tensors().map(TensorInfo::shard).collect();
    assert_eq!(
        kept.tensors().map(TensorInfo::shard).collect::<Vec<_>>(),
        from
    );
}

#[test]
fn an_error_leaves_the_old_file_and_no_other() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.gguf");
    fs::write(&out, "the old file").unwrap();
    let mut broken = tensor_values(2);
    broken[700] = f32::NAN;
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.architecture", "qwen3")
        .tensor("a.weight", &[256, 6], F32, bytes_of(&tensor_values(0)))
        .tensor("b.weight", &[256, 4], F32, bytes_of(&broken));
    let error = run(&opened(&writer), &out, &options("Q8_0")).unwrap_err();
    assert!(
        matches!(&error, QuantizeFileError::NotFinite { tensor, index: 700, .. } if tensor == "b.weight"),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("b.weight") && text.contains("NaN") && text.contains("700"),
        "{text}"
    );
    assert_eq!(fs::read(&out).unwrap(), b"the old file");
    assert_eq!(files_in(&dir), ["out.gguf"]);
}

#[test]
fn output_is_input() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model.gguf");
    model().write_file(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let mut outs = vec![path.clone(), dir.path().join("./model.gguf")];
    #[cfg(unix)]
    {
        let link = dir.path().join("link.gguf");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        outs.push(link);
    }
    for out in outs {
        let error = run(&gguf, &out, &options("Q8_0")).unwrap_err();
        assert!(
            matches!(error, QuantizeFileError::OutputIsInput { .. }),
            "{error}"
        );
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_removed_type_is_an_error_only_where_it_would_be_decoded() {
    let mut writer = GgufWriter::new();
    writer.metadata("general.architecture", "qwen2").tensor(
        "a.weight",
        &[64, 2],
        Q4_0x4x4,
        vec![0u8; 72],
    );
    let source = opened(&writer);
    assert!(QuantizePlan::new(&source, &options("copy")).is_ok());
    let error = QuantizePlan::new(&source, &options("Q8_0")).unwrap_err();
    assert!(error.to_string().contains("a.weight"), "{error}");
    assert!(matches!(error, QuantizeFileError::Gguf(_)));
}

#[test]
fn a_file_without_an_architecture_is_refused() {
    let mut writer = GgufWriter::new();
    writer.tensor("a.weight", &[256, 2], F32, bytes_of(&values(0, 512)));
    let error = QuantizePlan::new(&opened(&writer), &options("Q8_0")).unwrap_err();
    assert!(
        error.to_string().contains("general.architecture"),
        "{error}"
    );
}

#[test]
fn tensors_without_values_are_written() {
    let dir = TempDir::new().unwrap();
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.architecture", "qwen2")
        .tensor("a.weight", &[256, 0], F32, Vec::new());
    let out = dir.path().join("out.gguf");
    let report = run(&opened(&writer), &out, &options("Q8_0")).unwrap();
    assert_eq!(report.rmse, [None]);
    assert_eq!(Gguf::open(&out).unwrap().tensors().len(), 1);
}
