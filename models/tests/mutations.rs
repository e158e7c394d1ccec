//! Would a wrong detail show? Of each family one detail at a time is left out or changed, and the logits must leave the
//! tolerance within which `cases` holds them. Details are those of the configuration, and every tensor of the file.
//!
//! A mutation that changes nothing means that `cases` could not see a mistake there.

mod common;

use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::ops::{GluActivation, RopeStyle};
use burn_gguf::{Arithmetic, GgmlType};
use burn_gguf_models::decoder::DecoderConfig;
use burn_gguf_models::families::dense::load_decoder;
use burn_gguf_models::families::gemma4::Gemma4Config;
use burn_gguf_models::families::{
    gemma3, gemma4, minimax_m2, minimax_m3, muse_glimmer, qwen, qwen3vl, qwen35,
};
use burn_gguf_models::layers::{
    AttentionConfig, AttentionGate, CacheDtype, Gating, MoeConfig, Positions, QkNorm,
};
use burn_gguf_models::{LoadOptions, LogitsOf, ModelError, ModelInput, SessionOptions, TextModel};
use common::{Npy, case, nmse, say};

/// Ten times what `cases` allows.
const NOTICED: f64 = 1e-5;
/// What the suite of images allows.
const NOTICED_IN_IMAGES: f64 = 1e-9;

type Config = fn(&Gguf) -> Result<DecoderConfig, ModelError>;
type Bindings = &'static [(&'static str, &'static str)];
type Mutation = (&'static str, fn(&mut DecoderConfig));

/// A family: its case, how it is loaded, and what can go wrong in it.
struct Family {
    case: &'static str,
    config: Config,
    bindings: Bindings,
    mutations: &'static [&'static [Mutation]],
}

/// What every decoder has.
const EVERY: &[Mutation] = &[
    ("rotary base", |c| c.rope.base *= 10.0),
    ("rotary pairing", |c| c.rope.style = other(c.rope.style)),
    ("rotated width", |c| c.rope.n_rot -= 2),
    ("attention scale", |c| c.attention_scale *= 1.1),
    ("norm epsilon", |c| c.eps += 0.01),
    ("activation", |c| {
        c.activation = match c.activation {
            GluActivation::Silu => GluActivation::GeluTanh,
            _ => GluActivation::Silu,
        };
        if let Some(moe) = &mut c.moe {
            moe.activation = c.activation;
        }
    }),
];

const PLAIN_QUERIES: Mutation = ("QK norm left out", |c| c.qk_norm = QkNorm::None);

const EXPERTS: &[Mutation] = &[
    ("experts used", |c| experts(c).used -= 1),
    ("shares not normalized", |c| experts(c).normalize = false),
    ("factor on shares", |c| experts(c).scale *= 1.2),
    ("gating", |c| {
        let moe = experts(c);
        moe.gating = match moe.gating {
            Gating::Softmax => Gating::Sigmoid,
            _ => Gating::Softmax,
        };
    }),
];

const CHOICE_BIAS: Mutation = ("bias of the choice left out", |c| {
    experts(c).choice_bias = false
});

const SHARED_EXPERT: Mutation = ("shared expert left out", |c| experts(c).shared = None);

const SHARED_GATE: Mutation = ("gate of the shared expert left out", |c| {
    experts(c).shared_gate = false
});

const DELTA_NETS: &[Mutation] = &[
    ("order of value heads", |c| {
        let (net, _) = c.delta_net.as_mut().expect("the family has delta nets");
        net.grouped = !net.grouped;
    }),
    ("epsilon in delta nets", |c| {
        let (net, _) = c.delta_net.as_mut().expect("the family has delta nets");
        net.eps += 0.01;
    }),
];

const WINDOWS: &[Mutation] = &[
    ("windows left out", |c| c.windows.fill(None)),
    ("window one larger", |c| {
        c.windows
            .iter_mut()
            .flatten()
            .for_each(|window| *window += 1);
    }),
    ("rotary base of sliding layers", |c| {
        c.rope_sliding.base *= 1.5
    }),
];

const POST_NORMS: Mutation = ("norms behind left out", |c| c.post_norms = None);

