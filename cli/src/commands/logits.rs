//! `burn-gguf logits`: the numbers behind a prompt, for people who check or port models.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use burn_gguf_models::vision::image::ImageInput;
use burn_gguf_models::vision::processor::PixelValues;
use burn_gguf_models::{AutoModel, ImageRows, Prompt, PromptRow, Session};

use super::CommandResult;
use super::load::{load, session_options};
use crate::args::{LogitsArgs, LogitsInput};
use crate::npy;

pub fn run(args: LogitsArgs) -> CommandResult {
    let options = session_options(&args.model)?;
    let model = load(&args.model)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|e| format!("cannot create {}: {e}", args.out.display()))?;
    let images = images(&args, &model)?;
    let prompt = prompt(&args.input, &model, &images)?;
    let vocab = model.model().vocab_size();
    let mut session = model.session(&options);
    // Before any work: all of it would be lost at the end of the context.
    let context = session.cache().max_len();
    if prompt.len().saturating_add(args.decode) > context {
        return Err(format!(
            "{} tokens and {} to decode do not fit the context of {context}; raise --ctx or lower --decode",
            prompt.len(),
            args.decode
        )
        .into());
    }
    let logits = session.feed_prompt_all(&prompt)?;
    let ids: Vec<i32> = prompt
        .rows()
        .map(|row| match row {
            PromptRow::Token(token) => token as i32,
            PromptRow::Image { .. } => -1,
        })
        .collect();
    let out = |name: &str| args.out.join(name);
    let prefix = if images.is_empty() { "" } else { "vl_" };
    if images.is_empty() {
        npy::write_i32(&out("tokens.npy"), &[ids.len()], &ids)?;
        npy::write_f32(&out("logits.npy"), &[ids.len(), vocab], &logits)?;
    } else {
        let rows = logits.chunks_exact(vocab).zip(&ids);
        let text: Vec<f32> = rows
            .filter(|(_, id)| **id >= 0)
            .flat_map(|(row, _)| row.iter().copied())
            .collect();
        npy::write_i32(&out("vl_ids.npy"), &[ids.len()], &ids)?;
        npy::write_f32(&out("vl_logits.npy"), &[text.len() / vocab, vocab], &text)?;
        write_images(&args.out, &images, model.model().image_width())?;
    }
    if args.decode > 0 {
        let last = &logits[logits.len() - vocab..];
        let (ids, logits) = decode(&mut session, last, args.decode)?;
        let tokens = out(&format!("{prefix}decode_tokens.npy"));
        npy::write_i32(&tokens, &[ids.len()], &ids)?;
        let file = out(&format!("{prefix}decode_logits.npy"));
        npy::write_f32(&file, &[ids.len(), vocab], &logits)?;
    }
    writeln!(
        std::io::stdout(),
        "{} tokens, vocabulary {vocab}, written to {}",
        ids.len(),
        args.out.display()
    )?;
    Ok(())
}

/// A picture as the tower reads it, and what it makes of it.
struct Seen {
    pixels: PixelValues,
    rows: Arc<ImageRows>,
}

fn images(args: &LogitsArgs, model: &AutoModel) -> CommandResult<Vec<Seen>> {
    if args.image.is_empty() && args.pixels_from.is_empty() {
        return Ok(Vec::new());
    }
    let vision = model.vision()?;
    let processor = vision.processor();
    let resized = !args.pixels_from.is_empty();
    let given = args.image.iter().map(|image| ImageInput::parse(image));
    let given = given.chain(args.pixels_from.iter().map(|path| path.as_path().into()));
    let see = |input: ImageInput| -> CommandResult<Seen> {
        let image = input.decode(&processor.decode_options())?;
        let processed = match resized {
            true => processor.process_resized(&image)?,
            false => processor.process(&image)?,
        };
        Ok(Seen {
            pixels: processed.pixel_values(),
            rows: vision.encode_processed(&processed)?,
        })
    };
    given.map(see).collect()
}

fn write_images(folder: &Path, images: &[Seen], width: usize) -> CommandResult {
    let mut rows = Vec::new();
    let mut pixels = Vec::new();
    for image in images {
        let data = image.rows.embeddings.to_data().convert::<f32>();
        let values = data.try_into_vec::<f32>();
        rows.extend(values.map_err(|e| format!("image embeddings: {e:?}"))?);
        pixels.extend(&image.pixels.values);
    }
    let count = rows.len() / width;
    npy::write_f32(&folder.join("image_embd.npy"), &[count, width], &rows)?;
    let row_len = images[0].pixels.row_len;
    let shape = [pixels.len() / row_len, row_len];
    npy::write_f32(&folder.join("pixel_values.npy"), &shape, &pixels)?;
    Ok(())
}

fn prompt(input: &LogitsInput, model: &AutoModel, images: &[Seen]) -> CommandResult<Prompt> {
    if let Some(path) = &input.tokens_file {
        return from_ids(path, &npy::read_ints(path)?, images);
    }
    if let Some(tokens) = &input.tokens {
        if !images.is_empty() {
            return Err("--tokens has no place for an image; use --tokens-file with -1 at its rows, or --prompt".into());
        }
        return Ok(tokens.into());
    }
    let text = input.prompt.as_deref().unwrap_or_default();
    let media: Vec<_> = images
        .iter()
        .map(|image| image.rows.clone().into())
        .collect();
    Ok(model.text_prompt(text, &media)?)
}

/// Token ids with -1 at the rows of images.
fn from_ids(path: &Path, ids: &[i64], images: &[Seen]) -> CommandResult<Prompt> {
    let file = path.display();
    let mut prompt = Prompt::new();
    let mut left = images.iter();
    let mut at = 0;
    while at < ids.len() {
        if ids[at] != -1 {
            let id = u32::try_from(ids[at])
                .map_err(|_| format!("{file}: {} is not a token id", ids[at]))?;
            prompt.push_tokens([id]);
            at += 1;
            continue;
        }
        let image = left.next().ok_or_else(|| {
            format!(
                "{file}: entry {at} begins an image, but only {} were given",
                images.len()
            )
        })?;
        let rows = image.rows.grid.len();
        let found = ids[at..]
            .iter()
            .take(rows)
            .take_while(|&&id| id == -1)
            .count();
        if found != rows {
            return Err(format!(
                "{file}: {found} entries of -1 from entry {at} on, the image has {rows} rows"
            )
            .into());
        }
        prompt.push_image(image.rows.clone());
        at += rows;
    }
    match left.count() {
        0 => Ok(prompt),
        n => Err(format!("{file} has no place for {n} of the images").into()),
    }
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
