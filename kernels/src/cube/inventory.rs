//! Every kernel of this crate in the forms it is launched in, for checks that compile without a device.
//!
//! Forms of the matrix-vector kernel that differ only in how often the same code is unrolled are listed for a few types,
//! not for all: a compiler takes long over each.

mod layers;

use std::sync::Arc;

use cubecl::{
    ir::{ElemType, IntKind},
    prelude::*,
    server::Handle,
};

use super::{
    DEVICE_TYPES, FloatKind,
    dequantize::{self, dequantize_kernel, narrow_kernel},
    experts::{self, count_slots_kernel, place_slots_kernel},
    gather_rows::{self, gather_rows_kernel},
    gemm::{GemmConfig, gemm_kernel},
    gemm_cmma::{self, CmmaConfig, gemm_cmma_kernel},
    gemv::{GemvConfig, Reduction, gemv_kernel},
    gemv_q8::{self, gemv_q8_kernel, quantize_kernel},
    part::is_plain,
    route::{LayoutLaunch, Route},
};
use crate::GgmlType;

const REDUCTIONS: [Reduction; 3] = [Reduction::Plane, Reduction::Shared, Reduction::Alone];

/// Types whose kernels are listed for every number of tokens and rows.
const UNROLLED_TYPES: [GgmlType; 4] = [
    GgmlType::F32,
    GgmlType::Q4_0,
    GgmlType::Q4K,
    GgmlType::IQ2XS,
];

/// One kernel as it would be compiled.
pub struct KernelEntry {
    /// Operation, block type and form, for example `gemv/Q4_K/1 token, 4 rows, plane`.
    pub name: String,
    /// What a CubeCL compiler takes.
    pub kernel: Box<dyn CubeKernel>,
}

/// Every kernel for a device with these properties; none is launched.
///
/// `placeholder` stands for every buffer: compiling needs the place of a buffer among the arguments, and not its memory.
pub fn inventory(
    properties: &Arc<DeviceProperties>,
    target: &Arc<TargetProperties>,
    placeholder: &Handle,
) -> Vec<KernelEntry> {
    let mut list = List {
        placeholder,
        properties,
        target,
        entries: Vec::new(),
    };
    for ty in DEVICE_TYPES {
        // Rows of plain numbers may end inside a part, which is another form of each kernel.
        for vector in if is_plain(ty) { vec![4, 1] } else { vec![4] } {
            list.dequantize(ty, vector);
            list.gather_rows(ty, vector);
            list.gemv(ty, vector);
            list.gemm(ty, vector);
        }
        if gemv_q8::takes(ty) {
            list.gemv_q8(ty);
        }
        if gemm_cmma::takes(properties, ty) {
            list.gemm_cmma(ty);
        }
    }
    list.narrow();
    list.sort_slots();
    list.quantize_x();
    list.rms_norm();
    list.layer_norm();
    list.rope();
    list.glu();
    list.attention();
    list.choose_blocks();
    list.short_conv();
    list.gated_delta();
    list.choose_experts();
    list.expert_sum();
    list.entries
}

struct List<'a> {
    properties: &'a Arc<DeviceProperties>,
    target: &'a Arc<TargetProperties>,
    placeholder: &'a Handle,
    entries: Vec<KernelEntry>,
}