const FAMILIES: &[Family] = &[
    Family {
        case: "qwen2",
        config: qwen::qwen2_config,
        bindings: qwen::BINDINGS,
        mutations: &[EVERY, &[("biases left out", |c| c.qkv_bias = false)]],
    },
    Family {
        case: "qwen3",
        config: qwen::qwen3_config,
        bindings: qwen::BINDINGS,
        mutations: &[EVERY, &[PLAIN_QUERIES]],
    },
    Family {
        case: "qwen3moe",
        config: qwen::qwen3moe_config,
        bindings: qwen::BINDINGS,
        mutations: &[EVERY, EXPERTS, &[PLAIN_QUERIES]],
    },
    Family {
        case: "qwen3vl",
        config: qwen3vl::config,
        bindings: qwen::BINDINGS,
        mutations: &[EVERY, &[PLAIN_QUERIES]],
    },
    Family {
        case: "qwen3vlmoe",
        config: qwen3vl::moe_config,
        bindings: qwen::BINDINGS,
        mutations: &[EVERY, EXPERTS, &[PLAIN_QUERIES]],
    },
    Family {
        case: "qwen35",
        config: qwen35::config,
        bindings: qwen35::BINDINGS,
        mutations: &[EVERY, DELTA_NETS, &[PLAIN_QUERIES, GATE]],
    },
    Family {
        case: "qwen35moe",
        config: qwen35::moe_config,
        bindings: qwen35::BINDINGS,
        mutations: &[
            EVERY,
            EXPERTS,
            DELTA_NETS,
            &[PLAIN_QUERIES, GATE, SHARED_EXPERT, SHARED_GATE],
        ],
    },
    Family {
        case: "qwen3next",
        config: qwen35::next_config,
        bindings: qwen35::BINDINGS,
        mutations: &[
            EVERY,
            EXPERTS,
            DELTA_NETS,
            &[PLAIN_QUERIES, GATE, SHARED_EXPERT, SHARED_GATE],
        ],
    },
    Family {
        case: "gemma3",
        config: gemma3::config,
        bindings: gemma3::BINDINGS,
        mutations: &[
            EVERY,
            WINDOWS,
            &[
                PLAIN_QUERIES,
                POST_NORMS,
                ("embeddings not scaled", |c| c.embedding_scale = None),
                ("logits capped", |c| c.logit_softcap = Some(30.0)),
            ],
        ],
    },
    Family {
        case: "minimax-m2",
        config: minimax_m2::config,
        bindings: qwen::BINDINGS,
        mutations: &[EVERY, EXPERTS, &[PLAIN_QUERIES, CHOICE_BIAS]],
    },
    Family {
        case: "minimax-m3",
        config: minimax_m3::config,
        bindings: minimax_m3::BINDINGS,
        mutations: &[
            EVERY,
            EXPERTS,
            &[
                PLAIN_QUERIES,
                CHOICE_BIAS,
                SHARED_EXPERT,
                ("all keys seen", |c| c.indexer = None),
                ("blocks seen", |c| indexer(c).top -= 1),
                ("local blocks", |c| indexer(c).local -= 1),
                ("block size", |c| indexer(c).block_size += 1),
            ],
        ],
    },
    Family {
        case: "muse-glimmer",
        config: muse_glimmer::config,
        bindings: muse_glimmer::BINDINGS,
        mutations: &[
            // Full layers know no positions here: their rotation is not one.
            WINDOWS,
            &[
                PLAIN_QUERIES,
                POST_NORMS,
                GATE,
                ("attention scale", |c| c.attention_scale *= 1.1),
                ("norm epsilon", |c| c.eps += 0.01),
                ("activation", |c| c.activation = GluActivation::GeluTanh),
                ("pairing of sliding layers", |c| {
                    c.rope_sliding.style = other(c.rope_sliding.style);
                }),
                ("positions in full layers", |c| c.nope_full = false),
                ("norm of the input left out", |c| c.input_norm = None),
                ("logits not scaled", |c| c.logit_scale = None),
                ("logits not capped", |c| c.logit_softcap = None),
            ],
        ],
    },
];

const GATE: Mutation = ("gate left out", |c| c.attention_gate = AttentionGate::None);

fn other(style: RopeStyle) -> RopeStyle {
    match style {
        RopeStyle::Neox => RopeStyle::Norm,
        RopeStyle::Norm => RopeStyle::Neox,
    }
}

fn experts(config: &mut DecoderConfig) -> &mut burn_gguf_models::layers::MoeConfig {
    config.moe.as_mut().expect("the family has experts")
}

fn indexer(config: &mut DecoderConfig) -> &mut burn_gguf_models::layers::IndexerConfig {
    config.indexer.as_mut().expect("the family has an indexer")
}

