//! Retention horizons: what took content away, and of which records.

use super::{Place, time};
use crate::index::{
    Error,
    store::{
        Key, Rows,
        horizons::{HorizonRow, Horizons, INDEX},
    },
};
use runlog_schemas::answer::{ErrorKind, Horizon};
use runlog_schemas::payload::Payload;

/// Payload types that have no content of their own, or none that answers show: what they say, judging and projecting need.
const WITHOUT_CONTENT: [&str; 8] =
    ["genesis", "skip", "retention_horizon", "run_claim", "checkpoint_prune", "batch", "stored_payload", "encrypted"];

/// Refuses what is no payload type, and one whose content cannot be taken away.
///
/// Errors: `Invalid`.
pub fn check(family: &str) -> Result<(), Error> {
    if !Payload::TYPES.contains(&family) {
        return Err(Error::new(ErrorKind::Invalid, format!("{family:?} is no payload type")));
    }
    if WITHOUT_CONTENT.contains(&family) {
        let message = format!("records of type {family} have no content that could be taken away");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// A page of this partition's horizons, by family, there in log order. One get.
///
/// Errors: `Usage` for a cursor of another list.
pub fn page<R: Rows>(
    rows: &R,
    place: Place<'_>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Horizon>, Option<Vec<u8>>), Error> {
    if cursor.is_some_and(|cursor| !cursor.starts_with(Key::new(INDEX, 1).bytes())) {
        return Err(super::foreign_cursor());
    }
    let horizons = Horizons::of(rows)?;
    let key = |row: &HorizonRow| Key::new(INDEX, 1).text(&row.family).offset(row.offset).into_bytes();
    let mut behind = horizons.row().iter().filter(|row| cursor.is_none_or(|cursor| key(row).as_slice() > cursor));
    let page: Vec<&HorizonRow> = behind.by_ref().take(limit).collect();
    let next = behind.next().and(page.last()).map(|last| key(last));
    Ok((page.into_iter().map(|row| answer(place, row)).collect(), next))
}

fn answer(place: Place<'_>, row: &HorizonRow) -> Horizon {
    Horizon {
        family: row.family.clone(),
        until: time(row.until_millis.max(0).cast_unsigned()),
        until_millis: row.until_millis,
        who: row.who.clone(),
        why: row.why.clone(),
        position: place.at(row.offset, 0),
    }
}
