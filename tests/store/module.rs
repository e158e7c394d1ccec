//! The packed layers as burn modules.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Int, Tensor};
use burn_gguf::GgmlType;
use burn_gguf::device::{compiled_devices, open_device};
use burn_store::ModuleSnapshot;

use crate::{INNER, Net, VOCAB, WIDTH, file, open, values};

fn loaded() -> Net {
    let (_dir, path) = file(|_| {});
    let mut net = Net::new(&Device::flex());
    net.load_from(&mut open(&path)).unwrap();
    net
}

#[test]
fn num_params_counts_weights_not_words() {
    let weights = VOCAB * WIDTH + 2 * INNER * WIDTH + INNER + WIDTH + 3 * WIDTH + 3;
    assert_eq!(Net::new(&Device::flex()).num_params(), weights);
    assert_eq!(loaded().num_params(), weights);
}

#[test]
fn a_visitor_sees_packed_words_and_no_widened_floats() {
    #[derive(Default)]
    struct Seen {
        path: Vec<String>,
        floats: HashSet<String>,
        ints: HashSet<(String, DType)>,
    }
    impl ModuleVisitor for Seen {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_string());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
            self.floats.insert(self.path.join("."));
        }
        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            self.ints.insert((self.path.join("."), param.val().dtype()));
        }
    }
    let mut seen = Seen::default();
    loaded().visit(&mut seen);
    let floats = ["layers.0.up.bias", "norm.gamma", "head.weight", "head.bias"].map(String::from);
    assert_eq!(seen.floats, HashSet::from(floats));
    for path in [
        "embedding.weight",
        "layers.0.up.weight",
        "layers.1.up.weight",
    ] {
        assert!(
            seen.ints.contains(&(format!("{path}.words"), DType::U32)),
            "{:?}",
            seen.ints
        );
        assert!(
            seen.ints.contains(&(format!("{path}.layout"), DType::I32)),
            "{:?}",
            seen.ints
        );
    }
    assert_eq!(seen.ints.len(), 6);
}

#[test]
fn the_display_names_type_and_shape() {
    let text = format!("{}", loaded().layers[0].up);
    assert!(text.contains("Q4_K") && text.contains("[6, 256]"), "{text}");
    let text = format!("{}", Net::new(&Device::flex()).embedding);
    assert!(text.contains("not loaded"), "{text}");
}

#[test]
fn devices_move_packed_weights() {
    let net = loaded();
    for name in compiled_devices() {
        let device = match open_device(name) {
            Ok(device) => device,
            Err(error) => {
                println!("skipped: {name}: {error}");
                continue;
            }
        };
        let moved = net.clone().to_device(&device);
        let tensor = moved.layers[0].up.weight.tensor();
        assert_eq!(tensor.device(), device, "{name}");
        assert_eq!(tensor.ggml_type(), GgmlType::Q4K);
        assert_eq!(
            tensor.to_bytes(),
            net.layers[0].up.weight.tensor().to_bytes(),
            "{name}"
        );
        let home = moved.to_device(&Device::flex());
        assert_eq!(
            home.embedding.weight.tensor().to_bytes(),
            net.embedding.weight.tensor().to_bytes(),
            "{name}"
        );
        assert_eq!(
            values(home.norm.gamma.val()),
            values(net.norm.gamma.val()),
            "{name}"
        );
        let forked = net.clone().fork(&device);
        assert_eq!(forked.embedding.weight.tensor().device(), device, "{name}");
    }
}

#[test]
#[should_panic(expected = "never loaded")]
fn a_layer_without_a_weight_says_so() {
    let net = Net::new(&Device::flex());
    net.layers[0]
        .up
        .forward(Tensor::<2>::ones([1, WIDTH], &Device::flex()));
}

#[test]
#[should_panic(expected = "takes 256 values a row")]
fn a_wrong_input_width_says_so() {
    loaded().layers[0]
        .up
        .forward(Tensor::<2>::ones([1, 255], &Device::flex()));
}
