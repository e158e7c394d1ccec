//! Gradients through a frozen weight.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_gguf::device::Backend;
use burn_gguf::nn::GgmlLinear;
use burn_gguf::{Arithmetic, GgmlLayout, GgmlTensor, GgmlType, computable_types};

use burn_gguf_matrix::{Random, decode};

const ROWS: usize = 7;
const COLS: usize = 256;

fn weight(ty: GgmlType, device: &Device) -> (GgmlTensor, Vec<f32>) {
    let bytes = crate::weight(ty, ROWS, COLS);
    let values = decode(ty, &bytes);
    let layout = GgmlLayout::matrix(ty, ROWS, COLS).unwrap();
    (
        GgmlTensor::from_bytes(layout, bytes.into(), device).unwrap(),
        values,
    )
}

/// `d sum(linear(x) * c) / dx = c . W`.
fn expected(c: &[f32], w: &[f32]) -> Vec<f64> {
    c.chunks_exact(ROWS)
        .flat_map(|c| {
            (0..COLS).map(move |j| {
                (0..ROWS)
                    .map(|i| f64::from(c[i]) * f64::from(w[i * COLS + j]))
                    .sum()
            })
        })
        .collect()
}

fn assert_close(got: Tensor<3>, want: &[f64], what: &str) {
    let got: Vec<f32> = got.into_data().try_into_vec().unwrap();
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    for (i, (&g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            (f64::from(g) - w).abs() <= 1e-6 * size,
            "{what}: value {i} is {g}, not {w}"
        );
    }
}

#[test]
fn the_gradient_of_the_input_is_the_product_with_the_weight() {
    let device = Device::flex().autodiff();
    let mut random = Random::new(21);
    for &ty in computable_types(Backend::Flex) {
        let (weight, w) = weight(ty, &device);
        // The straight-through gradient is the same whatever the forward arithmetic.
        for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
            let x = random.floats(2 * 3 * COLS);
            let c = random.floats(2 * 3 * ROWS);
            let x =
                Tensor::<3>::from_data(TensorData::new(x, [2, 3, COLS]), &device).require_grad();
            let scale = Tensor::<3>::from_data(TensorData::new(c.clone(), [2, 3, ROWS]), &device);
            let loss = (weight.linear(x.clone(), arithmetic) * scale).sum();
            let grads = loss.backward();
            let grad = x.grad(&grads).expect("the input has a gradient");
            assert_close(grad, &expected(&c, &w), &format!("{ty} {arithmetic:?}"));
        }
    }
}

#[test]
fn pairs_and_triples_add_their_gradients() {
    let device = Device::flex().autodiff();
    let (weight, w) = weight(GgmlType::Q8_0, &device);
    let mut random = Random::new(22);
    let (x, c) = (random.floats(COLS), random.floats(ROWS));
    let x = Tensor::<3>::from_data(TensorData::new(x, [1, 1, COLS]), &device).require_grad();
    let scale = Tensor::<3>::from_data(TensorData::new(c.clone(), [1, 1, ROWS]), &device);
    let [a, b] = GgmlTensor::linear_pair([&weight, &weight], x.clone(), Arithmetic::Exact);
    let [d, e, f] =
        GgmlTensor::linear_triple([&weight, &weight, &weight], x.clone(), Arithmetic::Exact);
    let grads = ((a + b + d + e + f) * scale).sum().backward();
    let want: Vec<f64> = expected(&c, &w).iter().map(|v| 5.0 * v).collect();
    assert_close(x.grad(&grads).unwrap(), &want, "five products");
}

/// Every expert's gradient goes to the rows that chose it, summed where the choices of a token share its row.
#[test]
fn experts_send_gradients_to_the_rows_that_chose_them() {
    const EXPERTS: usize = 3;
    let device = Device::flex().autodiff();
    let bytes = crate::weight(GgmlType::Q8_0, EXPERTS * ROWS, COLS);
    let w = decode(GgmlType::Q8_0, &bytes);
    let layout = GgmlLayout::stack(GgmlType::Q8_0, EXPERTS, ROWS, COLS).unwrap();
    let stack = GgmlTensor::from_bytes(layout, bytes.into(), &device).unwrap();
    let mut random = Random::new(24);
    let chosen = [2usize, 0, 2, 1];
    let ids = || {
        let ids = chosen.map(|id| id as i32).to_vec();
        Tensor::<2, Int>::from_data(TensorData::new(ids, [2, 2]), &device)
    };
    let c = random.floats(4 * ROWS);
    let of_slot = |slot: usize| {
        expected(
            &c[slot * ROWS..][..ROWS],
            &w[chosen[slot] * ROWS * COLS..][..ROWS * COLS],
        )
    };
    for slots in [1, 2] {
        let x = random.floats(2 * slots * COLS);
        let x =
            Tensor::<3>::from_data(TensorData::new(x, [2, slots, COLS]), &device).require_grad();
        let scale = Tensor::<3>::from_data(TensorData::new(c.clone(), [2, 2, ROWS]), &device);
        let single = stack.linear_experts(x.clone(), ids(), Arithmetic::Exact);
        let [a, b] =
            GgmlTensor::linear_experts_pair([&stack, &stack], x.clone(), ids(), Arithmetic::Exact);
        let floats = |t: &Tensor<3>| t.to_data().try_into_vec::<f32>().unwrap();
        assert_eq!(floats(&a), floats(&single));
        assert_eq!(floats(&b), floats(&single));
        let grads = ((a + b) * scale).sum().backward();
        let mut want = vec![0.0; 2 * slots * COLS];
        for slot in 0..4 {
            let row = if slots == 1 { slot / 2 } else { slot };
            for (want, v) in want[row * COLS..].iter_mut().zip(of_slot(slot)) {
                *want += 2.0 * v;
            }
        }
        assert_close(
            x.grad(&grads).unwrap(),
            &want,
            &format!("{slots} rows a token"),
        );
    }
}

