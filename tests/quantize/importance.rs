//! Importance matrices: reading them, and what they change.

use std::fs;

use burn_gguf::GgmlType::{self, *};
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::quantize::{
    ImportanceError, ImportanceMatrix, Note, QuantizeFileError, QuantizeOptions, QuantizePlan,
};
use tempfile::TempDir;

use crate::file::{COLS, bytes_of, model, opened, options, packed, run, tensor_values, values};

const EXPERTS: &str = "blk.0.ffn_down_exps.weight";
const QUERY: &str = "blk.0.attn_q.weight";

fn squares(seed: usize, len: usize) -> Vec<f32> {
    values(seed, len).iter().map(|v| v * v + 0.01).collect()
}

/// An importance matrix of a query matrix (used 4 times) and two experts (used twice and never).
fn gguf_form<'a>() -> GgufWriter<'a> {
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.type", "imatrix")
        .metadata("imatrix.datasets", vec!["wiki.txt", "code.txt"])
        .metadata("imatrix.chunk_count", 3u32)
        .metadata("imatrix.chunk_size", 512u32);
    entry(&mut writer, QUERY, &squares(1, COLS), &[4.0]);
    entry(&mut writer, EXPERTS, &squares(2, 2 * COLS), &[2.0, 0.0]);
    writer
}

fn entry(writer: &mut GgufWriter<'_>, name: &str, sums: &[f32], counts: &[f32]) {
    let (cols, rows) = ((sums.len() / counts.len()) as u64, counts.len() as u64);
    writer
        .tensor(
            format!("{name}.in_sum2"),
            &[cols, rows],
            F32,
            bytes_of(sums),
        )
        .tensor(format!("{name}.counts"), &[1, rows], F32, bytes_of(counts));
}

fn int(v: i32) -> [u8; 4] {
    v.to_le_bytes()
}

/// The same query matrix in the binary form.
fn binary_form() -> Vec<u8> {
    let sums = squares(1, COLS);
    let mut bytes = int(1).to_vec();
    bytes.extend(int(QUERY.len() as i32));
    bytes.extend(QUERY.bytes());
    bytes.extend(int(4));
    bytes.extend(int(sums.len() as i32));
    bytes.extend(bytes_of(&sums));
    bytes.extend(int(3));
    bytes.extend(int(8));
    bytes.extend(b"wiki.txt");
    bytes
}

fn read(writer: &GgufWriter<'_>) -> Result<ImportanceMatrix, ImportanceError> {
    ImportanceMatrix::from_gguf(&opened(writer))
}

fn read_bytes(bytes: &[u8]) -> Result<ImportanceMatrix, ImportanceError> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("imatrix.dat");
    fs::write(&path, bytes).unwrap();
    ImportanceMatrix::open(&path)
}

fn with(matrix: ImportanceMatrix, recipe: &str) -> QuantizeOptions {
    QuantizeOptions {
        importance: Some(matrix),
        ..options(recipe)
    }
}

#[test]
fn the_gguf_form_is_sums_over_counts() {
    let matrix = read(&gguf_form()).unwrap();
    assert_eq!((matrix.len(), matrix.chunks()), (2, 3));
    assert_eq!(matrix.datasets(), ["wiki.txt", "code.txt"]);
    let expected: Vec<f32> = squares(1, COLS).iter().map(|v| v / 4.0).collect();
    assert_eq!(matrix.get(QUERY).unwrap(), expected);
    let experts = matrix.get(EXPERTS).unwrap();
    assert_eq!(experts[0], squares(2, COLS)[0] / 2.0);
    // An expert that never ran.
    assert!(experts[COLS..].iter().all(|&v| v == 1.0));
    assert_eq!(matrix.get("blk.1.attn_q.weight"), None);
}

