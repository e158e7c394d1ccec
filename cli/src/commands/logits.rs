//! `burn-gguf logits`: the numbers behind a prompt, for people who check or port models.

use std::io::Write;

use burn_gguf_models::{AutoModel, Session};

use super::CommandResult;
use super::load::{load, session_options};
use crate::args::{LogitsArgs, LogitsInput};
use crate::npy;

pub fn run(args: LogitsArgs) -> CommandResult {
    let options = session_options(&args.model)?;
    let model = load(&args.model)?;
    let tokens = tokens(&args.input, &model)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|e| format!("cannot create {}: {e}", args.out.display()))?;
    let vocab = model.model().vocab_size();
    let mut session = model.session(&options);
    // Before any work: all of it would be lost at the end of the context.
    let context = session.cache().max_len();
    if tokens.len().saturating_add(args.decode) > context {
        return Err(format!(
            "{} tokens and {} to decode do not fit the context of {context}; raise --ctx or lower --decode",
            tokens.len(),
            args.decode
        )
        .into());
    }
    let logits = session.feed_all(&tokens)?;
    let ids: Vec<i32> = tokens.iter().map(|&t| t as i32).collect();
    npy::write_i32(&args.out.join("tokens.npy"), &[ids.len()], &ids)?;
    npy::write_f32(&args.out.join("logits.npy"), &[ids.len(), vocab], &logits)?;
    if args.decode > 0 {
        let last = &logits[logits.len() - vocab..];
        let (ids, logits) = decode(&mut session, last, args.decode)?;
        npy::write_i32(&args.out.join("decode_tokens.npy"), &[ids.len()], &ids)?;
        npy::write_f32(
            &args.out.join("decode_logits.npy"),
            &[ids.len(), vocab],
            &logits,
        )?;
    }
    writeln!(
        std::io::stdout(),
        "{} tokens, vocabulary {vocab}, written to {}",
        tokens.len(),
        args.out.display()
    )?;
    Ok(())
}

fn tokens(input: &LogitsInput, model: &AutoModel) -> CommandResult<Vec<u32>> {
    if let Some(tokens) = &input.tokens {
        return Ok(tokens.clone());
    }
    if let Some(path) = &input.tokens_file {
        let ids = npy::read_ints(path)?;
        let convert = |id: i64| {
            u32::try_from(id).map_err(|_| format!("{}: {id} is not a token id", path.display()))
        };
        return Ok(ids.into_iter().map(convert).collect::<Result<_, _>>()?);
    }
    let prompt = input.prompt.as_deref().unwrap_or_default();
    Ok(model.tokenizer()?.encode_prompt(prompt)?)
}

/// Feeds back the most likely token `count` times; returns those tokens and the logits after each.
fn decode(
    session: &mut Session<'_>,
    logits: &[f32],
    count: usize,
) -> CommandResult<(Vec<i32>, Vec<f32>)> {
    let mut ids = Vec::with_capacity(count);
    let mut all = Vec::new();
    let mut token = argmax(logits)?;
    for _ in 0..count {
        ids.push(token as i32);
        let logits = session.feed(&[token])?;
        token = argmax(&logits)?;
        all.extend(logits);
    }
    Ok((ids, all))
}

fn argmax(logits: &[f32]) -> CommandResult<u32> {
    if let Some(id) = logits.iter().position(|v| v.is_nan()) {
        return Err(
            format!("the logit of token {id} is not a number; there is no greedy choice").into(),
        );
    }
    logits
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)))
        .map(|(id, _)| id as u32)
        .ok_or_else(|| "the model returned no logits".into())
}
