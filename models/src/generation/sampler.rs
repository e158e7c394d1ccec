//! Choosing a token from logits.
//!
//! Vocabularies have up to 262k entries and this runs for every token, so nothing sorts them
//! all: the best `k` are found in one pass that keeps a short list and the value it takes to get
//! on it.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::random::Random;
use super::{SamplingError, SamplingParams};

/// A token that may be chosen, and its logit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    logit: f32,
    id: u32,
}

impl Candidate {
    /// Most likely first, lower ids first among equals.
    fn order(&self, other: &Self) -> Ordering {
        other
            .logit
            .total_cmp(&self.logit)
            .then(self.id.cmp(&other.id))
    }
}

/// Chooses tokens by [`SamplingParams`], remembering what was chosen for the repeat penalty.
///
/// ```
/// use burn_gguf_models::generation::{Sampler, SamplingParams};
///
/// let mut sampler = Sampler::new(SamplingParams::greedy())?;
/// assert_eq!(sampler.sample(&mut [0.1, 2.0, -1.0])?, 1);
/// # Ok::<(), burn_gguf_models::generation::SamplingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    seed: u64,
    random: Random,
    /// The last tokens, oldest first.
    recent: VecDeque<u32>,
    suppressed: Vec<u32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler that has seen no token yet.
    ///
    /// # Errors
    /// Those of [`SamplingParams::validate`].
    pub fn new(params: SamplingParams) -> Result<Self, SamplingError> {
        params.validate()?;
        let seed = params.seed.unwrap_or_else(Random::fresh_seed);
        Ok(Self {
            params,
            seed,
            random: Random::new(seed),
            recent: VecDeque::new(),
            suppressed: Vec::new(),
            candidates: Vec::new(),
        })
    }

    /// Excludes tokens for good; see `SpecialTokens::suppressed` of the tokenizer.
    #[must_use]
    pub fn with_suppressed(mut self, ids: &[u32]) -> Self {
        self.suppressed.extend_from_slice(ids);
        self
    }

    /// The seed in use, to repeat a run whose seed was drawn.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Lets the repeat penalty know of a token that was not sampled here, such as the prompt's.
    pub fn accept(&mut self, id: u32) {
        if self.params.repeat_last_n == 0 {
            return;
        }
        if self.recent.len() == self.params.repeat_last_n {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
    }

    /// Chooses the next token from the logits of the whole vocabulary, `[vocab]`, and remembers
    /// it. The logits are changed by suppression and penalty.
    ///
    /// # Errors
    /// [`SamplingError::NotFinite`] for logits that are NaN or infinite,
    /// [`SamplingError::NothingToChoose`] if all are excluded.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, SamplingError> {
        for &id in &self.suppressed {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        let best = best(logits)?;
        let best = if self.penalize(logits) {
            self::best(logits)?
        } else {
            best
        };
        let id = if self.params.temperature == 0.0 {
            best.id
        } else {
            self.draw(logits, best.logit)
        };
        self.accept(id);
        Ok(id)
    }

    /// Applies the repeat penalty; false if there was nothing to do.
    fn penalize(&self, logits: &mut [f32]) -> bool {
        let penalty = self.params.repeat_penalty;
        if penalty == 1.0 || self.recent.is_empty() {
            return false;
        }
        let mut ids: Vec<u32> = self.recent.iter().copied().collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
        true
    }

    /// A random token of those that the parameters keep. `most` is the highest logit.
    fn draw(&mut self, logits: &[f32], most: f32) -> u32 {
        self.keep(logits, most);
        let temperature = f64::from(self.params.temperature);
        let weight =
            |candidate: &Candidate| (f64::from(candidate.logit - most) / temperature).exp();
        let total: f64 = self.candidates.iter().map(weight).sum();
        let mut left = self.random.unit() * total;
        for candidate in &self.candidates {
            left -= weight(candidate);
            if left < 0.0 {
                return candidate.id;
            }
        }
        // Rounding can leave a rest: the most likely token takes it.
        self.candidates[0].id
    }

    /// Fills `candidates` with what top-k, top-p and min-p keep; never empty.
    fn keep(&mut self, logits: &[f32], most: f32) {
        let SamplingParams {
            top_k,
            top_p,
            min_p,
            ..
        } = self.params;
        // `ln(0)` is minus infinity, which keeps everything.
        let least = most + min_p.ln();
        let candidates = &mut self.candidates;
        if top_k > 0 && top_k < logits.len() {
            take_best(logits, top_k, candidates);
            cut(
                candidates,
                top_p,
                mass(candidates.iter().map(|c| c.logit), most),
                most,
            );
        } else if top_p < 1.0 {
            let mass = mass(logits.iter().copied(), most);
            let mut count = 64;
            loop {
                take_best(logits, count, candidates);
                let all = candidates.len() < count;
                if cut(candidates, top_p, mass, most) || all {
                    break;
                }
                count *= 8;
            }
        } else {
            candidates.clear();
            candidates.extend(
                (0..)
                    .zip(logits)
                    .filter(|(_, logit)| **logit > f32::NEG_INFINITY && **logit >= least)
                    .map(|(id, &logit)| Candidate { logit, id }),
            );
            return;
        }
        candidates.retain(|candidate| candidate.logit >= least);
    }
}

