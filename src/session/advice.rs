//! placeholder
use super::snapshot::{Recommendation, Snapshot};
#[derive(Default)] pub(super) struct Advice {}
