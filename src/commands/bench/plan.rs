//! From flags to the list of tests, in llama-bench's order.

use super::BenchArgs;
use super::numbers::Numbers;
use crate::commands::setup;
use anyhow::bail;
use cbtop::engine::batch::Split;
use cbtop::engine::config::{Schedule, cpus};
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::cpu::prefetch::Prefetch;
use cbtop::engine::{Config, KvType};

/// Default length of a prompt.
const PROMPT: usize = 512;
/// Default length of a generation.
const GENERATE: usize = 128;
/// Default tokens in a chunk.
pub(super) const CHUNK: usize = 512;
/// Most rows of one table.
const MOST_CASES: usize = 10_000;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens generated.
    pub n_gen: usize,
    /// Tokens in the cache before.
    pub n_depth: usize,
}

impl Test {
    /// llama-bench's name: `pp512`, `tg128 @ d1024`, `pp512+tg128`.
    pub fn label(&self) -> String {
        let mut label = match (self.n_prompt, self.n_gen) {
            (p, 0) => format!("pp{p}"),
            (0, g) => format!("tg{g}"),
            (p, g) => format!("pp{p}+tg{g}"),
        };
        if self.n_depth > 0 {
            label += &format!(" @ d{}", self.n_depth);
        }
        label
    }
}

/// One row: a test on one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    /// What is timed.
    pub test: Test,
    /// Threads.
    pub threads: usize,
    /// Kernels.
    pub kernels: KernelSet,
    /// Element type of the kv cache.
    pub kv_type: KvType,
    /// Tokens in a chunk.
    pub chunk: usize,
    /// How rows are given to threads.
    pub schedule: Schedule,
    /// Whether threads are bound to CPUs.
    pub pin: bool,
    /// How far ahead decode fetches weights.
    pub prefetch: Prefetch,
    /// Sequences run together, each with the test's tokens.
    pub batch: usize,
    /// How prompts of several sequences are cut into chunks.
    pub split: Split,
}

impl Case {
    /// The engine's knobs, with just the context that the test needs.
    pub fn config(&self) -> Config {
        let t = &self.test;
        let n_ctx = t.n_depth + t.n_prompt + t.n_gen;
        Config {
            threads: self.threads,
            kernels: self.kernels,
            n_ctx,
            kv_type: self.kv_type,
            chunk: self.chunk,
            schedule: self.schedule,
            pin: self.pin,
            prefetch: self.prefetch,
            n_seq: self.batch,
            split: self.split,
            ..Config::for_context(n_ctx)
        }
    }

    /// The test and its threads in words.
    pub fn label(&self) -> String {
        let threads = if self.threads == 1 {
            "thread"
        } else {
            "threads"
        };
        let batch = match self.batch {
            1 => String::new(),
            n => format!(", {n} sequences"),
        };
        format!(
            "{} with {} {threads}{batch}",
            self.test.label(),
            self.threads
        )
    }
}

/// All rows, and which columns tell them apart.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The rows of one model.
    pub cases: Vec<Case>,
    /// Whether the chunk differs from the default or between rows.
    pub shows_chunk: bool,
    /// Whether the kv type differs from the default or between rows.
    pub shows_kv: bool,
    /// Whether the prefetch differs from the default or between rows.
    pub shows_prefetch: bool,
    /// Whether a peer runs beside.
    pub compares: bool,
    /// Whether the number of sequences was given.
    pub shows_batch: bool,
}

impl Plan {
    /// Multiplies the flags out.
    pub fn from_args(args: &BenchArgs) -> anyhow::Result<Self> {
        let chunks = Numbers::all(&args.ubatch_size, CHUNK);
        let kv_types = kv_types(args)?;
        let kernels: Vec<_> = args
            .backend
            .iter()
            .map(|b| setup::kernels(b))
            .collect::<Result<_, _>>()?;
        let threads = Numbers::all(&args.threads, cpus());
        let mut batches = Numbers::all(&args.batch, 1);
        // From the fewest on: rows are compared with the one of a single sequence.
        batches.sort_unstable();
        batches.dedup();
        let tests = tests(args);
        if tests.is_empty() {
            bail!(
                "nothing to measure: every prompt and generation length is 0; give -p or -n a number above 0"
            );
        }
        let total = [
            chunks.len(),
            kv_types.len(),
            kernels.len(),
            threads.len(),
            args.prefetch.len().max(1),
            batches.len(),
            tests.len(),
        ]
        .iter()
        .try_fold(1usize, |n, m| n.checked_mul(*m));
        if total.is_none_or(|n| n > MOST_CASES) {
            bail!("the lists multiply to more than {MOST_CASES} tests; shorten some");
        }
        let mut cases = Vec::new();
        let prefetches = if args.prefetch.is_empty() {
            vec![Prefetch::default()]
        } else {
            args.prefetch.clone()
        };
        for (&kernels, &prefetch) in kernels
            .iter()
            .flat_map(|k| prefetches.iter().map(move |p| (k, p)))
        {
            for &chunk in &chunks {
                for &kv_type in &kv_types {
                    for &threads in &threads {
                        let pairs = tests
                            .iter()
                            .flat_map(|&test| batches.iter().map(move |&batch| (test, batch)));
                        cases.extend(pairs.map(|(test, batch)| Case {
                            test,
                            threads,
                            kernels,
                            kv_type,
                            chunk,
                            schedule: args.schedule.unwrap_or(Schedule::Dynamic),
                            pin: args.pin,
                            prefetch,
                            batch,
                            split: args.split.unwrap_or(Split::Simple),
                        }));
                    }
                }
            }
        }
        Ok(Self {
            cases,
            shows_chunk: chunks != [CHUNK],
            shows_kv: kv_types != [KvType::F16],
            shows_prefetch: !args.prefetch.is_empty(),
            compares: args.compare.is_some(),
            shows_batch: !args.batch.is_empty(),
        })
    }
}

fn kv_types(args: &BenchArgs) -> anyhow::Result<Vec<KvType>> {
    if args.cache_type_k != args.cache_type_v {
        bail!(
            "--cache-type-k and --cache-type-v differ; keys and values share one type here, so give both the same"
        );
    }
    let given = [&args.kv_type, &args.cache_type_k]
        .into_iter()
        .find(|l| !l.is_empty());
    Ok(given.cloned().unwrap_or_else(|| vec![KvType::F16]))
}

fn tests(args: &BenchArgs) -> Vec<Test> {
    let prompts = Numbers::all(&args.n_prompt, PROMPT);
    let gens = Numbers::all(&args.n_gen, GENERATE);
    let mut tests = Vec::new();
    for n_depth in Numbers::all(&args.n_depth, 0) {
        let mut add = |n_prompt: usize, n_gen: usize| {
            if n_prompt + n_gen > 0 {
                tests.push(Test {
                    n_prompt,
                    n_gen,
                    n_depth,
                });
            }
        };
        prompts.iter().for_each(|&p| add(p, 0));
        gens.iter().for_each(|&g| add(0, g));
        args.pg
            .iter()
            .for_each(|pair| add(pair.n_prompt, pair.n_gen));
    }
    tests
}
