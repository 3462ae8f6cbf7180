//! What each tier of a context store keeps of a text, in bytes and in accuracy, measured on a model; and what a boundary
//! residual is worth when a text is resumed from it.

use super::readout::Distribution;
use super::store::{
    BoundaryWriter, ContextShape, ContextStore, ContextVectors, ContextWriter, StoreError,
    Template, TemplateBuilder, Tier,
};
use super::stream::{Chains, Stream};
use super::vector::cosine;
use super::{Forward, TraceError};
use crate::engine::EngineError;
use crate::engine::capture::{Capture, Part};
use crate::engine::edit::{Change, Edit, Edits, Site};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// Critical layers of tiers 2 and 3, as many as the specification takes.
const CRITICAL: u32 = 5;
/// Tokens of a window whose prediction is compared when a text is resumed.
pub const RESUMED: usize = 16;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierRow {
    /// `1`, `2`, `3`, `4`, `4+int8`, `kv cache`.
    pub tier: String,
    /// What is kept, in words.
    pub content: String,
    /// Bytes a window, data and index, as in the file.
    pub window_bytes: u64,
    /// Bytes for 370,000 tokens, the specification's measure.
    pub bytes_370k: u64,
    /// Bytes of the kv cache of a window over those kept.
    pub compression: f64,
    /// Mean cosine of the last layer's stream as rebuilt and as it was; `None` for the kv cache.
    pub cosine: Option<f64>,
    /// Windows whose next token is the same.
    pub same_token: Option<u32>,
    /// Windows whose stream after the last layer is the same bit for bit.
    pub bit_perfect: Option<u32>,
}

/// The table, and what it was measured on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierTable {
    /// The model.
    pub model: String,
    /// Windows measured.
    pub windows: u32,
    /// Tokens of a window.
    pub window_tokens: u32,
    /// The layer whose residual is kept.
    pub residual_layer: u32,
    /// First and last critical layer of tiers 2 and 3.
    pub critical: (u32, u32),
    /// Layers of the model.
    pub n_layers: u32,
    /// The tiers, the kv cache last.
    pub rows: Vec<TierRow>,
    /// Windows resumed from the boundary residual before them.
    pub resume: Option<Resume>,
}

/// How well a window is predicted when the text before it is only a boundary residual.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resume {
    /// Windows resumed.
    pub windows: u32,
    /// Predictions compared.
    pub predictions: u32,
    /// The layer whose residual stands for the text before.
    pub layer: u32,
    /// Share of next tokens that are those of the whole text, with nothing before the window.
    pub alone_same: f64,
    /// The same with two tokens before it, the first and the last of the text before.
    pub token_same: f64,
    /// The same with the boundary residual in the second one's place.
    pub resumed_same: f64,
    /// Mean forward KL divergence from the whole text's predictions, nats: alone, token, resumed.
    pub kl: (f64, f64, f64),
}

/// The stream of the last token of a window.
struct Boundary {
    chain: Stream,
    position: usize,
    logits: Vec<f32>,
}

impl Boundary {
    fn vector(&self, layer: u32, part: Part) -> &[f32] {
        self.chain.vector(self.position, layer as usize, part)
    }
}

/// Measures the tiers on `ids`, cut into windows of `window` tokens, each run on its own; files are written to `folder`.
/// `kv_window_bytes` is what the engine's cache takes for a window. `told(done, of)` hears how far it is.
///
/// # Errors
/// Fewer than two windows; a file that cannot be written.
pub fn measure(
    forward: &mut dyn Forward,
    name: &str,
    ids: &[u32],
    window: usize,
    kv_window_bytes: u64,
    folder: &Path,
    told: &mut dyn FnMut(usize, usize),
) -> Result<TierTable, TraceError> {
    let windows: Vec<&[u32]> = ids.chunks_exact(window.max(1)).collect();
    if windows.len() < 2 {
        return Err(TraceError::Statement(format!(
            "{} tokens are fewer than two windows of {window}; give a longer text (--text) or smaller windows (--window)",
            ids.len()
        )));
    }
    let n_layers = forward.model().hparams.n_layers as u32;
    let steps = 2 * windows.len();
    let mut boundaries = Vec::with_capacity(windows.len());
    for (i, ids) in windows.iter().enumerate() {
        told(i, steps);
        boundaries.push(boundary(forward, ids)?);
    }
    let first = transition(forward, &boundaries, n_layers)?;
    keep_boundaries(
        &boundaries,
        forward.model().hparams.n_embd,
        window,
        first - 1,
        folder,
    )?;
    let last = (first + CRITICAL - 1).min(n_layers);
    let measured = Measured {
        boundaries: &boundaries,
        hidden: forward.model().hparams.n_embd as u32,
        n_layers,
        window: window as u32,
        residual_layer: first - 1,
        last_critical: last,
        kv_window_bytes,
        folder,
    };
    let mut rows = Vec::new();
    for tier in Tier::ALL {
        rows.push(measured.row(forward, tier, false)?);
    }
    rows.push(measured.row(forward, Tier::Four, true)?);
    rows.push(measured.kv_row());
    let resume = resume(forward, &windows, &boundaries, first - 1, &mut |i| {
        told(windows.len() + i, steps)
    })?;
    Ok(TierTable {
        model: name.to_owned(),
        windows: windows.len() as u32,
        window_tokens: window as u32,
        residual_layer: first - 1,
        critical: (first, last),
        n_layers,
        rows,
        resume,
    })
}

