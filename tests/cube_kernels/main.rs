//! The CubeCL kernels on a real (or software) device, against the scalar block code and sums in `f64`.
//!
//! Needs a GPU feature (`vulkan`, `webgpu`, `cuda`, ...); without a device every test prints why it was skipped.
#![cfg(feature = "cube")]

#[cfg(any(feature = "vulkan", feature = "webgpu", feature = "wgpu"))]
mod compile;
mod experts;
mod reference;

use burn_gguf_kernels::{
    GgmlType,
    cpu::Arithmetic,
    cube::{
        CubeError, CubeMatrix, DEVICE_TYPES, FloatKind, LinearKernel, LinearOptions, Reduction,
        binding_limit, dequantize, gather_rows, linear_with,
    },
};
use cubecl::{
    client::Client,
    ir::{ElemType, IntKind, features::Plane},
};
use reference::{Random, blocks, decode, golden_blocks, nmse, to_f32, to_u16};

/// Worst accepted squared error of `linear` relative to the squared result: sums of a few hundred products in `f32`.
const LINEAR_NMSE: f64 = 1e-12;

/// The same with activations rounded to 8 bits: a step of `1 / 127` is an error of `1 / 127 / sqrt(12)` on values whose
/// root mean square is `1 / sqrt(3)`, 1.6e-5 squared, and few rows vary.
const FAST_NMSE: f64 = 5e-5;

fn client() -> Option<Client> {
    let found = std::panic::catch_unwind(|| {
        let client = cubecl::Device::default().client();
        client
            .read_one(client.create_from_slice(&[1, 2, 3, 4]))
            .map(|_| client)
    });
    match found {
        Ok(Ok(client)) => Some(client),
        Ok(Err(e)) => {
            println!("skipped: the device does not work: {e:?}");
            None
        }
        Err(_) => {
            println!("skipped: no device of the compiled-in GPU runtimes");
            None
        }
    }
}

/// A device and one of the ways kernels get there.
struct Target {
    /// The compiler.
    name: &'static str,
    client: Client,
    /// What `linear` needs to be told here.
    options: LinearOptions,
    /// Whether kernels with shared memory run.
    shared_memory: bool,
}

/// The default device, by each shader compiler of this build that reaches it.
fn targets() -> Vec<Target> {
    let Some(client) = client() else {
        return Vec::new();
    };
    let spirv = client.name() == "wgpu<spirv>";
    // CubeCL 0.11.3 emits invalid SPIR-V for shared memory where the driver has no explicit layout for it, and the
    // driver may crash on it; no property tells, so this asks for a device that is a card.
    let shared_memory = !spirv || client.properties().identity.physical.is_some();
    let mut targets = vec![Target {
        name: client.name(),
        client,
        options: LinearOptions::default(),
        shared_memory,
    }];
    #[cfg(feature = "vulkan")]
    if spirv {
        use cubecl::wgpu::{WgpuServer, WgslCompiler};
        let id = targets[0].client.service_id().device;
        // This client has the properties of the other compiler, which keep from shared memory on a software device.
        targets.push(Target {
            name: "wgpu<wgsl>",
            client: Client::load::<WgpuServer<WgslCompiler>>(id),
            options: LinearOptions {
                reduction: Some(Reduction::Shared),
                gemv_rows: Some(8),
                ..Default::default()
            },
            shared_memory: true,
        });
    }
    targets
}

/// Runs a test with every target.
fn each_target(test: impl Fn(&Target)) {
    for target in targets() {
        println!("on {}:", target.name);
        test(&target);
    }
}

fn upload(client: &Client, bytes: &[u8], ty: GgmlType, rows: usize, cols: usize) -> CubeMatrix {
    CubeMatrix::upload(client, bytes, ty, rows, cols, binding_limit(client)).unwrap()
}

/// A row length of three blocks, or one that fills nothing for plain numbers.
fn odd_cols(ty: GgmlType) -> usize {
    match ty.block_len() {
        1 => 101,
        len => 3 * len,
    }
}

fn assert_bits(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(same, "{what}, value {i}: {a} is not {b}");
    }
}