/// The most likely token, the lowest id among equals.
fn best(logits: &[f32]) -> Result<Candidate, SamplingError> {
    let mut most = f32::NEG_INFINITY;
    let mut usable = true;
    for &logit in logits {
        most = if logit > most { logit } else { most };
        usable &= logit < f32::INFINITY;
    }
    if !usable {
        let bad = (0..)
            .zip(logits)
            .find(|(_, logit)| logit.is_nan() || **logit == f32::INFINITY);
        if let Some((token, &value)) = bad {
            return Err(SamplingError::NotFinite { token, value });
        }
    }
    (0..)
        .zip(logits)
        .find(|(_, logit)| **logit == most && most > f32::NEG_INFINITY)
        .map(|(id, &logit)| Candidate { logit, id })
        .ok_or(SamplingError::NothingToChoose(logits.len()))
}

/// Sum of the probabilities, up to a common factor.
fn mass(logits: impl Iterator<Item = f32>, most: f32) -> f64 {
    logits.map(|logit| f64::from((logit - most).exp())).sum()
}

/// Puts the `count` most likely tokens that are not excluded into `out`, in order.
fn take_best(logits: &[f32], count: usize, out: &mut Vec<Candidate>) {
    out.clear();
    let capacity = count.saturating_mul(2).max(64);
    let mut bar = f32::NEG_INFINITY;
    for (id, &logit) in (0..).zip(logits) {
        if logit > bar {
            out.push(Candidate { logit, id });
            if out.len() == capacity {
                out.select_nth_unstable_by(count - 1, Candidate::order);
                out.truncate(count);
                bar = out[count - 1].logit;
            }
        }
    }
    out.sort_unstable_by(Candidate::order);
    out.truncate(count);
}

