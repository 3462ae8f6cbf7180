//! Which runs may be learned from: the rules of the specification's section 5.3, each with its count.

use crate::tuner::run::{Origin, Run};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Largest coefficient of variation of the repetitions, as a share: below it a run counts.
pub const MAX_CV: f64 = 0.15;
/// Fewest repetitions.
pub const MIN_REPETITIONS: u32 = 3;
/// Largest share of all CPUs that other programs may have had: below it a run counts.
pub const MAX_BACKGROUND: f64 = 0.05;
/// Standard deviations from the middle of its trial that make a run an outlier.
pub const OUTLIER_SIGMAS: f64 = 3.0;
/// Fewest runs of a trial that an outlier can be seen among.
pub const MIN_GROUP: usize = 5;

/// Turns the median absolute deviation of a normal distribution into its standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// A rule that a run can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Repetitions that differ by [`MAX_CV`] or more.
    Spread,
    /// Fewer than [`MIN_REPETITIONS`].
    Repetitions,
    /// Far from the other runs of its trial.
    Outlier,
    /// No warm-up before the first repetition.
    WarmUp,
    /// Other programs had [`MAX_BACKGROUND`] of the CPUs or more.
    Background,
    /// The same trial was run again later.
    Duplicate,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Spread,
        Self::Repetitions,
        Self::Outlier,
        Self::WarmUp,
        Self::Background,
        Self::Duplicate,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spread => "repetitions differ by 15% or more",
            Self::Repetitions => "fewer than 3 repetitions",
            Self::Outlier => "3 sigma or more from the other runs of the trial",
            Self::WarmUp => "no warm-up",
            Self::Background => "other programs had 5% of the CPUs or more",
            Self::Duplicate => "the same trial was run again later",
        })
    }
}

/// What is to be said of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Rules that it breaks; none, and it may be learned from.
    pub broken: Vec<Rule>,
    /// Rules of which it is not known, because nothing was reported. Runs of this program report everything but, on some
    /// systems, the background, and in sessions the spread; a report of others is not held against it.
    pub unknown: Vec<Rule>,
}

