//! `burn-gguf tokenize`: text to ids and back.

use std::io::Write;

use burn_gguf::gguf::Gguf;
use burn_gguf_models::tokenizer::Tokenizer;

use super::CommandResult;
use crate::args::TokenizeArgs;
use crate::source::resolve;

pub fn run(args: TokenizeArgs) -> CommandResult {
    let gguf = Gguf::open(resolve(&args.model)?)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    if let Some(ids) = &args.input.decode {
        writeln!(std::io::stdout(), "{}", tokenizer.decode(ids, true)?)?;
        return Ok(());
    }
    let text = match (&args.input.text, &args.input.file) {
        (_, Some(path)) => {
            std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?
        }
        (text, None) => text.clone().unwrap_or_default().into_bytes(),
    };
    let ids = tokenizer.encode(text, args.bos, args.parse_special)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&ids)?)?;
    Ok(())
}
