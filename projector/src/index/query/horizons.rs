//! Lists retention horizons, which drop the content of old records of a payload type.

use super::{TopicPartition, time};
use crate::index::{
    error::Error,
    store::{
        self, Key, Parts, Rows,
        horizons::{HorizonRow, Horizons, INDEX},
        records::{self, RecordRow},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, Horizon},
    codec,
    payload::PayloadType,
};
use std::ops::ControlFlow;

/// Payload types without droppable content: judge and projection need their fields.
const WITHOUT_CONTENT: [PayloadType; 8] = [
    PayloadType::Genesis,
    PayloadType::Skip,
    PayloadType::RetentionHorizon,
    PayloadType::RunClaim,
    PayloadType::CheckpointPrune,
    PayloadType::Batch,
    PayloadType::StoredPayload,
    PayloadType::Encrypted,
];

/// Refuses an unknown payload type, and one without droppable content.
///
/// Errors: `Invalid`.
pub fn check(family: &str) -> Result<(), Error> {
    let Ok(payload_type) = family.parse::<PayloadType>() else {
        let with_content = PayloadType::ALL.iter().filter(|known| !WITHOUT_CONTENT.contains(known));
        let types: Vec<_> = with_content.map(|known| known.as_str()).collect();
        let message = format!("{family:?} is not a payload type; payload types are {}", types.join(", "));
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    if WITHOUT_CONTENT.contains(&payload_type) {
        let message = format!("records of type {family} have no content to delete");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// A page of this partition's horizons, by family, then in log order. One get.
///
/// Errors: `Usage` for a cursor of another list.
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Horizon>, Option<Vec<u8>>), Error> {
    if cursor.is_some_and(|cursor| !cursor.starts_with(Key::new(INDEX, 1).bytes())) {
        return Err(super::foreign_cursor());
    }
    let horizons = Horizons::read(|key| rows.get(key))?;
    let key = |row: &HorizonRow| Key::new(INDEX, 1).text(&row.family).offset(row.offset).into_bytes();
    let mut rest = horizons.row().iter().filter(|row| cursor.is_none_or(|cursor| key(row).as_slice() > cursor));
    let page: Vec<&HorizonRow> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(page.last()).map(|last| key(last));
    Ok((page.into_iter().map(|row| answer(place, row)).collect(), next))
}

/// Rows between two deadline checks.
const ROWS_PER_LOOK: u64 = 1024;

/// Counts the partition's records whose content a horizon at the log's end would drop, and returns whether the count
/// finished before `late`. A seek, and a step per record.
pub fn count<R: Rows>(
    rows: &R,
    family: &str,
    until_millis: i64,
    late: impl Fn() -> bool,
) -> Result<(u64, bool), Error> {
    let horizons = Horizons::read(|key| rows.get(key))?;
    let prefix = Key::new(records::INDEX, 0);
    let (mut seen, mut count, mut complete) = (0_u64, 0, true);
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        seen += 1;
        if seen % ROWS_PER_LOOK == 0 && late() {
            complete = false;
            return Ok(ControlFlow::Break(()));
        }
        let offset = (|| {
            let mut parts = Parts::new(key);
            parts.text()?;
            parts.offset()
        })();
        let row: RecordRow = store::decode(key, row)?;
        if let Some(offset) = offset.filter(|_| row.logged_at_millis < until_millis)
            && codec::read(&row.framed.0).is_ok_and(|record| record.facts.payload_type.as_str() == family)
            && horizons.dropped_by(family, offset, row.logged_at_millis).is_none()
        {
            count += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((count, complete))
}

fn answer(place: TopicPartition<'_>, row: &HorizonRow) -> Horizon {
    Horizon {
        family: row.family.clone(),
        until: time(row.until_millis.max(0).cast_unsigned()),
        until_millis: row.until_millis,
        who: row.who.clone(),
        why: row.why.clone(),
        position: place.position(row.offset, 0),
    }
}
