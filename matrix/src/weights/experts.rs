//! `linear_experts`: each token's row goes through the experts chosen for it.

use burn::tensor::{Int, Tensor, TensorData};
use burn_gguf::Arithmetic;

use super::{Input, Weights, input};
use crate::blocks::Pattern;
use crate::cell::Cell;
use crate::compare::Expected;
use crate::oracle;

/// Matrices, rows and columns of the stack.
const STACK: [usize; 3] = [8, 37, 512];
/// Tokens: one, few, so many that they are grouped by expert.
const TOKENS: [usize; 7] = [0, 1, 2, 8, 9, 65, 130];
/// Experts of a token.
const CHOSEN: [usize; 3] = [1, 2, 8];

impl Weights {
    pub fn linear_experts(&self, arithmetic: Arithmetic, cell: &mut Cell<'_>) {
        let [experts, rows, cols] = STACK;
        let weight = self
            .stack(STACK, Pattern::Random, 9)
            .expect("random blocks");
        let tensor = weight.upload(cell.device);
        let device = cell.device.clone();
        for tokens in TOKENS {
            for chosen in CHOSEN {
                // A row for each token, or one for each of its experts as the second projection has them.
                for shared in [true, false] {
                    let covers = chosen == 2 || tokens == 9;
                    if !cell.full && !covers {
                        continue;
                    }
                    let ids = choices(tokens, chosen, experts);
                    let per_token = if shared { 1 } else { chosen };
                    let x = Input::Usual.values(tokens * per_token, cols);
                    let sums = ids.iter().enumerate().flat_map(|(i, &id)| {
                        let row = if shared { i / chosen } else { i };
                        let matrix = &weight.values[id as usize * rows * cols..][..rows * cols];
                        oracle::products(&x[row * cols..][..cols], matrix, cols)
                    });
                    let want = Expected::sums(sums.collect());
                    let each = if shared { "token" } else { "choice" };
                    let shape = format!(
                        "{tokens} tokens, {chosen} chosen, a row a {each}, by {}",
                        weight.name()
                    );
                    cell.case(&shape, &want, [tokens, chosen, rows], || {
                        let data = TensorData::new(ids.clone(), [tokens, chosen]);
                        let ids = Tensor::<2, Int>::from_data(data, &device);
                        let x = input(x.clone(), [tokens, per_token, cols], &device);
                        tensor.linear_experts(x, ids, arithmetic)
                    });
                }
            }
        }
    }
}

/// Different experts for a token; all of them get some token where there are many, but one gets most.
fn choices(tokens: usize, chosen: usize, experts: usize) -> Vec<i32> {
    (0..tokens)
        .flat_map(|token| {
            let first = if token % 3 == 0 { 5 } else { token * 7 + 2 };
            (0..chosen).map(move |i| ((first + 3 * i) % experts) as i32)
        })
        .collect()
}
