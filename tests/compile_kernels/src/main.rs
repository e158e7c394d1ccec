//! Writes the CUDA C++ source of every kernel into a folder: `compile-kernels DIR [PART OF A NAME]`; with a part of a
//! name, only of the kernels that have it in theirs.
//!
//! Each kernel becomes `NNN.cu` and a line of `kernels.tsv`: number, name, shared memory bytes.
//! `check.py` beside this crate compiles the sources to machine code.

use std::{error::Error, fs, path::PathBuf, sync::Arc};

use burn_gguf_kernels::cube::inventory;
use cubecl::{
    Compiler,
    ir::{
        AddressType, DeviceIdentity, DeviceProperties, ElemType, FloatKind, HardwareProperties,
        MemoryDeviceProperties, TargetProperties,
        features::{MmaConfig, Plane},
    },
    prelude::CubeKernel,
    server::Handle,
};
use cubecl_common::{
    device::{DeviceId, ServiceId},
    profile::TimingMethod,
};
use cubecl_cpp::{
    register_supported_types,
    shared::{CompilationOptions, CppCompiler},
    target::Cuda,
};
use cubecl_environment::stream::StreamId;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(
        std::env::args()
            .nth(1)
            .ok_or("usage: compile-kernels DIR [PART OF A NAME]")?,
    );
    fs::create_dir_all(&dir)?;
    let properties = Arc::new(gpu());
    let target = Arc::new(TargetProperties::default());
    let entries = inventory(&properties, &target, &placeholder());
    let mut index = String::new();
    let part = std::env::args().nth(2).unwrap_or_default();
    let entries: Vec<_> = entries
        .iter()
        .filter(|entry| entry.name.contains(&part))
        .collect();
    for (i, entry) in entries.iter().enumerate() {
        let source = cuda(&*entry.kernel).map_err(|e| format!("{}: {e}", entry.name))?;
        fs::write(dir.join(format!("{i:03}.cu")), source.source)?;
        index += &format!("{i:03}\t{}\t{}\n", entry.name, source.shared_memory_size);
    }
    fs::write(dir.join("kernels.tsv"), index)?;
    println!("{} kernels written to {}", entries.len(), dir.display());
    Ok(())
}

fn cuda(kernel: &dyn CubeKernel) -> Result<cubecl_cpp::ComputeKernel, String> {
    let mut compiler = CppCompiler::<Cuda>::default();
    let mut options = CompilationOptions::default();
    options.supports_features.dp4a = true;
    compiler
        .compile(kernel.define(), &options)
        .map_err(|e| e.to_string())
}

/// An NVIDIA GPU as far as the kernels ask: planes of 32 units, tensor cores for `bfloat16`.
fn gpu() -> DeviceProperties {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 32,
        max_shared_memory_size: 48 * 1024,
        max_cube_count: (u16::MAX.into(), u16::MAX.into(), u16::MAX.into()),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        max_vector_size: 4,
        cube_mma_reserved_shared_memory: 0,
    };
    let memory = MemoryDeviceProperties::new(1 << 31, 256);
    let identity = DeviceIdentity::default();
    let mut properties = DeviceProperties::new(
        Default::default(),
        memory,
        hardware,
        TimingMethod::Device,
        identity,
    );
    register_supported_types(&mut properties);
    properties.register_address_type(AddressType::U32);
    properties.features.plane.insert(Plane::Ops);
    let bf16 = ElemType::Float(FloatKind::BF16);
    properties.features.matmul.cmma.insert(MmaConfig {
        a_type: bf16,
        b_type: bf16,
        cd_type: ElemType::Float(FloatKind::F32),
        m: 16,
        n: 16,
        k: 16,
    });
    properties
}

fn placeholder() -> Handle {
    struct NoService;
    let service = ServiceId::of::<NoService>(DeviceId::new(0, 0));
    Handle::new(service, StreamId::current(), 4)
}
