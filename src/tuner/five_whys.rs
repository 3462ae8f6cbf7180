//! The archive of what was tried before, why it helped or not: evidence for explanations.
//!
//! `assets/five-whys.json` holds what the specification, this project's record (`docs/src/engine.md`), the field notes and
//! the public tables say. Its percentages are of other machines and moments: they explain, and are never throughput labels.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::LazyLock;

/// Largest archive, bytes.
const MAX_BYTES: usize = 4 << 20;

/// Whether a hypothesis held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did.
    Success,
    /// It did not, or the difference was not beyond the noise.
    Failure,
}

/// Kinds of root causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RootCauseKind {
    /// What was changed did not limit the step.
    NotTheBottleneck,
    /// Bytes read from memory.
    MemoryTraffic,
    /// How memory is accessed: layout, coalescing, prefetch.
    MemoryAccess,
    /// Address translation, page faults.
    Paging,
    /// Instructions for each element.
    Instructions,
    /// Work that one thread or warp does while others could help.
    Parallelism,
    /// Waiting for other threads.
    Synchronisation,
    /// Dispatch of kernels.
    Launch,
    /// Accuracy that costs speed.
    Precision,
    /// Guesses that turn out wrong.
    Prediction,
    /// The measurement itself.
    Measurement,
    /// Not reported.
    Unknown,
}

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotation {
    /// Identifies it.
    pub iteration: String,
    /// What was expected.
    pub hypothesis: String,
    /// Whether it held.
    pub outcome: Outcome,
    /// What was measured and what led from there to the cause; as many steps as are known.
    pub why_chain: Vec<String>,
    /// The cause found.
    pub root_cause: String,
    /// Its kind.
    pub root_cause_kind: RootCauseKind,
    /// Whether the source gives the figures only, and the cause is what explains them.
    pub inferred: bool,
    /// What was done, where it held.
    pub fix: Option<String>,
    /// Measured change of the rate, percent; of several figures the smallest.
    pub improvement_pct: Option<f64>,
    /// Knobs, formats and bricks that it is about.
    pub about: Vec<String>,
    /// Where it is written.
    pub source: String,
}

/// An archive that is none.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Too large.
    #[error("the archive has {0} bytes, at most {MAX_BYTES} are read")]
    TooLarge(usize),
    /// Not of this form.
    #[error("the archive is damaged: {0}")]
    Json(#[from] serde_json::Error),
    /// An entry that says too little.
    #[error("entry {iteration:?} of the archive: {what}")]
    Entry {
        /// Which.
        iteration: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads an archive: an array of [`Annotation`].
///
/// # Errors
/// What is no array of them, or an entry without hypothesis, cause or source, or one that is there twice.
pub fn load(json: &str) -> Result<Vec<Annotation>, ArchiveError> {
    if json.len() > MAX_BYTES {
        return Err(ArchiveError::TooLarge(json.len()));
    }
    let archive: Vec<Annotation> = serde_json::from_str(json)?;
    let mut seen = HashSet::new();
    for a in &archive {
        let empty = |text: &String| text.trim().is_empty();
        let rules = [
            (empty(&a.iteration), "has no name"),
            (!seen.insert(a.iteration.as_str()), "is there twice"),
            (empty(&a.hypothesis), "has no hypothesis"),
            (empty(&a.root_cause), "has no cause"),
            (empty(&a.source), "has no source"),
            (a.why_chain.is_empty(), "has nothing that was measured"),
            (a.about.is_empty(), "is about nothing"),
            (
                a.why_chain.iter().chain(&a.about).any(empty),
                "has an empty text",
            ),
            (
                a.improvement_pct.is_some_and(|p| !p.is_finite()),
                "has no number in percent",
            ),
        ];
        if let Some((_, what)) = rules.into_iter().find(|(broken, _)| *broken) {
            return Err(ArchiveError::Entry {
                iteration: a.iteration.clone(),
                what,
            });
        }
    }
    Ok(archive)
}

/// The archive that comes with the program. A test reads it, so it is never empty here.
pub fn archive() -> &'static [Annotation] {
    static ARCHIVE: LazyLock<Vec<Annotation>> =
        LazyLock::new(|| load(include_str!("../../assets/five-whys.json")).unwrap_or_default());
    &ARCHIVE
}

/// What is known of a knob, format or brick, what helped first.
pub fn about(name: &str) -> impl Iterator<Item = &'static Annotation> {
    let of = |outcome| {
        let found =
            move |a: &&Annotation| a.outcome == outcome && a.about.iter().any(|n| n == name);
        archive().iter().filter(found)
    };
    of(Outcome::Success).chain(of(Outcome::Failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::knobs::KNOBS;

    #[test]
    fn the_archive_reads_and_knows_knobs() {
        let archive = load(include_str!("../../assets/five-whys.json")).expect("reads");
        assert_eq!(archive, self::archive());
        let first = about("prefetch").next().expect("known");
        assert_eq!(first.outcome, Outcome::Success);
        for knob in [
            "threads", "waiting", "load", "kv-type", "prefetch", "backend", "pin",
        ] {
            assert!(about(knob).next().is_some(), "{knob}");
            assert!(KNOBS.iter().any(|k| k.name == knob), "{knob}");
        }
        assert_eq!(about("no such").count(), 0);
    }

    #[test]
    fn damaged_archives_are_refused() {
        let json = include_str!("../../assets/five-whys.json");
        let first = json.lines().nth(1).expect("an entry").trim_end_matches(',');
        let error = |text: String| load(&text).expect_err("damaged").to_string();
        assert!(error(json[..json.len() / 2].into()).contains("damaged"));
        assert!(error(format!("[{first},{first}]")).contains("is there twice"));
        let nameless = first.replace("v4.22.0", " ");
        assert!(error(format!("[{nameless}]")).contains("has no name"));
        assert!(error(format!("[{}]", first.replace("failure", "perhaps"))).contains("perhaps"));
        assert!(load(&" ".repeat(MAX_BYTES + 1)).is_err());
    }
}
