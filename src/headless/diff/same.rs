//! Whether two reports are of the same thing.

use crate::session::snapshot::Snapshot;
use serde::Serialize;

/// Something that is not the same in both runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// `model`, `machine`, `configuration` or `run`.
    pub of: &'static str,
    /// What of it.
    pub what: &'static str,
    /// In A.
    pub a: String,
    /// In B.
    pub b: String,
}

/// In what the runs differ besides time.
pub fn unlike(a: &Snapshot, b: &Snapshot) -> Vec<Unlike> {
    facts(a)
        .into_iter()
        .zip(facts(b))
        .filter(|((.., a), (.., b))| a != b)
        .map(|((of, what, a), (.., b))| Unlike { of, what, a, b })
        .collect()
}

fn facts(s: &Snapshot) -> Vec<(&'static str, &'static str, String)> {
    let (m, h, e) = (&s.model, &s.machine, &s.engine);
    let known = |v: Option<u64>| v.map_or("unknown".to_owned(), |v| v.to_string());
    vec![
        ("model", "name", m.name.clone()),
        ("model", "architecture", m.arch.clone()),
        ("model", "quantisation", m.quantisation.clone()),
        ("model", "parameters", m.params.to_string()),
        ("model", "bytes", m.file_bytes.to_string()),
        ("machine", "processor", h.cpu.clone()),
        ("machine", "usable CPUs", h.cpus.to_string()),
        ("machine", "instruction set", h.isa.clone()),
        ("machine", "memory in bytes", known(h.memory_bytes)),
        ("configuration", "clock", e.clock.clone()),
        ("configuration", "backend", e.backend.clone()),
        ("configuration", "kernels", e.kernels.clone()),
        ("configuration", "profiling", s.profiling.mode.clone()),
        ("configuration", "threads", e.threads.to_string()),
        ("configuration", "context", e.n_ctx.to_string()),
        ("configuration", "kv type", e.kv_type.clone()),
        ("configuration", "chunk", e.chunk.to_string()),
        ("configuration", "prefetch", e.prefetch.clone()),
        ("configuration", "loading", e.load.clone()),
        ("configuration", "sampling", e.sampler.clone()),
        (
            "configuration",
            "pace",
            known(e.pace_tok_s.map(u64::from)).replace("unknown", "none"),
        ),
        ("run", "prompt", s.prompt.clone()),
        ("run", "context used", s.context_used.to_string()),
    ]
}
