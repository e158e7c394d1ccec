//! The choice of experts, and the sum of what they say.

use burn_gguf::nn::functional;
use burn_gguf::ops::{ChoiceParams, Gating};

use super::tensor;
use crate::cell::Cell;
use crate::compare::Expected;
use crate::oracle::experts as oracle;
use crate::random::Random;

pub(super) fn choose(gating: Gating, cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(33);
    for (tokens, experts, used) in [(1, 4, 2), (3, 128, 8), (40, 60, 4), (2, 512, 10)] {
        for biased in [false, true] {
            let params = ChoiceParams {
                used,
                gating,
                normalize: !biased,
                least_sum: 6e-5,
                scale: 1.5,
            };
            let logits: Vec<f32> = random.floats(tokens * experts);
            let mut logits: Vec<f32> = logits.iter().map(|v| v * 6.0).collect();
            // Equals, of which the first is to be chosen.
            (logits[1], logits[2]) = (7.0, 7.0);
            let bias: Vec<f32> = random.floats(experts);
            let mut bias: Vec<f32> = bias.iter().map(|v| v * 0.25).collect();
            bias[2] = bias[1];
            let of_choice = biased.then_some(&bias[..]);
            let (ids, shares) = oracle::choose(&logits, of_choice, experts, params);
            let shape = [tokens, used];
            let expected = [
                (&Expected::new(ids), shape),
                (&Expected::new(shares), shape),
            ];
            let name = format!("{used} of {experts} experts for {tokens} tokens, bias: {biased}");
            cell.cases(&name, &expected, || {
                let (ids, shares) = functional::choose_experts(
                    tensor(&logits, [tokens, experts], device),
                    of_choice.map(|bias| tensor(bias, [experts], device)),
                    params,
                );
                vec![ids.float(), shares]
            });
        }
    }
}

pub(super) fn sum(cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(34);
    for [tokens, used, width] in [[1, 8, 256], [3, 2, 37], [20, 4, 100]] {
        let y = random.floats(tokens * used * width);
        let shares = random.floats(tokens * used);
        let (shared, gate) = (random.floats(tokens * width), random.floats(tokens));
        for with_shared in [false, true] {
            let rest = with_shared.then_some((&shared[..], &gate[..]));
            let want = Expected::sums(oracle::sum(&y, &shares, rest, [tokens, used, width]));
            let name = format!("{used} of {tokens} x {width}, shared: {with_shared}");
            cell.case(&name, &want, [tokens, width], || {
                functional::expert_sum(
                    tensor(&y, [tokens, used, width], device),
                    tensor(&shares, [tokens, used], device),
                    rest.map(|(shared, gate)| {
                        (
                            tensor(shared, [tokens, width], device),
                            tensor(gate, [tokens, 1], device),
                        )
                    }),
                )
            });
        }
    }
}