fn options() -> LoadOptions {
    LoadOptions {
        arithmetic: Arithmetic::Exact,
        ..LoadOptions::default()
    }
}

/// How far the logits of `config` are from the expected ones; `None` where the file does not even load, or has tensors
/// left over.
fn error_of(gguf: &Gguf, config: &DecoderConfig, family: &Family, dir: &Path) -> Option<f64> {
    let device = Device::flex();
    let (model, report) = load_decoder(gguf, config, family.bindings, &device, options()).ok()?;
    if !report.unused.is_empty() {
        return None;
    }
    let tokens = Npy::read(&dir.join("tokens.npy")).ids();
    let session = SessionOptions::default();
    let logits = burn_gguf_models::Session::new(&model, &session).feed_all(&tokens);
    Some(nmse(&logits.unwrap(), &expected(dir)))
}

/// The logits of the original model where llama.cpp's differ from them, else those.
fn expected(dir: &Path) -> Vec<f32> {
    let original = dir.join("hf_logits.npy");
    match original.exists() {
        true => Npy::read(&original).floats(),
        false => Npy::read(&dir.join("logits.npy")).floats(),
    }
}

#[test]
fn every_detail_of_a_configuration_shows() {
    let mut unseen = Vec::new();
    for family in FAMILIES {
        let model = ["bf16", "f32"]
            .iter()
            .map(|ty| format!("{}/model-{ty}.gguf", family.case))
            .find_map(|file| case(&file));
        let (Some(path), Some(dir)) = (model, case(&format!("{}/text", family.case))) else {
            continue;
        };
        let gguf = Gguf::open(path).unwrap();
        let right = (family.config)(&gguf).unwrap();
        let e = error_of(&gguf, &right, family, &dir).expect("the family loads");
        assert!(
            e < NOTICED / 100.0,
            "{} itself is off by {e:.1e}",
            family.case
        );
        for (name, mutate) in family.mutations.iter().copied().flatten() {
            let mut config = right.clone();
            mutate(&mut config);
            let seen = match error_of(&gguf, &config, family, &dir) {
                Some(e) => {
                    say(&format!("{}, {name}: NMSE {e:.1e}", family.case));
                    e > NOTICED
                }
                None => {
                    say(&format!("{}, {name}: does not load", family.case));
                    true
                }
            };
            if !seen {
                unseen.push(format!("{}, {name}", family.case));
            }
        }
    }
    assert!(
        unseen.is_empty(),
        "nobody would notice:\n{}",
        unseen.join("\n")
    );
}