#[test]
fn dequantize_is_bit_equal_to_the_goldens() {
    each_target(|target| {
        let client = &target.client;
        for ty in DEVICE_TYPES {
            let Some(bytes) = golden_blocks(ty) else {
                println!("skipped: no golden blocks of {ty}");
                continue;
            };
            let blocks = bytes.len() / ty.block_bytes();
            let matrix = upload(client, &bytes, ty, blocks, ty.block_len());
            let out = dequantize(client, &matrix, FloatKind::F32).unwrap();
            let got = to_f32(&client.read_one(out).unwrap());
            assert_bits(&got, &decode(ty, &bytes), &format!("{ty}"));
            println!("{ty}: {} values bit-equal", got.len());
        }
    });
}

#[test]
fn dequantize_of_odd_shapes_and_16_bit_kinds() {
    each_target(|target| {
        let client = &target.client;
        for ty in DEVICE_TYPES {
            for cols in [odd_cols(ty), 2 * odd_cols(ty), 16 * ty.block_len()] {
                let rows = 5;
                let bytes = blocks(ty, rows * cols, 7);
                let want = decode(ty, &bytes);
                let matrix = upload(client, &bytes, ty, rows, cols);
                let read = |kind| {
                    let out = dequantize(client, &matrix, kind).unwrap();
                    client.read_one(out).unwrap().to_vec()
                };
                assert_bits(
                    &to_f32(&read(FloatKind::F32)),
                    &want,
                    &format!("{ty} {cols}"),
                );
                let half: Vec<u16> = want
                    .iter()
                    .map(|&v| half::f16::from_f32(v).to_bits())
                    .collect();
                assert_eq!(to_u16(&read(FloatKind::F16)), half, "{ty} {cols} f16");
                let wide: Vec<u16> = want
                    .iter()
                    .map(|&v| half::bf16::from_f32(v).to_bits())
                    .collect();
                assert_eq!(to_u16(&read(FloatKind::BF16)), wide, "{ty} {cols} bf16");
            }
        }
    });
}

#[test]
fn narrowing_rounds_to_even_and_keeps_specials() {
    each_target(|target| {
        let client = &target.client;
        let mut values = vec![
            0.0,
            -0.0,
            1.0,
            65504.0,
            65519.9,
            65520.0,
            -1e9,
            6.1e-5,
            6.0e-5,
            5.97e-8,
            2.99e-8,
            2.98e-8,
            8.9e-8,
            1e-9,
            f32::INFINITY,
            f32::NEG_INFINITY,
            1.000_488_3,
            1.001_464_8,
            3.4e38,
            2049.0,
            2051.0,
            f32::from_bits(0x3f80_8000),
            f32::from_bits(0x3f81_8000),
            f32::from_bits(0x387f_ffff),
        ];
        let mut random = Random(3);
        values.extend((0..1000).map(|_| f32::from_bits(random.next() & 0x4fff_ffff | 0x3000_0000)));
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let matrix = upload(client, &bytes, GgmlType::F32, 1, values.len());
        let half = dequantize(client, &matrix, FloatKind::F16).unwrap();
        for (v, got) in values.iter().zip(to_u16(&client.read_one(half).unwrap())) {
            assert_eq!(got, half::f16::from_f32(*v).to_bits(), "f16 of {v:e}");
        }
        let wide = dequantize(client, &matrix, FloatKind::BF16).unwrap();
        for (v, got) in values.iter().zip(to_u16(&client.read_one(wide).unwrap())) {
            assert_eq!(got, half::bf16::from_f32(*v).to_bits(), "bf16 of {v:e}");
        }
    });
}

#[test]
fn every_half_decodes_exactly() {
    each_target(|target| {
        let client = &target.client;
        for ty in [GgmlType::F16, GgmlType::BF16] {
            let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let matrix = upload(client, &bytes, ty, 256, 256);
            let got = dequantize(client, &matrix, FloatKind::F32).unwrap();
            let got = to_f32(&client.read_one(got).unwrap());
            assert_bits(&got, &decode(ty, &bytes), &format!("{ty}"));
        }
    });
}

#[test]
fn gather_rows_copies_the_asked_rows() {
    each_target(|target| {
        let client = &target.client;
        for ty in DEVICE_TYPES {
            for cols in [odd_cols(ty), 16 * ty.block_len()] {
                let rows = 7;
                let bytes = blocks(ty, rows * cols, 11);
                let all = decode(ty, &bytes);
                let ids = [6i32, 0, 3, 3, 7, -1, 5];
                let mut want = Vec::new();
                for id in ids {
                    match usize::try_from(id).ok().filter(|&id| id < rows) {
                        Some(id) => want.extend_from_slice(&all[id * cols..(id + 1) * cols]),
                        None => want.extend(std::iter::repeat_n(f32::NAN, cols)),
                    }
                }
                for limit in [binding_limit(client), tiny_limit(client, ty, cols)] {
                    let matrix = CubeMatrix::upload(client, &bytes, ty, rows, cols, limit).unwrap();
                    let handle = client.create_from_slice(bytemuck::cast_slice(&ids));
                    let id_type = ElemType::Int(IntKind::I32);
                    let out = gather_rows(client, &matrix, handle, ids.len(), id_type).unwrap();
                    let got = to_f32(&client.read_one(out).unwrap());
                    assert_bits(&got, &want, &format!("{ty} {cols}, limit {limit}"));
                }
            }
        }
    });
}

