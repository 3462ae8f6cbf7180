//! Where the user is in the panels that draw a step to scale, as a map or as a tree. Kept apart from what is shown and
//! tied to names (events, bricks, layers) rather than to rows, so that a new snapshot moves nothing.

use crate::model::brick::BrickId;
use crate::trace::figures::{PatchMap, TraceFrame};
use crate::tracer::figures::TracerKind;
use std::collections::BTreeSet;

/// The positions of all such panels.
#[derive(Debug, Clone, Default)]
pub struct Views {
    /// Of the timeline.
    pub timeline: TimelineView,
    /// Of the layer by brick map.
    pub heat: HeatView,
    /// Of the execution tree.
    pub tree: TreeView,
    /// Of the residual trace.
    pub trace: TracePlace,
    /// Of the tracers.
    pub model: ModelPlace,
}

/// The selected call and the part of the step shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimelineView {
    /// Selected lane: 0 is that of the layers, thread `n` has lane `n + 1`.
    pub lane: usize,
    /// Selected call, an index into the step's events: the same call in every step of a plan.
    pub event: usize,
    /// Microseconds shown; `None` is the whole step.
    pub width_us: Option<f64>,
    /// From the selected call's start to the left edge, microseconds: what was under the eye stays there when the calls
    /// before it take another time in the next step.
    pub offset_us: f64,
}

impl Default for TimelineView {
    fn default() -> Self {
        Self {
            lane: 1,
            event: 0,
            width_us: None,
            offset_us: 0.0,
        }
    }
}

/// What a cell of the map is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeatScale {
    /// The mean of its brick over the layers.
    #[default]
    OwnMean,
    /// The hottest cell of the map.
    Hottest,
}

/// The layer by brick map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeatView {
    /// What cells are compared with.
    pub scale: HeatScale,
    /// The brick under the cursor; its layer is the panel's layer cursor.
    pub brick: Option<BrickId>,
}

/// A node of the execution tree. Event numbers are those of the step: the same in every step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The step.
    Step,
    /// The layer whose first event this is.
    Layer(u32),
    /// A call.
    Brick(u32),
    /// The kernel of a call.
    Kernel(u32),
    /// What no call of the step accounts for.
    Rest,
    /// A thread's share of a call: event, thread.
    Task(u32, u32),
}

/// The execution tree: folded except for what is in `open`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeView {
    /// Nodes unfolded.
    pub open: BTreeSet<Node>,
    /// The node under the cursor.
    pub cursor: Node,
}

impl Default for TreeView {
    fn default() -> Self {
        Self {
            open: BTreeSet::from([Node::Step]),
            cursor: Node::Step,
        }
    }
}

/// Where the user is in the residual trace and in the map of activation patching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TracePlace {
    /// The layer under the cursor; `None` is the one that decided the answer.
    pub layer: Option<u32>,
    /// The position under the cursor; `None` is the last one traced, as the text grows.
    pub position: Option<u32>,
    /// Which of the answers.
    pub answer: usize,
    /// Whether the map is shown.
    pub map: bool,
    /// Layer and column of the map under the cursor; `None` is the cell of the largest effect.
    pub cell: Option<(u32, u32)>,
}

impl TracePlace {
    /// What a new frame moves: another trace starts at what decided it, another map at its largest effect, and whichever
    /// is new is shown.
    pub fn follow(&mut self, before: Option<&TraceFrame>, now: Option<&TraceFrame>) {
        let Some(now) = now else {
            *self = Self::default();
            return;
        };
        let map_before = before.and_then(|f| f.map.as_deref());
        let new_map = match (map_before, now.map.as_deref()) {
            (Some(before), Some(now)) => !same_map(before, now),
            (None, now) => now.is_some(),
            (Some(_), None) => false,
        };
        if before.is_none_or(|b| b.number != now.number) {
            *self = Self::default();
        }
        if new_map {
            self.cell = None;
            self.map = true;
        }
        self.map &= now.map.is_some();
    }
}

/// Where the user is in the views of the tracers. What is `None` follows what is shown: the largest, the newest, the
/// worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelPlace {
    /// The view shown.
    pub view: TracerKind,
    /// Layer of the activations; `None` is the first that broke a rule, else the one of the largest output.
    pub layer: Option<u32>,
    /// Layer and head of attention; `None` is the one that the session shows over time.
    pub head: Option<(u32, u32)>,
    /// Whether that head is shown query by key rather than all heads.
    pub by_key: bool,
    /// Position of the query and of the key; `None` is the newest query's largest weight.
    pub cell: Option<(u32, u32)>,
    /// Position whose logits are shown; `None` is the newest.
    pub position: Option<u32>,
    /// How many layers the logits have passed, 0 being the embedding; `None` is the decisive layer.
    pub passed: Option<u32>,
    /// Brick of the quantisation table; `None` is its first row.
    pub brick: Option<BrickId>,
    /// First line of the kv cache shown.
    pub kv_top: usize,
}

impl Default for ModelPlace {
    fn default() -> Self {
        Self {
            view: TracerKind::Activations,
            layer: None,
            head: None,
            by_key: false,
            cell: None,
            position: None,
            passed: None,
            brick: None,
            kv_top: 0,
        }
    }
}

/// Whether two maps are one that is being filled.
fn same_map(a: &PatchMap, b: &PatchMap) -> bool {
    (
        &a.model, &a.prompt, &a.source, &a.site, &a.answer, &a.layers,
    ) == (
        &b.model, &b.prompt, &b.source, &b.site, &b.answer, &b.layers,
    )
}
