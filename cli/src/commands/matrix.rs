//! `burn-gguf matrix`: the cross-device test matrix.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use burn_gguf_matrix::{Suite, ops, targets, types};

use super::CommandResult;
use super::devices::quietly;
use crate::args::MatrixArgs;

pub fn run(args: MatrixArgs) -> CommandResult {
    // Names first: they are checked at once, devices take a while to open.
    let (types, ops) = (types(&args.types)?, ops(&args.ops)?);
    let suite = Suite {
        devices: quietly(|| targets(&args.device))?,
        types,
        ops,
        full: args.full,
        runs: args.runs,
    };
    // The suite takes minutes; a path that cannot be written should not cost them.
    for path in [&args.json, &args.html, &args.markdown]
        .into_iter()
        .flatten()
    {
        let mut open = OpenOptions::new();
        open.append(true)
            .create(true)
            .open(path)
            .map_err(|e| cannot_write(path, &e))?;
    }
    let mut out = std::io::stdout();
    let mut printed = Ok(());
    let report = suite.run(&mut |line| {
        if printed.is_ok() {
            printed = writeln!(out, "{line}");
        }
    })?;
    if let Some(path) = &args.json {
        write(path, &report.to_json())?;
    }
    if let Some(path) = &args.html {
        write(path, &report.to_html())?;
    }
    if let Some(path) = &args.markdown {
        write(path, &report.to_markdown())?;
    }
    printed?;
    match report.failures().count() {
        0 => Ok(()),
        n => Err(format!("{n} shapes failed").into()),
    }
}

fn write(path: &Path, text: &str) -> CommandResult {
    Ok(std::fs::write(path, text).map_err(|e| cannot_write(path, &e))?)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