/// A limit that two rows fit into, and not three, wherever they start.
fn tiny_limit(client: &Client, ty: GgmlType, cols: usize) -> u64 {
    let alignment = client.properties().memory.alignment.max(4);
    2 * ty.row_bytes(cols).unwrap() as u64 + alignment + 3
}

/// `x . W^T` in `f64`, `[n, rows]`.
fn linear_f64(weights: &[f32], x: &[f32], rows: usize, cols: usize, n: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(n * rows);
    for x in x.chunks_exact(cols).take(n) {
        for w in weights.chunks_exact(cols).take(rows) {
            out.push(
                x.iter()
                    .zip(w)
                    .map(|(&a, &b)| f64::from(a) * f64::from(b))
                    .sum(),
            );
        }
    }
    out
}

fn check_linear(
    client: &Client,
    ty: GgmlType,
    (rows, cols): (usize, usize),
    tokens: &[usize],
    options: LinearOptions,
) -> f64 {
    let most = *tokens.iter().max().unwrap();
    let bytes = blocks(ty, rows * cols, 19);
    let weights = decode(ty, &bytes);
    let mut random = Random(23);
    let x: Vec<f32> = (0..most * cols).map(|_| random.float()).collect();
    let want = linear_f64(&weights, &x, rows, cols, most);
    let alignment = client.properties().memory.alignment as usize;
    let mut padded = bytes.clone();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    let whole = client.create_from_slice(&padded);
    let limit = tiny_limit(client, ty, cols);
    let matrices = [
        ("whole", upload(client, &bytes, ty, rows, cols)),
        (
            "uploaded in pieces",
            CubeMatrix::upload(client, &bytes, ty, rows, cols, limit).unwrap(),
        ),
        (
            "windows",
            CubeMatrix::from_handle(client, whole, ty, rows, cols, limit).unwrap(),
        ),
    ];
    assert!(matrices[1].1.pieces().len() > 1 && matrices[2].1.pieces().len() > 1);
    assert!(
        matrices[2]
            .1
            .pieces()
            .iter()
            .all(|p| p.shift < alignment.max(4))
    );
    let mut worst = 0.0f64;
    for &n in tokens {
        for (name, matrix) in &matrices {
            let x = client.create_from_slice(bytemuck::cast_slice(&x[..n * cols]));
            let out = linear_with(client, matrix, x, n, options).unwrap();
            let got = to_f32(&client.read_one(out).unwrap());
            let error = nmse(&got, &want[..n * rows]);
            assert!(
                error <= LINEAR_NMSE,
                "{ty} [{rows}, {cols}] {name}, n = {n}, {options:?}: NMSE {error:e}"
            );
            worst = worst.max(error);
        }
    }
    worst
}

#[test]
fn linear_agrees_with_f64() {
    each_target(|target| {
        let client = &target.client;
        println!(
            "{}, planes {:?} of {}..={} units",
            client.name(),
            client.properties().features.plane,
            client.properties().hardware.plane_size_min,
            client.properties().hardware.plane_size_max
        );
        for ty in DEVICE_TYPES {
            let mut worst = 0.0f64;
            for shape in [(7, odd_cols(ty)), (67, 3 * odd_cols(ty))] {
                let tokens = [1, 2, 8, 9, 65];
                let error = check_linear(client, ty, shape, &tokens, target.options);
                worst = worst.max(error);
            }
            println!("{ty}: NMSE {worst:.1e}");
        }
    });
}

