//! `burn-gguf inspect`: what a file holds and whether we run it.

use std::collections::BTreeMap;
use std::io::Write;

use burn_gguf::computable_types;
use burn_gguf::device::Backend;
use burn_gguf::gguf::{Array, Gguf, TensorInfo, Value};
use burn_gguf_models::families::{families, family};
use burn_gguf_models::tokenizer::Tokenizer;
use serde_json::json;

use super::CommandResult;
use crate::args::InspectArgs;
use crate::source::resolve;

/// Array elements shown in the listing.
const SHOWN: usize = 6;
/// Characters of a string shown in the listing.
const SHOWN_CHARS: usize = 80;

pub fn run(args: InspectArgs) -> CommandResult {
    let gguf = Gguf::open(resolve(&args.model)?)?;
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&as_json(&gguf))?)?,
        false => print(&gguf, &mut out)?,
    }
    Ok(())
}

/// Why the model cannot be run, empty if it can.
fn obstacles(gguf: &Gguf) -> Vec<String> {
    let mut found = Vec::new();
    let kind = gguf.metadata().get_or("general.type", String::new());
    let architecture = gguf.metadata().architecture().unwrap_or("?");
    if architecture == "burn-gguf-state" {
        return vec!["it is a prompt state: give it to `run MODEL --prompt-cache`".to_string()];
    }
    if kind.is_ok_and(|kind| kind == "adapter") {
        let what =
            format!("it is an adapter of \"{architecture}\" models: give it to `run MODEL --lora`");
        return vec![what];
    }
    match gguf.metadata().architecture() {
        Err(error) => found.push(error.to_string()),
        Ok(name) if family(name).is_none() => {
            let names: Vec<_> = families().iter().map(|f| f.architecture).collect();
            found.push(format!(
                "architecture \"{name}\" is not supported; supported: {}",
                names.join(", ")
            ));
        }
        Ok(_) => {}
    }
    if let Err(error) = Tokenizer::from_metadata(gguf.metadata()) {
        found.push(format!(
            "{error} (`logits --tokens` runs without a tokenizer)"
        ));
    }
    if gguf.tensors().len() == 0 {
        found.push("the file has no tensors (a vocabulary only)".to_string());
    }
    for (name, size) in by_type(gguf) {
        if !computable_types(Backend::Flex)
            .iter()
            .any(|ty| ty.name() == name)
        {
            found.push(format!(
                "{} tensors of type {name} cannot be computed yet",
                size.tensors
            ));
        }
    }
    found
}

#[derive(Default)]
struct Size {
    tensors: usize,
    values: u64,
    bytes: u64,
}

fn by_type(gguf: &Gguf) -> BTreeMap<String, Size> {
    let mut types: BTreeMap<String, Size> = BTreeMap::new();
    for info in gguf.tensors() {
        let size = types.entry(type_name(info)).or_default();
        size.tensors += 1;
        size.values += info.n_elements();
        size.bytes += info.byte_len() as u64;
    }
    types
}

fn type_name(info: &TensorInfo) -> String {
    match info.ggml_type() {
        Some(ty) => ty.to_string(),
        None => format!("unknown id {}", info.type_id()),
    }
}

