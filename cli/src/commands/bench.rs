//! `burn-gguf bench`: prompt and generation speed, measured as llama-bench does.

use std::io::Write;
use std::time::{Duration, Instant};

use burn_gguf_models::{AutoModel, Session, SessionOptions};
use serde_json::json;

use super::CommandResult;
use super::load::{load_text, session_options};
use crate::args::BenchArgs;

struct Test {
    name: String,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    times: Vec<Duration>,
}

impl Test {
    /// Tokens per second of each repetition.
    fn rates(&self) -> Vec<f64> {
        let tokens = (self.n_prompt + self.n_gen) as f64;
        self.times
            .iter()
            .map(|t| tokens / t.as_secs_f64())
            .collect()
    }

    fn mean(&self) -> f64 {
        let rates = self.rates();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    fn deviation(&self) -> f64 {
        let rates = self.rates();
        let mean = self.mean();
        let n = rates.len();
        if n < 2 {
            return 0.0;
        }
        let squares: f64 = rates.iter().map(|r| (r - mean).powi(2)).sum();
        (squares / (n - 1) as f64).sqrt()
    }
}

pub fn run(args: BenchArgs) -> CommandResult {
    if args.repetitions == 0 {
        return Err("--repetitions must be at least 1".into());
    }
    let mut options = session_options(&args.model)?;
    if args.n_prompt == 0 && args.n_gen == 0 {
        return Err("--n-prompt and --n-gen are both 0: there is nothing to measure".into());
    }
    let needed = args.n_depth.saturating_add(args.n_prompt.max(args.n_gen));
    let model = load_text(&args.model)?;
    let limit = options.context.unwrap_or(model.model().context_length());
    if needed > limit {
        return Err(
            format!("{needed} tokens do not fit the context of {limit}; raise --ctx").into(),
        );
    }
    options.context = Some(limit);
    let mut tests = Vec::new();
    if args.n_prompt > 0 {
        tests.push(measure(&model, &args, &options, args.n_prompt, 0)?);
    }
    if args.n_gen > 0 {
        tests.push(measure(&model, &args, &options, 0, args.n_gen)?);
    }
    match args.json {
        true => print_json(&tests),
        false => print_table(&model, &tests),
    }
}

/// One warm-up and the repetitions of a test. The cache is cut back to the depth between them.
fn measure(
    model: &AutoModel,
    args: &BenchArgs,
    options: &SessionOptions,
    n_prompt: usize,
    n_gen: usize,
) -> CommandResult<Test> {
    let mut session = model.session(options);
    let mut ids = Ids(model.model().vocab_size() as u32);
    if args.n_depth > 0 {
        session.feed(&ids.take(args.n_depth))?;
    }
    once(&mut session, &mut ids, n_prompt.min(32), n_gen.min(4))?;
    let mut times = Vec::new();
    for _ in 0..args.repetitions {
        // A recurrence cannot be cut back and starts again.
        let kept = session.cache_mut().truncate(args.n_depth);
        if kept < args.n_depth {
            session.feed(&ids.take(args.n_depth - kept))?;
        }
        times.push(once(&mut session, &mut ids, n_prompt, n_gen)?);
    }
    let mut name = match n_gen {
        0 => format!("pp{n_prompt}"),
        _ => format!("tg{n_gen}"),
    };
    if args.n_depth > 0 {
        name = format!("{name} @ d{}", args.n_depth);
    }
    Ok(Test {
        name,
        n_prompt,
        n_gen,
        n_depth: args.n_depth,
        times,
    })
}

fn once(
    session: &mut Session<'_>,
    ids: &mut Ids,
    n_prompt: usize,
    n_gen: usize,
) -> CommandResult<Duration> {
    let prompt = ids.take(n_prompt);
    let steps = ids.take(n_gen);
    let start = Instant::now();
    if !prompt.is_empty() {
        session.feed(&prompt)?;
    }
    for token in steps {
        session.feed(&[token])?;
    }
    Ok(start.elapsed())
}

/// Token ids spread over the vocabulary; which ones makes no difference to the speed.
struct Ids(u32);

impl Ids {
    fn take(&mut self, n: usize) -> Vec<u32> {
        (0..n as u64)
            .map(|i| (i.wrapping_mul(2_654_435_761) % u64::from(self.0.max(1))) as u32)
            .collect()
    }
}

fn print_json(tests: &[Test]) -> CommandResult {
    let rows: Vec<_> = tests
        .iter()
        .map(|t| {
            json!({
                "test": t.name,
                "n_prompt": t.n_prompt,
                "n_gen": t.n_gen,
                "n_depth": t.n_depth,
                "tokens_per_second": t.mean(),
                "stddev": t.deviation(),
            })
        })
        .collect();
    writeln!(
        std::io::stdout(),
        "{}",
        serde_json::to_string_pretty(&rows)?
    )?;
    Ok(())
}

fn print_table(model: &AutoModel, tests: &[Test]) -> CommandResult {
    let mut out = std::io::stdout().lock();
    let size = model.gguf().file_size() as f64 / (1 << 20) as f64;
    writeln!(
        out,
        "{}, {:.0} M parameters, {size:.0} MiB, {:?}, {} threads",
        model.model().architecture(),
        model.model().parameters() as f64 / 1e6,
        model.model().device(),
        rayon::current_num_threads(),
    )?;
    writeln!(out, "| {:<16} | {:>18} |", "test", "tokens/s")?;
    writeln!(out, "|{:-<18}|{:->19}:|", "", "")?;
    for test in tests {
        let rate = format!("{:.2} ± {:.2}", test.mean(), test.deviation());
        writeln!(out, "| {:<16} | {rate:>18} |", test.name)?;
    }
    Ok(())
}
