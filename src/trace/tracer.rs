//! Runs statements of the language, in pieces.

use super::figures::{PatchMap, TraceView};
use super::job::TraceJob;
use super::lang::{Positions, Statement, Trace};
use super::patch::PatchJob;
use super::saved::Saving;
use super::{Forward, TraceError, answer, changes};
use crate::engine::edit::Edits;
use crate::tokenizer::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// What came of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Of `TRACE`.
    Trace(Box<TraceView>),
    /// Of `PATCH`.
    Map(Box<PatchMap>),
    /// Of the others, in words.
    Lines(Vec<String>),
}

/// A model's statements.
pub struct Tracer {
    tokenizer: Arc<Tokenizer>,
    name: String,
    /// Facts in force.
    facts: Option<Arc<Edits>>,
}

/// A statement being run.
pub enum Work {
    /// `TRACE`, and the file it is saved to.
    Trace(Box<TraceJob>, Option<(Saving, String, String)>),
    /// `PATCH`.
    Patch(Box<PatchJob>),
}

impl Work {
    /// What is being done, and how far it is.
    pub fn progress(&self) -> (&'static str, usize, usize) {
        let (what, (done, all)) = match self {
            Self::Trace(job, _) => ("reading positions", job.progress()),
            Self::Patch(job) => ("patching", job.progress()),
        };
        (what, done, all)
    }
}

impl Tracer {
    /// Of a model called `name`.
    pub fn new(tokenizer: Arc<Tokenizer>, name: String) -> Self {
        Self {
            tokenizer,
            name,
            facts: None,
        }
    }

    /// Starts a statement.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn begin(
        &mut self,
        forward: &mut dyn Forward,
        statement: &Statement,
    ) -> Result<Work, TraceError> {
        match statement {
            Statement::Trace(trace) => self.trace(forward, trace),
            Statement::Patch(patch) => {
                let facts = self.facts.as_ref();
                let job = PatchJob::start(forward, &self.tokenizer, &self.name, patch, facts)?;
                Ok(Work::Patch(Box::new(job)))
            }
            Statement::Insert(_) | Statement::Delete(_) | Statement::Facts => Err(
                TraceError::Statement("facts cannot be changed here yet".into()),
            ),
        }
    }

    fn trace(&mut self, forward: &mut dyn Forward, statement: &Trace) -> Result<Work, TraceError> {
        if statement.save.is_some() && statement.positions != Some(Positions::All) {
            return Err(TraceError::Statement(
                "SAVE needs the chains of all tokens; add POSITIONS ALL".into(),
            ));
        }
        let n = answer::encode(&self.tokenizer, &statement.prompt)?.len();
        forward.set_edits(self.facts.clone());
        let edits = changes::resolve(forward, &self.tokenizer, &statement.edits, n);
        forward.set_edits(None);
        let edits = match (edits?, &self.facts) {
            (edits, facts) if edits.is_empty() => facts.clone(),
            (edits, Some(facts)) => Some(Arc::new(facts.with_edits(forward.model(), edits)?)),
            (edits, None) => Some(Arc::new(Edits::new(forward.model(), edits, Vec::new())?)),
        };
        let hp = &forward.model().hparams;
        let mut saving = match &statement.save {
            Some(path) => Some(Saving::create(Path::new(path), hp.n_embd, hp.n_layers, n)?),
            None => None,
        };
        let mut hear = saving
            .as_mut()
            .map(|s| |c: crate::engine::capture::Captured<'_>| s.hear(&c));
        let job = TraceJob::start(
            forward,
            &self.tokenizer,
            &self.name,
            statement,
            edits,
            hear.as_mut().map(|h| h as &mut super::job::Sink<'_>),
        )?;
        let saving = saving.zip(statement.save.clone());
        let saving =
            saving.map(|(s, path)| (s, path, Statement::Trace(statement.clone()).to_string()));
        Ok(Work::Trace(Box::new(job), saving))
    }

    /// Does the next piece. Returns whether there are more.
    ///
    /// # Errors
    /// As the engine's.
    pub fn advance(
        &mut self,
        forward: &mut dyn Forward,
        work: &mut Work,
    ) -> Result<bool, TraceError> {
        match work {
            Work::Trace(job, _) => job.advance(forward, &self.tokenizer),
            Work::Patch(job) => job.advance(forward, self.facts.as_ref()),
        }
    }

    /// What came of it, when [`Self::advance`] has said that there is no more; a file is complete then.
    ///
    /// # Errors
    /// A file that cannot be written; its target is as it was.
    pub fn finish(&mut self, work: Work) -> Result<Outcome, TraceError> {
        match work {
            Work::Trace(job, saving) => {
                let (mut view, _) = job.finish();
                if let Some((mut saving, path, statement)) = saving {
                    saving.complete()?;
                    saving.finish(Some((&statement, &view)))?;
                    view.notes.push(format!("saved to {path}"));
                }
                Ok(Outcome::Trace(Box::new(view)))
            }
            Work::Patch(job) => Ok(Outcome::Map(Box::new(job.map().clone()))),
        }
    }

    /// Runs a whole statement.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn run(
        &mut self,
        forward: &mut dyn Forward,
        statement: &Statement,
    ) -> Result<Outcome, TraceError> {
        let mut work = self.begin(forward, statement)?;
        while self.advance(forward, &mut work)? {}
        self.finish(work)
    }
}
