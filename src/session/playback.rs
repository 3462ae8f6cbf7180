//! Playing a recording: where it stands, and what can be asked of it.

use std::time::Duration;

/// Where the replay of a recording stands; comes with every snapshot of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Playback {
    /// The frame shown, from 0.
    pub frame: usize,
    /// Frames of the recording.
    pub frames: usize,
    /// Time since the recording's start.
    pub at: Duration,
    /// Time of the last frame.
    pub total: Duration,
    /// Whether time goes on.
    pub playing: bool,
    /// How fast.
    pub speed: Speed,
}

impl Playback {
    /// How much of the recording lies behind, 0 to 1; 1 for a recording of one moment.
    pub fn share(&self) -> f64 {
        if self.total.is_zero() {
            return 1.0;
        }
        (self.at.as_secs_f64() / self.total.as_secs_f64()).clamp(0.0, 1.0)
    }
}

/// Speed of a replay: a power of two from a quarter to sixteen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Speed(i8);

impl Speed {
    const SLOWEST: i8 = -2;
    const FASTEST: i8 = 4;

    /// Twice as fast, sixteen times at most.
    pub fn faster(self) -> Self {
        Self((self.0 + 1).min(Self::FASTEST))
    }

    /// Half as fast, a quarter at least.
    pub fn slower(self) -> Self {
        Self((self.0 - 1).max(Self::SLOWEST))
    }

    /// Seconds of the recording in a second.
    pub fn factor(self) -> f64 {
        f64::from(self.0).exp2()
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x", self.factor())
    }
}

/// What can be asked of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scrub {
    /// Play or pause; at the end, play from the start.
    Toggle,
    /// So many frames on, or back, and pause.
    Frames(i32),
    /// So many seconds on, or back.
    Seconds(i32),
    /// To the first frame.
    First,
    /// To the last frame.
    Last,
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
    /// To so many milliseconds from the start.
    Millis(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_go_from_a_quarter_to_sixteen() {
        let mut speed = Speed::default();
        assert_eq!(speed.to_string(), "1x");
        for _ in 0..9 {
            speed = speed.slower();
        }
        assert_eq!(speed.to_string(), "0.25x");
        for _ in 0..9 {
            speed = speed.faster();
        }
        assert_eq!(speed.to_string(), "16x");
    }

    #[test]
    fn a_share_is_one_of_nought_to_one() {
        let at = |at, total| Playback {
            frame: 0,
            frames: 1,
            at: Duration::from_millis(at),
            total: Duration::from_millis(total),
            playing: false,
            speed: Speed::default(),
        };
        assert_eq!(at(0, 0).share(), 1.0);
        assert_eq!(at(1, 4).share(), 0.25);
        assert_eq!(at(9, 4).share(), 1.0);
    }
}