impl List<'_> {
    fn push(&mut self, name: String, kernel: impl CubeKernel) {
        let kernel = Box::new(kernel);
        self.entries.push(KernelEntry { name, kernel });
    }

    fn buffer(&self) -> BufferArg {
        // SAFETY: the argument is never launched.
        unsafe { BufferArg::from_raw_parts(self.placeholder.clone(), 1) }
    }

    fn dequantize(&mut self, ty: GgmlType, vector: usize) {
        for (kind, vector) in [
            (FloatKind::F32, vector),
            (FloatKind::F16, 2),
            (FloatKind::BF16, 2),
        ] {
            let kernel = dequantize_kernel::create_dummy_kernel(
                self.properties.clone(),
                self.target.clone(),
                cubes(),
                CubeDim::new_1d(dequantize::UNITS),
                vector,
                self.buffer(),
                self.buffer(),
                self.buffer(),
                0,
                1,
                1,
                0,
                ty,
                kind,
            );
            self.push(format!("dequantize/{ty}/{kind:?}, vector {vector}"), kernel);
        }
    }

    fn narrow(&mut self) {
        for kind in [FloatKind::F16, FloatKind::BF16] {
            let kernel = narrow_kernel::create_dummy_kernel(
                self.properties.clone(),
                self.target.clone(),
                cubes(),
                CubeDim::new_1d(dequantize::UNITS),
                self.buffer(),
                self.buffer(),
                kind,
            );
            self.push(format!("narrow/{kind:?}"), kernel);
        }
    }

    fn gather_rows(&mut self, ty: GgmlType, vector: usize) {
        let kernel = gather_rows_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(gather_rows::UNITS),
            vector,
            self.buffer(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            0,
            1,
            1,
            1,
            0,
            1,
            1,
            0,
            ty,
            ElemType::Int(IntKind::I32),
        );
        self.push(format!("gather_rows/{ty}/vector {vector}"), kernel);
    }

    fn gemv(&mut self, ty: GgmlType, vector: usize) {
        let all_counts = UNROLLED_TYPES.contains(&ty);
        for reduction in REDUCTIONS {
            for (rows, strip) in [(1, "short"), (4096, "long")] {
                for tokens in [1, 2, 4, 8] {
                    if all_counts || strip == "long" && matches!(tokens, 1 | 8) {
                        self.gemv_form(ty, vector, reduction, (rows, strip), tokens, Route::All);
                    }
                }
            }
            self.gemv_form(ty, vector, reduction, (4096, "long"), 1, Route::Slots);
            self.gemv_form(ty, vector, reduction, (4096, "long"), 8, Route::Sorted);
        }
    }

    fn gemv_form(
        &mut self,
        ty: GgmlType,
        vector: usize,
        reduction: Reduction,
        (rows, strip): (usize, &str),
        tokens: usize,
        route: Route,
    ) {
        let config = GemvConfig::new(self.properties, ty, rows, tokens, route, reduction);
        let kernel = gemv_kernel::create_dummy_kernel(
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
            layout(),
            0,
            1,
            1,
            1,
            1,
            config,
        );
        let form =
            format!("{route:?}, {tokens} tokens, {strip} strip, {reduction:?}, vector {vector}");
        self.push(format!("gemv/{ty}/{form}"), kernel);
    }

    fn gemm(&mut self, ty: GgmlType, vector: usize) {
        for (tokens, route) in [(16, Route::All), (32, Route::All), (32, Route::Sorted)] {
            let config = GemmConfig::new(self.properties, ty, tokens, route);
            let kernel = gemm_kernel::create_dummy_kernel(
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
                layout(),
                0,
                1,
                1,
                1,
                1,
                config,
            );
            self.push(
                format!("gemm/{ty}/{route:?}, {tokens} tokens, vector {vector}"),
                kernel,
            );
        }
    }

    fn gemv_q8(&mut self, ty: GgmlType) {
        for reduction in REDUCTIONS {
            for tokens in [1, 8] {
                let config =
                    GemvConfig::new(self.properties, ty, 4096, tokens, Route::All, reduction);
                let kernel = gemv_q8_kernel::create_dummy_kernel(
                    self.properties.clone(),
                    self.target.clone(),
                    cubes(),
                    config.cube_dim(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    self.buffer(),
                    layout(),
                    0,
                    1,
                    1,
                    1,
                    config,
                );
                self.push(
                    format!("gemv_q8/{ty}/{tokens} tokens, {reduction:?}"),
                    kernel,
                );
            }
        }
    }

    fn gemm_cmma(&mut self, ty: GgmlType) {
        let config = CmmaConfig::new(self.properties, ty, Route::All);
        let kernel = gemm_cmma_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            config.cube_dim(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            layout(),
            0,
            1,
            1,
            1,
            config,
        );
        self.push(format!("gemm_cmma/{ty}"), kernel);
    }

    fn quantize_x(&mut self) {
        let kernel = quantize_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(gemv_q8::UNITS),
            self.buffer(),
            self.buffer(),
            self.buffer(),
        );
        self.push("quantize_x".into(), kernel);
    }

    fn sort_slots(&mut self) {
        let kernel = count_slots_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(experts::UNITS),
            self.buffer(),
            self.buffer(),
        );
        self.push("count_slots".into(), kernel);
        let kernel = place_slots_kernel::create_dummy_kernel(
            self.properties.clone(),
            self.target.clone(),
            cubes(),
            CubeDim::new_1d(experts::UNITS),
            self.buffer(),
            self.buffer(),
            self.buffer(),
            1,
            1,
        );
        self.push("place_slots".into(), kernel);
    }
}

fn cubes() -> CubeCount {
    CubeCount::Static(1, 1, 1)
}

fn layout() -> LayoutLaunch {
    LayoutLaunch::new(1, 1, 1, 0, 1, 1, 1, 0)
}
