//! `linear_experts` against `linear` with each expert's matrix and rows.

use super::*;

/// Ids for all slots, uneven: low experts are chosen more often, and the last one never.
fn choose(experts: usize, slots: usize) -> Vec<i64> {
    let last = (experts - 1).max(1) as f32;
    noise(slots, 21)
        .iter()
        .map(|x| (x * x * last) as i64)
        .collect()
}

/// What `linear` gives for the slots of one expert after the other.
fn one_by_one(
    isa: Isa,
    stack: &Experts<'_>,
    x: ExpertInput<'_>,
    ids: &[i64],
    chosen: usize,
    arithmetic: Arithmetic,
) -> Vec<f32> {
    let mut y = vec![f32::NAN; ids.len() * stack.rows];
    let size = stack.bytes.len() / stack.experts;
    for expert in 0..stack.experts {
        let slots: Vec<usize> = (0..ids.len())
            .filter(|&slot| ids[slot] == expert as i64)
            .collect();
        let inputs: Vec<f32> = slots
            .iter()
            .flat_map(|&slot| match x {
                ExpertInput::Tokens(x) => &x[slot / chosen * stack.cols..][..stack.cols],
                ExpertInput::Slots(x) => &x[slot * stack.cols..][..stack.cols],
            })
            .copied()
            .collect();
        let matrix = Matrix {
            ty: stack.ty,
            bytes: &stack.bytes[expert * size..][..size],
            rows: stack.rows,
            cols: stack.cols,
        };
        let mut out = vec![f32::NAN; slots.len() * stack.rows];
        linear_many_at(
            isa,
            &[matrix],
            &inputs,
            slots.len(),
            &mut [&mut out],
            arithmetic,
        )
        .unwrap();
        for (slot, out) in slots.iter().zip(out.chunks_exact(stack.rows)) {
            y[slot * stack.rows..][..stack.rows].copy_from_slice(out);
        }
    }
    y
}

#[test]
fn experts_give_the_bits_of_linear() {
    for &ty in blocks::IMPLEMENTED {
        let cols = ty.block_len().max(64);
        for (experts, rows, tokens, chosen) in
            [(4, 5, 1, 2), (1, 16, 9, 1), (5, 21, 40, 3), (130, 3, 7, 8)]
        {
            let bytes = random_blocks(ty, experts * rows * cols / ty.block_len(), 5);
            let stack = Experts {
                ty,
                bytes: &bytes,
                experts,
                rows,
                cols,
            };
            let ids = choose(experts, tokens * chosen);
            let values = noise(tokens * chosen * cols, 9);
            for x in [
                ExpertInput::Tokens(&values[..tokens * cols]),
                ExpertInput::Slots(&values),
            ] {
                for isa in levels() {
                    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
                        let mut y = vec![f32::NAN; ids.len() * rows];
                        linear_experts_many_at(
                            isa,
                            &[stack],
                            x,
                            &ids,
                            chosen,
                            &mut [&mut y],
                            arithmetic,
                        )
                        .unwrap();
                        let want = one_by_one(isa, &stack, x, &ids, chosen, arithmetic);
                        let equal = y.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(equal, "{ty} {isa:?} {arithmetic:?} {experts} experts");
                    }
                }
            }
        }
    }
}

#[test]
fn stacks_of_different_types_share_their_input() {
    let (experts, cols, chosen, tokens) = (3, 256, 2, 25);
    let types = [GgmlType::Q4K, GgmlType::Q6K, GgmlType::Q5_0, GgmlType::F16];
    let data: Vec<_> = types
        .iter()
        .enumerate()
        .map(|(i, &ty)| random_blocks(ty, experts * (8 + i) * cols / ty.block_len(), 3))
        .collect();
    let stacks: Vec<_> = (0..types.len())
        .map(|i| Experts {
            ty: types[i],
            bytes: &data[i],
            experts,
            rows: 8 + i,
            cols,
        })
        .collect();
    let (ids, x) = (choose(experts, tokens * chosen), noise(tokens * cols, 4));
    let x = ExpertInput::Tokens(&x);
    let mut outs: Vec<_> = stacks
        .iter()
        .map(|stack| vec![f32::NAN; ids.len() * stack.rows])
        .collect();
    let mut slices: Vec<_> = outs.iter_mut().map(|out| &mut out[..]).collect();
    linear_experts_many(&stacks, x, &ids, chosen, &mut slices, Arithmetic::Fast).unwrap();
    for (stack, out) in stacks.iter().zip(outs) {
        let want = one_by_one(Isa::current(), stack, x, &ids, chosen, Arithmetic::Fast);
        assert_eq!(out, want, "{}", stack.ty);
    }
}

#[test]
fn wrong_expert_arguments_are_named() {
    let bytes = [0; 34 * 6];
    let stack = Experts {
        ty: GgmlType::Q8_0,
        bytes: &bytes,
        experts: 3,
        rows: 2,
        cols: 32,
    };
    let run = |stack, x: usize, ids: &[i64], y: usize| {
        linear_experts(
            stack,
            ExpertInput::Tokens(&vec![0.0; x]),
            ids,
            2,
            &mut vec![0.0; y],
            Arithmetic::Fast,
        )
    };
    assert_eq!(run(stack, 64, &[0, 1, 2, 2], 8), Ok(()));
    assert_eq!(run(stack, 0, &[], 0), Ok(()));
    for id in [3, -1, i64::MIN] {
        let error = run(stack, 64, &[0, 1, 2, id], 8).unwrap_err();
        assert_eq!(
            error,
            CpuError::ExpertOutOfRange {
                id,
                token: 1,
                slot: 1,
                experts: 3
            }
        );
        assert_eq!(
            error.to_string(),
            format!("expert id {id} in slot 1 of token 1 is outside 0..3")
        );
    }
    assert_eq!(
        run(stack, 64, &[0, 1, 2], 8),
        Err(CpuError::PartialChoice { ids: 3, chosen: 2 })
    );
    let length = |what, expected, actual| {
        Err(CpuError::BufferLength {
            what,
            expected,
            actual,
        })
    };
    assert_eq!(run(stack, 63, &[0; 4], 8), length("x", 64, 63));
    assert_eq!(run(stack, 64, &[0; 4], 7), length("y", 8, 7));
    let short = Experts {
        experts: 4,
        ..stack
    };
    assert_eq!(
        run(short, 64, &[0; 4], 8),
        Err(CpuError::ByteLength {
            ty: GgmlType::Q8_0,
            values: 256,
            expected: 272,
            actual: 204
        })
    );
    let more = Experts {
        experts: 6,
        rows: 1,
        ..stack
    };
    let (mut a, mut b) = ([0.0; 4], [0.0; 2]);
    let mixed = linear_experts_many(
        &[stack, more],
        ExpertInput::Tokens(&[0.0; 32]),
        &[0, 1],
        2,
        &mut [&mut a, &mut b],
        Arithmetic::Exact,
    );
    assert_eq!(
        mixed,
        Err(CpuError::MixedExperts {
            index: 1,
            expected: 3,
            actual: 6
        })
    );
}
