//! The loop: batches drawn ahead on a thread, AdamW, a look at held-out pictures now and then.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use burn_gguf::gguf::Gguf;
use burn_gguf_models::demo::{PROMPTS, Split};
use burn_gguf_models::vision::processor::ImageProcessor;
use burn_optim::grad_clipping::GradientClippingConfig;
use burn_optim::{AdamWConfig, GradientsParams};

use super::batch::{Batch, CAPTION, Words};
use super::learner::Learner;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How to train.
pub struct Plan {
    /// Steps, unless the time is up before.
    pub steps: usize,
    /// Time.
    pub limit: Duration,
    /// Pictures of a step.
    pub batch: usize,
    /// The highest learning rate.
    pub rate: f64,
    /// The first picture of the training split.
    pub first: u64,
    /// Where checkpoints go: text model and tower.
    pub out: [PathBuf; 2],
}

/// Part of the training in which the learning rate rises.
const WARM_UP: f64 = 0.03;
/// The last learning rate, as a part of the highest.
const LAST_RATE: f64 = 0.02;
/// Steps between two lines of the log.
const LOG: usize = 50;
/// Steps between two looks at held-out pictures.
const LOOK: usize = 500;
/// Held-out pictures of a look.
const PICTURES: Range<u64> = 0..256;
/// Time between two checkpoints.
const CHECKPOINT: Duration = Duration::from_secs(180);
/// Share of exact captions at which the training is done.
const GOAL: f64 = 0.995;

/// Trains until the goal, the steps or the time are reached, and leaves the checkpoint at `plan.out`.
///
/// # Errors
/// If a batch cannot be made or a checkpoint written.
pub fn train(
    mut learner: Learner,
    files: [&Gguf; 2],
    words: &Arc<Words>,
    processor: &ImageProcessor,
    plan: &Plan,
) -> Result<Learner, Error> {
    let batches = draw_ahead(plan, words, processor);
    let mut optimizer = AdamWConfig::new()
        .with_beta_2(0.98)
        .with_epsilon(1e-8)
        .with_weight_decay(0.02)
        .with_grad_clipping(Some(GradientClippingConfig::Norm(1.0)))
        .init();
    let (start, mut saved) = (Instant::now(), Instant::now());
    let mut sums = [0.0; 2];
    for step in 1..=plan.steps {
        let batch = batches.recv()??;
        let done = (step as f64 / plan.steps as f64)
            .max(start.elapsed().as_secs_f64() / plan.limit.as_secs_f64());
        let (loss, captions) = learner.loss(&batch, words);
        sums[0] += f64::from(captions.into_scalar::<f32>());
        sums[1] += f64::from(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &learner);
        learner = optimizer.step(rate(plan.rate, done), learner, gradients);

        if step % LOG == 0 {
            let [captions, all] = sums.map(|sum| sum / LOG as f64);
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "step {step:5}  {:4.1} min  {:3.0} pictures/s  loss {all:.3}  captions {captions:.4}",
                seconds / 60.0,
                (step * plan.batch) as f64 / seconds,
            );
            sums = [0.0; 2];
        }
        let over = done >= 1.0;
        if step % LOOK == 0 || over {
            let (share, wrong) = look(&learner, PICTURES, words, processor)?;
            println!(
                "step {step:5}  held out: {:.1} % exact; first wrong word by place: {wrong:?}",
                share * 100.0
            );
            if share >= GOAL || over {
                break;
            }
        }
        if saved.elapsed() > CHECKPOINT {
            save(&learner, files, plan)?;
            saved = Instant::now();
        }
    }
    save(&learner, files, plan)?;
    Ok(learner)
}

fn save(learner: &Learner, files: [&Gguf; 2], plan: &Plan) -> Result<(), Error> {
    learner.save(files, plan.out.each_ref().map(PathBuf::as_path))
}

/// Rises evenly, then falls as a cosine.
fn rate(highest: f64, done: f64) -> f64 {
    if done < WARM_UP {
        return highest * done / WARM_UP;
    }
    let part = ((done - WARM_UP) / (1.0 - WARM_UP)).min(1.0);
    let cosine = 0.5 * (1.0 + (part * std::f64::consts::PI).cos());
    highest * (LAST_RATE + (1.0 - LAST_RATE) * cosine)
}

/// Batches of consecutive pictures, each with the next prompt.
fn draw_ahead(
    plan: &Plan,
    words: &Arc<Words>,
    processor: &ImageProcessor,
) -> Receiver<Result<Batch, Error>> {
    let (sender, receiver) = sync_channel(4);
    let (words, processor) = (words.clone(), processor.clone());
    let (first, size) = (plan.first, plan.batch as u64);
    std::thread::spawn(move || {
        for step in 0.. {
            let from = first + step * size;
            let prompt = step as usize % PROMPTS.len();
            let batch = Batch::new(
                Split::Training,
                from..from + size,
                prompt,
                &words,
                &processor,
            );
            // The training is over.
            if sender.send(batch).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Share of exact captions of held-out pictures, in batches of 32, each with the next prompt; and how many of the others
/// first go wrong at each word.
///
/// # Errors
/// If a batch cannot be made.
pub fn look(
    learner: &Learner,
    pictures: Range<u64>,
    words: &Words,
    processor: &ImageProcessor,
) -> Result<(f64, [usize; CAPTION]), Error> {
    let (mut exact, mut wrong) = (0, [0; CAPTION]);
    for (i, from) in pictures.clone().step_by(32).enumerate() {
        let numbers = from..(from + 32).min(pictures.end);
        let prompt = i % PROMPTS.len();
        let batch = Batch::new(Split::HeldOut, numbers, prompt, words, processor)?;
        for mistake in learner.mistakes(&batch, words)? {
            match mistake {
                None => exact += 1,
                Some(place) => wrong[place] += 1,
            }
        }
    }
    Ok((
        f64::from(exact) / (pictures.end - pictures.start) as f64,
        wrong,
    ))
}
