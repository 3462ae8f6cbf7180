//! Where the user is in the panels that draw a step to scale, as a map or as a tree. Kept apart from what is shown and
//! tied to names (events, bricks, layers) rather than to rows, so that a new snapshot moves nothing.

use crate::model::brick::BrickId;
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
