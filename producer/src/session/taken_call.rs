//! A recorded call that was taken to answer a call.

use super::{replay::RecordedCall, shared::Shared};
use runlog_schemas::id::RecordId;

/// A recorded call that was taken to answer a call. If it is dropped before its answer is fetched or its next attempt is
/// acknowledged, the recorded call is restored, so that the same call does not look new.
#[derive(Debug)]
pub(crate) struct TakenCall {
    shared: Shared,
    pub(crate) id: RecordId,
    /// The recorded call to restore. `None` for a call with a key, which was not removed.
    recorded: Option<RecordedCall>,
}

impl TakenCall {
    pub(crate) fn new(shared: &Shared, recorded: &RecordedCall, has_key: bool) -> Self {
        let put_back = (!has_key).then(|| recorded.clone());
        Self { shared: shared.clone(), id: recorded.id.clone(), recorded: put_back }
    }

    /// Does not restore the call: it is answered or in flight.
    pub(crate) fn keep(mut self) {
        self.recorded = None;
    }
}

impl Drop for TakenCall {
    fn drop(&mut self) {
        self.shared.lock().outbox.returned.extend(self.recorded.take());
    }
}
