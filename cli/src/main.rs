//! `burn-gguf`: run, inspect and benchmark GGUF models on Burn devices.

mod args;
mod commands;
mod npy;
mod source;
mod threads;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = threads::run(cli.threads, || match cli.command {
        Command::Demo(args) => commands::demo::run(args),
        Command::Run(args) => commands::run::run(args),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Devices => commands::devices::run(),
        Command::Bench(args) => commands::bench::run(args),
        Command::Logits(args) => commands::logits::run(args),
        Command::Template(args) => commands::template::run(args),
        Command::Vision(args) => commands::vision::run(args),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Imatrix(args) => commands::imatrix::run(args),
        Command::Tensor(args) => commands::tensor::run(args),
        Command::Quantize(args) => commands::quantize::run(args),
        Command::Matrix(args) => commands::matrix::run(args),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough (`| head`) is not a failure.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is nothing to fail for.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            let mut source = error.source();
            let mut last = error.to_string();
            while let Some(cause) = source {
                let text = cause.to_string();
                if !last.contains(&text) {
                    let _ = writeln!(std::io::stderr(), "  caused by: {text}");
                }
                last = text;
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
