//! `burn-gguf run`: generate from a prompt, or chat.

use std::io::{BufRead, IsTerminal, Write};

use burn_gguf_models::chat::{Chat, Message, Part};
use burn_gguf_models::generation::{
    GenerateError, GenerateOptions, Generation, SamplingParams, StopReason,
};
use burn_gguf_models::vision::VideoInput;
use burn_gguf_models::vision::image::ImageInput;
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
    if args.raw && !(args.image.is_empty() && args.video.is_empty()) {
        return Err("--raw feeds text only; leave it out to show images".into());
    }
    if !(args.video_fps.is_finite() && args.video_fps > 0.0) {
        return Err(format!("--video-fps {} is not a rate above 0", args.video_fps).into());
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
    let prompt = match args.raw {
        true => model.text_prompt(prompt, &[])?,
        false => {
            let chat = opening(args).with(question(given_media(args, model)?, prompt));
            model.chat_prompt(&chat).map_err(suggest_raw)?
        }
    };
    let session = remembered(model, args, options)?;
    let known = session.cache().len();
    let mut generation = Generation::start(session, model.tokenizer()?, &prompt, options)?;
    if known > 0 && !args.quiet {
        let (all, read) = (prompt.len(), generation.stats().prompt_tokens);
        let _ = writeln!(
            std::io::stderr(),
            "{} of {all} prompt tokens were read already",
            all - read
        );
    }
    // Before the answer: the next prompt shares no more, and a place that cannot be written shows now.
    remember(generation.session(), args)?;
    let mut out = std::io::stdout().lock();
    stream(&mut generation, &mut out)?;
    writeln!(out)?;
    if !args.quiet {
        report(&generation);
    }
    Ok(())
}

/// A session that goes on from `--prompt-cache`, if its file is there.
fn remembered<'m>(
    model: &'m AutoModel,
    args: &RunArgs,
    options: &GenerateOptions,
) -> CommandResult<Session<'m>> {
    let mut session = model.session(&options.session);
    if let Some(path) = args.prompt_cache.as_ref().filter(|path| path.exists()) {
        session.load_state(path)?;
    }
    Ok(session)
}

/// Writes `--prompt-cache`: all that was read, or where a model forgets what it has read up to the last place it can go
/// back to, so that a prompt that ends otherwise can go on from there.
fn remember(session: &Session<'_>, args: &RunArgs) -> CommandResult {
    let Some(path) = &args.prompt_cache else {
        return Ok(());
    };
    let rows = session.cache().len();
    if session.model().forgets() && rows > 0 {
        let mut back = session.fork();
        back.cache_mut().truncate(rows - 1);
        back.save_state(path)?;
    } else {
        session.save_state(path)?;
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

fn suggest_raw(error: GenerateError) -> String {
    match error {
        GenerateError::Chat(error) => {
            format!("{error}\nhint: --raw feeds the prompt without a chat template")
        }
        other => other.to_string(),
    }
}

/// The images and videos of the command line. Images are decoded once: what the conversation shows stays what it was.
fn given_media(args: &RunArgs, model: &AutoModel) -> CommandResult<Vec<Part>> {
    if args.image.is_empty() && args.video.is_empty() {
        return Ok(Vec::new());
    }
    let options = model.vision()?.processor().decode_options();
    let images = args.image.iter().map(|image| {
        let image = ImageInput::parse(image).decode(&options)?;
        Ok(Part::image(image.pixels().clone()))
    });
    let videos = args.video.iter().map(|path| {
        let video = VideoInput::open(path, args.video_fps)?;
        Ok(Part::video(video))
    });
    images.chain(videos).collect()
}

/// A message of text, with media before it.
fn question(mut media: Vec<Part>, text: &str) -> Message {
    match media.is_empty() {
        true => Message::user(text),
        false => {
            media.push(Part::text(text));
            Message::user(media)
        }
    }
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
    // Before the first question: a file without a template cannot chat.
    model.chat_template().map_err(suggest_raw)?;
    let interactive = std::io::stdin().is_terminal();
    let say = |text: &str| {
        let _ = writeln!(std::io::stderr(), "{text}");
    };
    if interactive {
        say("chat; /image PATH shows a picture, /clear starts anew, /exit or Ctrl-D ends");
    }
    let mut conversation = opening(args);
    let mut session = remembered(model, args, options)?;
    // Shown, but not asked about yet.
    let mut media = given_media(args, model)?;
    let mut input = std::io::stdin().lock();
    loop {
        if interactive {
            let _ = write!(std::io::stderr(), "> ");
        }
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            return remember(&session, args);
        }
        let line = String::from_utf8_lossy(&line);
        let text = match line.trim() {
            "" => continue,
            "/exit" | "/quit" => return remember(&session, args),
            "/clear" => {
                conversation = opening(args);
                media.clear();
                continue;
            }
            text => text,
        };
        let (command, path) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if command == "/image" {
            if path.trim().is_empty() {
                say("/image needs a path");
                continue;
            }
            match look(model, path.trim()) {
                Ok((part, what)) => {
                    say(&what);
                    media.push(part);
                }
                Err(error) => say(&error.to_string()),
            }
            continue;
        }
        let asked = conversation.clone().with(question(media.clone(), text));
        let prompt = match model.chat_prompt(&asked) {
            Ok(prompt) => prompt,
            Err(error) => {
                say(&error.to_string());
                continue;
            }
        };
        let context = session.cache().max_len();
        if prompt.len() >= context {
            say(&format!(
                "the conversation would take {} of {context} tokens; say less, /clear, or start with a larger --ctx",
                prompt.len()
            ));
            continue;
        }
        media.clear();
        let mut generation = Generation::start(session, model.tokenizer()?, &prompt, options)?;
        let mut out = std::io::stdout().lock();
        let answer = stream(&mut generation, &mut out)?;
        writeln!(out)?;
        if !args.quiet {
            report(&generation);
        }
        conversation = asked.with(Message::assistant(answer));
        session = generation.into_session();
    }
}

/// Reads a picture once, so that a mistake shows at once, and says what the model will see.
fn look(model: &AutoModel, path: &str) -> CommandResult<(Part, String)> {
    let vision = model.vision()?;
    let processor = vision.processor();
    let image = ImageInput::parse(path).decode(&processor.decode_options())?;
    let processed = processor.process(&image)?;
    let (width, height) = processed.placement().canvas;
    let what = format!(
        "{path}: {} x {}, seen at {width} x {height} as {} tokens; ask about it",
        image.width(),
        image.height(),
        processed.token_count()
    );
    Ok((Part::image(image.pixels().clone()), what))
}
