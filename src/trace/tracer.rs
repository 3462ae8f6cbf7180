//! Runs statements of the language, in pieces.

use super::figures::{PatchMap, TraceView};
use super::job::{Sink, TraceJob};
use super::lang::{Fact, Positions, Statement, Trace};
use super::overlay::{Kind, Overlay, OverlayError, OverlayJob};
use super::patch::PatchJob;
use super::saved::Saving;
use super::{Forward, TraceError, answer, changes};
use crate::engine::capture::Captured;
use crate::engine::edit::Edits;
use crate::model::Model;
use crate::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
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
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    name: String,
    overlay: Overlay,
    /// Where the overlay is kept; `None`: in memory alone.
    path: Option<PathBuf>,
    /// The overlay's changes.
    facts: Option<Arc<Edits>>,
    /// Whether files are saved as version 1 of the format.
    pub version_1: bool,
}

/// Where a trace goes, besides to whoever asked for it.
pub struct Save {
    saving: Saving,
    path: String,
    /// The statement, for the file.
    statement: String,
}

/// A statement being run.
pub enum Work {
    /// `TRACE`, and the file it is saved to.
    Trace(Box<TraceJob>, Option<Box<Save>>),
    /// `PATCH`.
    Patch(Box<PatchJob>),
    /// `INSERT` and `DELETE`.
    Fact(Box<OverlayJob>),
    /// `FACTS`.
    List,
}

impl Work {
    /// What is being done, and how far it is.
    pub fn progress(&self) -> (&'static str, usize, usize) {
        let (what, (done, all)) = match self {
            Self::Trace(job, _) => ("reading positions", job.progress()),
            Self::Patch(job) => ("patching", job.progress()),
            Self::Fact(job) => ("editing", job.progress()),
            Self::List => ("listing", (0, 1)),
        };
        (what, done, all)
    }
}

impl Tracer {
    /// Of a model called `name`; facts are those of the overlay in file `path`, which may not exist yet.
    ///
    /// # Errors
    /// A file that is no overlay of this model.
    pub fn new(
        model: Arc<Model>,
        tokenizer: Arc<Tokenizer>,
        name: String,
        path: Option<&Path>,
    ) -> Result<Self, TraceError> {
        let overlay = match path {
            Some(path) => Overlay::open_or_new(path, &name, &model)?,
            None => Overlay::new(&name, &model),
        };
        Ok(Self {
            facts: overlay.in_force(&model)?,
            version_1: false,
            overlay,
            path: path.map(Path::to_path_buf),
            model,
            tokenizer,
            name,
        })
    }

    /// The same weights are elsewhere in memory from now on.
    pub fn reloaded(&mut self, model: &Arc<Model>) {
        self.model = Arc::clone(model);
    }

    /// The changes of the overlay, for whatever else runs the model.
    pub fn facts(&self) -> Option<&Arc<Edits>> {
        self.facts.as_ref()
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
            Statement::Insert(fact) => self.edit(forward, Kind::Inserted, fact),
            Statement::Delete(fact) => self.edit(forward, Kind::Deleted, fact),
            Statement::Facts => Ok(Work::List),
        }
    }

    fn edit(&self, forward: &mut dyn Forward, kind: Kind, fact: &Fact) -> Result<Work, TraceError> {
        let job = OverlayJob::start(forward, &self.tokenizer, &self.overlay, kind, fact)?;
        Ok(Work::Fact(Box::new(job)))
    }

    fn trace(&mut self, forward: &mut dyn Forward, statement: &Trace) -> Result<Work, TraceError> {
        if statement.save.is_some() && statement.positions != Some(Positions::All) {
            return Err(TraceError::Statement(
                "SAVE needs the chains of all tokens; add POSITIONS ALL".into(),
            ));
        }
        let n = answer::encode(&self.tokenizer, &statement.prompt)?.len();
        let facts = self.facts.as_ref();
        let edits = changes::resolve(forward, &self.tokenizer, facts, &statement.edits, n)?;
        let edits = match (edits, &self.facts) {
            (edits, facts) if edits.is_empty() => facts.clone(),
            (edits, Some(facts)) => Some(Arc::new(facts.with_edits(forward.model(), edits)?)),
            (edits, None) => Some(Arc::new(Edits::new(forward.model(), edits, Vec::new())?)),
        };
        let hp = &forward.model().hparams;
        let mut saving = match &statement.save {
            Some(path) => Some(Saving::create(Path::new(path), hp.n_embd, hp.n_layers, n)?),
            None => None,
        };
        let mut hear = saving.as_mut().map(|s| |c: Captured<'_>| s.hear(&c));
        let job = TraceJob::start(
            forward,
            &self.tokenizer,
            &self.name,
            statement,
            edits,
            hear.as_mut().map(|h| h as &mut Sink<'_>),
        )?;
        let save = saving.zip(statement.save.clone());
        let save = save.map(|(saving, path)| {
            Box::new(Save {
                saving,
                path,
                statement: Statement::Trace(statement.clone()).to_string(),
            })
        });
        Ok(Work::Trace(Box::new(job), save))
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
            Work::Fact(job) => Ok(job.advance(forward, &self.tokenizer)?),
            Work::List => Ok(false),
        }
    }

    /// What came of it, when [`Self::advance`] has said that there is no more; a file is complete then.
    ///
    /// # Errors
    /// A file that cannot be written; its target is as it was.
    pub fn finish(&mut self, work: Work) -> Result<Outcome, TraceError> {
        match work {
            Work::Trace(job, save) => {
                let (mut view, _) = job.finish();
                view.facts = self.overlay.facts().len() as u32;
                if let Some(mut save) = save {
                    save.saving.complete()?;
                    if self.version_1 {
                        save.saving.finish_version_1()?;
                    } else {
                        save.saving.finish(Some((&save.statement, &view)))?;
                    }
                    view.notes.push(format!("saved to {}", save.path));
                }
                Ok(Outcome::Trace(Box::new(view)))
            }
            Work::Patch(job) => Ok(Outcome::Map(Box::new(job.map().clone()))),
            Work::Fact(job) => Ok(Outcome::Lines(self.keep(*job)?)),
            Work::List => Ok(Outcome::Lines(self.list())),
        }
    }

    /// Takes over an edited overlay; its file first, so that what is in force is what is kept.
    fn keep(&mut self, job: OverlayJob) -> Result<Vec<String>, OverlayError> {
        let (overlay, report) = job.finish(&self.tokenizer)?;
        let facts = overlay.in_force(&self.model)?;
        if let Some(path) = &self.path
            && Overlay::open_or_new(path, &self.name, &self.model)? != self.overlay
        {
            return Err(OverlayError::Statement(format!(
                "{} was changed by another program meanwhile, and nothing was written; start again to work on what it \
                 holds now",
                path.display()
            )));
        }
        let mut lines = report.lines();
        match &self.path {
            Some(path) => {
                overlay.save(path)?;
                lines.push(format!("kept in {}", path.display()));
            }
            None => lines.push("kept in memory only: --overlay FILE keeps it".into()),
        }
        (self.overlay, self.facts) = (overlay, facts);
        Ok(lines)
    }

    fn list(&self) -> Vec<String> {
        let lines = self.overlay.lines();
        if lines.is_empty() {
            return vec!["the overlay holds no facts".into()];
        }
        lines
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
