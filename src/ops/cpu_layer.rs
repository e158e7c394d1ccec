//! The fused layer operations on host slices.

mod delta_net;
mod experts;

pub(super) use delta_net::{gated_delta, short_conv};
pub(super) use experts::{choose_experts, expert_sum};

use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::{self, Arithmetic, KvView, RopePairing, RopeTable, ShapeError};

use super::cpu::{HostBackend, float};
use super::layer::{AttentionParams, BlockChoice, GeluKind, GluActivation, RopeStyle};
use super::reference;

fn checked<T>(result: Result<T, ShapeError>) -> T {
    result.unwrap_or_else(|e| panic!("{e}"))
}

/// Whether the fused kernels serve these operands: they compute in f32.
fn all_f32<B: HostBackend>(tensors: &[&FloatTensor<B>]) -> bool {
    tensors.iter().all(|t| t.dtype() == DType::F32)
}

/// Lends the values of all tensors at once.
fn with_all<B: HostBackend>(tensors: &[&FloatTensor<B>], f: impl FnOnce(&[&[f32]])) {
    fn lend<B: HostBackend>(
        tensors: &[&FloatTensor<B>],
        lent: &[&[f32]],
        f: &mut dyn FnMut(&[&[f32]]),
    ) {
        match tensors.split_first() {
            None => f(lent),
            Some((first, rest)) => B::with_f32(first, |values| {
                let lent: Vec<&[f32]> = lent.iter().copied().chain([values]).collect();
                lend::<B>(rest, &lent, f);
            }),
        }
    }
    let mut f = Some(f);
    lend::<B>(tensors, &[], &mut |slices| {
        if let Some(f) = f.take() {
            f(slices);
        }
    });
}

pub(super) fn rms_norm<B: HostBackend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    eps: f32,
) -> FloatTensor<B> {
    if !all_f32::<B>(&[&x, &weight]) {
        return reference::rms_norm::<B>(x, weight, eps);
    }
    let (shape, device) = (x.shape(), x.device());
    let mut out = vec![0f32; shape.num_elements()];
    B::with_f32(&x, |x| {
        B::with_f32(&weight, |w| {
            checked(cpu::rms_norm(x, w.len(), Some(w), eps, &mut out));
        })
    });
    float::<B>(out, shape, &device)
}

pub(super) fn layer_norm<B: HostBackend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: FloatTensor<B>,
    eps: f32,
) -> FloatTensor<B> {
    if !all_f32::<B>(&[&x, &weight, &bias]) {
        return reference::layer_norm::<B>(x, weight, bias, eps);
    }
    let (shape, device) = (x.shape(), x.device());
    let mut out = vec![0f32; shape.num_elements()];
    B::with_f32(&x, |x| {
        B::with_f32(&weight, |w| {
            B::with_f32(&bias, |b| checked(cpu::layer_norm(x, w, b, eps, &mut out)));
        });
    });
    float::<B>(out, shape, &device)
}

pub(super) fn gelu<B: HostBackend>(x: FloatTensor<B>, kind: GeluKind) -> FloatTensor<B> {
    let kernel = match kind {
        GeluKind::Tanh => cpu::gelu_tanh,
        GeluKind::Quick => cpu::gelu_quick,
        // Only the small merger networks of vision towers use it.
        GeluKind::Erf => return reference::gelu::<B>(x, kind),
    };
    if !all_f32::<B>(&[&x]) {
        return reference::gelu::<B>(x, kind);
    }
    let (shape, device) = (x.shape(), x.device());
    let mut out = vec![0f32; shape.num_elements()];
    B::with_f32(&x, |x| checked(kernel(x, &mut out)));
    float::<B>(out, shape, &device)
}

pub(super) fn rope<B: HostBackend>(
    x: FloatTensor<B>,
    cos: FloatTensor<B>,
    sin: FloatTensor<B>,
    style: RopeStyle,
) -> FloatTensor<B> {
    if !all_f32::<B>(&[&x, &cos, &sin]) {
        return reference::rope::<B>(x, cos, sin, style);
    }
    let (shape, device) = (x.shape(), x.device());
    let [batch, seq, heads, dim] = dims4(&shape);
    let half = cos.shape()[1];
    let pairing = match style {
        RopeStyle::Neox => RopePairing::Neox,
        RopeStyle::Norm => RopePairing::Norm,
    };
    let table = B::with_f32(&cos, |cos| {
        B::with_f32(&sin, |sin| {
            checked(RopeTable::from_cos_sin(cos, sin, half, pairing))
        })
    });
    let mut values = B::into_vec(x);
    for item in values.chunks_mut((seq * heads * dim).max(1)).take(batch) {
        checked(table.apply(item, heads, dim));
    }
    float::<B>(values, shape, &device)
}

pub(super) fn linear<B: HostBackend>(x: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
    if !all_f32::<B>(&[&x, &weight]) {
        return reference::linear::<B>(x, weight);
    }
    let (n, device) = (x.shape()[0], x.device());
    let [rows, cols] = [weight.shape()[0], weight.shape()[1]];
    let mut out = vec![0f32; n * rows];
    B::with_f32(&x, |x| {
        B::with_f32(&weight, |weight| {
            let matrix = cpu::Matrix {
                ty: GgmlType::F32,
                bytes: bytemuck::cast_slice(weight),
                rows,
                cols,
            };
            cpu::linear(matrix, x, n, &mut out, Arithmetic::Exact)
                .unwrap_or_else(|error| panic!("{error}"));
        })
    });
    float::<B>(out, Shape::new([n, rows]), &device)
}

