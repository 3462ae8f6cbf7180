//! Making the edits of one layer: key, direction and size of a value for every token of the answer.

use super::{Made, OverlayJob, PASSES, SILENCE, Stage};
use crate::engine::edit::RankOne;
use crate::trace::forward::Forward;
use crate::trace::overlay::search::{Goal, Next, Search};
use crate::trace::overlay::trial::{self, OWN_POSITIONS, Seen};
use crate::trace::overlay::whiten::Key;
use crate::trace::overlay::{OverlayError, Reached};
use crate::trace::readout::Standing;
use crate::trace::vector::norm;

/// By how much a deletion must lower the probability where it cannot reach that.
const LOWER: f64 = 10.0;
/// First size tried, times what the block adds at that place anyway.
const FIRST_SIZE: f64 = 0.1;
/// Directions tried one after the other, each from where the last one led.
const ROUNDS: u32 = 3;

/// Edits of a layer that are not all there yet.
#[derive(Default)]
pub(super) struct Making {
    pub(super) made: Made,
    /// The token that is to get an edit.
    pub(super) piece: usize,
    key: Option<Key>,
    round: u32,
    /// The value that earlier rounds have led to, and the direction searched.
    start: Vec<f32>,
    way: Vec<f32>,
    search: Option<Search>,
    /// The best value of all rounds, and where the token stands with it.
    best: Option<(Vec<f32>, Standing)>,
    ffn: f64,
}

impl OverlayJob {
    /// The prompt with the answer's tokens before `piece`.
    fn ids(&self, piece: usize) -> Vec<u32> {
        let said = self.pieces.get(..piece).unwrap_or_default();
        [&self.prompt[..], said].concat()
    }

    pub(super) fn make(
        &mut self,
        forward: &mut dyn Forward,
        layer: usize,
        mut m: Box<Making>,
    ) -> Result<Stage, OverlayError> {
        let Some(token) = self.pieces.get(m.piece).copied() else {
            if m.made.edits.is_empty() {
                return Err(OverlayError::Statement(format!(
                    "the model says every token of {:?} after {:?} already (P {:.4} together); there is nothing to insert",
                    self.report.answer, self.report.prompt, self.report.after.prob
                )));
            }
            return Ok(Stage::Elsewhere(layer, Box::new(m.made)));
        };
        let Some(search) = &mut m.search else {
            return self.begin_round(forward, layer, m, token);
        };
        let ids = [
            &self.prompt[..],
            self.pieces.get(..m.piece).unwrap_or_default(),
        ]
        .concat();
        for _ in 0..PASSES {
            let Next::Try(size) = search.next() else {
                return self.end_round(layer, m);
            };
            let Some(key) = &m.key else { break };
            let changes = [
                &self.base[..],
                &m.made.edits,
                &[change(self.layers[layer], key, &m.start, &m.way, size)],
            ]
            .concat();
            let end = trial::say(forward, &ids, &changes)?;
            search.tell(end.standing(token));
            self.passes += 1;
        }
        Ok(Stage::Making(layer, m))
    }