#[test]
fn the_binary_form_says_the_same() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("imatrix.gguf");
    gguf_form().write_file(&path).unwrap();
    let a = ImportanceMatrix::open(&path).unwrap();
    let b = read_bytes(&binary_form()).unwrap();
    assert_eq!(a.get(QUERY), b.get(QUERY));
    assert_eq!((b.len(), b.chunks()), (1, 3));
    assert_eq!(b.datasets(), ["wiki.txt"]);
    // The end is optional.
    let short = binary_form();
    let short = read_bytes(&short[..short.len() - 16]).unwrap();
    assert_eq!((short.get(QUERY), short.chunks()), (b.get(QUERY), 0));
}

#[test]
fn each_expert_has_its_own_importances() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.gguf");
    let matrix = read(&gguf_form()).unwrap();
    let importance = matrix.get(EXPERTS).unwrap().to_vec();
    let mut options = with(matrix, "Q4_0");
    options.pure = true;
    run(&opened(&model()), &out, &options).unwrap();
    let written = Gguf::open(&out).unwrap();
    let experts = tensor_values(3);
    let (first, second) = experts.split_at(experts.len() / 2);
    let mut expected = packed(Q4_0, first, COLS, Some(&importance[..COLS]));
    expected.extend(packed(Q4_0, second, COLS, Some(&importance[COLS..])));
    assert_eq!(written.require(EXPERTS).unwrap().data(), expected);
    assert_ne!(expected, packed(Q4_0, &experts, COLS, None));
    // No importances of this one are in the matrix.
    let embedding = written.require("token_embd.weight").unwrap();
    assert_eq!(
        embedding.data(),
        packed(Q4_0, &tensor_values(0), COLS, None)
    );

    let metadata = written.metadata();
    assert_eq!(
        metadata.get::<&str>("quantize.imatrix.dataset").unwrap(),
        "wiki.txt"
    );
    assert_eq!(
        metadata
            .get::<u32>("quantize.imatrix.entries_count")
            .unwrap(),
        2
    );
    assert_eq!(
        metadata
            .get::<u32>("quantize.imatrix.chunks_count")
            .unwrap(),
        3
    );
    assert!(metadata.contains("quantize.imatrix.file"));
}

#[test]
fn where_importances_are_demanded_and_missing_all_inputs_count_the_same() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.gguf");
    let mut options = options("IQ2_XXS");
    options.pure = true;
    let report = run(&opened(&model()), &out, &options).unwrap();
    let written = Gguf::open(&out).unwrap();
    assert_eq!(report.plan.tensors[3].notes, [Note::UniformImportance]);
    let expected = packed(IQ2XXS, &tensor_values(3), COLS, Some(&[1.0; COLS]));
    assert_eq!(written.require(EXPERTS).unwrap().data(), expected);

    // The matrix has this tensor: no note, and another result.
    options.importance = Some(read(&gguf_form()).unwrap());
    let report = run(&opened(&model()), &out, &options).unwrap();
    assert_eq!(report.plan.tensors[3].notes, []);
    let written = Gguf::open(&out).unwrap();
    assert_ne!(written.require(EXPERTS).unwrap().data(), expected);
}

#[test]
fn importances_are_advised_for_small_types() {
    let notes = |recipe: &str, name: &str| {
        let plan = QuantizePlan::new(&opened(&model()), &options(recipe)).unwrap();
        let tensor = plan.tensors.into_iter().find(|t| t.name == name);
        tensor.unwrap().notes
    };
    assert_eq!(notes("Q2_K_S", QUERY), [Note::ImportanceAdvised]);
    assert_eq!(notes("Q2_K", QUERY), []);
    assert_eq!(notes("IQ3_XXS", QUERY), [Note::ImportanceAdvised]);
    assert_eq!(notes("Q2_K_S", "token_embd.weight"), []);
}

#[test]
fn importance_size() {
    let mut writer = GgufWriter::new();
    entry(&mut writer, QUERY, &squares(1, 128), &[1.0]);
    let options = with(read(&writer).unwrap(), "Q4_K");
    let error = QuantizePlan::new(&opened(&model()), &options).unwrap_err();
    assert!(
        matches!(&error, QuantizeFileError::ImportanceSize { tensor, need: 256, have: 128, .. } if tensor == QUERY),
        "{error}"
    );
}