#[test]
fn linear_with_every_reduction() {
    each_target(|target| {
        let client = &target.client;
        let planes = client.properties().features.plane.contains(Plane::Ops);
        for reduction in [Reduction::Alone, Reduction::Shared, Reduction::Plane] {
            match reduction {
                Reduction::Shared if !target.shared_memory => {
                    println!("skipped: shared memory on a software Vulkan device");
                    continue;
                }
                Reduction::Plane if !planes => {
                    println!("skipped: no plane operations");
                    continue;
                }
                _ => (),
            }
            let options = LinearOptions {
                reduction: Some(reduction),
                gemv_rows: Some(usize::MAX),
                ..Default::default()
            };
            for ty in DEVICE_TYPES {
                check_linear(client, ty, (13, odd_cols(ty)), &[1, 4, 19], options);
            }
        }
    });
}

/// `linear` with rounded activations.
fn check_fast(target: &Target, ty: GgmlType, n: usize, options: LinearOptions) {
    let client = &target.client;
    let (rows, cols) = (67, 2 * odd_cols(ty));
    let bytes = blocks(ty, rows * cols, 37);
    let mut random = Random(39);
    let x: Vec<f32> = (0..n * cols).map(|_| random.float()).collect();
    let want = linear_f64(&decode(ty, &bytes), &x, rows, cols, n);
    let limit = tiny_limit(client, ty, cols);
    for matrix in [
        upload(client, &bytes, ty, rows, cols),
        CubeMatrix::upload(client, &bytes, ty, rows, cols, limit).unwrap(),
    ] {
        let x = client.create_from_slice(bytemuck::cast_slice(&x));
        let out = linear_with(client, &matrix, x, n, options).unwrap();
        let error = nmse(&to_f32(&client.read_one(out).unwrap()), &want);
        assert!(
            error <= FAST_NMSE,
            "{ty}, n = {n}, {options:?}: NMSE {error:e}"
        );
    }
}

#[test]
fn linear_on_8_bit_activations() {
    each_target(|target| {
        let options = LinearOptions {
            kernel: Some(LinearKernel::GemvQ8),
            ..target.options
        };
        for ty in DEVICE_TYPES.into_iter().filter(|ty| ty.block_len() > 1) {
            for n in [1, 9] {
                check_fast(target, ty, n, options);
            }
        }
        let matrix = upload(&target.client, &[0; 128], GgmlType::F32, 1, 32);
        let x = target.client.create_from_slice(&[0; 128]);
        assert_eq!(
            linear_with(&target.client, &matrix, x, 1, options).unwrap_err(),
            CubeError::UnsupportedType(GgmlType::F32)
        );
    });
}

#[test]
fn the_faster_kernel_is_found_by_measuring() {
    each_target(|target| {
        let options = LinearOptions {
            arithmetic: Some(Arithmetic::Fast),
            ..target.options
        };
        for ty in [GgmlType::Q4K, GgmlType::Q8_0, GgmlType::F16] {
            for n in [1, 2, 1] {
                check_fast(target, ty, n, options);
            }
        }
    });
}

#[test]
fn linear_by_tiles() {
    each_target(|target| {
        let client = &target.client;
        if !target.shared_memory {
            println!("skipped: shared memory on a software Vulkan device");
            return;
        }
        let options = LinearOptions {
            gemv_rows: Some(0),
            ..Default::default()
        };
        for ty in DEVICE_TYPES {
            for shape in [(13, 3 * odd_cols(ty)), (131, 2 * odd_cols(ty))] {
                check_linear(client, ty, shape, &[1, 8, 16, 33, 70], options);
            }
        }
    });
}

#[test]
fn linear_with_long_strips() {
    each_target(|target| {
        let client = &target.client;
        // From 4096 rows on a strip has several rows; 4099 leaves a strip that is not full.
        for ty in [GgmlType::Q4_0, GgmlType::Q4K, GgmlType::F16] {
            let (rows, cols) = (4099, 256);
            let bytes = blocks(ty, rows * cols, 29);
            let weights = decode(ty, &bytes);
            let matrix = upload(client, &bytes, ty, rows, cols);
            let mut random = Random(31);
            let x: Vec<f32> = (0..7 * cols).map(|_| random.float()).collect();
            let want = linear_f64(&weights, &x, rows, cols, 7);
            for n in [1, 7] {
                let x = client.create_from_slice(bytemuck::cast_slice(&x[..n * cols]));
                let out = linear_with(client, &matrix, x, n, target.options).unwrap();
                let got = to_f32(&client.read_one(out).unwrap());
                let error = nmse(&got, &want[..n * rows]);
                assert!(error <= LINEAR_NMSE, "{ty}, n = {n}: NMSE {error:e}");
            }
        }
    });
}

