//! What a statement means for an overlay that holds facts already.

use super::report::Change;
use super::{Fact, Kind, Overlay, OverlayError};

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// New edits have to be made.
    Make(Kind),
    /// Taking facts out was all.
    TakenOut(Change),
}

/// Takes out of an overlay what `kind` of statement replaces or undoes, and says what is left to do.
///
/// `INSERT` takes out the inserted fact of the same prompt, whatever its answer, and the deletion of the same prompt and
/// answer; if there was such a deletion, that is all. `DELETE` takes out the inserted fact of the same prompt and answer;
/// if there is none, the model's own answer has to be deleted.
pub(super) fn apply(
    overlay: &mut Overlay,
    kind: Kind,
    prompt: &str,
    answer: &str,
) -> Result<Task, OverlayError> {
    let same = |f: &Fact, kind| f.is_of(kind, prompt) && f.says(answer);
    match kind {
        Kind::Inserted => {
            overlay.take_out(|f| f.is_of(Kind::Inserted, prompt));
            if overlay.take_out(|f| same(f, Kind::Deleted)) > 0 {
                return Ok(Task::TakenOut(Change::Restored));
            }
        }
        Kind::Deleted => {
            if overlay.take_out(|f| same(f, Kind::Inserted)) > 0 {
                return Ok(Task::TakenOut(Change::Removed));
            }
            if overlay.facts().iter().any(|f| same(f, Kind::Deleted)) {
                return Err(OverlayError::Statement(format!(
                    "the overlay has deleted {prompt:?} -> {answer:?} already; INSERT it to have it back"
                )));
            }
        }
    }
    Ok(Task::Make(kind))
}
