//! Which trials a sweep runs: every knob by itself, and mixtures drawn at random, with the kernel sets beside each other.

use super::run::Test;
use crate::engine::knobs::{ActsOn, Around, Cost, KNOBS, Knob, Setting, Setup};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// The knob whose values are beside each other in every mixture: which of them is best is what the kernel classifier learns.
pub const CLASS_KNOB: &str = "backend";
/// Weights up to this many bytes are a small model: its steps are short, so that more of them can be run.
const SMALL_BYTES: u64 = 16 << 20;

/// One trial of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// How it runs.
    pub setup: Setup,
    /// What is timed.
    pub test: Test,
}

/// The tests of a sweep, for a model of `bytes` bytes trained on `n_ctx` tokens.
pub fn tests(bytes: u64, n_ctx: u32) -> Vec<Test> {
    let small = bytes <= SMALL_BYTES;
    let generated = if small { 32 } else { 16 };
    let depth = if small { 256 } else { 512 };
    let most = if small { 64 } else { 16 };
    let decode = |depth, batch, generated| Test {
        prompt: 0,
        generated,
        depth,
        batch,
    };
    let prompt = |prompt| Test {
        prompt,
        generated: 0,
        depth: 0,
        batch: 1,
    };
    let all = [
        decode(0, 1, generated),
        prompt(256),
        decode(depth, 1, generated),
        prompt(64),
        decode(0, 4, 8),
        decode(0, most, 4),
    ];
    let fits = |t: &Test| t.depth + t.prompt + t.generated <= n_ctx;
    all.into_iter().filter(fits).collect()
}

/// The trials of one model, without repetition: the first two of `tests` with every knob turned by itself; every test with
/// all kernel sets and numbers of threads; `mixtures` settings drawn at random, each with every kernel set. Trials that
/// load the weights alike stand together, in random order. Knobs that cost more than `most` to turn are left as they are.
/// The same seed gives the same plan.
pub fn plan(
    base: &Setup,
    around: &Around,
    tests: &[Test],
    (mixtures, most): (usize, Cost),
    seed: u64,
) -> Vec<Planned> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut sweep = Sweep {
        base,
        around,
        most,
        seen: BTreeSet::new(),
        planned: Vec::new(),
    };
    for (i, test) in tests.iter().enumerate() {
        sweep.add(test, &[]);
        if i < 2 {
            sweep.one_at_a_time(test);
        }
        sweep.crossed(test, &["threads", CLASS_KNOB]);
    }
    for i in 0..mixtures {
        if let Some(test) = tests.get(i % tests.len().max(1)) {
            let drawn = sweep.draw(test, &mut rng);
            sweep.beside(test, &drawn);
        }
    }
    let mut planned = sweep.planned;
    for i in (1..planned.len()).rev() {
        planned.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
    planned.sort_by_key(|p| p.setup.load.to_string());
    planned
}

struct Sweep<'a> {
    base: &'a Setup,
    around: &'a Around<'a>,
    most: Cost,
    seen: BTreeSet<(Test, Vec<Setting>)>,
    planned: Vec<Planned>,
}

impl Sweep<'_> {
    /// Settings that cannot run are left out: a table of knobs may hold values that do not go together.
    fn add(&mut self, test: &Test, settings: &[Setting]) {
        let Ok(setup) = self.base.with(settings) else {
            return;
        };
        if self.seen.insert((*test, setup.settings())) {
            self.planned.push(Planned { setup, test: *test });
        }
    }

    fn one_at_a_time(&mut self, test: &Test) {
        for knob in self.knobs_of(test) {
            for value in (knob.values)(self.around) {
                self.add(test, &[Setting::new(knob.name, value)]);
            }
        }
    }

    /// Every combination of the values of some knobs.
    fn crossed(&mut self, test: &Test, names: &[&str]) {
        let mut all = vec![Vec::new()];
        for knob in KNOBS.iter().filter(|k| names.contains(&k.name)) {
            let values = (knob.values)(self.around);
            let with = |settings: &Vec<Setting>, value: &String| {
                let mut settings = settings.clone();
                settings.push(Setting::new(knob.name, value));
                settings
            };
            all = all
                .iter()
                .flat_map(|s| values.iter().map(move |v| with(s, v)))
                .collect();
        }
        for settings in all {
            self.add(test, &settings);
        }
    }

    /// A mixture: each knob but the class knob keeps its value or takes one at random, evenly. How the profiler watches
    /// stays as it is: sessions differ from the default only where the user asks for it.
    fn draw(&self, test: &Test, rng: &mut ChaCha8Rng) -> Vec<Setting> {
        let mut settings = Vec::new();
        for knob in self.knobs_of(test) {
            if knob.name == CLASS_KNOB
                || knob.name == "sync-mode"
                || rng.next_u64().is_multiple_of(2)
            {
                continue;
            }
            let values = (knob.values)(self.around);
            if let Some(n) = std::num::NonZero::new(values.len() as u64) {
                let at = (rng.next_u64() % n) as usize;
                settings.push(Setting::new(knob.name, &values[at]));
            }
        }
        settings
    }

    fn beside(&mut self, test: &Test, settings: &[Setting]) {
        let sets = KNOBS.iter().filter(|k| k.name == CLASS_KNOB);
        for value in sets.flat_map(|k| (k.values)(self.around)) {
            let mut settings = settings.to_vec();
            settings.push(Setting::new(CLASS_KNOB, value));
            self.add(test, &settings);
        }
    }

    /// The knobs that a test shows and that may be turned.
    fn knobs_of(&self, test: &Test) -> impl Iterator<Item = &'static Knob> + use<> {
        let other = if test.is_decode() {
            ActsOn::Prefill
        } else {
            ActsOn::Decode
        };
        let most = self.most;
        KNOBS
            .iter()
            .filter(move |k| k.acts_on != other && k.cost <= most)
    }
}
