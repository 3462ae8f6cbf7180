//! What the tuner says of a run, for scripts and for people: `cbtop --recommend --headless`.

use crate::engine::knobs::{Setting, Setup, knob};
use crate::session::GENERATOR;
use crate::session::snapshot::{
    MachineInfo, ModelInfo, Recommendation, RecommendationStatus, Snapshot, TunerFrame,
};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// Raised when a field changes its meaning or goes; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// What there is to change, and what was changed. The schema is checked in as `docs/src/recommend.schema.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecommendReport {
    /// Version of the schema: raised when a field changes its meaning or goes; new fields do not raise it.
    pub schema_version: u32,
    /// Program and version.
    pub generator: String,
    /// The model.
    pub model: ModelInfo,
    /// The machine.
    pub machine: MachineInfo,
    /// Every knob with its value at the end.
    pub setup: Vec<Setting>,
    /// Knobs that the user set, which are changed by nobody else.
    pub explicit: Vec<String>,
    /// Measured rate of generation, tokens a second; `None` where too little was generated, and after changes.
    pub tok_s: Option<f64>,
    /// What the models say; `None` without them.
    pub tuner: Option<TunerFrame>,
    /// What could be changed, by expected gain; with `--apply` what became of it.
    pub recommendations: Vec<Recommendation>,
    /// What was changed; `None` without `--apply`.
    pub applied: Option<AppliedReport>,
}

/// What trying all suggestions came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedReport {
    /// Knobs that were changed and kept, with their new values.
    pub kept: Vec<Setting>,
    /// Ratio of the rates of generation at the end and at the beginning: the product of what was measured of every kept
    /// change, those of prompts apart.
    pub ratio: f64,
    /// In a sentence.
    pub says: String,
}

impl RecommendReport {
    /// Of a session that has run; `before` is its setup before suggestions were tried, if they were.
    pub fn new(
        snapshot: &Snapshot,
        setup: &Setup,
        explicit: Vec<String>,
        before: Option<&Setup>,
    ) -> Self {
        let kept_ratio = |r: &Recommendation| match r.status {
            RecommendationStatus::Applied {
                before_tok_s,
                after_tok_s,
                ..
            } => Some(after_tok_s / before_tok_s),
            _ => None,
        };
        let ratio = snapshot
            .recommendations
            .iter()
            .filter(|r| !r.of_prompts)
            .filter_map(kept_ratio)
            .product();
        let says = || {
            let message = snapshot.message.as_ref();
            message.map_or_else(String::new, |m| m.text.clone())
        };
        Self {
            schema_version: SCHEMA_VERSION,
            generator: GENERATOR.into(),
            model: (*snapshot.model).clone(),
            machine: (*snapshot.machine).clone(),
            setup: setup.settings(),
            explicit,
            tok_s: snapshot.rates.decode_mean_tok_s,
            tuner: snapshot.tuner.as_deref().cloned(),
            recommendations: snapshot.recommendations.clone(),
            applied: before.map(|before| AppliedReport {
                kept: before.changes_to(setup),
                ratio,
                says: says(),
            }),
        }
    }

    /// Writes it as JSON with a line end.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// The JSON schema.
    pub fn schema() -> Schema {
        schema_for!(Self)
    }