/// The boundary residuals alone, for whoever resumes from them.
fn keep_boundaries(
    boundaries: &[Boundary],
    hidden: usize,
    window: usize,
    layer: u32,
    folder: &Path,
) -> Result<(), TraceError> {
    let path = folder.join("boundaries.bndx");
    let n = boundaries.len() as u32;
    let mut writer = BoundaryWriter::create(&path, hidden as u32, window as u32, n)?;
    for (i, b) in boundaries.iter().enumerate() {
        let residual = b.vector(layer, Part::Residual);
        writer.append((i * window) as u32, window as u32, residual)?;
    }
    Ok(writer.finish()?)
}

fn boundary(forward: &mut dyn Forward, ids: &[u32]) -> Result<Boundary, TraceError> {
    let position = ids.len().saturating_sub(1);
    let mut chain = Stream::new(forward.model(), position..position + 1, false)?;
    let logits = forward.run(ids, Capture::LAST, &mut |c| chain.take(&c))?;
    Ok(Boundary {
        chain,
        position,
        logits,
    })
}

/// The first of the critical layers: of as many neighbouring layers as there are critical ones, those over which the mean
/// probability of what is said at the end rises most.
fn transition(
    forward: &mut dyn Forward,
    boundaries: &[Boundary],
    n_layers: u32,
) -> Result<u32, TraceError> {
    let mut mean = vec![0.0; n_layers as usize + 1];
    for b in boundaries {
        let said = said(&b.logits);
        let columns: Vec<f32> = (0..=n_layers)
            .flat_map(|layer| b.vector(layer, Part::Residual).iter().copied())
            .collect();
        forward.lens(&columns, &mut |layer, logits| {
            if let Some(mean) = mean.get_mut(layer) {
                *mean += Distribution::new(logits).prob(said);
            }
        })?;
    }
    let wide = CRITICAL.min(n_layers) as usize;
    let rise = |first: &usize| {
        let at = |layer: usize| mean.get(layer).copied().unwrap_or(0.0);
        at(first + wide - 1) - at(first - 1)
    };
    let firsts = 1..=(n_layers as usize + 1 - wide);
    let best = firsts.max_by(|a, b| rise(a).total_cmp(&rise(b)));
    Ok(best.unwrap_or(1) as u32)
}

fn said(logits: &[f32]) -> u32 {
    let top = Distribution::new(logits).top(1);
    top.first().map_or(0, |t| t.0)
}

struct Measured<'a> {
    boundaries: &'a [Boundary],
    hidden: u32,
    n_layers: u32,
    window: u32,
    residual_layer: u32,
    last_critical: u32,
    kv_window_bytes: u64,
    folder: &'a Path,
}

