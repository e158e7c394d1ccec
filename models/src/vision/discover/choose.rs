//! Choosing among vision files that all fit.

use std::cmp::Reverse;
use std::path::PathBuf;

use burn_gguf::GgmlType;

use super::super::mmproj::Mmproj;
use super::identity::Relation;
use super::names::Words;
use super::{LogLine, Match};

/// A vision file that fits the model.
pub(super) struct Candidate {
    pub name: String,
    pub path: PathBuf,
    pub words: Words,
    pub mmproj: Mmproj,
    pub relation: Relation,
}

/// The outcome.
pub(super) enum Choice {
    One {
        candidate: Box<Candidate>,
        matched: Match,
        skipped: Vec<LogLine>,
        /// The line about those that fit as well.
        rest: Option<LogLine>,
    },
    /// All are named like other models.
    None { skipped: Vec<LogLine> },
    /// Nothing decides.
    Unclear {
        skipped: Vec<LogLine>,
        names: Vec<String>,
    },
}

/// How much a file is named like a model: not at all, sharing a word or more, or just so.
fn likeness(file: &Words, model: &Words) -> (u8, usize) {
    match (file.same(model), file.related(model)) {
        (true, _) => (2, usize::MAX),
        (false, true) => (1, file.shared(model)),
        _ => (0, 0),
    }
}

/// BF16 before F32 before F16 before what is quantized.
fn rank(mmproj: &Mmproj) -> u8 {
    match mmproj.main_type() {
        _ if mmproj.is_quantized() => 3,
        GgmlType::BF16 => 0,
        GgmlType::F32 => 1,
        GgmlType::F16 => 2,
        _ => 4,
    }
}

/// A file and what speaks for it.
struct Rated {
    candidate: Candidate,
    matched: Match,
    likeness: (u8, usize),
}

/// Metadata first, then names, then types. Where the folder has several models, one of the first two must decide.
pub(super) fn choose(
    ours: &Words,
    others: &[(String, Words)],
    candidates: Vec<Candidate>,
) -> Choice {
    let mut skipped = Vec::new();
    let mut rated = Vec::new();
    for candidate in candidates {
        let likeness = likeness(&candidate.words, ours);
        let other = others
            .iter()
            .map(|(name, words)| (self::likeness(&candidate.words, words), name))
            .max();
        let matched = match other {
            _ if candidate.relation >= Relation::Base => Match::Metadata,
            Some((theirs, name)) if theirs > likeness => {
                skipped.push(LogLine::info(format_args!(
                    "skipped {}: it is named like another model of the folder, {name}",
                    candidate.path.display()
                )));
                continue;
            }
            _ if candidate.relation == Relation::Related => Match::Metadata,
            other if likeness.0 > 0 && other.is_none_or(|(theirs, _)| theirs < likeness) => {
                Match::Name
            }
            _ => Match::Fit,
        };
        rated.push(Rated {
            candidate,
            matched,
            likeness,
        });
    }
    rated.sort_by_key(order);
    let Some(best) = rated.first() else {
        return Choice::None { skipped };
    };
    if best.matched == Match::Fit {
        let alike = |r: &Rated| r.candidate.words == best.candidate.words;
        if !others.is_empty() || !rated.iter().all(alike) {
            let names = rated.into_iter().map(|r| r.candidate.name).collect();
            return Choice::Unclear { skipped, names };
        }
    }
    let best = rated.remove(0);
    let reasons: Vec<_> = rated.iter().map(|r| not_used(r, &best)).collect();
    let rest = (!reasons.is_empty())
        .then(|| LogLine::info(format_args!("not used: {}", reasons.join(", "))));
    Choice::One {
        matched: best.matched,
        candidate: Box::new(best.candidate),
        skipped,
        rest,
    }
}

type Closeness = (u8, Reverse<Relation>, Reverse<(u8, usize)>);

/// What counts before the type. A file without a name of its own, such as `mmproj-BF16.gguf`, contradicts nothing.
fn closeness(rated: &Rated) -> Closeness {
    let Candidate {
        relation, words, ..
    } = &rated.candidate;
    let unlike = !words.is_empty() && rated.likeness.0 == 0;
    match rated.matched {
        Match::Metadata => {
            let name = (u8::from(!unlike), 0);
            (0, Reverse(relation.clone()), Reverse(name))
        }
        Match::Name => (1, Reverse(Relation::Unknown), Reverse(rated.likeness)),
        Match::Fit => (2, Reverse(Relation::Unknown), Reverse((0, 0))),
    }
}

fn order(rated: &Rated) -> (Closeness, u8, String) {
    let Candidate { mmproj, name, .. } = &rated.candidate;
    (closeness(rated), rank(mmproj), name.clone())
}

fn not_used(rated: &Rated, best: &Rated) -> String {
    let Candidate { name, mmproj, .. } = &rated.candidate;
    let chosen = &best.candidate;
    let closer = closeness(rated) != closeness(best);
    let reason = match best.matched {
        Match::Metadata if closer => format!("the metadata of {} are closer", chosen.name),
        Match::Name if closer => format!("{} is named more like the model", chosen.name),
        _ if rank(mmproj) == rank(&chosen.mmproj) => format!("as good as {}", chosen.name),
        _ => format!(
            "{}; {} is preferred",
            mmproj.file_type(),
            chosen.mmproj.file_type()
        ),
    };
    format!("{name} ({reason})")
}
