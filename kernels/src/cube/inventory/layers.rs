//! The kernels of a transformer layer.

use cubecl::{
    ir::{ElemType, FloatKind as IrFloat},
    prelude::*,
};

use super::{List, REDUCTIONS, cubes};
use crate::cpu::{ChoiceShape, Gating};
use crate::cube::{
    GluKind, Reduction,
    attention::{AttentionConfig, attention_alone_kernel, attention_kernel},
    choose::{ChoiceConfig, choose_kernel},
    choose_blocks::{self, ChooseConfig, block_scores_kernel, choose_blocks_kernel},
    expert_sum::{self, expert_sum_kernel},
    gated_delta::{self, DeltaConfig, delta_alone_kernel, delta_plane_kernel, factors_kernel},
    glu::{self, glu_kernel},
    layer_norm::layer_norm_kernel,
    rms_norm::{RmsNormConfig, rms_norm_kernel},
    rope::{self, rope_kernel},
    short_conv::{self, short_conv_kernel},
};

impl List<'_> {
    pub(super) fn rms_norm(&mut self) {
        for reduction in REDUCTIONS {
            for (dim, vector) in [(64, 4), (63, 1), (4096, 4)] {
                let config = RmsNormConfig::new(self.properties, dim, reduction);
                let kernel = rms_norm_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    config.cube_dim(),
                    vector,
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    1,
                    1,
                    0.0,
                    config,
                );
                self.push(format!("rms_norm/{dim}/{reduction:?}"), kernel);
            }
        }
    }

    pub(super) fn layer_norm(&mut self) {
        for reduction in REDUCTIONS {
            for (dim, vector) in [(64, 4), (63, 1), (4096, 4)] {
                let config = RmsNormConfig::new(self.properties, dim, reduction);
                let kernel = layer_norm_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    config.cube_dim(),
                    vector,
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    1,
                    1,
                    0.0,
                    config,
                );
                self.push(format!("layer_norm/{dim}/{reduction:?}"), kernel);
            }
        }
    }

    pub(super) fn rope(&mut self) {
        let kernel = rope_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(rope::UNITS),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            1,
            1,
            1,
            1,
            1,
            1,
            1,
        );
        self.push("rope".into(), kernel);
    }

    pub(super) fn glu(&mut self) {
        for kind in [GluKind::Silu, GluKind::GeluTanh, GluKind::SwigluOai] {
            for vector in [4, 1] {
                let kernel = glu_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    CubeDim::new_1d(glu::UNITS),
                    vector,
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    kind,
                );
                self.push(format!("glu/{kind:?}/vector {vector}"), kernel);
            }
        }
    }

    pub(super) fn attention(&mut self) {
        for reduction in REDUCTIONS {
            for (dim, vector, capped, blocks) in [
                (64, 4, false, false),
                (30, 1, false, false),
                (256, 4, true, false),
                (128, 4, false, true),
            ] {
                for float in [IrFloat::F32, IrFloat::F16] {
                    let config =
                        AttentionConfig::new(self.properties, dim, capped, blocks, reduction);
                    let form = format!(
                        "{float:?} cache, {reduction:?}, capped: {capped}, blocks: {blocks}"
                    );
                    let name = format!("attention/{dim}/{form}");
                    // The two kernels have the same parameters and different types.
                    macro_rules! add {
                        ($kernel:ident) => {{
                            let kernel = $kernel::create_dummy_kernel(
                                self.properties.clone(),
                                self.target.clone(),
                                cubes(),
                                config.cube_dim(),
                                vector,
                                self.buffer(),
                                self.buffer(),
                                self.buffer(),
                                self.buffer(),
                                self.buffer(),
                                1,
                                1,
                                1,
                                1,
                                1,
                                1,
                                1,
                                1,
                                1,
                                1,
                                1.0,
                                1.0,
                                config,
                                ElemType::Float(float),
                            );
                            self.push(name, kernel);
                        }};
                    }
                    if reduction == Reduction::Alone {
                        add!(attention_alone_kernel);
                    } else {
                        add!(attention_kernel);
                    }
                }
            }
        }
    }

    pub(super) fn short_conv(&mut self) {
        let kernel = short_conv_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(short_conv::UNITS),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            1,
            1,
            1,
            1,
        );
        self.push("short_conv".into(), kernel);
    }

    pub(super) fn gated_delta(&mut self) {
        for reduction in [Reduction::Plane, Reduction::Alone] {
            for (dim, grouped) in [(128, false), (128, true), (64, false), (20, false)] {
                let config = DeltaConfig::new(self.properties, dim, grouped, reduction);
                if reduction == Reduction::Plane && !config.has_planes() {
                    continue;
                }
                let kernel = factors_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    CubeDim::new_1d(gated_delta::UNITS),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    1,
                    1,
                    1,
                    0.0,
                    config,
                );
                let form = format!("{dim}, grouped: {grouped}, {reduction:?}");
                self.push(format!("delta_factors/{form}"), kernel);
                // The two kernels have the same parameters and different types.
                macro_rules! add {
                    ($kernel:ident) => {{
                        let kernel = $kernel::create_dummy_kernel(
                            self.properties.clone(),
                            self.target.clone(),
                            cubes(),
                            config.cube_dim(),
                            self.buffer(),
                            self.buffer(),
                            self.buffer(),
                            self.buffer(),
                            1,
                            1,
                            0,
                            1,
                            1,
                            1,
                            config,
                        );
                        self.push(format!("gated_delta/{form}"), kernel);
                    }};
                }
                if config.has_planes() {
                    add!(delta_plane_kernel);
                } else {
                    add!(delta_alone_kernel);
                }
            }
        }
    }

    pub(super) fn choose_experts(&mut self) {
        for reduction in [Reduction::Plane, Reduction::Alone] {
            for (gating, biased) in [(Gating::Softmax, false), (Gating::Sigmoid, true)] {
                let shape = ChoiceShape {
                    tokens: 1,
                    experts: 128,
                    used: 8,
                    gating,
                    normalize: true,
                    least_sum: 0.0,
                    scale: 1.0,
                };
                let config = ChoiceConfig::new(self.properties, &shape, biased, reduction);
                let kernel = choose_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    config.cube_dim(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    1,
                    1,
                    0.0,
                    1.0,
                    config,
                );
                let form = format!("{gating:?}, biased: {biased}, {reduction:?}");
                self.push(format!("choose_experts/{form}"), kernel);
            }
        }
    }

    pub(super) fn expert_sum(&mut self) {
        for with_shared in [false, true] {
            let kernel = expert_sum_kernel::create_dummy_kernel(
                self.properties.clone(),
                self.target.clone(),
                cubes(),
                CubeDim::new_1d(expert_sum::UNITS),
                self.buffer(),
                self.buffer(),
                self.buffer(),
                self.buffer(),
                self.buffer(),
                1,
                1,
                with_shared,
            );
            self.push(format!("expert_sum/shared: {with_shared}"), kernel);
        }
    }
}

impl List<'_> {
    pub(super) fn choose_blocks(&mut self) {
        for reduction in [Reduction::Plane, Reduction::Alone] {
            for vector in [4, 1] {
                let config = ChooseConfig::new(self.properties, reduction);
                let kernel = block_scores_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    config.cube_dim(),
                    vector,
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    config,
                );
                self.push(
                    format!("block_scores/{reduction:?}, vector {vector}"),
                    kernel,
                );
            }
        }
        let kernel = choose_blocks_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(choose_blocks::UNITS),
            self.buffer(),
            self.buffer(),
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
        );
        self.push("choose_blocks".into(), kernel);
    }
}
