//! What to change: rules that turn figures into recommendations, and the comparison that says what a change brought.
//!
//! [`rules::recommend`] reads [`facts::Facts`] and returns advice with the [`Change`] it would make; [`ab::AbTest`]
//! measures the change once the session made it. Nothing here acts on its own.

pub mod ab;
pub mod bandit;
pub mod collect;
pub mod describe;
pub mod facts;
pub mod features;
pub mod fingerprint;
pub mod five_whys;
pub mod learn;
pub mod measure;
pub mod profile;
pub mod recommendation;
pub mod roofline;
pub mod rules;
pub mod run;
pub mod store;
pub mod suggest;
pub mod sweep;
pub mod telemetry;

use crate::engine::knobs::{ActsOn, Setting, knob};

/// A change of how a model runs that the session can make while it runs: knobs and their new values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change(pub Vec<Setting>);

impl Change {
    /// One knob turned.
    pub fn one(knob: &str, value: impl ToString) -> Self {
        Self(vec![Setting::new(knob, value.to_string())])
    }

    /// Whether it shows in the rate of decode steps. A chunk shows in the next prompt only, so that comparing tokens
    /// before and after it would measure nothing.
    pub fn affects_decode(&self) -> bool {
        let decodes = |s: &Setting| knob(&s.knob).is_some_and(|k| k.acts_on != ActsOn::Prefill);
        self.0.iter().any(decodes)
    }
}