#[test]
fn rows_that_end_before_an_infinity_are_not_touched_by_it() {
    each_target(|target| {
        let client = &target.client;
        // The row after a ragged one starts with values that its last part decodes too.
        let cols = 5;
        let mut values = vec![1.0f32; 2 * cols];
        values[cols] = f32::INFINITY;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let matrix = upload(client, &bytes, GgmlType::F32, 2, cols);
        for gemv_rows in [None, Some(0)] {
            if gemv_rows.is_some() && !target.shared_memory {
                continue;
            }
            let options = LinearOptions {
                gemv_rows,
                ..Default::default()
            };
            let x = client.create_from_slice(bytemuck::cast_slice(&[1.0f32; 5]));
            let out = linear_with(client, &matrix, x, 1, options).unwrap();
            let got = to_f32(&client.read_one(out).unwrap());
            assert_eq!(got, [5.0, f32::INFINITY]);
        }
    });
}

#[test]
fn empty_operands_give_empty_or_zero_results() {
    each_target(|target| {
        let client = &target.client;
        let x = || client.create_from_slice(&[0; 256]);
        let options = target.options;
        let bytes = blocks(GgmlType::Q8_0, 64, 1);
        let matrix = upload(client, &bytes, GgmlType::Q8_0, 2, 32);
        assert_eq!(
            linear_with(client, &matrix, x(), 0, options)
                .unwrap()
                .size_in_used(),
            0
        );
        let no_rows = upload(client, &[], GgmlType::Q8_0, 0, 32);
        assert_eq!(
            linear_with(client, &no_rows, x(), 2, options)
                .unwrap()
                .size_in_used(),
            0
        );
        assert_eq!(
            dequantize(client, &no_rows, FloatKind::F16)
                .unwrap()
                .size_in_used(),
            0
        );
        let no_cols = upload(client, &[], GgmlType::Q8_0, 3, 0);
        let out = linear_with(client, &no_cols, x(), 2, options).unwrap();
        assert_eq!(to_f32(&client.read_one(out).unwrap()), [0.0; 6]);
        let id_type = ElemType::Int(IntKind::I32);
        let out = gather_rows(client, &no_rows, x(), 1, id_type).unwrap();
        assert!(
            to_f32(&client.read_one(out).unwrap())
                .iter()
                .all(|v| v.is_nan())
        );
    });
}

#[test]
fn bad_operands_are_typed_errors() {
    each_target(|target| {
        let client = &target.client;
        let limit = binding_limit(client);
        let upload = |bytes: &[u8], ty, rows, cols, limit| {
            CubeMatrix::upload(client, bytes, ty, rows, cols, limit).unwrap_err()
        };
        assert_eq!(
            upload(&[], GgmlType::Q4_0x4x4, 1, 256, limit),
            CubeError::UnsupportedType(GgmlType::Q4_0x4x4)
        );
        assert_eq!(
            upload(&[0; 34], GgmlType::Q8_0, 1, 33, limit),
            CubeError::BadRowLength {
                ty: GgmlType::Q8_0,
                cols: 33
            }
        );
        assert_eq!(
            upload(&[0; 34], GgmlType::Q8_0, 2, 32, limit),
            CubeError::BadLength {
                what: "matrix",
                expected: 68,
                got: 34
            }
        );
        assert_eq!(
            upload(&[0; 68], GgmlType::Q8_0, 1, 64, 64),
            CubeError::RowOverLimit {
                row_bytes: 68,
                limit: 64
            }
        );
        let matrix = CubeMatrix::upload(client, &[0; 34], GgmlType::Q8_0, 1, 32, limit).unwrap();
        let x = client.create_from_slice(&[0; 64]);
        assert_eq!(
            linear_with(client, &matrix, x.clone(), 1, target.options).unwrap_err(),
            CubeError::BadLength {
                what: "x",
                expected: 128,
                got: 64
            }
        );
        assert!(matches!(
            gather_rows(client, &matrix, x.clone(), 1, ElemType::Int(IntKind::I8)),
            Err(CubeError::BadIdType(_))
        ));
        assert!(matches!(
            gather_rows(
                client,
                &matrix,
                x.clone(),
                1 << 40,
                ElemType::Int(IntKind::I32)
            ),
            Err(CubeError::OverLimit { .. })
        ));
        assert_eq!(
            CubeMatrix::from_handles(client, vec![(x, 1)], GgmlType::Q8_0, 2, 32, limit)
                .unwrap_err(),
            CubeError::BadPieces {
                expected: 2,
                got: 1
            }
        );
    });
}
