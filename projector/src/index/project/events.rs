//! `events`: applied records by their summary for event streams.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    Key, Rows,
    events::{self, EACH_MAX, TEXT_BYTES_MAX},
};
use runlog_schemas::{codec::Entity, refs::EntityKind};

/// Stores a record's summary.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    // The whole record was decoded before, so its summary decodes too.
    let Ok(event) = record.event() else { return };
    let run_id = record.run_id.to_owned();
    let mut put = |prefix: Key| changes.put(events::key(prefix, at.offset, at.index), &run_id);
    if fits(&[event.family, event.kind]) {
        put(events::of_kind(event.family, event.kind));
    }
    let Entity { kind, id } = event.subject;
    if (kind, id) != (EntityKind::Run, record.run_id.as_str()) && fits(&[id]) {
        put(events::of_subject(kind, id));
    }
    for entity in event.related.iter().filter(|entity| fits(&[entity.id])).take(EACH_MAX) {
        put(events::of_related(entity.kind, entity.id));
    }
    for (key, value) in event.correlation.iter().filter(|(key, value)| fits(&[key, value])).take(EACH_MAX) {
        put(events::of_correlation(key, value));
    }
    for tag in event.tags.iter().filter(|tag| fits(&[tag])).take(EACH_MAX) {
        put(events::of_tag(tag));
    }
}

fn fits(texts: &[&str]) -> bool {
    texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX)
}
