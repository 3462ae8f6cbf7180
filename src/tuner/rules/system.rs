//! What only the machine's owner can change.

use super::{Finding, Rule};
use crate::tuner::facts::{Facts, megabytes};

/// The clock is not held high.
pub struct Governor;

impl Rule for Governor {
    fn id(&self) -> &'static str {
        "governor"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let governor = f.governor.filter(|&g| g != "performance")?;
        Some(Finding {
            title: "Set the frequency governor to performance: sudo cpupower frequency-set -g performance".to_owned(),
            why: format!("The governor is {governor}: clocks follow the load and fall while threads wait, so rates vary and may be lower"),
            expected: None,
            change: None,
        })
    }
}

/// Weights are read from the disk while tokens are made.
pub struct MajorFaults;

impl Rule for MajorFaults {
    fn id(&self) -> &'static str {
        "major-faults"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let faults = f.decode_major_faults.filter(|&n| n > 0)?;
        let steps = f.bricks.first().map(|b| b.steps).filter(|&n| n > 0)?;
        let each = faults as f64 / steps as f64;
        let weights = f.memory.weights_bytes;
        let why =
            format!("{faults} pages were read from the disk in {steps} tokens, {each:.1} a token");
        let resident = f.memory.rss_bytes.unwrap_or(0);
        let too_small = f
            .memory_available
            .is_some_and(|free| free.saturating_add(resident) < weights);
        let (title, more) = if too_small {
            let title =
                "Free memory or use a smaller quantisation: the weights do not fit".to_owned();
            (title, format!("; the weights are {}", megabytes(weights)))
        } else {
            (
                "Free memory, or let it run on: weights are still being read from the disk"
                    .to_owned(),
                String::new(),
            )
        };
        Some(Finding {
            title,
            why: why + &more,
            expected: None,
            change: None,
        })
    }
}
