//! `linear_pair` and `linear_triple`.

use burn::tensor::Tensor;
use burn_gguf::{Arithmetic, GgmlLayout, GgmlTensor, GgmlType};

use super::{Input, USUAL, Weight, Weights, input};
use crate::blocks::Pattern;
use crate::cell::Cell;
use crate::oracle;

const INPUTS: [usize; 7] = [1, 2, 6, 7, 8, 9, 65];

impl Weights {
    pub fn linear_pair(&self, arithmetic: Arithmetic, cell: &mut Cell<'_>) {
        let weights = [&*self.random(USUAL, 4), &*self.random([8, USUAL[1]], 5)];
        let [a, b] = weights.map(|w| w.upload(cell.device));
        several(&weights, cell, |x| {
            GgmlTensor::linear_pair([&a, &b], x, arithmetic).to_vec()
        });
    }

    pub fn linear_triple(&self, arithmetic: Arithmetic, cell: &mut Cell<'_>) {
        // Query, key and value weights of one layer may differ in type, as they do in Q4_K_M files.
        let other = match self.ty {
            GgmlType::Q6K => GgmlType::Q4K,
            _ => GgmlType::Q8_0,
        };
        let layout = GgmlLayout::matrix(other, 16, USUAL[1]).expect("whole blocks");
        let other = Weight::new(layout, Pattern::Random, 8).expect("random blocks");
        let first = self.random(USUAL, 6);
        let second = self.random([8, USUAL[1]], 7);
        let weights = [&*first, &*second, &other];
        let [a, b, c] = weights.map(|w| w.upload(cell.device));
        several(&weights, cell, |x| {
            GgmlTensor::linear_triple([&a, &b, &c], x, arithmetic).to_vec()
        });
    }
}

fn several(weights: &[&Weight], cell: &mut Cell<'_>, run: impl Fn(Tensor<2>) -> Vec<Tensor<2>>) {
    let device = cell.device.clone();
    let counts: &[usize] = if cell.full { &INPUTS } else { &[1, 9] };
    for &n in counts {
        let x = Input::Usual.values(n, USUAL[1]);
        let wants: Vec<_> = weights
            .iter()
            .map(|w| oracle::linear(&x, &w.values, USUAL[1]))
            .collect();
        let want: Vec<_> = wants
            .iter()
            .zip(weights)
            .map(|(want, w)| (want, [n, w.layout.rows()]))
            .collect();
        let names: Vec<_> = weights.iter().map(|w| w.name()).collect();
        cell.cases(&format!("n={n} by {}", names.join(" and ")), &want, || {
            run(input(x.clone(), [n, USUAL[1]], &device))
        });
    }
}