#[test]
fn importances_of_other_embeddings_are_ignored_and_that_is_said() {
    let mut writer = GgufWriter::new();
    entry(&mut writer, "token_embd.weight", &squares(1, 128), &[1.0]);
    let options = with(read(&writer).unwrap(), "Q4_K");
    let plan = QuantizePlan::new(&opened(&model()), &options).unwrap();
    let note = Note::ImportanceIgnored {
        need: 256,
        have: 128,
    };
    assert_eq!(plan.tensors[0].notes, [note]);
}

#[test]
fn the_matrix_is_not_overwritten() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("imatrix.gguf");
    gguf_form().write_file(&path).unwrap();
    let options = with(ImportanceMatrix::open(&path).unwrap(), "Q4_0");
    let error = run(&opened(&model()), &path, &options).unwrap_err();
    assert!(
        matches!(error, QuantizeFileError::OutputIsInput { .. }),
        "{error}"
    );
}

#[test]
fn no_entries() {
    let error = read(&model()).unwrap_err();
    assert!(
        matches!(error, ImportanceError::NoEntries { .. }),
        "{error}"
    );
    let error = read_bytes(&int(0)).unwrap_err();
    assert!(
        matches!(error, ImportanceError::NoEntries { .. }),
        "{error}"
    );
}

#[test]
fn counts_missing() {
    let mut writer = GgufWriter::new();
    writer.tensor("a.in_sum2", &[4, 1], F32, bytes_of(&[1.0; 4]));
    let error = read(&writer).unwrap_err();
    assert!(
        matches!(&error, ImportanceError::CountsMissing { name, .. } if name == "a"),
        "{error}"
    );
}

#[test]
fn counts_shape() {
    let mut writer = GgufWriter::new();
    writer
        .tensor("a.in_sum2", &[4, 1], F32, bytes_of(&[1.0; 4]))
        .tensor("a.counts", &[1, 3], F32, bytes_of(&[1.0; 3]));
    let error = read(&writer).unwrap_err();
    assert!(
        matches!(
            error,
            ImportanceError::CountsShape {
                sums: 4,
                counts: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn not_f32() {
    let mut writer = GgufWriter::new();
    let half: GgmlType = F16;
    writer
        .tensor("a.in_sum2", &[4, 1], half, vec![0u8; 8])
        .tensor("a.counts", &[1, 1], F32, bytes_of(&[1.0]));
    let error = read(&writer).unwrap_err();
    assert!(
        matches!(error, ImportanceError::NotF32 { type_id: 1, .. }),
        "{error}"
    );
}

#[test]
fn not_finite() {
    let mut writer = GgufWriter::new();
    entry(&mut writer, "a", &[1.0, f32::INFINITY], &[1.0]);
    let error = read(&writer).unwrap_err();
    assert!(
        matches!(error, ImportanceError::NotFinite { index: 1, .. }),
        "{error}"
    );
}

#[test]
fn truncated() {
    let bytes = binary_form();
    let error = read_bytes(&bytes[..200]).unwrap_err();
    assert!(
        matches!(error, ImportanceError::Truncated { .. }),
        "{error}"
    );
    // Wherever it is cut, it is an error or the part that is optional.
    let optional = bytes.len() - 16;
    for end in 0..bytes.len() {
        let ok = read_bytes(&bytes[..end]).is_ok();
        assert_eq!(ok, end == optional || end == optional + 4, "{end}");
    }
}

#[test]
fn bad_length() {
    let mut bytes = int(1).to_vec();
    bytes.extend(int(-5));
    let error = read_bytes(&bytes).unwrap_err();
    assert!(
        matches!(error, ImportanceError::BadLength { value: -5, .. }),
        "{error}"
    );
}

#[test]
fn io_and_gguf_errors_name_the_file() {
    let error = ImportanceMatrix::open("nowhere/imatrix.dat").unwrap_err();
    assert!(matches!(error, ImportanceError::Io { .. }));
    assert!(error.to_string().contains("nowhere"), "{error}");
    let error = read_bytes(b"GGUF and nothing else").unwrap_err();
    assert!(matches!(error, ImportanceError::Gguf(_)), "{error}");
}
