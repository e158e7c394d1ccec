//! `linear` and `linear_many` against a naive product in `f64`.

use super::*;

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
    /// As `levels` for `BF16`, where some CPUs round activations to 8 significant bits: an error of up to 2^-8 of the
    /// power of two below, evenly spread, about 2e-6 of the energy.
    rounded: f64,
}

const TOLERANCE: Tolerance = Tolerance {
    exact: 1e-12,
    fast: 1e-4,
    levels: 1e-11,
    rounded: 1e-5,
};

fn relative_error(got: &[f32], want: &[f64], energy: f64) -> f64 {
    assert_eq!(got.len(), want.len());
    let error: f64 = got
        .iter()
        .zip(want)
        .map(|(a, b)| (f64::from(*a) - b).powi(2))
        .sum();
    if error == 0.0 { 0.0 } else { error / energy }
}

/// `rows x cols` of a type whose every byte but the scales is `fill`, and whose scales are `scale`.
fn constant_blocks(ty: GgmlType, count: usize, fill: u8, scale: f16) -> Vec<u8> {
    let mut bytes = vec![fill; count * ty.block_bytes()];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        set_scales(ty, block, || scale);
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

/// The energy of what the offset of the codes contributes: where all codes are equal to it, sums are zero but for its
/// rounding.
fn offset_energy(ty: GgmlType, bytes: &[u8], x: &[f32], cols: usize) -> f64 {
    struct Offsets<'a>(&'a [u8]);
    impl BlockVisitor for Offsets<'_> {
        type Output = Vec<f32>;
        fn float<T: FloatBlock>(self) -> Vec<f32> {
            vec![0.0; self.0.len() / T::BYTES * T::LEN]
        }
        fn code<T: CodeBlock>(self) -> Vec<f32> {
            let (mut codes, mut scales, mut mins) = ([0; 256], [0.0f32; 16], [0.0; 16]);
            let mut out = Vec::new();
            for block in self.0.chunks_exact(T::BYTES) {
                T::unpack_block(block, &mut codes, &mut scales, &mut mins);
                for scale in &scales[..T::LEN / T::SUB_LEN] {
                    out.extend(vec![scale * T::OFFSET as f32; T::SUB_LEN]);
                }
            }
            out
        }
    }
    let offsets = blocks::visit(ty, Offsets(bytes)).unwrap();
    naive(&offsets, x, cols).1
}

/// All levels and both arithmetics on one matrix, against the naive product and each other.
fn check_linear(what: &str, matrix: Matrix<'_>, x: &[f32], n: usize) {
    let weights = decode_scalar(matrix.ty, matrix.bytes);
    let (want, energy) = naive(&weights, x, matrix.cols);
    let energy = energy.max(1e-3 * offset_energy(matrix.ty, matrix.bytes, x, matrix.cols));
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
                        let limit = match matrix.ty {
                            GgmlType::BF16 => TOLERANCE.rounded,
                            _ => TOLERANCE.levels,
                        };
                        assert!(error <= limit, "{case}: {error:e} from the portable level");
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
    for &ty in blocks::IMPLEMENTED {
        if ty.block_len() > 1 {
            continue;
        }
        // The last ones are more than two panels deep, as numbers and as pairs.
        for cols in [1, 3, 31, 65, 257, 300, 1100, 2080] {
            for rows in [5, 37] {
                let bytes = random_blocks(ty, rows * cols, 3);
                for n in [1, 2, 3, 4, 11, 25] {
                    check_linear(
                        "odd",
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
            for fill in [0, 0x77, 0x7f, 0x80, 0xff] {
                if fill == 0x7f && matches!(ty, GgmlType::MXFP4 | GgmlType::NVFP4) {
                    // The largest value and its opposite: sums that cancel, which the tolerance does not allow for.
                    continue;
                }
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
        ty: GgmlType::Q4_0x4x4,
        ..good
    };
    let error = run(unknown, 64, 2).unwrap_err();
    assert_eq!(
        error,
        CpuError::UnsupportedType {
            ty: GgmlType::Q4_0x4x4,
            operation: "linear"
        }
    );
    assert_eq!(
        error.to_string(),
        "Q4_0_4_4 is not implemented for linear on cpu"
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