/// The file with the values of one tensor moved on by one place, which no norm undoes, or scaled where they are all one.
fn moved(gguf: &Gguf, name: &str) -> Gguf {
    let mut writer = GgufWriter::new();
    writer.copy_metadata(gguf.metadata());
    for tensor in gguf.tensors() {
        if tensor.name() != name {
            writer.copy_tensor(tensor);
            continue;
        }
        let ty = tensor.ggml_type().unwrap();
        let size = match ty {
            GgmlType::F32 => 4,
            GgmlType::BF16 | GgmlType::F16 => 2,
            other => panic!("{name} is {other}"),
        };
        let mut bytes = tensor.data().to_vec();
        let before = bytes.clone();
        bytes.rotate_left(size);
        if bytes == before {
            // All values are one: another one.
            assert_eq!(ty, GgmlType::F32, "{name} is constant");
            for value in bytes.chunks_exact_mut(4) {
                let float = f32::from_le_bytes(value.try_into().unwrap());
                value.copy_from_slice(&(float * 1.25).to_le_bytes());
            }
        }
        writer.tensor(name, tensor.shape(), ty, bytes);
    }
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

/// Every tensor of the file counts, and in its order.
#[test]
fn every_tensor_shows() {
    let mut unseen = Vec::new();
    for name in [
        "qwen2",
        "qwen3",
        "qwen3moe",
        "qwen3vl",
        "qwen3vlmoe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "gemma3",
        "gemma4",
        "gemma4-e",
        "gemma4uv",
        "minimax-m2",
        "minimax-m3",
        "muse-glimmer",
    ] {
        let model = ["bf16", "f32"]
            .iter()
            .map(|ty| format!("{name}/model-{ty}.gguf"))
            .find_map(|file| case(&file));
        let (Some(path), Some(dir)) = (model, case(&format!("{name}/text"))) else {
            continue;
        };
        let gguf = Gguf::open(path).unwrap();
        let tokens = Npy::read(&dir.join("tokens.npy")).ids();
        let want = expected(&dir);
        let mut count = 0;
        for tensor in gguf.tensors() {
            let file = moved(&gguf, tensor.name());
            let model = burn_gguf_models::AutoModel::load(file, &Device::flex(), text_only());
            let model = model.unwrap_or_else(|e| panic!("{name}: {e}"));
            // Blocks that predict further tokens are not run.
            let skipped = model.report().skipped.iter().any(|n| n == tensor.name());
            // A factor on all the last layer gives goes into a norm.
            let last = model.model().cache_layers() - 1;
            if skipped || tensor.name() == format!("blk.{last}.layer_output_scale.weight") {
                continue;
            }
            let logits = model.session(&SessionOptions::default()).feed_all(&tokens);
            let e = nmse(&logits.unwrap(), &want);
            count += 1;
            if e <= NOTICED {
                unseen.push(format!("{name}, {}: {e:.1e}", tensor.name()));
            }
        }
        say(&format!("{name}: {count} tensors"));
    }
    assert!(
        unseen.is_empty(),
        "nobody would notice:\n{}",
        unseen.join("\n")
    );
}

fn text_only() -> LoadOptions {
    let mut options = options();
    options.vision.source = burn_gguf_models::vision::discover::VisionSource::Off;
    options
}

/// What only images show: how rows and columns turn, and what images add to the first layers.
#[test]
fn every_detail_of_images_in_the_text_model_shows() {
    let mutations: [Mutation; 4] = [
        ("axes left out", |c| c.rope.sections = None),
        ("rows turn by time", |c| {
            if let Some([_, rows, _]) = &mut c.rope.sections {
                *rows = 0;
            }
        }),
        ("columns turn by time", |c| {
            if let Some([_, _, columns]) = &mut c.rope.sections {
                *columns = 0;
            }
        }),
        ("DeepStack left out", |c| c.deepstack = 0),
    ];
    for family in FAMILIES {
        let (Some(path), Some(dir)) = (
            case(&format!("{}/model-bf16.gguf", family.case)),
            case(&format!("{}/vl", family.case)),
        ) else {
            continue;
        };
        let gguf = Gguf::open(path).unwrap();
        let right = (family.config)(&gguf).unwrap();
        if right.rope.sections.is_none() {
            continue;
        }
        let e = image_error(&gguf, &right, family, &dir);
        assert!(
            e < NOTICED / 100.0,
            "{} itself is off by {e:.1e}",
            family.case
        );
        for (name, mutate) in mutations {
            if name.starts_with("DeepStack") && right.deepstack == 0 {
                continue;
            }
            let mut config = right.clone();
            mutate(&mut config);
            config.rope_sliding = config.rope.clone();
            let e = image_error(&gguf, &config, family, &dir);
            say(&format!("{}, {name}: NMSE {e:.1e}", family.case));
            assert!(
                e > NOTICED_IN_IMAGES,
                "nobody would notice: {}, {name}",
                family.case
            );
        }
    }
}

/// The reference's image rows between its tokens, through a model of this configuration.
fn image_error(gguf: &Gguf, config: &DecoderConfig, family: &Family, dir: &Path) -> f64 {
    let device = Device::flex();
    let (model, _) = load_decoder(gguf, config, family.bindings, &device, options()).unwrap();
    let npy = |name: &str| Npy::read(&dir.join(name));
    let (ids, hidden) = (npy("vl_ids.npy").ints(), config.hidden);
    let rows = npy("image_embd.npy").floats();
    let width = rows.len() / ids.iter().filter(|&&id| id < 0).count();
    let mut slices = vec![vec![0f32; ids.len() * hidden]; width / hidden];
    let mut images = rows.chunks_exact(width);
    for (i, &id) in ids.iter().enumerate() {
        let at = i * hidden..(i + 1) * hidden;
        if id < 0 {
            let row = images.next().unwrap();
            for (slice, part) in slices.iter_mut().zip(row.chunks_exact(hidden)) {
                slice[at.clone()].copy_from_slice(part);
            }
        } else {
            let id = Tensor::from_data(TensorData::new(vec![id as i32], [1, 1]), &device);
            let embedded = model.embed(id).into_data().try_into_vec::<f32>().unwrap();
            slices[0][at].copy_from_slice(&embedded);
        }
    }
    let mut slices = slices
        .into_iter()
        .map(|v| Tensor::from_data(TensorData::new(v, [1, ids.len(), hidden]), &device));
    let positions: Vec<[u32; 3]> = npy("vl_pos_thw.npy")
        .ints()
        .chunks_exact(3)
        .map(|p| [p[0] as u32, p[1] as u32, p[2] as u32])
        .collect();
    let input = ModelInput {
        embeddings: slices.next().unwrap(),
        deepstack: slices.take(config.deepstack).collect(),
        positions: Positions::from_thw(positions),
        tokens: None,
        whole_image: false,
    };
    let mut cache = model.new_cache(ids.len(), CacheDtype::F32);
    let logits = model.forward_input(input, &mut cache, LogitsOf::All);
    let vocab = model.vocab_size();
    let logits = logits.into_data().try_into_vec::<f32>().unwrap();
    let text: Vec<f32> = npy("vl_text_index.npy")
        .ints()
        .into_iter()
        .flat_map(|i| logits[i as usize * vocab..][..vocab].to_vec())
        .collect();
    nmse(&text, &npy("vl_logits.npy").floats())
}

type Gemma4Mutation = (&'static str, fn(&mut Gemma4Config));

fn layers(config: &mut Gemma4Config, change: impl Fn(&mut AttentionConfig)) {
    let layers = config.layers.iter_mut();
    layers.for_each(|layer| change(&mut layer.attention));
}

fn gemma4_experts(config: &mut Gemma4Config, change: impl Fn(&mut MoeConfig)) {
    let layers = config.layers.iter_mut();
    layers
        .filter_map(|layer| layer.moe.as_mut())
        .for_each(change);
}

/// Details of every Gemma 4.
const GEMMA4: &[Gemma4Mutation] = &[
    ("rotary base of full layers", |c| c.rope.base *= 10.0),
    ("rotary base of sliding layers", |c| {
        c.rope_sliding.base *= 10.0;
    }),
    ("divisors of the rotation", |c| c.rope.divisors = None),
    ("attention scale", |c| layers(c, |a| a.scale = 0.9)),
    ("norm of values left out", |c| {
        layers(c, |a| a.v_norm = false);
    }),
    ("windows that show everything", |c| {
        layers(c, |a| a.window = a.window.map(|_| 10_000));
    }),
    ("window one larger", |c| {
        layers(c, |a| a.window = a.window.map(|window| window + 1));
    }),
    ("norm epsilon", |c| {
        c.eps += 0.01;
        layers(c, |a| a.eps += 0.01);
    }),
    ("logits not capped", |c| c.logit_softcap = None),
];

/// The norm behind the experts undoes a factor on all their shares.
const GEMMA4_EXPERTS: &[Gemma4Mutation] = &[
    ("experts used", |c| gemma4_experts(c, |moe| moe.used -= 1)),
    ("experts' activation", |c| {
        gemma4_experts(c, |moe| moe.activation = GluActivation::Silu);
    }),
];

#[test]
fn every_detail_of_gemma4_shows() {
    let mut unseen = Vec::new();
    for (name, more) in [
        ("gemma4", GEMMA4_EXPERTS),
        ("gemma4uv", &[]),
        ("gemma4-e", &[]),
    ] {
        let (Some(path), Some(dir)) = (
            case(&format!("{name}/model-bf16.gguf")),
            case(&format!("{name}/text")),
        ) else {
            continue;
        };
        let gguf = Gguf::open(path).unwrap();
        let tokens = Npy::read(&dir.join("tokens.npy")).ids();
        let error = |config: Gemma4Config| {
            let device = Device::flex();
            let (model, report) = gemma4::load_decoder(&gguf, config, &device, options()).ok()?;
            let logits = burn_gguf_models::Session::new(&model, &SessionOptions::default())
                .feed_all(&tokens)
                .unwrap();
            report
                .unused
                .is_empty()
                .then(|| nmse(&logits, &expected(&dir)))
        };
        let right = gemma4::config(&gguf).unwrap();
        let e = error(right.clone()).expect("the family loads");
        assert!(e < NOTICED / 100.0, "{name} itself is off by {e:.1e}");
        for (what, mutate) in GEMMA4.iter().chain(more) {
            let mut config = right.clone();
            mutate(&mut config);
            match error(config) {
                Some(e) if e <= NOTICED => unseen.push(format!("{name}, {what}: {e:.1e}")),
                Some(e) => say(&format!("{name}, {what}: NMSE {e:.1e}")),
                None => say(&format!("{name}, {what}: does not load")),
            }
        }
    }
    assert!(
        unseen.is_empty(),
        "nobody would notice:\n{}",
        unseen.join("\n")
    );
}
