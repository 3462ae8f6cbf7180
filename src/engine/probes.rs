//! What tracers ask of an engine: to leave statistics and attention weights, and to hand them over between steps.

use super::cpu::AttentionStore;
use super::probe::{ActivationReadings, AttentionRecord, ProbeConfig, QueryPlace};
use super::{Engine, EngineError, Observer};
use std::sync::Arc;

impl<O: Observer> Engine<O> {
    /// What the steps from now on leave for [`Self::activations`] and [`Self::attention`]; `None`: nothing. Logits are the
    /// same bit for bit. What was recorded before is kept only where nothing changes.
    ///
    /// # Errors
    /// A step in progress; layers or heads that do not exist, a top out of range, or [`EngineError::OutOfMemory`].
    pub fn set_probe(&mut self, probe: Option<ProbeConfig>) -> Result<(), EngineError> {
        if self.in_step() {
            return Err(EngineError::Edit(
                "what tracers look at cannot change inside a token; finish it first".into(),
            ));
        }
        let model = Arc::clone(&self.model);
        self.exec.set_probe(&model, probe)
    }

    /// Makes a product go wrong from now on, or right again.
    #[cfg(test)]
    pub(crate) fn inject(&mut self, fault: Option<super::cpu::fault::Fault>) {
        self.exec.fault = fault;
    }

    /// What steps leave.
    pub fn probe(&self) -> Option<&ProbeConfig> {
        self.exec.probe()
    }

    /// Activations of the last step, of sequence 0; `None` where they are not looked at. Allocates nothing.
    pub fn activations(&mut self) -> Option<&ActivationReadings> {
        self.exec.activations(&self.input)
    }

    /// Attention weights of the newest queries; `None` where they are not recorded.
    pub fn attention(&self) -> Option<AttentionLog<'_>> {
        self.exec.attention().map(|store| AttentionLog { store })
    }
}

/// The attention weights of the queries that are held.
#[derive(Clone, Copy)]
pub struct AttentionLog<'a> {
    store: &'a AttentionStore,
}

/// A query that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldQuery {
    column: usize,
    /// The token.
    pub place: QueryPlace,
}

impl<'a> AttentionLog<'a> {
    /// Traced layers, ascending.
    pub fn layers(&self) -> &'a [usize] {
        self.store.layers()
    }

    /// Traced heads, ascending.
    pub fn heads(&self) -> &'a [usize] {
        self.store.heads()
    }

    /// Bytes allocated for records.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Queries that were recorded and have given way to newer ones.
    pub fn dropped(&self) -> u64 {
        self.store.dropped()
    }

    /// The queries of a sequence that are held, oldest first.
    pub fn queries(&self, seq: usize) -> impl DoubleEndedIterator<Item = HeldQuery> + use<'a> {
        let queries = self.store.queries(seq as u32);
        queries.map(|(column, place)| HeldQuery { column, place })
    }

    /// The records of a query: every traced layer, in it every traced head.
    pub fn of(&self, query: HeldQuery) -> impl Iterator<Item = AttentionRecord<'a>> + use<'a> {
        let store = self.store;
        let (layers, heads) = (store.layers().len(), store.heads().len());
        let at = move |i| store.at((query.column, query.place), i / heads, i % heads);
        (0..layers * heads).map(at)
    }

    /// The record of one head of one layer; `None` where it is not traced.
    pub fn head(&self, query: HeldQuery, layer: usize, head: usize) -> Option<AttentionRecord<'a>> {
        let layer = self.layers().binary_search(&layer).ok()?;
        let head = self.heads().binary_search(&head).ok()?;
        Some(self.store.at((query.column, query.place), layer, head))
    }
}
