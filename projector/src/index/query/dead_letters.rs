//! Lists dead letters: unreadable records.

use super::TopicPartition;
use crate::index::{
    error::Error,
    store::{
        self, Parts, Rows,
        dead_letters::{DeadLetterRow, key, prefix},
    },
};
use runlog_schemas::{
    answer::{DeadLetter, OrOther},
    id::Offset,
};

/// A page of this partition's dead letters, in log order.
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<DeadLetter>, Option<Vec<u8>>), Error> {
    super::page(rows, &prefix(), cursor, limit, |at, row| {
        let Some(offset) = Parts::new(at).offset() else { return Ok(None) };
        Ok(Some(answer(place, offset, &store::decode(at, row)?)))
    })
}

/// One dead letter with the reason.
pub fn get<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    offset: Offset,
) -> Result<Option<(DeadLetter, String)>, Error> {
    let row: Option<DeadLetterRow> = rows.get(&key(offset))?;
    Ok(row.map(|row| (answer(place, offset, &row), row.detail)))
}

fn answer(place: TopicPartition<'_>, offset: Offset, row: &DeadLetterRow) -> DeadLetter {
    DeadLetter {
        position: place.position(offset, 0),
        reason: OrOther::of(&row.reason),
        sha256: row.sha256.to_string(),
        bytes: row.bytes,
    }
}