impl Verdict {
    /// Whether it may be learned from.
    pub fn accepted(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Judges runs, each beside the others of its trial; verdicts are in the order of the runs.
pub fn judge(runs: &[Run]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = runs.iter().map(alone).collect();
    let mut groups: HashMap<_, Vec<usize>> = HashMap::new();
    for (i, run) in runs.iter().enumerate() {
        // Reports of different people about one trial do not repeat each other.
        let source = (run.origin == Origin::Public).then_some(run.source.as_str());
        let key = (run.trial.key(), run.origin, source);
        groups.entry(key).or_default().push(i);
    }
    for members in groups.values() {
        for i in outliers(members, runs) {
            verdicts[i].broken.push(Rule::Outlier);
        }
        // The newest that is good by itself stays; without times, the last.
        let order = |i: &&usize| (verdicts[**i].accepted(), runs[**i].unix_s, **i);
        let stays = members.iter().max_by_key(order).copied();
        for &i in members.iter().filter(|&&i| Some(i) != stays) {
            verdicts[i].broken.push(Rule::Duplicate);
        }
    }
    verdicts
}

fn alone(run: &Run) -> Verdict {
    let mut verdict = Verdict::default();
    let public = run.origin == Origin::Public;
    let mut rule = |rule, holds: Option<bool>| match holds {
        Some(true) => {}
        Some(false) => verdict.broken.push(rule),
        None => verdict.unknown.push(rule),
    };
    // What this program measures it must also have recorded.
    let of_ours = |known: Option<bool>| if public { known } else { known.or(Some(false)) };
    let together = run.cv().map(|cv| cv < MAX_CV);
    rule(
        Rule::Spread,
        match run.origin {
            // A session holds two setups against each other and tests the interval of their ratio: no spread of each.
            Origin::Feedback => together,
            _ => of_ours(together),
        },
    );
    let enough = run.repetitions >= MIN_REPETITIONS;
    // Repetitions of a public run are the reports that were seen, each of repetitions that it does not tell.
    rule(Rule::Repetitions, (enough || !public).then_some(enough));
    rule(Rule::WarmUp, of_ours(run.warm));
    let quiet = run.background.map(|b| b < MAX_BACKGROUND);
    rule(Rule::Background, quiet);
    verdict
}

/// Runs far from the median of their trial. The yardstick is the median absolute deviation, because among few runs an
/// outlier widens the standard deviation until it fits in; it is never less than what the repetitions themselves vary by.
fn outliers(members: &[usize], runs: &[Run]) -> Vec<usize> {
    if members.len() < MIN_GROUP {
        return Vec::new();
    }
    let rate = |i: &usize| runs[*i].tok_s;
    let middle = median(members.iter().map(rate).collect());
    let deviations = members.iter().map(|i| (rate(i) - middle).abs());
    let between = median(deviations.collect()) * MAD_TO_SIGMA;
    let own = members.iter().filter_map(|i| runs[*i].stddev).collect();
    let sigma = between.max(median(own));
    let far = |i: &&usize| sigma > 0.0 && (rate(i) - middle).abs() >= OUTLIER_SIGMAS * sigma;
    members.iter().filter(far).copied().collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match (values.get(n.saturating_sub(1) / 2), values.get(n / 2)) {
        (Some(low), Some(high)) => low.midpoint(*high),
        _ => 0.0,
    }
}

/// Counts of verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Runs judged.
    pub runs: usize,
    /// Those that may be learned from.
    pub accepted: usize,
    /// Runs that break a rule.
    pub broken: BTreeMap<Rule, usize>,
    /// Runs of which a rule is not known.
    pub unknown: BTreeMap<Rule, usize>,
}

/// Counts verdicts.
pub fn summary(verdicts: &[Verdict]) -> Summary {
    let mut summary = Summary {
        runs: verdicts.len(),
        accepted: verdicts.iter().filter(|v| v.accepted()).count(),
        ..Summary::default()
    };
    for verdict in verdicts {
        for rule in &verdict.broken {
            *summary.broken.entry(*rule).or_default() += 1;
        }
        for rule in &verdict.unknown {
            *summary.unknown.entry(*rule).or_default() += 1;
        }
    }
    summary
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} runs may be learned from",
            self.accepted, self.runs
        )?;
        for (rule, n) in &self.broken {
            write!(f, "\n  {n} left out: {rule}")?;
        }
        for (rule, n) in &self.unknown {
            write!(f, "\n  {n} kept, not reported whether: {rule}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    fn good(n: u32) -> Run {
        Run {
            warm: Some(true),
            stddev: Some(1.0),
            ..run(n)
        }
    }

    fn broken(run: Run) -> Vec<Rule> {
        judge(&[run]).remove(0).broken
    }

    #[test]
    fn every_rule_has_its_limit() {
        assert_eq!(broken(good(0)), []);
        let with = |change: fn(&mut Run)| {
            let mut run = good(0);
            change(&mut run);
            broken(run)
        };
        assert_eq!(with(|r| r.stddev = Some(14.9)), []);
        assert_eq!(with(|r| r.stddev = Some(15.0)), [Rule::Spread]);
        assert_eq!(with(|r| r.stddev = None), [Rule::Spread]);
        assert_eq!(with(|r| r.repetitions = 3), []);
        assert_eq!(with(|r| r.repetitions = 2), [Rule::Repetitions]);
        assert_eq!(with(|r| r.warm = Some(false)), [Rule::WarmUp]);
        assert_eq!(with(|r| r.warm = None), [Rule::WarmUp]);
        assert_eq!(with(|r| r.background = Some(0.0499)), []);
        assert_eq!(with(|r| r.background = Some(0.05)), [Rule::Background]);
        assert_eq!(with(|r| r.background = None), []);
    }

    #[test]
    fn what_a_session_measured_has_no_spread_and_may_be_learned_from() {
        let feedback = Run {
            origin: Origin::Feedback,
            stddev: None,
            ..good(0)
        };
        let verdict = judge(std::slice::from_ref(&feedback)).remove(0);
        assert_eq!(verdict.broken, []);
        assert_eq!(verdict.unknown, [Rule::Spread]);
        let cold = Run {
            warm: None,
            ..feedback
        };
        assert_eq!(broken(cold), [Rule::WarmUp]);
    }

    #[test]
    fn what_others_do_not_report_is_marked_not_held_against_them() {
        let public = Run {
            origin: Origin::Public,
            stddev: None,
            repetitions: 1,
            warm: None,
            background: None,
            ..good(0)
        };
        let verdict = judge(std::slice::from_ref(&public)).remove(0);
        assert!(verdict.accepted());
        let unknown = [
            Rule::Spread,
            Rule::Repetitions,
            Rule::WarmUp,
            Rule::Background,
        ];
        assert_eq!(verdict.unknown, unknown);
        let twice = Run {
            stddev: Some(20.0),
            repetitions: 2,
            ..public
        };
        let verdict = judge(&[twice]).remove(0);
        assert_eq!(verdict.broken, [Rule::Spread]);
        assert!(verdict.unknown.contains(&Rule::Repetitions));
    }

    #[test]
    fn outliers_are_found_among_few_and_of_a_trial_one_run_stays() {
        let same = |n: u32, tok_s: f64| Run {
            trial: good(0).trial,
            tok_s,
            ..good(n)
        };
        let rates = [100.0, 101.0, 99.0, 100.5, 99.5, 130.0];
        let mut runs: Vec<Run> = (0..).zip(rates).map(|(n, r)| same(n, r)).collect();
        let verdicts = judge(&runs);
        // The newest is the outlier: the one before it stays.
        assert_eq!(verdicts[5].broken, [Rule::Outlier, Rule::Duplicate]);
        assert!(verdicts[4].accepted());
        let summary = summary(&verdicts);
        assert_eq!((summary.runs, summary.accepted), (6, 1));
        assert_eq!(summary.broken[&Rule::Duplicate], 5);
        // Within what the repetitions vary by, nothing is far.
        for run in &mut runs {
            run.stddev = Some(12.0);
        }
        assert!(
            judge(&runs)
                .iter()
                .all(|v| !v.broken.contains(&Rule::Outlier))
        );
    }

    #[test]
    fn summary_says_what_was_left_out_and_why() {
        let cold = Run {
            warm: Some(false),
            ..good(1)
        };
        let text = summary(&judge(&[good(0), cold])).to_string();
        assert_eq!(
            text,
            "1 of 2 runs may be learned from\n  1 left out: no warm-up"
        );
    }
}