    /// Lines that say what was measured, for a profile.
    pub fn measured(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} on {}, {}",
            self.model.name, self.machine.cpu, self.generator
        )];
        lines.extend(self.recommendations.iter().filter_map(|r| {
            let said = outcome(r)?;
            matches!(r.status, RecommendationStatus::Applied { .. })
                .then(|| format!("{}: {said}", r.title))
        }));
        lines
    }

    fn head(&self, f: &mut impl fmt::Write) -> fmt::Result {
        writeln!(f, "{} on {}", self.model.name, self.machine.cpu)?;
        if let Some(rate) = self.tok_s {
            writeln!(f, "current     {rate:.1} tok/s")?;
        }
        let Some(t) = &self.tuner else { return Ok(()) };
        if let Some(p) = t.predicted {
            writeln!(
                f,
                "predicted   {:.1} tok/s ({:.1} to {:.1}) by {}, model {}",
                p.mid, p.low, p.high, t.method, t.model
            )?;
        }
        if let Some(p) = t.with_changes {
            writeln!(
                f,
                "with all    {:.1} tok/s ({:.1} to {:.1})",
                p.mid, p.low, p.high
            )?;
        }
        if let Some(l) = &t.limit {
            let share = l.share * 100.0;
            writeln!(
                f,
                "limited by  {}: {share:.0}% of a token, measured",
                l.class
            )?;
        }
        if let Some(b) = &t.bottleneck {
            let sure = b.confidence * 100.0;
            writeln!(f, "predicted   {} ({sure:.0}% sure): {}", b.class, b.why)?;
        }
        for warning in &t.warnings {
            writeln!(f, "note        {warning}")?;
        }
        if !t.says.is_empty() {
            writeln!(f, "{}", t.says)?;
        }
        Ok(())
    }

    fn item(f: &mut impl fmt::Write, n: usize, r: &Recommendation) -> fmt::Result {
        let gain = r.expected.map(|e| {
            format!(
                ": {:.1} tok/s expected ({:.1} to {:.1})",
                e.mid, e.low, e.high
            )
        });
        let alone = || r.expected_tok_s.map(|e| format!(": {e:.1} tok/s expected"));
        let prompts = || {
            let ratio = r.gain.filter(|_| r.of_prompts)?;
            Some(format!(
                ": x{:.2} of the rate of prompts expected",
                ratio.mid
            ))
        };
        let gain = gain.or_else(alone).or_else(prompts).unwrap_or_default();
        writeln!(f, "\n{n}. {}{gain}", r.title)?;
        writeln!(f, "   {}", r.why)?;
        if !r.evidence.is_empty() {
            writeln!(f, "   evidence: {}", r.evidence)?;
        }
        if !r.risk.is_empty() {
            writeln!(f, "   risk: {}", r.risk)?;
        }
        for s in &r.change {
            if let Some(knob) = knob(&s.knob) {
                writeln!(f, "   set by {} ({} {})", knob.flag, s.knob, s.value)?;
            }
        }
        match outcome(r) {
            Some(said) => writeln!(f, "   {said}"),
            None => Ok(()),
        }
    }
}

/// What became of a recommendation; `None` while it is open.
pub fn outcome(r: &Recommendation) -> Option<String> {
    let of = if r.of_prompts { " of prompts" } else { "" };
    let measured = |before: f64, after: f64, spread: f64, what: &str| {
        format!(
            "{what}: {before:.1} -> {after:.1} tok/s{of} ({:+.1}% +- {:.1}%)",
            (after / before - 1.0) * 100.0,
            spread * 100.0
        )
    };
    match r.status {
        RecommendationStatus::Open | RecommendationStatus::Measuring { .. } => None,
        RecommendationStatus::Applied {
            before_tok_s,
            after_tok_s,
            spread,
            ..
        } => Some(measured(before_tok_s, after_tok_s, spread, "kept")),
        RecommendationStatus::Reverted {
            before_tok_s,
            after_tok_s,
            spread,
            ..
        } => Some(measured(before_tok_s, after_tok_s, spread, "taken back")),
        RecommendationStatus::Undone {
            with_tok_s,
            without_tok_s,
        } => Some(format!(
            "undone: {with_tok_s:.1} tok/s with it, {without_tok_s:.1} without"
        )),
    }
}

impl fmt::Display for RecommendReport {
    /// For people. What a file put into a name is shown without its control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.head(&mut text)?;
        for (i, r) in self.recommendations.iter().enumerate() {
            Self::item(&mut text, i + 1, r)?;
        }
        if let Some(applied) = &self.applied {
            writeln!(text, "\n{}", applied.says)?;
            for s in &applied.kept {
                writeln!(text, "  {} {}", s.knob, s.value)?;
            }
        }
        for line in text.lines() {
            writeln!(f, "{}", line.replace(char::is_control, "?"))?;
        }
        Ok(())
    }
}
