//! Activation patching (<https://arxiv.org/abs/2202.05262>, <https://arxiv.org/abs/2309.16042>): one site of one layer and
//! position of a run is replaced by that of another run, and the answer's logit is read at the end.

use super::figures::PatchMap;
use super::job::likeliest;
use super::lang::{Layers, Patch, Site as Where, Statement};
use super::stream::Stream;
use super::{Forward, TraceError, answer, changes};
use crate::engine::capture::Capture;
use crate::engine::edit::{Edits, Site};
use crate::tokenizer::Tokenizer;
use std::sync::Arc;

/// A map being made, a forward pass a cell.
pub struct PatchJob {
    map: PatchMap,
    source: Stream,
    ids: Vec<u32>,
    n_source: usize,
    site: Site,
    next: usize,
}

/// The layers a statement names, ascending: of `first..=n_layers`.
///
/// # Errors
/// A layer that does not exist.
pub fn layers(wanted: Option<&Layers>, first: u32, n_layers: u32) -> Result<Vec<u32>, TraceError> {
    let all = first..=n_layers;
    let mut list: Vec<u32> = match wanted {
        None | Some(Layers::All) => all.clone().collect(),
        Some(Layers::Range(a, b)) => {
            for layer in [a, b] {
                exists(*layer, first, n_layers)?;
            }
            (*a..=*b).collect()
        }
        Some(Layers::Every(k)) => all
            .clone()
            .filter(|l| l % (*k).max(1) == 0 || *l == n_layers)
            .collect(),
        Some(Layers::List(list)) => {
            for layer in list {
                exists(*layer, first, n_layers)?;
            }
            list.clone()
        }
    };
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

/// What can be refused of a statement before anything runs.
///
/// # Errors
/// A layer that does not exist.
pub fn check_layers(statement: &Statement, n_layers: u32) -> Result<(), TraceError> {
    match statement {
        Statement::Trace(trace) => layers(trace.layers.as_ref(), 0, n_layers).map(drop),
        Statement::Patch(patch) => layers(patch.layers.as_ref(), 0, n_layers).map(drop),
        Statement::Insert(_) | Statement::Delete(_) | Statement::Facts => Ok(()),
    }
}

fn exists(layer: u32, first: u32, n_layers: u32) -> Result<(), TraceError> {
    if (first..=n_layers).contains(&layer) {
        return Ok(());
    }
    Err(TraceError::Statement(format!(
        "layer {layer} does not exist here: there are {first} to {n_layers}"
    )))
}

impl PatchJob {
    /// Runs both texts, under the changes of `facts`.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn start(
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
        name: &str,
        statement: &Patch,
        facts: Option<&Arc<Edits>>,
    ) -> Result<Self, TraceError> {
        let ids = answer::encode(tokenizer, &statement.prompt)?;
        let from = answer::encode(tokenizer, &statement.source)?;
        let model = forward.model();
        let n_layers = model.hparams.n_layers as u32;
        let (site, site_name, first) = match statement.site {
            Some(Where::Attention) => (Site::Attention, "attention", 1),
            Some(Where::Ffn) => (Site::Ffn, "ffn", 1),
            // The embedding can be patched too: it is the token itself.
            _ => (Site::Residual, "residual", 0),
        };
        let layers = layers(statement.layers.as_ref(), first, n_layers)?;
        let mut source = Stream::new(model, 0..from.len(), false)?;
        let of_source = forward.run_under(facts.cloned(), &from, Capture::ALL, &mut |c| {
            source.take(&c);
        })?;
        let base = forward.run_under(facts.cloned(), &ids, Capture::LAST, &mut |_| {})?;
        let forms = answer::continuations(tokenizer, &statement.prompt, &statement.answer)?;
        let pieces = likeliest(&forms, &base).unwrap_or(&[]);
        let id = pieces.first().copied().unwrap_or(0);
        let logit = |row: &[f32]| row.get(id as usize).map_or(f64::NAN, |l| f64::from(*l));
        let beside = |position: usize| {
            let at = changes::aligned(position, ids.len(), from.len()).ok()?;
            Some(answer::text(tokenizer, *from.get(at)?))
        };
        let mut notes = Vec::new();
        if pieces.len() > 1 {
            notes.push(format!(
                "\"{}\" is {} tokens; the logit is that of the first",
                statement.answer,
                pieces.len()
            ));
        }
        if ids.len() != from.len() {
            notes.push(format!(
                "the texts have {} and {} tokens: they are aligned at their end",
                ids.len(),
                from.len()
            ));
        }
        Ok(Self {
            map: PatchMap {
                model: name.to_owned(),
                prompt: statement.prompt.clone(),
                source: statement.source.clone(),
                site: site_name.into(),
                answer: answer::text(tokenizer, id),
                tokens: ids.iter().map(|id| answer::text(tokenizer, *id)).collect(),
                source_tokens: (0..ids.len()).map(beside).collect(),
                base_logit: logit(&base),
                source_logit: logit(&of_source),
                cells: vec![vec![None; ids.len()]; layers.len()],
                layers,
                notes,
            },
            source,
            n_source: from.len(),
            ids,
            site,
            next: 0,
        })
    }

    /// Cells done, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        (self.next, self.map.layers.len() * self.ids.len())
    }

    /// Computes the next cell. Returns whether there are more.
    ///
    /// # Errors
    /// As the engine's.
    pub fn advance(
        &mut self,
        forward: &mut dyn Forward,
        facts: Option<&Arc<Edits>>,
    ) -> Result<bool, TraceError> {
        let (done, all) = self.progress();
        if done >= all {
            return Ok(false);
        }
        self.next += 1;
        let (row, position) = (done / self.ids.len(), done % self.ids.len());
        let layer = self.map.layers.get(row).copied().unwrap_or(0) as usize;
        if let Ok(from) = changes::aligned(position, self.ids.len(), self.n_source) {
            let edit = changes::patch(&self.source, (layer, self.site), from, position);
            let edits = match facts {
                Some(facts) => facts.with_edits(forward.model(), vec![edit])?,
                None => Edits::new(forward.model(), vec![edit], Vec::new())?,
            };
            let edits = Some(Arc::new(edits));
            let logits = forward.run_under(edits, &self.ids, Capture::LAST, &mut |_| {})?;
            let id = self.map.answer.id as usize;
            let logit = logits.get(id).map_or(f64::NAN, |l| f64::from(*l));
            let base = self.map.base_logit;
            if let Some(cell) = self
                .map
                .cells
                .get_mut(row)
                .and_then(|r| r.get_mut(position))
            {
                *cell = Some(logit - base);
            }
        }
        Ok(self.next < all)
    }

    /// The map, whole or as far as it has come.
    pub fn map(&self) -> &PatchMap {
        &self.map
    }
}
