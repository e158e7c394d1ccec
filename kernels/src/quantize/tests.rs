//! Packing against ggml's reference quantizers, and what must hold whatever they do.

use super::*;
use crate::blocks::{BlockVisitor, CodeBlock, FloatBlock, visit};
use std::path::PathBuf;

const COLS: usize = 512;

fn fixture(name: &str) -> Vec<u8> {
    let dir = std::env::var_os("BURN_GGUF_QUANTIZE_FIXTURES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/quantize"),
        PathBuf::from,
    );
    let path = dir.join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn floats(name: &str) -> Vec<f32> {
    let bytes = fixture(name);
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

struct Decode<'a>(&'a [u8]);

impl Decode<'_> {
    fn decode<T: BlockType>(self) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len() / T::BYTES * T::LEN];
        let blocks = self.0.chunks_exact(T::BYTES);
        for (block, out) in blocks.zip(out.chunks_exact_mut(T::LEN)) {
            T::dequantize_block(block, out);
        }
        out
    }
}

impl BlockVisitor for Decode<'_> {
    type Output = Vec<f32>;
    fn float<T: FloatBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }
    fn code<T: CodeBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }
}

fn decode(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
    visit(ty, Decode(bytes)).expect("a type with scalar code")
}

fn pack(ty: GgmlType, values: &[f32], cols: usize, importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = vec![0xa5; ty.row_bytes(values.len()).unwrap()];
    quantize(ty, values, cols, importance, &mut out).unwrap();
    out
}

/// The sum of squared errors, of the values it can be told for.
fn squared_error(values: &[f32], decoded: &[f32]) -> f64 {
    let differences = values
        .iter()
        .zip(decoded)
        .map(|(a, b)| f64::from(*a) - f64::from(*b));
    differences.filter(|d| d.is_finite()).map(|d| d * d).sum()
}

/// Where a sub-block of zeros comes before others, ggml stores the others' points and signs of `IQ3_S` where its decoder
/// does not look for them. Ours are not the same, and better.
fn zeros_come_before_others(block: &[f32]) -> bool {
    let mut subs = block
        .chunks_exact(32)
        .map(|sub| sub.iter().all(|&x| x == 0.0));
    subs.any(|zeros| zeros) && subs.any(|zeros| !zeros)
}