#[test]
fn the_weight_is_no_float_parameter_and_the_bias_is() {
    #[derive(Default)]
    struct Floats(usize);
    impl ModuleVisitor for Floats {
        fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
            self.0 += 1;
        }
    }
    let count = |layer: &GgmlLinear| {
        let mut floats = Floats::default();
        layer.visit(&mut floats);
        floats.0
    };
    let device = Device::flex().autodiff();
    let (weight, _) = weight(GgmlType::Q4K, &device);
    assert_eq!(count(&GgmlLinear::from_tensor(weight.clone(), None)), 0);
    let layer = GgmlLinear::from_tensor(weight, Some(Tensor::zeros([ROWS], &device)));
    assert_eq!(count(&layer), 1);
    let x = Tensor::<2>::ones([3, COLS], &device);
    let grads = layer.forward(x.clone()).sum().backward();
    assert!(
        x.grad(&grads).is_none(),
        "an input that asks for no gradient has none"
    );
    let bias = layer
        .bias
        .as_ref()
        .unwrap()
        .val()
        .grad(&grads)
        .expect("the bias trains");
    assert_eq!(bias.into_data().try_into_vec::<f32>().unwrap(), [3.0; ROWS]);
}

/// Through attention over blocks, gradients reach the keys and values that were seen and no others.
#[test]
fn attention_over_blocks_has_gradients() {
    use burn_gguf::nn::functional;
    use burn_gguf::ops::AttentionParams;
    let device = Device::flex().autodiff();
    let mut random = Random::new(25);
    let (len, size) = (24, 4);
    let mut leaf = |dims: [usize; 4]| {
        let values = random.floats(dims.iter().product());
        Tensor::<4>::from_data(TensorData::new(values, dims), &device).require_grad()
    };
    let (q, k, v) = (
        leaf([1, 2, 4, 8]),
        leaf([1, 2, len, 8]),
        leaf([1, 2, len, 8]),
    );
    let params = AttentionParams {
        len,
        scale: 0.5,
        causal: true,
        window: None,
        softcap: None,
    };
    let blocks = |bits: [u32; 4]| {
        let data = TensorData::new(bits.to_vec(), [1, 2, 2, 1]);
        Tensor::<4, Int>::from_data(data, (&device, burn::tensor::DType::U32))
    };
    let floats = |t: Tensor<4>| t.into_data().try_into_vec::<f32>().unwrap();
    let grads = |bits: [u32; 4]| {
        let (q, k, v) = (q.clone(), k.clone(), v.clone());
        let out = functional::attention_blocks(
            q.clone(),
            k.clone(),
            v.clone(),
            blocks(bits),
            size,
            params,
        );
        let grads = (out.clone() * out).sum().backward();
        [q, k, v].map(|t| floats(t.grad(&grads).unwrap()))
    };
    // All blocks: as without.
    let out = functional::attention(q.clone(), k.clone(), v.clone(), params);
    let plain = (out.clone() * out).sum().backward();
    let all = grads([0b111111; 4]);
    for (got, t) in all.iter().zip([&q, &k, &v]) {
        assert_eq!(got, &floats(t.grad(&plain).unwrap()));
    }
    // Both tokens' first head sees blocks 1 and 5, the second one blocks 0 and 5.
    let [q, k, v] = grads([0b100010, 0b100001, 0b100010, 0b100001]);
    assert!(q.iter().any(|g| *g != 0.0));
    for grad in [k, v] {
        for (row, grad) in grad.chunks_exact(8).enumerate() {
            let block = row % len / size;
            let seen = block == 5 || block == 1 - row / len;
            assert_eq!(grad.iter().any(|g| *g != 0.0), seen, "row {row}");
        }
    }
}

#[test]
fn layer_operations_have_gradients() {
    use burn_gguf::nn::functional;
    let device = Device::flex().autodiff();
    let mut random = Random::new(23);
    let x = Tensor::<3>::from_data(TensorData::new(random.floats(24), [1, 3, 8]), &device)
        .require_grad();
    let loss = functional::rms_norm(x.clone(), Tensor::ones([8], &device), 1e-6).sum();
    let grads = loss.backward();
    let grad: Vec<f32> = x.grad(&grads).unwrap().into_data().try_into_vec().unwrap();
    // d sum(x_i / r) / dx_j = 1 / r - x_j sum(x) / (n r^3)
    let x: Vec<f32> = x.into_data().try_into_vec().unwrap();
    for (row, grad) in x.chunks_exact(8).zip(grad.chunks_exact(8)) {
        let r = (row.iter().map(|v| v * v).sum::<f32>() / 8.0 + 1e-6).sqrt();
        let sum: f32 = row.iter().sum();
        for (v, g) in row.iter().zip(grad) {
            let want = 1.0 / r - v * sum / (8.0 * r.powi(3));
            assert!((g - want).abs() < 1e-4, "{g} is not {want}");
        }
    }
}
