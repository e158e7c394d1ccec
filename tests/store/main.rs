//! `GgufStore`: a user's own burn module from and to GGUF files.

mod errors;
mod load;
mod module;
mod record;
mod save;
mod scale;

use std::path::PathBuf;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::{Device, Tensor};
use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::nn::{GgmlEmbedding, GgmlLinear};
use burn_gguf::store::{GgufStore, NameMap};
use tempfile::TempDir;

/// Rows of the embedding.
const VOCAB: usize = 8;
/// Width of the model: one block of the longest type.
const WIDTH: usize = 256;
/// Width inside.
const INNER: usize = 6;

/// A module as a user would write it: packed layers beside burn's own.
#[derive(Module, Debug)]
struct Net {
    embedding: GgmlEmbedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
}

#[derive(Module, Debug)]
struct Layer {
    up: GgmlLinear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let layer = |bias| Layer {
            up: GgmlLinear::uninitialized(WIDTH, INNER, bias, device),
        };
        Self {
            embedding: GgmlEmbedding::uninitialized(VOCAB, WIDTH, device),
            layers: vec![layer(true), layer(false)],
            norm: RmsNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, 3).init(device),
        }
    }
}

fn names() -> NameMap {
    NameMap::new(&[
        ("token_embd.weight", "embedding.weight"),
        ("blk.{}.ffn_up.weight", "layers.{}.up.weight"),
        ("blk.{}.ffn_up.bias", "layers.{}.up.bias"),
        ("output_norm.weight", "norm.gamma"),
        ("output.weight", "head.weight"),
        ("output.bias", "head.bias"),
    ])
}

/// The golden blocks beside the tests, over and over.
fn blocks(ty: GgmlType, values: usize) -> Vec<u8> {
    let name = format!("tests/fixtures/blocks/{}.gguf", ty.name().to_lowercase());
    let gguf = Gguf::open(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let data = gguf.require("quantized").unwrap().bytes();
    data.iter()
        .copied()
        .cycle()
        .take(ty.row_bytes(values).unwrap())
        .collect()
}

fn floats(from: f32, n: usize) -> Vec<f32> {
    (0..n).map(|i| from + i as f32 / 16.0).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The tensors of the file [`Net`] is loaded from: name, shape (`ne` order), type, bytes.
fn tensors() -> Vec<(&'static str, Vec<u64>, GgmlType, Vec<u8>)> {
    let (width, inner, vocab) = (WIDTH as u64, INNER as u64, VOCAB as u64);
    vec![
        (
            "token_embd.weight",
            vec![width, vocab],
            GgmlType::Q6K,
            blocks(GgmlType::Q6K, WIDTH * VOCAB),
        ),
        (
            "blk.0.ffn_up.weight",
            vec![width, inner],
            GgmlType::Q4K,
            blocks(GgmlType::Q4K, WIDTH * INNER),
        ),
        (
            "blk.0.ffn_up.bias",
            vec![inner],
            GgmlType::F32,
            bytes(&floats(1.0, INNER)),
        ),
        (
            "blk.1.ffn_up.weight",
            vec![width, inner],
            GgmlType::Q8_0,
            blocks(GgmlType::Q8_0, WIDTH * INNER),
        ),
        (
            "output_norm.weight",
            vec![width],
            GgmlType::F32,
            bytes(&floats(-8.0, WIDTH)),
        ),
        // A dense layer from blocks: dequantized, and transposed because burn keeps `[in, out]`.
        (
            "output.weight",
            vec![width, 3],
            GgmlType::Q5_0,
            blocks(GgmlType::Q5_0, WIDTH * 3),
        ),
        (
            "output.bias",
            vec![3],
            GgmlType::F16,
            [0x3c00u16, 0xc000, 0x0001]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
        ),
    ]
}

/// A file with the tensors that `change` leaves or makes.
fn file(
    change: impl Fn(&mut Vec<(&'static str, Vec<u64>, GgmlType, Vec<u8>)>),
) -> (TempDir, PathBuf) {
    let mut tensors = tensors();
    change(&mut tensors);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.gguf");
    let mut writer = GgufWriter::new();
    writer.metadata("general.architecture", "net");
    for (name, shape, ty, data) in tensors {
        writer.tensor(name, &shape, ty, data);
    }
    writer.write_file(&path).unwrap();
    (dir, path)
}

fn open(path: &PathBuf) -> GgufStore {
    GgufStore::open(path).unwrap().with_name_map(names())
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().unwrap()
}

/// The scalar values of blocks, through a second path: a tensor of its own.
fn decoded(ty: GgmlType, rows: usize, cols: usize, data: &[u8]) -> Vec<f32> {
    let mut out = vec![0f32; rows * cols];
    burn_gguf_kernels::cpu::dequantize(ty, data, &mut out).unwrap();
    out
}