#[test]
fn blocks_are_those_of_ggml() {
    let values = floats("input.f32");
    let importance = floats("importance.f32");
    let mut wrong = Vec::new();
    for &ty in WRITABLE {
        if ty == GgmlType::F32 {
            continue;
        }
        let golden = fixture(&format!("{}.bin", ty.name().to_lowercase()));
        let mut choices: Vec<Option<&[f32]>> = Vec::new();
        let used = super::importance(ty).unwrap();
        if used != Importance::Required {
            choices.push(None);
        }
        if used != Importance::Ignored {
            choices.extend(importance.chunks_exact(COLS).map(Some));
        }
        // ggml aborts on IQ types where squares overflow.
        let limit = if ty.name().starts_with("IQ") {
            1e6
        } else {
            f32::MAX
        };
        let values: Vec<f32> = values.iter().map(|x| x.clamp(-limit, limit)).collect();
        let size = ty.row_bytes(values.len()).unwrap();
        assert_eq!(golden.len(), size * choices.len(), "{ty}");
        for (i, (want, choice)) in golden.chunks_exact(size).zip(&choices).enumerate() {
            let got = pack(ty, &values, COLS, *choice);
            let blocks = got
                .chunks_exact(ty.block_bytes())
                .zip(want.chunks_exact(ty.block_bytes()));
            let unequal: Vec<usize> = blocks
                .enumerate()
                .filter(|(_, (got, want))| got != want)
                .map(|(index, _)| index)
                .filter(|block| {
                    let values = &values[block * ty.block_len()..][..ty.block_len()];
                    !(ty == GgmlType::IQ3S && zeros_come_before_others(values))
                })
                .collect();
            let errors = [&got[..], want].map(|bytes| squared_error(&values, &decode(ty, bytes)));
            assert!(
                errors[0] <= errors[1],
                "{ty} choice {i}: squared errors {errors:?}"
            );
            let count = size / ty.block_bytes();
            println!(
                "{ty} choice {i}: {} of {count} blocks differ",
                unequal.len()
            );
            if !unequal.is_empty() {
                let rows: Vec<usize> = unequal
                    .iter()
                    .map(|block| block * ty.block_len() / COLS)
                    .collect();
                println!("  in rows {rows:?}");
                wrong.push((ty, i, unequal.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "type, choice, blocks: {wrong:?}");
}

/// The most the root mean square error of normal values of variance one may be: a fifth to a half more than it is.
fn tolerance(ty: GgmlType) -> f64 {
    match ty {
        GgmlType::F32 => 0.0,
        GgmlType::F16 => 3e-4,
        GgmlType::BF16 => 3e-3,
        GgmlType::Q8_0 | GgmlType::Q8_1 | GgmlType::Q8K => 0.01,
        GgmlType::Q6K => 0.03,
        GgmlType::IQ4NL | GgmlType::IQ4XS => 0.11,
        GgmlType::IQ3XXS | GgmlType::IQ3S => 0.27,
        GgmlType::IQ2XXS | GgmlType::IQ2XS | GgmlType::IQ2S => 0.45,
        GgmlType::IQ1S | GgmlType::IQ1M => 0.6,
        GgmlType::Q5_0 | GgmlType::Q5_1 | GgmlType::Q5K => 0.06,
        GgmlType::Q4_0 | GgmlType::Q4_1 | GgmlType::Q4K => 0.11,
        GgmlType::MXFP4 | GgmlType::NVFP4 => 0.14,
        GgmlType::Q3K => 0.21,
        GgmlType::Q2K => 0.41,
        GgmlType::Q1_0 => 0.7,
        // The largest magnitude is a poor scale for normal values: most become zero.
        GgmlType::Q2_0 | GgmlType::TQ1_0 | GgmlType::TQ2_0 => 0.9,
        _ => panic!("say how good {ty} is"),
    }
}

/// Normal values, from sums of twelve even ones.
fn normal(len: usize, mut seed: u64) -> Vec<f32> {
    let mut even = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len)
        .map(|_| (0..12).map(|_| even()).sum::<f32>() - 6.0)
        .collect()
}

#[test]
fn what_is_packed_is_close_to_what_was_given() {
    let (rows, cols) = (8, 1024);
    let values = normal(rows * cols, 5);
    let uniform = vec![1.0; cols];
    for &ty in WRITABLE {
        for importance in [None, Some(&uniform[..])] {
            if importance.is_none() && super::importance(ty) == Some(Importance::Required) {
                continue;
            }
            let decoded = decode(ty, &pack(ty, &values, cols, importance));
            let error = (squared_error(&values, &decoded) / values.len() as f64).sqrt();
            println!("{ty}: {error:.5}");
            assert!(
                error <= tolerance(ty),
                "{ty} {}: {error}",
                importance.is_some()
            );
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for &ty in WRITABLE {
        let ones = [1.0; COLS];
        let decoded = decode(ty, &pack(ty, &[0.0; 2 * COLS], COLS, Some(&ones)));
        assert!(decoded.iter().all(|&x| x == 0.0), "{ty}");
    }
}

#[test]
fn extremes_do_not_panic() {
    let extremes = [
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        -f32::MIN_POSITIVE,
        f32::from_bits(1),
        1e-30,
        65504.0,
        -0.0,
    ];
    for &ty in WRITABLE {
        for (i, &a) in extremes.iter().enumerate() {
            for &b in &extremes {
                let values: Vec<f32> = (0..COLS)
                    .map(|j| if (i + j) % 3 == 0 { a } else { b })
                    .collect();
                for weight in [0.0, 1e-30, 1.0, f32::MAX] {
                    pack(ty, &values, COLS, Some(&[weight; COLS]));
                }
            }
        }
    }
}

#[test]
fn any_cpu_and_any_number_of_threads_give_the_same_bytes() {
    let (rows, cols) = (33, 512);
    let values = normal(rows * cols, 3);
    let importance: Vec<f32> = normal(cols, 4).iter().map(|x| x * x).collect();
    for &ty in WRITABLE {
        let row_bytes = ty.row_bytes(cols).unwrap();
        let mut serial = vec![0; rows * row_bytes];
        let rows = values
            .chunks_exact(cols)
            .zip(serial.chunks_exact_mut(row_bytes));
        for (values, out) in rows {
            portable(ty)(values, Some(&importance), out);
        }
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let got = pool.install(|| pack(ty, &values, cols, Some(&importance)));
            assert!(got == serial, "{ty} on {threads} threads");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let ty = GgmlType::Q4_0;
    let mut out = [7; 36];
    let mut run = |ty, values: &[f32], cols, importance: Option<&[f32]>, size| {
        quantize(ty, values, cols, importance, &mut out[..size])
    };
    assert_eq!(
        run(GgmlType::I32, &[0.0; 4], 4, None, 16),
        Err(QuantizeError::NotWritable { ty: GgmlType::I32 })
    );
    assert_eq!(
        run(GgmlType::Q4_2, &[], 32, None, 0)
            .unwrap_err()
            .to_string(),
        "Q4_2 cannot be written: ggml removed the type"
    );
    assert_eq!(
        run(ty, &[0.0; 48], 48, None, 36),
        Err(QuantizeError::PartialBlock { ty, cols: 48 })
    );
    assert_eq!(
        run(ty, &[0.0; 63], 32, None, 36),
        Err(QuantizeError::PartialRow {
            values: 63,
            cols: 32
        })
    );
    assert_eq!(
        run(ty, &[0.0; 1], 0, None, 0),
        Err(QuantizeError::PartialRow { values: 1, cols: 0 })
    );
    assert_eq!(
        run(ty, &[0.0; 64], 32, None, 35),
        Err(QuantizeError::ByteLength {
            ty,
            values: 64,
            expected: 36,
            actual: 35
        })
    );
    assert_eq!(
        run(ty, &[0.0; 64], 32, Some(&[1.0; 64]), 36),
        Err(QuantizeError::ImportanceLength {
            expected: 32,
            actual: 64
        })
    );
    let mut weights = [1.0; 32];
    weights[5] = -1.0;
    let error = run(ty, &[0.0; 64], 32, Some(&weights), 36);
    assert_eq!(
        error,
        Err(QuantizeError::ImportanceValue {
            index: 5,
            weight: -1.0
        })
    );
    let mut values = [0.0; 64];
    (values[40], values[50]) = (f32::INFINITY, f32::NAN);
    assert_eq!(
        run(ty, &values, 32, None, 36),
        Err(QuantizeError::NotFinite {
            index: 40,
            value: f32::INFINITY
        })
    );
    assert_eq!(run(ty, &[], 32, None, 0), Ok(()));
    assert_eq!(run(ty, &[], 0, None, 0), Ok(()));
    assert_eq!(out, [7; 36], "nothing was written");
}

#[test]
fn every_writable_type_says_what_it_does_with_importance() {
    for &ty in GgmlType::ALL {
        assert_eq!(is_writable(ty), WRITABLE.contains(&ty));
        assert_eq!(super::importance(ty).is_some(), is_writable(ty));
    }
    assert_eq!(super::importance(GgmlType::Q4K), Some(Importance::Optional));
    assert_eq!(super::importance(GgmlType::Q8_0), Some(Importance::Ignored));
}