impl Measured<'_> {
    fn shape(&self, tier: Tier) -> ContextShape {
        if tier == Tier::Four {
            let from = self.residual_layer;
            return ContextShape::exact(self.hidden, self.n_layers, self.window, from);
        }
        let critical = match tier {
            Tier::One => Vec::new(),
            _ => (self.residual_layer + 1..=self.last_critical).collect(),
        };
        ContextShape {
            hidden_size: self.hidden,
            n_layers: self.n_layers,
            window_size: self.window,
            tier,
            residual_layer: self.residual_layer,
            critical_layers: critical,
        }
    }

    fn row(
        &self,
        forward: &mut dyn Forward,
        tier: Tier,
        int8: bool,
    ) -> Result<TierRow, TraceError> {
        let shape = self.shape(tier);
        let path = self.folder.join(format!(
            "tier{}{}.ctxt",
            tier as u8,
            if int8 { "-int8" } else { "" }
        ));
        let template = if int8 {
            Some(self.template(&shape, &path)?)
        } else {
            None
        };
        self.write(&path, &shape, template.as_ref())?;
        let store = ContextStore::open(&path)?;
        let mut sum = 0.0;
        let (mut same_token, mut bit_perfect) = (0, 0);
        for (i, b) in self.boundaries.iter().enumerate() {
            let rebuilt = rebuild(&store, i as u32)?;
            let truth = b.vector(self.n_layers, Part::Residual);
            sum += cosine(truth, &rebuilt);
            let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            bit_perfect += u32::from(bits(truth) == bits(&rebuilt));
            let wanted = said(&b.logits);
            forward.lens(&rebuilt, &mut |_, logits| {
                same_token += u32::from(said(logits) == wanted);
            })?;
        }
        let name = match (tier, int8) {
            (tier, false) => format!("{}", tier as u8),
            (tier, true) => format!("{}+int8", tier as u8),
        };
        let from = self.residual_layer;
        let content = match (tier, int8) {
            (Tier::One, _) => format!("boundary residual L{from}"),
            (Tier::Two, _) => format!("+ FFN deltas L{}-{}", from + 1, self.last_critical),
            (Tier::Three, _) => format!("+ deltas L{}-{}", from + 1, self.last_critical),
            (Tier::Four, false) => format!("+ deltas L{}-{}", from + 1, self.n_layers),
            (Tier::Four, true) => "template + int8 differences".into(),
        };
        Ok(self.table_row(
            name,
            content,
            store.window_bytes(),
            Some((
                sum / self.boundaries.len().max(1) as f64,
                same_token,
                bit_perfect,
            )),
        ))
    }

    fn kv_row(&self) -> TierRow {
        let content = "keys and values of every token".into();
        self.table_row("kv cache".into(), content, self.kv_window_bytes, None)
    }

    fn table_row(
        &self,
        tier: String,
        content: String,
        window_bytes: u64,
        accuracy: Option<(f64, u32, u32)>,
    ) -> TierRow {
        let windows = 370_000u64.div_ceil(u64::from(self.window.max(1)));
        TierRow {
            tier,
            content,
            window_bytes,
            bytes_370k: windows * window_bytes,
            compression: self.kv_window_bytes as f64 / window_bytes.max(1) as f64,
            cosine: accuracy.map(|a| a.0),
            same_token: accuracy.map(|a| a.1),
            bit_perfect: accuracy.map(|a| a.2),
        }
    }

    /// The mean of all windows, slot by slot: what an int8 file stores differences from.
    fn template(&self, shape: &ContextShape, path: &Path) -> Result<Template, TraceError> {
        let fail = |problem| StoreError {
            path: path.to_owned(),
            problem,
        };
        let mut builder = TemplateBuilder::new(shape.vectors(), self.hidden).map_err(fail)?;
        for b in self.boundaries {
            let (ffn, attn) = deltas(b, shape);
            let vectors = vectors(b, shape, &ffn, &attn);
            let slots: Vec<&[f32]> = vectors.slots().collect();
            builder.add(&slots).map_err(fail)?;
        }
        Ok(builder.build().map_err(fail)?)
    }

    fn write(
        &self,
        path: &Path,
        shape: &ContextShape,
        template: Option<&Template>,
    ) -> Result<(), TraceError> {
        let n = self.boundaries.len() as u32;
        let mut writer = ContextWriter::create(path, shape, n, template)?;
        for (i, b) in self.boundaries.iter().enumerate() {
            let (ffn, attn) = deltas(b, shape);
            let offset = i as u32 * self.window;
            writer.append(offset, self.window, &vectors(b, shape, &ffn, &attn))?;
        }
        Ok(writer.finish()?)
    }
}

type Deltas<'a> = Vec<&'a [f32]>;

/// FFN and attention deltas that a shape keeps.
fn deltas<'a>(b: &'a Boundary, shape: &ContextShape) -> (Deltas<'a>, Deltas<'a>) {
    let of = |part, from| {
        let layers = shape
            .critical_layers
            .iter()
            .filter(move |_| shape.tier >= from);
        layers.map(|l| b.vector(*l, part)).collect()
    };
    (
        of(Part::FfnDelta, Tier::Two),
        of(Part::AttnDelta, Tier::Three),
    )
}

