//! One event as it stands in the file.

use serde::{Serialize, Serializer};

/// Where an event is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Track {
    Steps,
    Layers,
    Bricks,
    Kernels,
    Counters,
    Thread(u32),
}

impl Track {
    /// Those of the model, in the order they are shown.
    pub(super) const MODEL: [Self; 4] = [Self::Steps, Self::Layers, Self::Bricks, Self::Kernels];

    /// Number of the process that it is filed under.
    pub(super) fn pid(self) -> u32 {
        match self {
            Self::Steps | Self::Layers | Self::Bricks | Self::Kernels | Self::Counters => 1,
            Self::Thread(_) => 2,
        }
    }

    /// Its number in the process; 0 would be the process's own.
    pub(super) fn tid(self) -> u64 {
        match self {
            Self::Counters => 0,
            Self::Steps => 1,
            Self::Layers => 2,
            Self::Bricks => 3,
            Self::Kernels => 4,
            Self::Thread(number) => u64::from(number) + 1,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Steps => "steps".to_owned(),
            Self::Layers => "layers".to_owned(),
            Self::Bricks => "bricks".to_owned(),
            Self::Kernels => "kernels".to_owned(),
            Self::Counters => "counters".to_owned(),
            Self::Thread(number) => format!("thread {number}"),
        }
    }
}

/// Nanoseconds, written as microseconds.
#[derive(Clone, Copy)]
pub(super) struct Micros(pub(super) u64);

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (self.0 / 1000, self.0 % 1000) {
            (whole, 0) => to.serialize_u64(whole),
            _ => to.serialize_f64(self.0 as f64 / 1e3),
        }
    }
}

/// An event of the Trace Event Format: `X` complete, `C` counter, `M` metadata, `i` instant.
#[derive(Serialize)]
pub(super) struct Event<'a, A: Serialize> {
    pub(super) ph: &'static str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cat: Option<&'static str>,
    pub(super) pid: u32,
    pub(super) tid: u64,
    pub(super) ts: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dur: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) s: Option<&'static str>,
    pub(super) args: A,
}

#[derive(Serialize)]
pub(super) struct Name<'a> {
    pub(super) name: &'a str,
}

#[derive(Serialize)]
pub(super) struct SortIndex {
    pub(super) sort_index: u64,
}

#[derive(Serialize)]
pub(super) struct Value {
    pub(super) value: f64,
}

#[derive(Serialize)]
pub(super) struct Note {
    pub(super) left_out: &'static str,
}

#[derive(Serialize)]
pub(super) struct StepArgs {
    pub(super) position: u32,
    pub(super) tokens: u32,
}

#[derive(Serialize)]
pub(super) struct LayerArgs {
    pub(super) layer: u32,
}

#[derive(Serialize)]
pub(super) struct BrickArgs<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel: Option<&'a str>,
    pub(super) barrier: bool,
}

#[derive(Serialize)]
pub(super) struct KernelArgs<'a> {
    pub(super) variant: &'a str,
    pub(super) source: &'a str,
    pub(super) source_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) columns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tile_rows: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct SpanArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) core: Option<u32>,
    pub(super) pieces: u32,
    pub(super) stolen: u32,
    pub(super) slack_us: Finite,
}

/// A number, or null where it is not finite.
#[derive(Clone, Copy)]
pub(super) struct Finite(pub(super) f64);

impl Serialize for Finite {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            to.serialize_f64(self.0)
        } else {
            to.serialize_none()
        }
    }
}

#[derive(Serialize)]
pub(super) struct Empty {}
