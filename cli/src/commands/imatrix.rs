//! `burn-gguf imatrix`: an importance matrix from a text.

use std::io::Write;

use burn_gguf_models::ImatrixOptions;
use indicatif::{ProgressBar, ProgressStyle};

use super::CommandResult;
use super::load::load_text;
use crate::args::ImatrixArgs;

pub fn run(args: ImatrixArgs) -> CommandResult {
    let text = std::fs::read(&args.file)
        .map_err(|e| format!("cannot read {}: {e}", args.file.display()))?;
    if std::fs::symlink_metadata(&args.output).is_ok() {
        return Err(format!("{} exists; choose another name", args.output.display()).into());
    }
    let model = load_text(&args.model)?;
    let tokens = model.tokenizer()?.encode(text, true, args.parse_special)?;
    let options = ImatrixOptions {
        chunk: args.chunk_size as usize,
        chunks: args.chunks.map(|n| n as usize),
        output: args.process_output,
    };
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} chunks, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    let matrix = model.collect_imatrix(&tokens, &options, |done, due| {
        bar.set_length(due as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    matrix.write(&args.output, &args.file.display().to_string())?;
    let partial: Vec<_> = matrix
        .entries
        .iter()
        .filter(|(_, entry)| entry.counts.contains(&0))
        .map(|(name, _)| name.as_str())
        .collect();
    if !partial.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "warning: some experts saw no token in {}; use more text",
            partial.join(", ")
        );
    }
    writeln!(
        std::io::stdout(),
        "{} weights over {} chunks of {} tokens, written to {}",
        matrix.entries.len(),
        matrix.chunks,
        matrix.chunk,
        args.output.display()
    )?;
    Ok(())
}
