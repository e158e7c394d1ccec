//! `burn-gguf tensor`: one tensor's values.

use std::io::Write;

use burn_gguf::gguf::Gguf;
use burn_gguf::store::GgufStore;
use burn_store::{ModuleStore, bridge};

use super::CommandResult;
use crate::args::TensorArgs;
use crate::npy;
use crate::source::resolve;

pub fn run(args: TensorArgs) -> CommandResult {
    let gguf = Gguf::open(resolve(&args.file)?)?;
    let same = |shard: &std::path::Path| {
        let target = std::fs::canonicalize(&args.out).ok();
        target.is_some() && target == std::fs::canonicalize(shard).ok()
    };
    if gguf.shards().any(same) {
        return Err(format!("--out {} is the model itself", args.out.display()).into());
    }
    let ggml_type = gguf.require(&args.name)?.usable_type()?;
    let mut store = GgufStore::from_gguf(gguf);
    let tensor = store
        .get_tensor(&args.name)?
        .ok_or_else(|| format!("no tensor \"{}\"", args.name))?;
    let data = bridge::to_data(tensor)
        .map_err(|e| format!("tensor \"{}\" ({ggml_type}): {e}", args.name))?;
    let shape: Vec<usize> = data.shape().to_vec();
    let values: Vec<f32> = data.iter::<f32>().collect();
    npy::write_f32(&args.out, &shape, &values)?;
    writeln!(
        std::io::stdout(),
        "{} {ggml_type} {shape:?} written to {}",
        args.name,
        args.out.display()
    )?;
    Ok(())
}
