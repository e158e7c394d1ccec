//! Every operation, over every type and every level this CPU has, against a naive product in `f64`.

use super::input::SumKind;
use super::level::{Kernel, Level};
use super::*;
use crate::GgmlType;
use crate::blocks::{self, BlockType, BlockVisitor, CodeBlock, FloatBlock, golden};
use half::f16;

/// Largest allowed mean square error, relative to the energy of the sums, `sum (y - y')^2 / sum y'^2`, or of
/// the products that were summed, `sum (w x)^2`, where that is larger: sums alone are small where products cancel.
struct Tolerance {
    /// `f32` products and sums of up to a few thousand terms, each step rounded to 2^-24 of a partial sum.
    exact: f64,
    /// Activations rounded to 1/254 of the largest of 32: a uniform error of variance (max / 127)^2 / 12, about
    /// 2e-5 of the energy of evenly spread values. The same for every type: weights are not rounded.
    fast: f64,
    /// Levels of `Fast` against each other: the integers are equal, only `f32` sums differ in order.
    levels: f64,
}

const TOLERANCE: Tolerance = Tolerance {
    exact: 1e-12,
    fast: 1e-4,
    levels: 1e-11,
};

/// Numbers in -1..1 from a linear congruential generator.
fn noise(len: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn relative_error(got: &[f32], want: &[f64], energy: f64) -> f64 {
    assert_eq!(got.len(), want.len());
    let error: f64 = got
        .iter()
        .zip(want)
        .map(|(a, b)| (f64::from(*a) - b).powi(2))
        .sum();
    if error == 0.0 { 0.0 } else { error / energy }
}

struct DecodeScalar<'a>(&'a [u8]);

impl BlockVisitor for DecodeScalar<'_> {
    type Output = Vec<f32>;

    fn float<T: FloatBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }

    fn code<T: CodeBlock>(self) -> Vec<f32> {
        self.decode::<T>()
    }
}

impl DecodeScalar<'_> {
    fn decode<T: BlockType>(self) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len() / T::BYTES * T::LEN];
        for (block, out) in self
            .0
            .chunks_exact(T::BYTES)
            .zip(out.chunks_exact_mut(T::LEN))
        {
            T::dequantize_block(block, out);
        }
        out
    }
}

fn decode_scalar(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
    blocks::visit(ty, DecodeScalar(bytes)).expect("an implemented type")
}

/// Blocks of the type with random codes and scales of usual size, seeded. All of its bytes but the `f16` scales are
/// noise; those are where the type keeps them.
fn random_blocks(ty: GgmlType, count: usize, seed: u64) -> Vec<u8> {
    let scales: &[usize] = match ty {
        GgmlType::F32 => {
            return noise(count, seed)
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect();
        }
        GgmlType::F16 => {
            return noise(count, seed)
                .iter()
                .flat_map(|x| f16::from_f32(*x).to_le_bytes())
                .collect();
        }
        GgmlType::BF16 => {
            return noise(count, seed)
                .iter()
                .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
                .collect();
        }
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 => &[0],
        GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q6K => &[208],
        _ => panic!("say where {ty} keeps its scales"),
    };
    let size = ty.block_bytes();
    let mut bytes: Vec<u8> = noise(count * size, seed)
        .iter()
        .map(|x| (x * 1e4) as i32 as u8)
        .collect();
    for (i, scale) in noise(count * scales.len(), seed + 1)
        .into_iter()
        .enumerate()
    {
        let at = i / scales.len() * size + scales[i % scales.len()];
        bytes[at..at + 2].copy_from_slice(&f16::from_f32(scale * 0.01).to_le_bytes());
    }
    bytes
}

/// `rows x cols` of a type whose every byte but the scales is `fill`, and whose scales are `scale`.
fn constant_blocks(ty: GgmlType, count: usize, fill: u8, scale: f16) -> Vec<u8> {
    let mut bytes = vec![fill; count * ty.block_bytes()];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        match ty {
            GgmlType::Q6K => block[208..210].copy_from_slice(&scale.to_le_bytes()),
            GgmlType::Q4K | GgmlType::Q5K => {
                block[..2].copy_from_slice(&scale.to_le_bytes());
                block[2..4].copy_from_slice(&scale.to_le_bytes());
            }
            _ => block[..2].copy_from_slice(&scale.to_le_bytes()),
        }
    }
    bytes
}

