//! `burn-gguf run`: generate from a prompt, or chat.

use std::io::{BufRead, IsTerminal, Write};

use burn_gguf_models::chat::{Chat, Message};
use burn_gguf_models::generation::{GenerateOptions, Generation, SamplingParams, StopReason};
use burn_gguf_models::{AutoModel, Session};

use super::CommandResult;
use super::load::{load, session_options};
use crate::args::RunArgs;

pub fn run(args: RunArgs) -> CommandResult {
    let options = GenerateOptions {
        sampling: SamplingParams {
            temperature: args.temp,
            top_k: args.top_k,
            top_p: args.top_p,
            min_p: args.min_p,
            repeat_penalty: args.repeat_penalty,
            repeat_last_n: args.repeat_last_n,
            seed: args.seed,
        },
        max_tokens: args.max_tokens,
        stop_strings: args.stop.clone(),
        session: session_options(&args.model)?,
    };
    options.sampling.validate()?;
    if args.raw && args.prompt.is_none() {
        return Err("--raw needs a prompt (-p)".into());
    }
    let model = load(&args.model)?;
    match &args.prompt {
        Some(prompt) => once(&model, &args, prompt, &options),
        None => chat(&model, &args, &options),
    }
}

/// One answer to one prompt.
fn once(
    model: &AutoModel,
    args: &RunArgs,
    prompt: &str,
    options: &GenerateOptions,
) -> CommandResult {
    let tokens = match args.raw {
        true => model.tokenizer()?.encode_prompt(prompt)?,
        false => {
            let chat = opening(args).with(Message::user(prompt));
            model.chat_prompt(&chat).map_err(suggest_raw)?
        }
    };
    let mut generation = model.generate(&tokens, options.clone())?;
    let mut out = std::io::stdout().lock();
    stream(&mut generation, &mut out)?;
    writeln!(out)?;
    if !args.quiet {
        report(&generation);
    }
    Ok(())
}

/// The conversation before its first message.
fn opening(args: &RunArgs) -> Chat {
    match &args.system {
        Some(system) => Chat::new().with(Message::system(system.as_str())),
        None => Chat::new(),
    }
}

fn suggest_raw(error: impl std::fmt::Display) -> String {
    format!("{error}\nhint: --raw feeds the prompt without a chat template")
}

/// Prints the answer as it comes and returns it.
fn stream(generation: &mut Generation<'_>, out: &mut impl Write) -> CommandResult<String> {
    let mut answer = String::new();
    for piece in generation {
        let piece = piece?;
        answer.push_str(&piece.text);
        out.write_all(piece.text.as_bytes())?;
        out.flush()?;
    }
    Ok(answer)
}

fn report(generation: &Generation<'_>) {
    let reason = match generation.stop_reason() {
        Some(StopReason::EndOfGeneration(_)) => "end of answer",
        Some(StopReason::StopString(_)) => "stop text",
        Some(StopReason::MaxTokens) => "token limit",
        Some(StopReason::ContextFull) => "context full",
        _ => "stopped",
    };
    let stats = generation.stats();
    let _ = writeln!(
        std::io::stderr(),
        "[{stats}, {reason}, seed {}]",
        generation.seed()
    );
}

/// Turns of user and model until the input ends.
fn chat(model: &AutoModel, args: &RunArgs, options: &GenerateOptions) -> CommandResult {
    let template = model.chat_template().map_err(suggest_raw)?;
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        let _ = writeln!(
            std::io::stderr(),
            "chat; /clear starts anew, /exit or Ctrl-D ends"
        );
    }
    let mut conversation = opening(args);
    let mut session = model.session(&options.session);
    // What the session's cache holds.
    let mut cached: Vec<u32> = Vec::new();
    let mut input = std::io::stdin().lock();
    loop {
        if interactive {
            let _ = write!(std::io::stderr(), "> ");
        }
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        match String::from_utf8_lossy(&line).trim() {
            "" => continue,
            "/exit" | "/quit" => return Ok(()),
            "/clear" => {
                conversation = opening(args);
                continue;
            }
            text => conversation = conversation.with(Message::user(text)),
        }
        let prompt = template.render(&conversation)?;
        let tokens = model.tokenizer()?.encode_prompt(prompt)?;
        let context = session.cache().max_len();
        if tokens.len() >= context {
            conversation.messages.pop();
            let _ = writeln!(
                std::io::stderr(),
                "the conversation would take {} of {context} tokens; say less, /clear, or start with a larger --ctx",
                tokens.len()
            );
            continue;
        }
        let (known, fresh) = reuse(&mut session, &cached, &tokens);
        let mut generation =
            Generation::resume(session, model.tokenizer()?, known, fresh, options)?;
        let mut out = std::io::stdout().lock();
        let answer = stream(&mut generation, &mut out)?;
        writeln!(out)?;
        if !args.quiet {
            report(&generation);
        }
        conversation = conversation.with(Message::assistant(answer));
        cached = tokens;
        cached.extend_from_slice(generation.tokens());
        session = generation.into_session();
        // The last token was chosen but not read.
        cached.truncate(session.cache().len());
    }
}

/// Cuts the cache to what it shares with `tokens`; returns that part and the rest, which has at least one token.
fn reuse<'t>(
    session: &mut Session<'_>,
    cached: &[u32],
    tokens: &'t [u32],
) -> (&'t [u32], &'t [u32]) {
    let shared = cached
        .iter()
        .zip(tokens)
        .take_while(|(a, b)| a == b)
        .count();
    let shared = shared.min(tokens.len().saturating_sub(1));
    session.cache_mut().truncate(shared);
    tokens.split_at(shared)
}
