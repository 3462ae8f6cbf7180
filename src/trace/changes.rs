//! From the edits of a statement to what the engine changes.

use super::answer;
use super::job::positions;
use super::lang::{Edit as Wish, How, Site as Where};
use super::saved::Saved;
use super::stream::{Chains, Stream};
use super::{Forward, TraceError};
use crate::engine::capture::{Capture, Captured, Part, Which};
use crate::engine::edit::{Change, Edit, Edits, Site};
use crate::tokenizer::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// The edits of a statement whose prompt has `n` tokens; runs the prompts that vectors come from, under `facts`.
///
/// # Errors
/// A layer, position, head or neuron that does not exist; a file or prompt without the vector.
pub fn resolve(
    forward: &mut dyn Forward,
    tokenizer: &Tokenizer,
    facts: Option<&Arc<Edits>>,
    wishes: &[Wish],
    n: usize,
) -> Result<Vec<Edit>, TraceError> {
    let resolve_one = |wish: &Wish| {
        let at = positions(wish.positions, n)?;
        let layer = wish.layer as usize;
        let n_layers = forward.model().hparams.n_layers;
        if layer > n_layers {
            return Err(TraceError::Statement(format!(
                "layer {layer} does not exist: the model has layers 1 to {n_layers}"
            )));
        }
        let site = site(wish.site);
        if matches!(site, Site::Neuron(_))
            && matches!(wish.how, How::FromPrompt(_))
            && Edits::has_experts(forward.model(), layer)
        {
            return Err(TraceError::Statement(format!(
                "layer {layer} is made of experts, whose neurons another prompt may not have run; REPLACE its FFN, or ZERO \
                 or SCALE the neuron"
            )));
        }
        let change = match &wish.how {
            How::Zero => Change::Zero,
            How::Scale(by) => Change::Scale(*by),
            How::FromPrompt(prompt) => {
                let ids = answer::encode(tokenizer, prompt)?;
                let mut taken = Taken::new(layer, site);
                let capture = Capture {
                    which: Which::All,
                    heads: matches!(site, Site::Head(_)),
                    keys: matches!(site, Site::Neuron(_)),
                };
                let dim = forward.model().hparams.head_dim_v;
                forward.run_under(facts.cloned(), &ids, capture, &mut |c| taken.hear(&c, dim))?;
                taken.change(&at, n, ids.len())?
            }
            How::FromFile(path) => {
                let saved = Saved::open(Path::new(path))?;
                let hp = &forward.model().hparams;
                if (saved.n_layers(), saved.hidden_size()) != (hp.n_layers, hp.n_embd) {
                    return Err(TraceError::Statement(format!(
                        "{path} is of a model of {} layers, width {}; this one has {} and {}",
                        saved.n_layers(),
                        saved.hidden_size(),
                        hp.n_layers,
                        hp.n_embd
                    )));
                }
                from_file(&saved, path, (layer, site), &at, n)?
            }
        };
        Ok(Edit {
            layer,
            site,
            positions: at,
            change,
        })
    };
    wishes.iter().map(resolve_one).collect()
}

fn site(site: Where) -> Site {
    match site {
        Where::Attention => Site::Attention,
        Where::Ffn => Site::Ffn,
        Where::Residual => Site::Residual,
        Where::Head(h) => Site::Head(h as usize),
        Where::Neuron(n) => Site::Neuron(n as usize),
    }
}

/// The vector of a chain that a site is.
fn part(site: Site) -> Part {
    match site {
        Site::Attention => Part::AttnDelta,
        Site::Ffn => Part::FfnDelta,
        Site::Residual => Part::Residual,
        Site::Head(_) => Part::Heads,
        Site::Neuron(_) => Part::Key,
    }
}

/// Values of a site at every position of another run, by position.
struct Taken {
    layer: usize,
    site: Site,
    values: Vec<(usize, Vec<f32>)>,
}

impl Taken {
    fn new(layer: usize, site: Site) -> Self {
        Self {
            layer,
            site,
            values: Vec::new(),
        }
    }

    fn hear(&mut self, c: &Captured<'_>, dim: usize) {
        if c.layer != self.layer || c.part != part(self.site) {
            return;
        }
        let values = match self.site {
            Site::Head(h) => h.checked_mul(dim).and_then(|at| c.data.get(at..at + dim)),
            Site::Neuron(n) => c.data.get(n..).and_then(|rest| rest.get(..1)),
            _ => Some(c.data),
        };
        if let Some(values) = values {
            self.values.push((c.position, values.to_vec()));
        }
    }

    /// Positions are aligned at the end of the two texts.
    fn change(
        &self,
        at: &std::ops::Range<usize>,
        n: usize,
        n_source: usize,
    ) -> Result<Change, TraceError> {
        let mut all = Vec::new();
        for position in at.clone() {
            let from = aligned(position, n, n_source)?;
            let found = self.values.iter().find(|(p, _)| *p == from);
            let Some((_, values)) = found else {
                return Err(TraceError::Statement(format!(
                    "layer {} has no such head or neuron to take from: of experts only whole blocks can be replaced",
                    self.layer
                )));
            };
            all.extend_from_slice(values);
        }
        Ok(Change::Replace(all.into()))
    }
}

/// The position of a source of `n_source` tokens that stands as far from the end as `position` of `n`.
pub fn aligned(position: usize, n: usize, n_source: usize) -> Result<usize, TraceError> {
    (position + n_source).checked_sub(n).ok_or_else(|| {
        TraceError::Statement(format!(
            "position {position} of the prompt has nothing beside it: texts are aligned at their end, and the source has \
             {n_source} tokens to the prompt's {n}"
        ))
    })
}

fn from_file(
    saved: &Saved,
    path: &str,
    (layer, site): (usize, Site),
    at: &std::ops::Range<usize>,
    n: usize,
) -> Result<Change, TraceError> {
    if matches!(site, Site::Head(_) | Site::Neuron(_)) {
        return Err(TraceError::Statement(format!(
            "{path} holds what attention and FFN added, not single heads or neurons; replace ATTENTION, FFN or RESIDUAL, \
             or take them FROM a prompt"
        )));
    }
    let mut all = Vec::new();
    for position in at.clone() {
        let from = aligned(position, n, saved.positions().len())?;
        let vector = saved.vector(from, layer, part(site));
        if vector.is_empty() {
            return Err(TraceError::Statement(format!(
                "{path} has no layer {layer}: it is of a model of {} layers",
                saved.n_layers()
            )));
        }
        all.extend_from_slice(vector);
    }
    Ok(Change::Replace(all.into()))
}

/// What a patch takes from a stream: the vector of a site.
pub fn patch(source: &Stream, (layer, site): (usize, Site), from: usize, position: usize) -> Edit {
    Edit {
        layer,
        site,
        positions: position..position + 1,
        change: Change::Replace(source.vector(from, layer, part(site)).into()),
    }
}
