//! Products with experts, every type, slot by slot and sorted.

use burn_gguf_kernels::{
    GgmlType,
    cube::{
        CubeError, CubeMatrix, DEVICE_TYPES, ExpertsShape, LinearOptions, Reduction, binding_limit,
        linear_experts, linear_experts_with,
    },
};

use super::{
    LINEAR_NMSE, Target, each_target,
    reference::{Random, blocks, decode, nmse, to_f32},
    tiny_limit, upload,
};

struct Case {
    shape: ExpertsShape,
    rows: usize,
    cols: usize,
}

impl Case {
    /// Ids of which some are no expert.
    fn ids(&self, random: &mut Random) -> Vec<i32> {
        let slots = self.shape.tokens * self.shape.chosen;
        let mut ids: Vec<i32> = (0..slots)
            .map(|_| (random.next() % self.shape.experts as u32) as i32)
            .collect();
        ids[slots / 2] = self.shape.experts as i32;
        ids[slots - 1] = -1;
        ids
    }

    fn check(&self, target: &Target, ty: GgmlType, sorted: Option<bool>, options: LinearOptions) {
        let client = &target.client;
        let &Case { shape, rows, cols } = self;
        let bytes = blocks(ty, shape.experts * rows * cols, 41);
        let weights = decode(ty, &bytes);
        let mut random = Random(43);
        let ids = self.ids(&mut random);
        let x_rows = if shape.x_per_choice {
            ids.len()
        } else {
            shape.tokens
        };
        let x: Vec<f32> = (0..x_rows * cols).map(|_| random.float()).collect();
        let limit = tiny_limit(client, ty, cols);
        for (name, stack) in [
            (
                "whole",
                upload(client, &bytes, ty, shape.experts * rows, cols),
            ),
            (
                "in pieces",
                CubeMatrix::upload(client, &bytes, ty, shape.experts * rows, cols, limit).unwrap(),
            ),
        ] {
            let out = linear_experts_with(
                client,
                &stack,
                client.create_from_slice(bytemuck::cast_slice(&ids)),
                client.create_from_slice(bytemuck::cast_slice(&x)),
                &shape,
                options,
                sorted,
            )
            .unwrap();
            let got = to_f32(&client.read_one(out).unwrap());
            let what = format!("{ty} {shape:?} {name}, sorted: {sorted:?}, {options:?}");
            assert_eq!(got.len(), ids.len() * rows);
            let (mut known, mut want) = (Vec::new(), Vec::new());
            for (slot, &id) in ids.iter().enumerate() {
                let got = &got[slot * rows..(slot + 1) * rows];
                let Some(id) = usize::try_from(id).ok().filter(|&id| id < shape.experts) else {
                    assert!(
                        got.iter().all(|v| v.is_nan()),
                        "{what}: {got:?} for id {id}"
                    );
                    continue;
                };
                known.extend_from_slice(got);
                let row = if shape.x_per_choice {
                    slot
                } else {
                    slot / shape.chosen
                };
                let x = &x[row * cols..(row + 1) * cols];
                let first = id * rows * cols;
                for w in weights[first..first + rows * cols].chunks_exact(cols) {
                    let products = x.iter().zip(w).map(|(&a, &b)| f64::from(a) * f64::from(b));
                    want.push(products.sum());
                }
            }
            let error = nmse(&known, &want);
            assert!(error <= LINEAR_NMSE, "{what}: NMSE {error:e}");
        }
    }
}

fn shape(tokens: usize, chosen: usize, x_per_choice: bool) -> ExpertsShape {
    ExpertsShape {
        experts: 5,
        tokens,
        chosen,
        x_per_choice,
    }
}

#[test]
fn experts_of_every_type() {
    each_target(|target| {
        for ty in DEVICE_TYPES {
            let (rows, cols) = (7, super::odd_cols(ty));
            // Slot by slot, then sorted; with shared memory the last goes through the tiled kernel.
            for shape in [shape(1, 3, false), shape(70, 2, true)] {
                let options = LinearOptions {
                    gemv_rows: None,
                    ..target.options
                };
                Case { shape, rows, cols }.check(target, ty, None, options);
            }
        }
    });
}

#[test]
fn experts_with_every_kernel() {
    each_target(|target| {
        for (ty, cols) in [(GgmlType::Q4_0, 96), (GgmlType::F32, 33)] {
            let rows = 70;
            for reduction in [Reduction::Alone, Reduction::Shared] {
                if reduction == Reduction::Shared && !target.shared_memory {
                    println!("skipped: shared memory on a software Vulkan device");
                    continue;
                }
                let options = |gemv_rows| LinearOptions {
                    reduction: Some(reduction),
                    gemv_rows: Some(gemv_rows),
                    ..Default::default()
                };
                for x_per_choice in [false, true] {
                    for (tokens, chosen) in [(1, 2), (33, 4)] {
                        let shape = shape(tokens, chosen, x_per_choice);
                        let case = Case { shape, rows, cols };
                        for sorted in [false, true] {
                            case.check(target, ty, Some(sorted), options(usize::MAX));
                        }
                        if target.shared_memory {
                            case.check(target, ty, None, options(0));
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn bad_experts_are_typed_errors() {
    each_target(|target| {
        let client = &target.client;
        let limit = binding_limit(client);
        let bytes = blocks(GgmlType::Q8_0, 6 * 32, 1);
        let stack = CubeMatrix::upload(client, &bytes, GgmlType::Q8_0, 6, 32, limit).unwrap();
        let buffer = |len| client.create_from_slice(&vec![0; len]);
        let run = |experts, tokens, ids, x| {
            let shape = ExpertsShape {
                experts,
                tokens,
                chosen: 2,
                x_per_choice: false,
            };
            linear_experts(client, &stack, buffer(ids), buffer(x), &shape)
        };
        assert_eq!(
            run(4, 1, 8, 128).unwrap_err(),
            CubeError::BadExperts {
                experts: 4,
                rows: 6
            }
        );
        assert!(matches!(
            run(3, 1, 4, 128).unwrap_err(),
            CubeError::BadLength { what: "ids", .. }
        ));
        assert!(matches!(
            run(3, 2, 16, 128).unwrap_err(),
            CubeError::BadLength { what: "x", .. }
        ));
        assert_eq!(run(3, 0, 4, 4).unwrap().size_in_used(), 0);
    });
}
