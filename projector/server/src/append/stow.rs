//! Moves large payloads into the content store.

use crate::auth::{Caller, limits::Limit};
use runlog_content::Store;
use runlog_projector::index::{error::Error, projector::Projector};
use runlog_schemas::{
    answer::ErrorKind,
    draft::{Draft, fits},
    payload::Payload,
};
use std::time::Duration;
use tokio::time::Instant;

/// Moves large payloads into the content store. A draft that names stored content is accepted if the content exists
/// and fits the record's facts, since the judge and the statuses only ever read the facts.
///
/// The bytes count against the caller's quota first, also if the store has them already.
pub(super) async fn stow(
    projector: &Projector,
    drafts: Vec<Draft>,
    caller: &Caller,
    deadline: Duration,
) -> Result<Vec<Draft>, Error> {
    let started = Instant::now();
    let inline_bytes_max = projector.content().map(Store::inline_bytes_max);
    let detach = |mut draft: Draft| {
        let content = inline_bytes_max.and_then(|max| draft.record.detach(max));
        (draft, content)
    };
    let drafts: Vec<_> = drafts.into_iter().map(detach).collect();
    let bytes: usize = drafts.iter().filter_map(|(_, content)| Some(content.as_ref()?.len())).sum();
    if bytes > 0 {
        caller.take(Limit::ContentBytesPerDay, bytes as u64)?;
    }
    let mut stowed = Vec::with_capacity(drafts.len());
    for (draft, content) in drafts {
        let Payload::StoredPayload(reference) = &draft.record.payload else {
            stowed.push(draft);
            continue;
        };
        let record_id = draft.record.body.record_id.borrow();
        let Some(store) = projector.content() else {
            let message = "a record names content, and no content store is configured (--content)";
            return Err(Error::new(ErrorKind::Invalid, message).about_record(record_id));
        };
        let store = store.within(deadline.saturating_sub(started.elapsed()));
        let failed = |error| Error::from(error).about_record(record_id);
        if let Some(content) = content {
            store.put(content).await.map_err(failed)?;
        } else {
            let payload = store.resolve(reference).await.map_err(failed)?;
            fits(&draft.record, &payload).map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("record {record_id}: {error}")).about_record(record_id)
            })?;
        }
        stowed.push(draft);
    }
    Ok(stowed)
}
