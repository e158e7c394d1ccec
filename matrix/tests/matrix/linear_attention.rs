//! States of linear attention: where they are written, and gradients through them.

use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::nn::functional::{self, DeltaInput};
use burn_gguf::ops::{ChoiceParams, DeltaParams, Gating};
use burn_gguf_matrix::Random;

const SEQ: usize = 3;
const HEADS: usize = 2;
const DIM: usize = 4;
/// One key head.
const MIXED: usize = (2 + HEADS) * DIM;
const PARAMS: DeltaParams = DeltaParams {
    key_heads: 1,
    grouped: true,
    eps: 1e-6,
};

fn tensor<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

/// All operands but the mixed projections, the same each time.
fn input(mixed: Tensor<3>, device: &Device) -> DeltaInput {
    let mut random = Random::new(41);
    let a: Vec<f32> = random.floats(HEADS).iter().map(|v| -v.abs()).collect();
    let rows = |n: usize, random: &mut Random| random.floats(SEQ * n);
    let width = HEADS * DIM;
    DeltaInput {
        mixed,
        gate: tensor(&rows(width, &mut random), [1, SEQ, width], device),
        beta: tensor(&rows(HEADS, &mut random), [1, SEQ, HEADS], device),
        alpha: tensor(&rows(HEADS, &mut random), [1, SEQ, HEADS], device),
        a: tensor(&a, [HEADS], device),
        dt: tensor(&random.floats(HEADS), [HEADS], device),
        norm: tensor(&random.floats(DIM), [DIM], device),
    }
}

fn state(device: &Device) -> Tensor<4> {
    let values = Random::new(42).floats(HEADS * DIM * DIM);
    tensor(&values, [1, HEADS, DIM, DIM], device)
}

#[test]
fn a_state_of_one_handle_is_written_in_place() {
    use burn::backend::Flex;
    let device = Device::flex();
    let address = |state: &Tensor<4>| {
        let primitive = state.clone().try_into_primitive::<Flex>().unwrap();
        primitive.bytes().as_ptr() as usize
    };
    let mixed = tensor(
        &Random::new(43).floats(SEQ * MIXED),
        [1, SEQ, MIXED],
        &device,
    );
    let first = state(&device);
    let at = address(&first);
    let (_, second) = functional::gated_delta(input(mixed.clone(), &device), first, PARAMS);
    assert_eq!(address(&second), at, "a state of one handle was copied");
    let kept = second.clone();
    let before = kept.to_data();
    let (_, third) = functional::gated_delta(input(mixed, &device), second, PARAMS);
    assert_ne!(address(&third), at, "a shared state was overwritten");
    assert_eq!(kept.to_data(), before);
}

/// `sum(c * out) + sum(state)` of two calls, the second of which goes on where the first ends.
fn loss(mixed: Tensor<3>, device: &Device) -> Tensor<1> {
    let c = tensor(
        &Random::new(44).floats(SEQ * HEADS * DIM),
        [1, SEQ, HEADS * DIM],
        device,
    );
    let taps = tensor(&Random::new(45).floats(MIXED * 4), [MIXED, 4], device);
    let past = Tensor::zeros([1, 3, MIXED], device);
    let (mixed, _) = functional::short_conv(mixed, taps, past);
    let (out, after) = functional::gated_delta(input(mixed, device), state(device), PARAMS);
    (out * c).sum() + after.sum()
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let values = Random::new(46).floats(SEQ * MIXED);
    let shape = [1, SEQ, MIXED];
    let device = Device::flex().autodiff();
    let x = tensor(&values, shape, &device).require_grad();
    let grads = loss(x.clone(), &device).backward();
    let grad: Vec<f32> = x.grad(&grads).unwrap().into_data().try_into_vec().unwrap();
    // The fused kernels on the plain device.
    let device = Device::flex();
    let at = |values: &[f32]| loss(tensor(values, shape, &device), &device).into_scalar::<f32>();
    let size = grad.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(size > 0.1, "{size}");
    for (i, grad) in grad.iter().enumerate() {
        let moved = |by: f32| {
            let mut values = values.clone();
            values[i] += by;
            at(&values)
        };
        let want = (moved(4e-3) - moved(-4e-3)) / 8e-3;
        let error = (grad - want).abs();
        assert!(error < 1e-2 * size, "value {i}: {grad} is not {want}");
    }
}

#[test]
fn shares_of_experts_have_gradients() {
    let device = Device::flex().autodiff();
    let logits = tensor(&[0.5, 2.0, -1.0, 1.0], [1, 4], &device).require_grad();
    let params = ChoiceParams {
        used: 2,
        gating: Gating::Softmax,
        normalize: true,
        least_sum: 6e-5,
        scale: 1.0,
    };
    let (ids, shares) = functional::choose_experts(logits.clone(), None, params);
    assert_eq!(ids.into_data().iter::<i64>().collect::<Vec<_>>(), [1, 3]);
    let y = tensor(&[3.0, 1.0], [1, 2, 1], &device);
    let grads = functional::expert_sum(y, shares, None).sum().backward();
    let grad: Vec<f32> = logits
        .grad(&grads)
        .unwrap()
        .into_data()
        .try_into_vec()
        .unwrap();
    // Of the softmax of two: p (1 - p) times the difference of what they say.
    let p = 1.0 / (1.0 + (-1.0f32).exp());
    let want = [0.0, 2.0 * p * (1.0 - p), 0.0, -2.0 * p * (1.0 - p)];
    for (g, w) in grad.iter().zip(want) {
        assert!((g - w).abs() < 1e-5, "{grad:?} is not {want:?}");
    }
}
