//! Attention over chosen blocks of keys, and the choice.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_gguf::nn::functional;
use burn_gguf::ops::{AttentionParams, BlockChoice};

use crate::cell::Cell;
use crate::compare::Expected;
use crate::layers::tensor;
use crate::oracle::{self, Heads};
use crate::random::Random;

/// A token alone and several, groups of heads, a batch, blocks that end inside the cache and more than a word of them:
/// sizes, valid rows, rows of a block, blocks seen, last ones among them.
const CASES: [(Heads, usize, usize, usize, usize); 4] = [
    (heads(1, 1, [4, 2], 128, 32), 100, 8, 3, 1),
    (heads(1, 48, [4, 2], 64, 32), 48, 8, 3, 1),
    (heads(2, 5, [6, 3], 48, 20), 41, 4, 4, 2),
    (heads(1, 9, [4, 1], 320, 64), 300, 8, 6, 1),
];

const fn heads(
    batch: usize,
    seq: usize,
    [heads, kv_heads]: [usize; 2],
    capacity: usize,
    dim: usize,
) -> Heads {
    Heads {
        batch,
        seq,
        heads,
        kv_heads,
        capacity,
        dim,
    }
}

fn name(shape: Heads, choice: BlockChoice) -> String {
    let Heads {
        batch, seq, heads, ..
    } = shape;
    let BlockChoice { len, size, top, .. } = choice;
    format!("[{batch}, {seq}, {heads}], {len} keys, {top} blocks of {size}")
}

pub(crate) fn choose_blocks(cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(17);
    for (shape, len, size, top, local) in CASES {
        let choice = BlockChoice {
            len,
            size,
            top,
            local,
        };
        let q_dims = [shape.batch, shape.seq, shape.heads, shape.dim];
        let k_dims = [shape.batch, 1, shape.capacity, shape.dim];
        let q = random.floats(q_dims.iter().product());
        let k = random.floats(k_dims.iter().product());
        let want = Expected::new(oracle::choose_blocks(&q, &k, shape, choice));
        let blocks = len.div_ceil(size);
        let dims = [shape.batch, shape.seq, shape.heads, blocks];
        cell.case(&name(shape, choice), &want, dims, || {
            let (q, k) = (tensor(&q, q_dims, device), tensor(&k, k_dims, device));
            let bits = functional::choose_blocks(q, k, choice).into_data();
            let bits: Vec<u32> = bits.iter::<u32>().collect();
            let words = BlockChoice::words(len, size);
            let bit = |row: &[u32], b: usize| (row[b / 32] >> (b % 32) & 1) as f32;
            let seen: Vec<f32> = bits
                .chunks_exact(words)
                .flat_map(|row| (0..blocks).map(move |b| bit(row, b)))
                .collect();
            tensor(&seen, dims, device)
        });
    }
}

pub(crate) fn attention_blocks(cell: &mut Cell<'_>) {
    let device = &cell.device.clone();
    let mut random = Random::new(18);
    for (shape, len, size, top, local) in CASES {
        let choice = BlockChoice {
            len,
            size,
            top,
            local,
        };
        let params = AttentionParams {
            len,
            scale: 0.25,
            causal: true,
            window: None,
            softcap: None,
        };
        let dims = [shape.batch, shape.seq, shape.heads, shape.dim];
        let cache = [shape.batch, shape.kv_heads, shape.capacity, shape.dim];
        let q = random.floats(dims.iter().product());
        let (k, v) = (
            random.floats(cache.iter().product()),
            random.floats(cache.iter().product()),
        );
        // As an indexer with a head for each of the cache's and keys of 4 values would choose.
        let indexer = Heads {
            heads: shape.kv_heads,
            kv_heads: 1,
            dim: 4,
            ..shape
        };
        let seen = oracle::choose_blocks(
            &random.floats(shape.batch * shape.seq * shape.kv_heads * 4),
            &random.floats(shape.batch * shape.capacity * 4),
            indexer,
            choice,
        );
        let blocks = len.div_ceil(size);
        let at = |[b, s]: [usize; 2], head: usize| {
            ((b * shape.seq + s) * shape.kv_heads + head) * blocks
        };
        let want = oracle::attention_where(&q, &k, &v, shape, params, |token, head, key| {
            seen[at(token, head) + key / size] == 1.0
        });
        let want = Expected::new(want);
        let bits = bits(&seen, shape, choice, device);
        cell.case(&name(shape, choice), &want, dims, || {
            functional::attention_blocks(
                tensor(&q, dims, device),
                tensor(&k, cache, device),
                tensor(&v, cache, device),
                bits.clone(),
                size,
                params,
            )
        });
    }
}

/// The bits of blocks that are seen, 0 or 1 each.
fn bits(seen: &[f64], shape: Heads, choice: BlockChoice, device: &Device) -> Tensor<4, Int> {
    let words = BlockChoice::words(choice.len, choice.size);
    let set = |(b, seen): (usize, &f64)| (*seen as u32) << b;
    let bits: Vec<u32> = seen
        .chunks_exact(choice.len.div_ceil(choice.size))
        .flat_map(|row| {
            row.chunks(32)
                .map(|word| word.iter().enumerate().map(set).sum())
        })
        .collect();
    let dims = [shape.batch, shape.seq, shape.kv_heads, words];
    Tensor::from_data(
        TensorData::new(bits, dims),
        (device, burn::tensor::DType::U32),
    )
}