fn vectors<'a>(
    b: &'a Boundary,
    shape: &ContextShape,
    ffn: &'a [&'a [f32]],
    attn: &'a [&'a [f32]],
) -> ContextVectors<'a> {
    ContextVectors {
        residual: b.vector(shape.residual_layer, Part::Residual),
        ffn_deltas: ffn,
        attn_deltas: attn,
    }
}

/// The last layer's stream as far as a tier knows it: what it does not keep is left out.
fn rebuild(store: &ContextStore, window: u32) -> Result<Vec<f32>, TraceError> {
    if store.shape().rebuilds().is_some() {
        return Ok(store.reconstruct(window)?);
    }
    let missing = || TraceError::Statement(format!("window {window} is not in the file"));
    let mut x = store.residual(window).ok_or_else(missing)?.into_owned();
    for &layer in &store.shape().critical_layers {
        if let Some(delta) = store.ffn_delta(window, layer) {
            x.iter_mut().zip(delta.iter()).for_each(|(x, d)| *x += d);
        }
    }
    Ok(x)
}

/// Predictions inside a window after different pasts.
fn resume(
    forward: &mut dyn Forward,
    windows: &[&[u32]],
    boundaries: &[Boundary],
    layer: u32,
    told: &mut dyn FnMut(usize),
) -> Result<Option<Resume>, TraceError> {
    let mut same = [0u32; 3];
    let mut kl = [0.0; 3];
    let (mut resumed, mut predictions) = (0, 0);
    for (i, (pair, boundary)) in windows.windows(2).zip(boundaries).enumerate() {
        told(i);
        let [before, after] = pair else { continue };
        let after = after.get(..RESUMED).unwrap_or(after);
        let whole: Vec<u32> = before.iter().chain(after).copied().collect();
        let Some(&last) = before.last() else { continue };
        // Heads that have nothing to attend to look at the first token (<https://arxiv.org/abs/2309.17453>): it stays one.
        let first = before.first().copied().unwrap_or(last);
        let behind: Vec<u32> = [first, last]
            .into_iter()
            .chain(after.iter().copied())
            .collect();
        let truth = match tail(forward, None, &whole, after.len()) {
            Ok(truth) => truth,
            // Two windows may be more than the context.
            Err(TraceError::Engine(EngineError::ContextFull { .. })) => return Ok(None),
            Err(e) => return Err(e),
        };
        let alone = tail(forward, None, after, after.len())?;
        let token = tail(forward, None, &behind, after.len())?;
        let residual = boundary.vector(layer, Part::Residual);
        let edit = Edit {
            layer: layer as usize,
            site: Site::Residual,
            positions: 1..2,
            change: Change::Replace(residual.into()),
        };
        let edits = Edits::new(forward.model(), vec![edit], Vec::new())?;
        let with = tail(forward, Some(Arc::new(edits)), &behind, after.len())?;
        for (k, other) in [alone, token, with].iter().enumerate() {
            for (t, o) in truth.iter().zip(other) {
                same[k] +=
                    u32::from(t.top(1).first().map(|t| t.0) == o.top(1).first().map(|t| t.0));
                kl[k] += t.kl(o);
            }
        }
        predictions += truth.len() as u32;
        resumed += 1;
    }
    let n = f64::from(predictions.max(1));
    let [alone, token, with] = same.map(|s| f64::from(s) / n);
    Ok(Some(Resume {
        windows: resumed,
        predictions,
        layer,
        alone_same: alone,
        token_same: token,
        resumed_same: with,
        kl: (kl[0] / n, kl[1] / n, kl[2] / n),
    }))
}

/// Predictions of the last `n` tokens of a text.
fn tail(
    forward: &mut dyn Forward,
    edits: Option<Arc<Edits>>,
    ids: &[u32],
    n: usize,
) -> Result<Vec<Distribution>, TraceError> {
    let span = ids.len().saturating_sub(n)..ids.len();
    let n_layers = forward.model().hparams.n_layers;
    let n_embd = forward.model().hparams.n_embd;
    let mut last = vec![0.0; span.len() * n_embd];
    forward.run_under(edits, ids, Capture::ALL, &mut |c| {
        if c.layer == n_layers && c.part == Part::Residual && span.contains(&c.position) {
            let at = (c.position - span.start) * n_embd;
            if let Some(to) = last.get_mut(at..at + n_embd) {
                to.copy_from_slice(c.data);
            }
        }
    })?;
    let mut all = Vec::with_capacity(span.len());
    forward.lens(&last, &mut |_, logits| all.push(Distribution::new(logits)))?;
    Ok(all)
}