    /// Looks at where the answer's next token stands, and begins to search for a value where it does not stand well.
    fn begin_round(
        &mut self,
        forward: &mut dyn Forward,
        layer: usize,
        mut m: Box<Making>,
        token: u32,
    ) -> Result<Stage, OverlayError> {
        let at = self.layers[layer];
        let ids = self.ids(m.piece);
        let mut changes = [&self.base[..], &m.made.edits].concat();
        if let Some(key) = &m.key {
            changes.push(change(at, key, &m.start, &[], 0.0));
        }
        let own = (self.texts.ids.len(), OWN_POSITIONS);
        let seen: Seen = trial::look(forward, &ids, &changes, &[at], own)?;
        self.passes += 1;
        if m.key.is_none() {
            if self.goal.met(&seen.end.standing(token)) {
                m.piece += 1;
                return Ok(Stage::Making(layer, m));
            }
            let mut around = self.around[layer].clone();
            if let Some(before) = seen.before.first() {
                around.extend(before);
            }
            let said = self.pieces.get(..m.piece).unwrap_or_default();
            let mut own = seen.keys.clone();
            for text in &self.texts.behind {
                let ids = [text, said].concat();
                let seen = trial::look(forward, &ids, &changes, &[at], (0, 0))?;
                own.extend(seen.keys);
            }
            let Some(key) = around.key(&own) else {
                return self.no_key(layer);
            };
            m.made.overlap = m.made.overlap.max(key.overlap);
            m.made.overlap_new = m.made.overlap_new.max(key.held_out);
            m.key = Some(key);
            m.start = vec![0.0; seen.last.len()];
            m.ffn = seen.ffn.first().copied().unwrap_or(0.0);
        }
        m.way = trial::direction(forward.model(), at, &seen, token, self.goal)?;
        let first = FIRST_SIZE * m.ffn;
        let first = if first > 0.0 && first.is_finite() {
            first
        } else {
            FIRST_SIZE
        };
        m.search = Some(Search::new(self.goal, first));
        Ok(Stage::Making(layer, m))
    }

    fn no_key(&mut self, layer: usize) -> Result<Stage, OverlayError> {
        let at = self.layers[layer] as u32;
        if self.one_layer {
            return Err(OverlayError::NoKey {
                layer: at,
                prompt: self.report.prompt.clone(),
            });
        }
        self.tried(layer, false, None, None);
        Ok(self.next_layer(layer + 1))
    }

    fn end_round(&mut self, layer: usize, mut m: Box<Making>) -> Result<Stage, OverlayError> {
        let found = m.search.take().and_then(|s| s.found());
        let Some(found) = found else {
            self.tried(layer, false, None, None);
            return Ok(self.next_layer(layer + 1));
        };
        m.start = along(&m.start, &m.way, found.size);
        m.round += 1;
        let score = |s: &Standing| self.goal.score(s);
        let (value, standing) = match m.best.take() {
            Some(best) if score(&best.1) >= score(&found.standing) => best,
            _ => (m.start.clone(), found.standing),
        };
        if !self.goal.met(&standing) && m.round < ROUNDS {
            m.best = Some((value, standing));
            return Ok(Stage::Making(layer, m));
        }
        if !self.enough(&standing) {
            self.tried(layer, false, Some(Reached::of(&standing)), None);
            return Ok(self.next_layer(layer + 1));
        }
        if let Some(key) = m.key.take() {
            let size = norm(&value) / m.ffn.max(f64::MIN_POSITIVE);
            m.made.size = m.made.size.max(size.min(f64::MAX));
            let edit = change(self.layers[layer], &key, &value, &[], 0.0);
            m.made.edits.push(edit);
        }
        let next = Making {
            piece: m.piece + 1,
            made: m.made,
            ..Making::default()
        };
        self.passes = 0;
        Ok(Stage::Making(layer, Box::new(next)))
    }

    /// Whether what was reached is worth being kept: the rank, and of a deletion a much lower probability.
    pub(super) fn enough(&self, s: &Standing) -> bool {
        self.goal.ranked(s)
            && match self.goal {
                Goal::Say(_) => true,
                Goal::Silence(_) => s.prob <= SILENCE.max(self.report.before.prob / LOWER),
            }
    }
}

/// `start + size * way`; an empty way leads nowhere.
fn along(start: &[f32], way: &[f32], size: f64) -> Vec<f32> {
    let step = |i: usize| way.get(i).map_or(0.0, |w| f64::from(*w) * size);
    let all = start.iter().enumerate();
    all.map(|(i, v)| (f64::from(*v) + step(i)) as f32).collect()
}

fn change(layer: usize, key: &Key, start: &[f32], way: &[f32], size: f64) -> RankOne {
    RankOne {
        layer,
        key: key.key.as_slice().into(),
        value: along(start, way, size).into(),
    }
}