pub(super) fn glu<B: HostBackend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    activation: GluActivation,
) -> FloatTensor<B> {
    if !all_f32::<B>(&[&gate, &up]) {
        return reference::glu::<B>(gate, up, activation);
    }
    let (shape, device) = (gate.shape(), gate.device());
    let mut out = vec![0f32; shape.num_elements()];
    B::with_f32(&gate, |gate| {
        B::with_f32(&up, |up| {
            checked(match activation {
                GluActivation::Silu => cpu::swiglu(gate, up, &mut out),
                GluActivation::GeluTanh => cpu::geglu_tanh(gate, up, &mut out),
                GluActivation::SwigluOai => cpu::swiglu_oai(gate, up, &mut out),
            });
        })
    });
    float::<B>(out, shape, &device)
}

pub(super) fn cache_append<B: HostBackend>(
    cache: FloatTensor<B>,
    rows: FloatTensor<B>,
    position: usize,
) -> FloatTensor<B> {
    let [batch, _, heads, dim] = dims4(&rows.shape());
    let capacity = cache.shape()[2];
    // One batch item is one cache of the kernel's.
    if batch != 1 || !all_f32::<B>(&[&rows]) {
        return reference::cache_append::<B>(cache, rows, position);
    }
    B::with_f32(&rows, |x| {
        B::edit_cache(cache, |view| {
            checked(cpu::append_kv(view, heads, capacity, dim, position, x));
        })
    })
    .unwrap_or_else(|cache| reference::cache_append::<B>(cache, rows, position))
}

pub(super) fn attention<B: HostBackend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    params: AttentionParams,
) -> FloatTensor<B> {
    match is_served::<B>(&q, &k, &v) {
        true => attend::<B>(q, k, v, None, params),
        false => reference::attention::<B>(q, k, v, params),
    }
}

pub(super) fn attention_blocks<B: HostBackend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    blocks: IntTensor<B>,
    block_size: usize,
    params: AttentionParams,
) -> FloatTensor<B> {
    match is_served::<B>(&q, &k, &v) && blocks.dtype() == DType::U32 {
        true => B::with_words(&blocks, |bits| {
            attend::<B>(q, k, v, Some((bits, block_size)), params)
        }),
        false => reference::attention_blocks::<B>(q, k, v, blocks, block_size, params),
    }
}

/// Whether the kernel serves these operands: it computes in f32.
fn is_served<B: HostBackend>(q: &FloatTensor<B>, k: &FloatTensor<B>, v: &FloatTensor<B>) -> bool {
    let cached = |t: &FloatTensor<B>| matches!(t.dtype(), DType::F32 | DType::F16);
    all_f32::<B>(&[q]) && cached(k) && cached(v)
}

/// Attention, with the words of the blocks that are seen and the rows of a block where not all are.
fn attend<B: HostBackend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    blocks: Option<(&[u32], usize)>,
    params: AttentionParams,
) -> FloatTensor<B> {
    let (shape, device) = (q.shape(), q.device());
    let [batch, seq, heads, dim] = dims4(&shape);
    let [_, kv_heads, capacity, _] = dims4(&k.shape());
    let sizes = cpu::AttentionShape {
        tokens: seq,
        n_heads: heads,
        n_kv_heads: kv_heads,
        head_dim: dim,
        capacity,
        len: params.len,
    };
    let kernel = cpu::AttentionParams {
        scale: params.scale,
        causal: params.causal,
        window: params.window,
        softcap: params.softcap,
    };
    let (q_len, kv_len) = (seq * heads * dim, kv_heads * capacity * dim);
    let mut out = vec![0f32; shape.num_elements()];
    B::with_f32(&q, |q| {
        B::with_cache(&k, |k| {
            B::with_cache(&v, |v| {
                for (i, out) in out.chunks_mut(q_len.max(1)).enumerate().take(batch) {
                    let q = &q[i * q_len..][..q_len];
                    let (k, v) = (item(k, i, kv_len), item(v, i, kv_len));
                    checked(match blocks {
                        None => cpu::attention(q, k, v, &sizes, &kernel, out),
                        Some((bits, size)) => {
                            let words = bits.len() / batch;
                            let bits = &bits[i * words..][..words];
                            let blocks = cpu::KeyBlocks { bits, size };
                            cpu::attention_blocks(q, k, v, &sizes, &kernel, blocks, out)
                        }
                    });
                }
            });
        });
    });
    float::<B>(out, shape, &device)
}

pub(super) fn choose_blocks<B: HostBackend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    choice: BlockChoice,
) -> IntTensor<B> {
    if !all_f32::<B>(&[&q, &k]) {
        return reference::choose_blocks::<B>(q, k, choice);
    }
    let shapes = (dims4(&q.shape()), dims4(&k.shape()));
    let bits = B::with_f32(&q, |q_values| {
        B::with_f32(&k, |k| reference::chosen_bits(q_values, k, shapes, choice))
    });
    B::int_from_data(bits, &q.device())
}

fn item(cache: KvView<'_>, index: usize, len: usize) -> KvView<'_> {
    let range = index * len..(index + 1) * len;
    match cache {
        KvView::F32(s) => KvView::F32(&s[range]),
        KvView::F16(s) => KvView::F16(&s[range]),
    }
}

fn dims4(shape: &Shape) -> [usize; 4] {
    shape
        .as_slice()
        .try_into()
        .unwrap_or_else(|_| panic!("expected 4 dimensions, found {shape:?}"))
}