/// `x W^T` in `f64`, and the energy of all products.
fn naive(weights: &[f32], x: &[f32], cols: usize) -> (Vec<f64>, f64) {
    let (mut y, mut energy) = (Vec::<f64>::new(), 0.0);
    for x in x.chunks_exact(cols) {
        for w in weights.chunks_exact(cols) {
            let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            y.push(products.clone().sum());
            energy += products.map(|p| p * p).sum::<f64>();
        }
    }
    let energy = y.iter().map(|y| y * y).sum::<f64>().max(energy);
    (y, energy)
}

fn levels() -> impl Iterator<Item = Isa> {
    Isa::ALL.iter().copied().filter(|isa| {
        let available = isa.is_available();
        if !available {
            println!("skipped: this CPU lacks {isa:?}");
        }
        available
    })
}

/// All levels and both arithmetics on one matrix, against the naive product and each other.
fn check_linear(what: &str, matrix: Matrix<'_>, x: &[f32], n: usize) {
    let weights = decode_scalar(matrix.ty, matrix.bytes);
    let (want, energy) = naive(&weights, x, matrix.cols);
    let mut portable: Option<Vec<f64>> = None;
    for isa in levels() {
        for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
            let mut y = vec![f32::NAN; n * matrix.rows];
            linear_many_at(isa, &[matrix], x, n, &mut [&mut y], arithmetic).unwrap();
            let case = format!(
                "{} {what} {isa:?} {arithmetic:?} n={n} {}x{}",
                matrix.ty, matrix.rows, matrix.cols
            );
            assert!(y.iter().all(|y| y.is_finite()), "{case}: not finite");
            let error = relative_error(&y, &want, energy);
            let limit = if arithmetic == Arithmetic::Exact {
                TOLERANCE.exact
            } else {
                TOLERANCE.fast
            };
            assert!(error <= limit, "{case}: error {error:e} above {limit:e}");
            if arithmetic == Arithmetic::Fast {
                let y: Vec<f64> = y.into_iter().map(f64::from).collect();
                match &portable {
                    None => portable = Some(y),
                    Some(portable) => {
                        let y: Vec<f32> = y.iter().map(|y| *y as f32).collect();
                        let error = relative_error(&y, portable, energy);
                        assert!(
                            error <= TOLERANCE.levels,
                            "{case}: {error:e} from the portable level"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn linear_agrees_at_every_size() {
    for &ty in blocks::IMPLEMENTED {
        for cols in [ty.block_len().max(32), 256, 768] {
            for rows in [1, 7, 16, 37] {
                let bytes = random_blocks(ty, rows * cols / ty.block_len(), 7);
                for n in [0, 1, 2, 3, 4, 5, 8, 9, 13, 63, 64, 65] {
                    let x = noise(n * cols, 11 + n as u64);
                    check_linear(
                        "random",
                        Matrix {
                            ty,
                            bytes: &bytes,
                            rows,
                            cols,
                        },
                        &x,
                        n,
                    );
                }
            }
        }
    }
}

#[test]
fn linear_divides_large_products() {
    let (rows, cols) = (150, 512);
    for &ty in blocks::IMPLEMENTED {
        let bytes = random_blocks(ty, rows * cols / ty.block_len(), 3);
        for n in [1, 512, 515] {
            check_linear(
                "large",
                Matrix {
                    ty,
                    bytes: &bytes,
                    rows,
                    cols,
                },
                &noise(n * cols, 5),
                n,
            );
        }
    }
}

#[test]
fn float_rows_need_not_fill_a_register() {
    for ty in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
        for cols in [1, 3, 31, 65, 257, 300] {
            let bytes = random_blocks(ty, 5 * cols, 3);
            for n in [1, 4, 11] {
                check_linear(
                    "odd",
                    Matrix {
                        ty,
                        bytes: &bytes,
                        rows: 5,
                        cols,
                    },
                    &noise(n * cols, 5),
                    n,
                );
            }
        }
    }
}

#[test]
fn linear_on_golden_blocks() {
    for &ty in blocks::IMPLEMENTED {
        if ty.block_len() == 1 {
            continue;
        }
        for golden in golden::load(ty) {
            let (rows, cols) = (golden.values.len() / 1024, 1024);
            for n in [1, 3, 16] {
                let matrix = Matrix {
                    ty,
                    bytes: &golden.bytes,
                    rows,
                    cols,
                };
                check_linear(golden.name, matrix, &noise(n * cols, 9), n);
            }
        }
    }
}

#[test]
fn linear_on_extreme_blocks() {
    let scales = [
        f16::ZERO,
        f16::ONE,
        f16::MAX,
        f16::MIN,
        f16::MIN_POSITIVE_SUBNORMAL,
    ];
    for &ty in blocks::IMPLEMENTED {
        if ty.block_len() == 1 {
            continue;
        }
        let cols = 512;
        for scale in scales {
            for fill in [0, 0x7f, 0x80, 0xff] {
                let bytes = constant_blocks(ty, 3 * cols / ty.block_len(), fill, scale);
                for n in [1, 9] {
                    // Uneven, or the mins of constant blocks would cancel the codes exactly.
                    let x: Vec<f32> = noise(n * cols, 5).iter().map(|x| x + 1.0).collect();
                    check_linear(
                        &format!("filled with {fill} at {scale}"),
                        Matrix {
                            ty,
                            bytes: &bytes,
                            rows: 3,
                            cols,
                        },
                        &x,
                        n,
                    );
                }
            }
        }
    }
}

#[test]
fn large_activations_stay_finite() {
    for &ty in blocks::IMPLEMENTED {
        let (rows, cols) = (16, 768);
        let bytes = random_blocks(ty, rows * cols / ty.block_len(), 3);
        for n in [1, 12] {
            let x: Vec<f32> = noise(n * cols, 5).iter().map(|x| x * 1e5).collect();
            check_linear(
                "1e5",
                Matrix {
                    ty,
                    bytes: &bytes,
                    rows,
                    cols,
                },
                &x,
                n,
            );
        }
    }
}

#[test]
fn a_nan_activation_reaches_its_outputs_only() {
    let (rows, cols) = (16, 256);
    let bytes = random_blocks(GgmlType::Q4K, rows, 3);
    let matrix = Matrix {
        ty: GgmlType::Q4K,
        bytes: &bytes,
        rows,
        cols,
    };
    for isa in levels() {
        for n in [2, 12] {
            let mut x = noise(n * cols, 5);
            x[cols + 3] = f32::NAN;
            let mut y = vec![0.0; n * rows];
            linear_many_at(isa, &[matrix], &x, n, &mut [&mut y], Arithmetic::Fast).unwrap();
            for (token, y) in y.chunks_exact(rows).enumerate() {
                assert!(
                    y.iter().all(|y| y.is_nan() == (token == 1)),
                    "{isa:?} token {token} of {n}: {y:?}"
                );
            }
        }
    }
}

#[test]
fn many_matrices_give_what_each_gives_alone() {
    let types = [
        GgmlType::Q5_0,
        GgmlType::Q8_0,
        GgmlType::Q4K,
        GgmlType::Q6K,
        GgmlType::F16,
    ];
    let (rows, cols) = ([48, 16, 33, 100, 5], 256);
    let data: Vec<_> = types
        .iter()
        .zip(rows)
        .map(|(ty, rows)| random_blocks(*ty, rows * cols / ty.block_len(), 3))
        .collect();
    let matrices: Vec<_> = (0..5)
        .map(|i| Matrix {
            ty: types[i],
            bytes: &data[i],
            rows: rows[i],
            cols,
        })
        .collect();
    for n in [1, 3, 20] {
        let x = noise(n * cols, 8);
        for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
            let mut together: Vec<_> = rows.iter().map(|rows| vec![0.0; n * rows]).collect();
            let mut outs: Vec<&mut [f32]> = together.iter_mut().map(|y| &mut y[..]).collect();
            linear_many(&matrices, &x, n, &mut outs, arithmetic).unwrap();
            for (matrix, together) in matrices.iter().zip(&together) {
                let mut alone = vec![0.0; n * matrix.rows];
                linear(*matrix, &x, n, &mut alone, arithmetic).unwrap();
                assert_eq!(&alone, together, "{} {arithmetic:?} n={n}", matrix.ty);
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let (rows, cols) = (1000, 512);
    let bytes = random_blocks(GgmlType::Q5_0, rows * cols / 32, 3);
    let matrix = Matrix {
        ty: GgmlType::Q5_0,
        bytes: &bytes,
        rows,
        cols,
    };
    for n in [1, 30] {
        let x = noise(n * cols, 8);
        let run = || {
            let mut y = vec![0.0; n * rows];
            linear(matrix, &x, n, &mut y, Arithmetic::Fast).unwrap();
            y
        };
        let outside = run();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            assert_eq!(pool.install(run), outside, "{threads} threads");
        }
    }
}

#[test]
fn unaligned_weights_are_read_in_place() {
    let cols = 256;
    for &ty in blocks::IMPLEMENTED {
        let bytes = random_blocks(ty, 4 * cols / ty.block_len(), 3);
        let mut shifted = vec![0; bytes.len() + 1];
        shifted[1..].copy_from_slice(&bytes);
        for n in [1, 10] {
            let matrix = Matrix {
                ty,
                bytes: &shifted[1..],
                rows: 4,
                cols,
            };
            check_linear("unaligned", matrix, &noise(n * cols, 5), n);
        }
    }
}

#[test]
fn dequantize_is_the_scalar_code_at_every_level() {
    for &ty in blocks::IMPLEMENTED {
        let bytes = random_blocks(ty, 70000 / ty.block_len(), 3);
        let want = decode_scalar(ty, &bytes);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for isa in levels() {
            let mut got = vec![f32::NAN; want.len()];
            super::dequantize::dequantize_as(ty, &bytes, &mut got, isa).unwrap();
            assert!(bits(&got) == bits(&want), "{ty} {isa:?}");
        }
        let mut halves = vec![f16::ZERO; want.len()];
        dequantize_f16(ty, &bytes, &mut halves).unwrap();
        assert!(
            halves
                .iter()
                .zip(&want)
                .all(|(a, b)| *a == f16::from_f32(*b)),
            "{ty} to F16"
        );
        let mut halves = vec![half::bf16::ZERO; want.len()];
        dequantize_bf16(ty, &bytes, &mut halves).unwrap();
        assert!(
            halves
                .iter()
                .zip(&want)
                .all(|(a, b)| *a == half::bf16::from_f32(*b)),
            "{ty} to BF16"
        );
    }
}

#[test]
fn gathered_rows_are_dequantized_rows() {
    for &ty in blocks::IMPLEMENTED {
        let (rows, cols) = (6, 512);
        let bytes = random_blocks(ty, rows * cols / ty.block_len(), 3);
        let want = decode_scalar(ty, &bytes);
        let ids = [5, 0, 3, 3];
        let mut got = vec![f32::NAN; ids.len() * cols];
        gather_rows(ty, &bytes, cols, &ids, &mut got).unwrap();
        for (id, got) in ids.iter().zip(got.chunks_exact(cols)) {
            let want = &want[*id as usize * cols..][..cols];
            assert!(
                got.iter()
                    .zip(want)
                    .all(|(a, b)| a.to_bits() == b.to_bits()),
                "{ty} row {id}"
            );
        }
        for (position, id) in [(1, 6), (1, -1), (1, i64::MAX)] {
            let error = gather_rows(ty, &bytes, cols, &[0, id], &mut got[..2 * cols]);
            assert_eq!(error, Err(CpuError::RowOutOfRange { id, position, rows }));
        }
    }
}

/// The fallback of types without a file in `gemv/` must agree with the loops of those with one.
#[test]
fn unpacked_row_products_agree_with_hand_written_ones() {
    struct Both<'a, T>(&'a [u8], &'a [f32], std::marker::PhantomData<T>);
    impl<T: types::CpuCode> Kernel for Both<'_, T> {
        type Output = [[f32; 1]; 2];
        #[inline(always)]
        unsafe fn run<L: Level>(self) -> Self::Output {
            let mut x = input::RowBuffers::default();
            x.quantize(self.1, self.1.len(), Isa::Scalar);
            let x = [x.row(0)];
            // SAFETY: `run` is called with the features of `L`; row and input have equal lengths.
            unsafe {
                [
                    L::row_dot::<T, 1>(self.0, &x),
                    gemv::dot_unpacked::<T, L, 1>(self.0, &x),
                ]
            }
        }
    }
    struct Visit<'a>(&'a [u8], &'a [f32], Isa);
    impl types::TypeVisitor for Visit<'_> {
        type Output = ();
        fn float<T: types::CpuType>(self) {}
        fn code<T: types::CpuCode>(self) {
            let _ = SumKind::of::<T>();
            // SAFETY: `levels` lists available ones.
            let [[a], [b]] = unsafe {
                self.2
                    .run(Both::<T>(self.0, self.1, std::marker::PhantomData))
            };
            assert!(
                (a - b).abs() <= 1e-4 * b.abs().max(1.0),
                "{} {:?}: {a} is not {b}",
                T::TYPE,
                self.2
            );
        }
    }
    for &ty in blocks::IMPLEMENTED {
        for isa in levels() {
            let bytes = random_blocks(ty, 768 / ty.block_len(), 3);
            types::visit(ty, "test", Visit(&bytes, &noise(768, 4), isa)).unwrap();
        }
    }
}

/// Unpacking by hand must give what the block code gives, bit for bit.
#[test]
fn unpacking_is_the_scalar_code_at_every_level() {
    type Parts = (Vec<u8>, Vec<f32>, Vec<f32>);
    struct Both<'a, T>(&'a [u8], std::marker::PhantomData<T>);
    impl<T: types::CpuCode> Kernel for Both<'_, T> {
        type Output = [Parts; 2];
        #[inline(always)]
        unsafe fn run<L: Level>(self) -> Self::Output {
            let empty = || (vec![0; T::LEN], vec![0.0; 16], vec![0.0; 16]);
            let [mut got, mut want] = [empty(), empty()];
            // SAFETY: `run` is called with the features of `L`; the buffers fit any type.
            unsafe { L::unpack::<T>(self.0, &mut got.0, &mut got.1, &mut got.2) };
            T::unpack_block(self.0, &mut want.0, &mut want.1, &mut want.2);
            [got, want]
        }
    }
    struct Visit<'a>(&'a [u8], Isa);
    impl types::TypeVisitor for Visit<'_> {
        type Output = ();
        fn float<T: types::CpuType>(self) {}
        fn code<T: types::CpuCode>(self) {
            for block in self.0.chunks_exact(T::BYTES) {
                // SAFETY: `levels` lists available ones.
                let [got, want] = unsafe { self.1.run(Both::<T>(block, std::marker::PhantomData)) };
                assert_eq!(got, want, "{} {:?}", T::TYPE, self.1);
            }
        }
    }
    for &ty in blocks::IMPLEMENTED {
        for isa in levels() {
            types::visit(ty, "test", Visit(&random_blocks(ty, 20, 3), isa)).unwrap();
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let bytes = [0; 34 * 4];
    let ty = GgmlType::Q8_0;
    let good = Matrix {
        ty,
        bytes: &bytes,
        rows: 2,
        cols: 64,
    };
    let run = |matrix: Matrix<'_>, x: usize, y: usize| {
        linear(
            matrix,
            &vec![0.0; x],
            1,
            &mut vec![0.0; y],
            Arithmetic::Fast,
        )
    };
    assert_eq!(run(good, 64, 2), Ok(()));
    assert_eq!(
        run(good, 63, 2),
        Err(CpuError::BufferLength {
            what: "x",
            expected: 64,
            actual: 63
        })
    );
    assert_eq!(
        run(good, 64, 3),
        Err(CpuError::BufferLength {
            what: "y",
            expected: 2,
            actual: 3
        })
    );
    assert_eq!(
        run(Matrix { cols: 60, ..good }, 60, 2),
        Err(CpuError::PartialBlock { ty, len: 60 })
    );
    let short = run(Matrix { rows: 3, ..good }, 64, 3);
    assert_eq!(
        short,
        Err(CpuError::ByteLength {
            ty,
            values: 192,
            expected: 204,
            actual: 136
        })
    );
    let huge = Matrix {
        rows: usize::MAX,
        ..good
    };
    assert_eq!(
        run(huge, 64, 2),
        Err(CpuError::Overflow {
            rows: usize::MAX,
            cols: 64
        })
    );
    let unknown = Matrix {
        ty: GgmlType::I32,
        ..good
    };
    let error = run(unknown, 64, 2).unwrap_err();
    assert_eq!(
        error,
        CpuError::UnsupportedType {
            ty: GgmlType::I32,
            operation: "linear"
        }
    );
    assert_eq!(
        error.to_string(),
        "I32 is not implemented for linear on cpu"
    );
    let (mut a, mut b) = ([0.0; 2], [0.0; 4]);
    let other = Matrix {
        rows: 4,
        cols: 32,
        ..good
    };
    let mixed = linear_many(
        &[good, other],
        &[0.0; 64],
        1,
        &mut [&mut a, &mut b],
        Arithmetic::Fast,
    );
    assert_eq!(
        mixed,
        Err(CpuError::MixedColumns {
            index: 1,
            expected: 64,
            actual: 32
        })
    );
    let missing = linear_many(&[good], &[0.0; 64], 1, &mut [], Arithmetic::Fast);
    assert_eq!(
        missing,
        Err(CpuError::OutputCount {
            matrices: 1,
            outputs: 0
        })
    );
    assert_eq!(
        dequantize(ty, &bytes[1..], &mut [0.0; 128])
            .unwrap_err()
            .to_string(),
        "Q8_0 data of 128 values takes 136 bytes, got 135"
    );
}