fn print(gguf: &Gguf, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "file: {} (GGUF v{}, {})",
        gguf.file(),
        gguf.version(),
        mib(gguf.file_size())
    )?;
    writeln!(out, "\nmetadata ({} keys):", gguf.metadata().len())?;
    for (key, value) in gguf.metadata().iter() {
        writeln!(out, "  {key} = {}", short(value))?;
    }
    writeln!(out, "\ntensors ({}):", gguf.tensors().len())?;
    for info in gguf.tensors() {
        writeln!(
            out,
            "  {:<40} {:<8} {:?} {}",
            info.name(),
            type_name(info),
            info.shape(),
            mib(info.byte_len() as u64)
        )?;
    }
    writeln!(out, "\nby type:")?;
    for (name, size) in by_type(gguf) {
        let bits = size.bytes as f64 * 8.0 / size.values.max(1) as f64;
        writeln!(
            out,
            "  {name:<8} {:>5} tensors {:>14} values {:>12} {bits:.2} bits/value",
            size.tensors,
            size.values,
            mib(size.bytes)
        )?;
    }
    writeln!(out)?;
    if let Some(family) = gguf.metadata().architecture().ok().and_then(family) {
        writeln!(
            out,
            "architecture: {} ({})",
            family.architecture, family.models
        )?;
        writeln!(out, "  needs: {}", family.parts.join(", "))?;
    }
    let obstacles = obstacles(gguf);
    match obstacles.is_empty() {
        true => writeln!(out, "runs: yes")?,
        false => {
            writeln!(out, "runs: no")?;
            for obstacle in obstacles {
                writeln!(out, "  {obstacle}")?;
            }
        }
    }
    Ok(())
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / (1 << 20) as f64)
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(array) => {
            let shown = array_json(array, SHOWN);
            let rest = match array.len() > SHOWN {
                true => format!(" and {} more", array.len() - SHOWN),
                false => String::new(),
            };
            format!("{shown}{rest}")
        }
        other => {
            let text = value_json(other).to_string();
            match text.chars().count() > SHOWN_CHARS {
                true => {
                    let head: String = text.chars().take(SHOWN_CHARS).collect();
                    format!("{head}… ({} characters)", text.chars().count())
                }
                false => text,
            }
        }
    }
}

fn as_json(gguf: &Gguf) -> serde_json::Value {
    let obstacles = obstacles(gguf);
    let metadata: serde_json::Map<_, _> = gguf
        .metadata()
        .iter()
        .map(|(key, value)| (key.to_string(), value_json(value)))
        .collect();
    let tensors: Vec<_> = gguf
        .tensors()
        .map(|t| {
            json!({
                "name": t.name(),
                "type": type_name(t),
                "shape": t.shape(),
                "bytes": t.byte_len(),
                "shard": t.shard(),
            })
        })
        .collect();
    let types: serde_json::Map<_, _> = by_type(gguf)
        .into_iter()
        .map(|(name, s)| {
            (
                name,
                json!({"tensors": s.tensors, "values": s.values, "bytes": s.bytes}),
            )
        })
        .collect();
    let needs = gguf.metadata().architecture().ok().and_then(family);
    json!({
        "file": gguf.file().to_string(),
        "version": gguf.version(),
        "size": gguf.file_size(),
        "shards": gguf.shards().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "metadata": metadata,
        "tensors": tensors,
        "types": types,
        "architecture": gguf.metadata().architecture().ok(),
        "needs": needs.map(|f| f.parts),
        "runs": obstacles.is_empty(),
        "obstacles": obstacles,
    })
}

fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v.to_string_lossy()),
        Value::Array(array) => array_json(array, usize::MAX),
    }
}

/// The first `limit` elements.
fn array_json(array: &Array, limit: usize) -> serde_json::Value {
    fn list<T: serde::Serialize>(values: &[T], limit: usize) -> serde_json::Value {
        json!(&values[..values.len().min(limit)])
    }
    match array {
        Array::U8(v) => list(v, limit),
        Array::I8(v) => list(v, limit),
        Array::U16(v) => list(v, limit),
        Array::I16(v) => list(v, limit),
        Array::U32(v) => list(v, limit),
        Array::I32(v) => list(v, limit),
        Array::U64(v) => list(v, limit),
        Array::I64(v) => list(v, limit),
        Array::F32(v) => list(v, limit),
        Array::F64(v) => list(v, limit),
        Array::Bool(v) => list(v, limit),
        Array::String(v) => {
            let texts: Vec<_> = v
                .iter()
                .take(limit)
                .map(|s| String::from_utf8_lossy(s).into_owned())
                .collect();
            json!(texts)
        }
        Array::Array(v) => {
            let inner: Vec<_> = v.iter().take(limit).map(|a| array_json(a, limit)).collect();
            json!(inner)
        }
    }
}
