//! Every kernel, also those of other devices than the one at hand, through the shader compilers.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
};

use burn_gguf_kernels::cube::inventory;
use cubecl::{
    Compiler, WgpuCompilationOptions,
    client::Client,
    ir::{
        ElemType, FloatKind,
        features::{MmaConfig, Plane},
    },
};

/// Properties of the device at hand with planes of 32 units and tensor cores added, so that those kernels are listed as on
/// a GPU.
fn kernels(client: &Client) -> Vec<burn_gguf_kernels::cube::KernelEntry> {
    let mut properties = client.properties().clone();
    properties.features.plane.insert(Plane::Ops);
    properties.hardware.plane_size_min = 32;
    properties.hardware.plane_size_max = 32;
    let bf16 = ElemType::Float(FloatKind::BF16);
    properties.features.matmul.cmma.insert(MmaConfig {
        a_type: bf16,
        b_type: bf16,
        cd_type: ElemType::Float(FloatKind::F32),
        m: 16,
        n: 16,
        k: 16,
    });
    let placeholder = client.empty(4);
    inventory(
        &Arc::new(properties),
        &client.target_properties_shared(),
        &placeholder,
    )
}

#[test]
#[cfg(feature = "vulkan")]
fn every_kernel_becomes_valid_spirv() {
    let Some(client) = super::client() else {
        return;
    };
    let mut options = WgpuCompilationOptions {
        supports_vulkan_compiler: true,
        ..Default::default()
    };
    options.vulkan.supports_explicit_smem = true;
    options.vulkan.max_spirv_version = (1, 5);
    options.vulkan.max_vector_size = 4;
    options.vulkan.push_constant_size = 128;
    let entries = kernels(&client);
    let (mut checked, mut unknown) = (0, 0);
    for entry in &entries {
        let module = cubecl::wgpu::SpirvCompiler
            .compile(entry.kernel.define(), &options)
            .unwrap_or_else(|e| panic!("{}: {e}", entry.name));
        let bytes: Vec<u8> = module
            .assembled_module
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        match spirv_val(&bytes) {
            None => println!("skipped: no spirv-val for {}", entry.name),
            Some(Ok(())) => checked += 1,
            // Older than the extension the kernel is written for (bf16 matrices): it can say nothing about it.
            Some(Err(log)) if log.contains("Invalid capability operand") => unknown += 1,
            Some(Err(log)) => panic!("{}: {log}", entry.name),
        }
    }
    println!(
        "{} kernels compiled to SPIR-V, {checked} validated, {unknown} with a capability this spirv-val does not know, \
         not run",
        entries.len()
    );
}

/// What `spirv-val` of the SPIR-V tools says, if it is installed.
#[cfg(feature = "vulkan")]
fn spirv_val(module: &[u8]) -> Option<Result<(), String>> {
    let mut child = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(module).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        return Some(Ok(()));
    }
    let log = [output.stdout, output.stderr].concat();
    Some(Err(String::from_utf8_lossy(&log).into_owned()))
}

#[test]
#[cfg(any(feature = "vulkan", feature = "webgpu", feature = "wgpu"))]
fn every_kernel_becomes_wgsl_that_the_driver_accepts() {
    use cubecl::{future::block_on, wgpu::wgpu};

    let Some(client) = super::client() else {
        return;
    };
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let Ok(adapter) = block_on(instance.request_adapter(&Default::default())) else {
        println!("skipped: no wgpu adapter");
        return;
    };
    let features = adapter.features() & (wgpu::Features::SUBGROUP | wgpu::Features::SHADER_F16);
    let descriptor = wgpu::DeviceDescriptor {
        required_features: features,
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let (device, _queue) = block_on(adapter.request_device(&descriptor)).unwrap();
    let entries = kernels(&client);
    let (mut accepted, mut skipped) = (0, 0);
    for entry in &entries {
        let needs = [
            ("Plane", wgpu::Features::SUBGROUP),
            ("F16 cache", wgpu::Features::SHADER_F16),
        ];
        // WGSL has no matrix operations.
        if entry.name.starts_with("gemm_cmma") {
            skipped += 1;
            continue;
        }
        if needs
            .iter()
            .any(|&(part, feature)| entry.name.contains(part) && !features.contains(feature))
        {
            skipped += 1;
            continue;
        }
        let definition = entry.kernel.define();
        let name = definition.settings.kernel_name.clone();
        let source = cubecl::wgpu::WgslCompiler
            .compile(definition, &WgpuCompilationOptions::default())
            .unwrap_or_else(|e| panic!("{}: {e}", entry.name))
            .to_string();
        let errors = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(source.as_str().into()),
        });
        // Every operation and type runs in other tests. A driver takes long over each pipeline, so it sees here the forms
        // that need subgroups, which nothing runs where the device reports none.
        if entry.name.contains("Plane") && !entry.name.contains("short strip") {
            let _ = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: None,
                compilation_options: Default::default(),
                cache: None,
            });
        }
        if let Some(error) = block_on(errors.pop()) {
            panic!("{} ({name}): {error}\n{source}", entry.name);
        }
        accepted += 1;
    }
    println!(
        "{accepted} kernels accepted as WGSL, not run; skipped: {skipped} that need subgroups, f16 or tensor cores"
    );
}