/// Cuts ordered candidates where their probabilities reach `top_p` of `mass`; false if they never do.
fn cut(candidates: &mut Vec<Candidate>, top_p: f32, mass: f64, most: f32) -> bool {
    if top_p >= 1.0 {
        return true;
    }
    let enough = f64::from(top_p) * mass;
    let mut sum = 0.0;
    let reached = candidates.iter().position(|candidate| {
        sum += f64::from((candidate.logit - most).exp());
        sum >= enough
    });
    if let Some(last) = reached {
        candidates.truncate(last + 1);
    }
    reached.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(params: SamplingParams) -> Sampler {
        Sampler::new(SamplingParams {
            seed: Some(params.seed.unwrap_or(1)),
            ..params
        })
        .unwrap()
    }

    /// Everything is kept unless a test says otherwise.
    fn open() -> SamplingParams {
        SamplingParams {
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            temperature: 1.0,
            ..SamplingParams::default()
        }
    }

    fn logits(count: usize, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed);
        (0..count)
            .map(|_| (random.unit() * 20.0 - 10.0) as f32)
            .collect()
    }

    /// The kept ids by the definition: sort everything, then cut three times.
    fn kept(logits: &[f32], params: &SamplingParams) -> Vec<u32> {
        let mut all: Vec<(f64, u32)> = logits.iter().map(|&l| f64::from(l)).zip(0..).collect();
        all.retain(|(logit, _)| *logit > f64::NEG_INFINITY);
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if params.top_k > 0 {
            all.truncate(params.top_k);
        }
        let most = all[0].0;
        let total: f64 = all.iter().map(|(logit, _)| (logit - most).exp()).sum();
        if params.top_p < 1.0 {
            let mut sum = 0.0;
            let last = all.iter().position(|(logit, _)| {
                sum += (logit - most).exp() / total;
                sum >= f64::from(params.top_p)
            });
            all.truncate(last.map_or(all.len(), |last| last + 1));
        }
        all.retain(|(logit, _)| (logit - most).exp() >= f64::from(params.min_p));
        all.into_iter().map(|(_, id)| id).collect()
    }

    #[test]
    fn keeps_what_the_definition_keeps() {
        let mut compared = 0;
        for count in [1, 2, 63, 64, 500, 5000] {
            for seed in 0..4 {
                let mut logits = logits(count, seed);
                if count > 10 {
                    logits[3] = f32::NEG_INFINITY;
                }
                for top_k in [0, 1, 2, 40, 5000, 1 << 40] {
                    for (top_p, min_p) in [
                        (1.0, 0.0),
                        (0.9, 0.0),
                        (0.1, 0.0),
                        (0.999, 0.02),
                        (1.0, 0.3),
                        (1.0, 1.0),
                    ] {
                        let params = SamplingParams {
                            top_k,
                            top_p,
                            min_p,
                            ..open()
                        };
                        let mut sampler = sampler(params.clone());
                        let most = best(&logits).unwrap().logit;
                        sampler.keep(&logits, most);
                        let mut got: Vec<u32> = sampler.candidates.iter().map(|c| c.id).collect();
                        let mut expected = kept(&logits, &params);
                        got.sort_unstable();
                        expected.sort_unstable();
                        assert_eq!(got, expected, "{count} logits, {params:?}");
                        compared += 1;
                    }
                }
            }
        }
        assert_eq!(compared, 6 * 4 * 6 * 6);
    }

    #[test]
    fn greedy_takes_the_first_of_the_highest() {
        let mut sampler = sampler(SamplingParams::greedy());
        assert_eq!(sampler.sample(&mut [1.0, 3.0, 3.0, -1.0]).unwrap(), 1);
        assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY, -5.0]).unwrap(), 1);
    }

    #[test]
    fn draws_in_proportion() {
        let mut sampler = sampler(open());
        let mut counts = [0_u32; 4];
        for _ in 0..40_000 {
            let mut logits = [0.1_f32, 0.2, 0.3, 0.4].map(f32::ln);
            counts[sampler.sample(&mut logits).unwrap() as usize] += 1;
        }
        for (count, expected) in counts.iter().zip([4_000, 8_000, 12_000, 16_000]) {
            assert!(count.abs_diff(expected) < 400, "{counts:?}");
        }
    }

    #[test]
    fn temperature_sharpens_and_flattens() {
        let share = |temperature| {
            let mut sampler = sampler(SamplingParams {
                temperature,
                ..open()
            });
            (0..10_000)
                .filter(|_| sampler.sample(&mut [0.0, 1.0]).unwrap() == 1)
                .count()
        };
        // 1 / (1 + exp(-1 / temperature))
        for (temperature, expected) in [(0.25, 9_820_usize), (1.0, 7_311), (4.0, 5_622)] {
            assert!(share(temperature).abs_diff(expected) < 200, "{temperature}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens() {
        let run = |seed| {
            let mut sampler = sampler(SamplingParams {
                seed: Some(seed),
                ..SamplingParams::default()
            });
            (0..50)
                .map(|step| sampler.sample(&mut logits(3000, step)).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
        let drawn = Sampler::new(SamplingParams::default()).unwrap();
        assert_ne!(
            drawn.seed(),
            Sampler::new(SamplingParams::default()).unwrap().seed()
        );
    }

    #[test]
    fn penalty_of_recent_tokens_counts_once_and_fades() {
        let params = SamplingParams {
            repeat_penalty: 2.0,
            repeat_last_n: 2,
            ..SamplingParams::greedy()
        };
        let mut sampler = sampler(params);
        sampler.accept(0);
        sampler.accept(0);
        let mut logits = [3.0, 1.0, -1.0];
        assert_eq!(sampler.sample(&mut logits).unwrap(), 0);
        assert_eq!(logits, [1.5, 1.0, -1.0]);
        sampler.accept(2);
        sampler.accept(1);
        let mut logits = [3.0, 4.0, -1.0];
        assert_eq!(sampler.sample(&mut logits).unwrap(), 0);
        assert_eq!(logits, [3.0, 2.0, -2.0]);
    }

    #[test]
    fn suppressed_tokens_are_never_chosen() {
        let mut sampler = sampler(open()).with_suppressed(&[1, 99]);
        assert!((0..200).all(|_| sampler.sample(&mut [0.0, 5.0, 0.0]).unwrap() != 1));
    }

    #[test]
    fn not_finite() {
        let mut sampler = sampler(SamplingParams::default());
        for bad in [f32::NAN, f32::INFINITY] {
            let error = sampler.sample(&mut [0.0, bad, bad]).unwrap_err();
            assert!(
                matches!(error, SamplingError::NotFinite { token: 1, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn nothing_to_choose() {
        let mut sampler = sampler(SamplingParams::default());
        assert_eq!(
            sampler.sample(&mut []),
            Err(SamplingError::NothingToChoose(0))
        );
        let mut none = [f32::NEG_INFINITY; 3];
        assert_eq!(
            sampler.sample(&mut none),
            Err(SamplingError::NothingToChoose(3))
        );
    }

    #[test]
    fn a_large_vocabulary_takes_little_time() {
        let logits = logits(262_144, 3);
        for (name, params) in [
            ("greedy", SamplingParams::greedy()),
            ("default", SamplingParams::default()),
            (
                "top-p alone",
                SamplingParams {
                    top_p: 0.95,
                    ..open()
                },
            ),
            (
                "min-p alone",
                SamplingParams {
                    min_p: 0.05,
                    ..open()
                },
            ),
            ("everything", open()),
        ] {
            let mut sampler = sampler(params);
            let start = std::time::Instant::now();
            for _ in 0..10 {
                sampler.sample(&mut logits.clone()).unwrap();
            }
            let each = start.elapsed() / 10;
            println!("{name}: {each:.1?}");
            assert!(each.as_millis() < 500, "{name}: {each:?}");
        }
    }

    #[test]
    fn extreme_logits_do_not_overflow() {
        let mut sampler = sampler(SamplingParams {
            temperature: 1e-30,
            ..open()
        });
        assert_eq!(sampler.sample(&mut [f32::MIN, f32::MAX, 0.0]).unwrap(), 1);
        let mut sampler = self::sampler(SamplingParams {
            temperature: 1e30,
            top_p: 0.5,
            ..open()
        });
        assert_eq!(sampler.sample(&mut [f32::MIN, f32::MAX, 0.0]).unwrap(), 1);
    }
}
