//! Which tracers are on, and what they look at.

use super::figures::{TracerKind, TracerSet};
use crate::engine::probe::{AttentionProbe, ProbeConfig};
use std::str::FromStr;

/// What a [`super::ModelTracer`] looks at.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelTracerConfig {
    /// Which tracers are on.
    pub on: TracerSet,
    /// What the attention tracer records.
    pub attention: AttentionProbe,
    /// Tokens whose logits are followed beside the most probable ones and the chosen one.
    pub tracked_tokens: Vec<u32>,
}

impl ModelTracerConfig {
    /// What the engine is to leave; `None`: nothing.
    pub fn probe(&self) -> Option<ProbeConfig> {
        let TracerSet {
            activations,
            attention,
            ..
        } = self.on;
        (activations || attention).then(|| ProbeConfig {
            activations,
            attention: attention.then(|| self.attention.clone()),
        })
    }
}

impl TracerSet {
    /// All five.
    pub const ALL: Self = Self {
        activations: true,
        attention: true,
        logits: true,
        quantisation: true,
        kv: true,
    };

    /// Whether a tracer is on.
    pub fn has(self, kind: TracerKind) -> bool {
        match kind {
            TracerKind::Activations => self.activations,
            TracerKind::Attention => self.attention,
            TracerKind::Logits => self.logits,
            TracerKind::Quantisation => self.quantisation,
            TracerKind::Kv => self.kv,
        }
    }

    /// Whether any is on.
    pub fn any(self) -> bool {
        TracerKind::ALL.into_iter().any(|k| self.has(k))
    }

    /// Switches a tracer.
    pub fn set(&mut self, kind: TracerKind, on: bool) {
        match kind {
            TracerKind::Activations => self.activations = on,
            TracerKind::Attention => self.attention = on,
            TracerKind::Logits => self.logits = on,
            TracerKind::Quantisation => self.quantisation = on,
            TracerKind::Kv => self.kv = on,
        }
    }
}

impl FromStr for TracerSet {
    type Err = String;

    /// Names with commas between them, or `all`.
    fn from_str(s: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for name in s.split(',') {
            let name = name.trim().to_ascii_lowercase();
            let name = name.as_str();
            let kind = TracerKind::ALL.into_iter().find(|k| k.name() == name);
            match (kind, name) {
                (Some(kind), _) => set.set(kind, true),
                (None, "quantization") => set.quantisation = true,
                (None, "all") => set = Self::ALL,
                (None, _) => {
                    let names = TracerKind::ALL.map(TracerKind::name).join(", ");
                    return Err(format!(
                        "'{name}' is no tracer; there are {names}, and all for all of them"
                    ));
                }
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_lists_of_names() {
        for kind in TracerKind::ALL {
            let set: TracerSet = kind.name().parse().expect("its own name");
            let on = TracerKind::ALL.map(|k| set.has(k));
            assert_eq!(on, TracerKind::ALL.map(|k| k == kind));
        }
        let both: TracerSet = "kv, activations".parse().expect("two names");
        assert!(both.kv && both.activations && !both.attention && both.any());
        assert_eq!("all".parse(), Ok(TracerSet::ALL));
        assert!(!TracerSet::default().any());
        let wrong = "kv,attentoin"
            .parse::<TracerSet>()
            .expect_err("no such tracer");
        assert!(wrong.contains("attentoin") && wrong.contains("quantisation"));
    }

    #[test]
    fn the_engine_leaves_only_what_is_asked_for() {
        let mut config = ModelTracerConfig::default();
        assert_eq!(config.probe(), None);
        config.on.kv = true;
        config.on.logits = true;
        assert_eq!(config.probe(), None);
        config.on.attention = true;
        let probe = config.probe().expect("attention");
        assert_eq!(
            (probe.activations, probe.attention),
            (false, Some(AttentionProbe::default()))
        );
    }
}
