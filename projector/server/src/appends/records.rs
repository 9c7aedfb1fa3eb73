//! The records of a request: parsed, and refused before anything is appended.

use crate::{
    append::{attribution::approves, decisions::is_own_decision},
    auth::{Caller, permissions::Scope},
};
use runlog_projector::index::error::Error;
use runlog_schemas::{
    answer::{ErrorKind, Warning},
    draft::Draft,
    id::WriterSeq,
    json::{self, Items},
    payload::Payload,
    record::{JournalRecord, RecordKind},
};
use serde_json::value::RawValue;
use std::iter;

/// Records in one request.
const RECORDS_MAX: usize = 1024;

/// The records of a request.
pub(super) struct Records {
    /// Whether the body is an array.
    pub(super) many: bool,
    pub(super) drafts: Vec<Draft>,
    /// The warnings of each record.
    pub(super) warnings: Vec<Vec<Warning>>,
}

/// Reads the records of a body. `also`: whether the request asks for outcomes of other records.
pub(super) fn read(caller: &Caller, body: &str, strict: bool, also: bool) -> Result<Records, Error> {
    let not_json = |error: serde_json::Error| Error::new(ErrorKind::Invalid, format!("the body is not JSON: {error}"));
    let many = body.trim_start().starts_with('[');
    // More records than the limit are only counted: they could need 24 times the memory of the body.
    let Items { first: texts, count } = if many {
        json::items(body, RECORDS_MAX).map_err(not_json)?
    } else {
        Items { first: vec![serde_json::from_str::<&RawValue>(body).map_err(not_json)?], count: 1 }
    };
    if also && many {
        let message = "also= needs a single record, not an array; nothing was appended";
        return Err(Error::new(ErrorKind::Usage, message));
    }
    if also {
        // Reading an outcome needs the same scope.
        caller.require(Scope::ReadMeta)?;
    }
    if count > RECORDS_MAX {
        let message = format!("{count} records in one request, more than {RECORDS_MAX}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let (mut drafts, mut warnings) = (Vec::with_capacity(texts.len()), Vec::with_capacity(texts.len()));
    for (index, text) in texts.iter().enumerate() {
        let invalid = |why: String| Error::new(ErrorKind::Invalid, format!("record {index}{why}"));
        let draft = Draft::parse_new(text.get()).map_err(|error| invalid(format!(": {error}")))?;
        may_append(caller, &draft.record)?;
        if let Some(why) = refusal(&draft) {
            return Err(invalid(why));
        }
        let record_warnings = draft.warnings(text.get());
        if let Some(first) = record_warnings.first().filter(|_| strict) {
            return Err(invalid(format!(": {}, at {:?}", first.message, first.pointer)));
        }
        warnings.push(record_warnings);
        drafts.push(draft);
    }
    Ok(Records { many, drafts, warnings })
}

/// Returns why a record is refused, regardless of the caller: the continuation of a message that begins with the record.
fn refusal(draft: &Draft) -> Option<String> {
    let kind = draft.record.body.record_kind;
    if let Some(why) = members(&draft.record).find_map(not_built) {
        return Some(format!(": {why}"));
    }
    if let Some(record) = members(&draft.record).find(|record| is_numbered_by_mistake(record)) {
        let kind = record.body.record_kind.as_str();
        let why = "it is not part of a writer's sequence, because the server adds the principal to it";
        return Some(format!(": a {kind} has no writer_seq: {why}; leave writer_seq out"));
    }
    if kind.of_partition() {
        return Some(format!(": a {} does not belong to a run", kind.as_str()));
    }
    let why = "without one of the sender's own, sending it again after a lost answer would append it twice";
    (!draft.has_record_id).then(|| format!(" needs a record_id: {why}"))
}

/// Refuses a record that needs more than the scope `append`.
///
/// * Decisions need `resolve`. Exception: a writer's own `not_done` on its own effect, which the gate sends if the
///   effect never started. `check_own_decisions` checks that the effect is its own.
/// * A given approval needs `approve` or `resolve`.
/// * Keys are erased by operators.
fn may_append(caller: &Caller, record: &JournalRecord) -> Result<(), Error> {
    for record in members(record) {
        match record.body.record_kind {
            RecordKind::EffectResolution if !is_own_decision(record) => caller.require(Scope::Resolve)?,
            RecordKind::Erasure => caller.require(Scope::Operate)?,
            _ if approves(record) => caller.require_one_of(&[Scope::Approve, Scope::Resolve])?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns a record and, for a batch, the records in it.
pub(super) fn members(record: &JournalRecord) -> impl Iterator<Item = &JournalRecord> {
    let members = match &record.payload {
        Payload::Batch(batch) => batch.records.as_slice(),
        _ => &[],
    };
    iter::once(record).chain(members)
}

/// Returns why a record is refused that needs a feature that servers lack. Logs may already have such records: their
/// verdicts stay.
fn not_built(record: &JournalRecord) -> Option<&'static str> {
    let facts = &record.body.facts;
    if record.body.record_kind == RecordKind::Erasure {
        return Some(
            "servers cannot erase content yet, and an applied erasure would claim that they did; nothing was erased",
        );
    }
    let is_plain = facts.fingerprint.as_ref().is_some_and(|fingerprint| fingerprint.as_str().starts_with("v1:"));
    (is_plain && matches!(record.payload, Payload::Encrypted(_))).then_some(
        "a `v1:` fingerprint is an unsalted hash of the arguments that the payload encrypts; leave `facts.fingerprint` out",
    )
}

/// Whether a record has a number of its writer's sequence, and is of a kind that has none.
fn is_numbered_by_mistake(record: &JournalRecord) -> bool {
    record.body.record_kind.unclaimed() && record.place.writer_seq != WriterSeq::ZERO
}
