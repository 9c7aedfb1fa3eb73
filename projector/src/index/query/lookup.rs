//! Looks up a tool call: whether it was done already, and its result.

use super::{Content, Stored, TopicPartition};
use crate::index::{
    content::Contents,
    error::Error,
    store::{
        self, Rows,
        effects::{EffectKind, EffectRow},
        horizons::Horizons,
        tool_calls::{CallRow, by_fingerprint, count, key},
    },
};
use runlog_schemas::{
    answer::{CallError, Lookup, LookupStatus},
    id::{Fingerprint, Offset, RecordId, RunId},
    payload::{Payload, PayloadType},
    record::Facts,
};
use std::ops::ControlFlow;

/// Looks up a call by its fingerprint: the call number `occurrence`, from 1, or the last call if `None`. The answer lists
/// content that is missing in the content store, and content that a retention horizon dropped. Its status does not depend
/// on content.
///
/// Cost: four gets, one per record whose content is returned, and one more for an adopted result.
pub fn get<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    fingerprint: Fingerprint<&str>,
    occurrence: Option<u32>,
) -> Result<Lookup, Error> {
    let occurrences: u32 = rows.get(&count(run_id, fingerprint))?.unwrap_or(0);
    let wanted = occurrence.unwrap_or(occurrences);
    let mut answer = unknown(fingerprint.to_owned(), (wanted > 0).then_some(wanted), occurrences);
    let Some(id) = rows.get::<RecordId>(&by_fingerprint(run_id, fingerprint, wanted))? else { return Ok(answer) };
    Fill { rows, contents, horizons: Horizons::read(|key| rows.get(key))?, place, run_id, id: id.borrow() }
        .fill(&mut answer)?;
    Ok(answer)
}

/// A call by its request's record id.
pub fn by_request<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    id: RecordId<&str>,
) -> Result<Option<Lookup>, Error> {
    let Some(row) = rows.get::<CallRow>(&key(run_id, id))? else { return Ok(None) };
    let occurrences: u32 = rows.get(&count(run_id, row.fingerprint.borrow()))?.unwrap_or(0);
    let mut answer = unknown(row.fingerprint, Some(row.occurrence), occurrences);
    Fill { rows, contents, horizons: Horizons::read(|key| rows.get(key))?, place, run_id, id }.fill(&mut answer)?;
    Ok(Some(answer))
}

/// Looks up a tool's first call with an idempotency key. Cost: one seek, and the cost of [`by_request`].
pub fn by_key<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    (tool_name, idempotency_key): (&str, &str),
) -> Result<Option<Lookup>, Error> {
    let (prefix, mut first) = (store::keys::of_key(run_id, tool_name, idempotency_key), None);
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        first = Some(store::decode::<RecordId>(key, row)?);
        Ok(ControlFlow::Break(()))
    })?;
    let Some(id) = first else { return Ok(None) };
    let answer = by_request(rows, contents, place, run_id, id.borrow())?;
    Ok(answer.map(|answer| Lookup { request_record_id: Some(id), ..answer }))
}

fn unknown(fingerprint: Fingerprint, occurrence: Option<u32>, occurrences: u32) -> Lookup {
    Lookup {
        status: LookupStatus::Unknown.into(),
        fingerprint,
        occurrence,
        occurrences,
        tool_name: None,
        arguments: None,
        result: None,
        error: None,
        position: None,
        missing_content: Vec::new(),
        dropped: Vec::new(),
        contradicted: false,
        request_record_id: None,
    }
}

/// Fills in the answer about one call.
struct Fill<'a, R> {
    rows: &'a R,
    contents: &'a Contents,
    horizons: Horizons,
    place: TopicPartition<'a>,
    run_id: RunId<&'a str>,
    id: RecordId<&'a str>,
}

impl<R: Rows> Fill<'_, R> {
    fn fill(&self, answer: &mut Lookup) -> Result<(), Error> {
        let Some(call) = self.rows.get::<CallRow>(&key(self.run_id, self.id))? else { return Ok(()) };
        answer.status = LookupStatus::from(call.status).into();
        answer.tool_name = Some(call.tool_name.clone());
        answer.contradicted = call.is_contradicted;
        answer.position = Some(self.place.position(call.status_offset, call.status_index));
        let requested = (call.request_offset, call.request_index);
        if let Some(record) = self.record(requested)?
            && let Some(Payload::ToolCallRequested(request)) = self.payload(record, requested, answer)
        {
            answer.arguments = request.arguments;
        }
        let ended = (call.status_offset, call.status_index);
        if ended == requested {
            return Ok(());
        }
        let Some(record) = self.record(ended)? else { return Ok(()) };
        let facts = &record.body.facts;
        // The facts name the decision even if its content was dropped.
        if facts.payload_type == PayloadType::EffectResolution && facts.status.as_deref() == Some("adopt") {
            return self.fill_adopted_result(facts, answer);
        }
        if let Some(payload) = self.payload(record, ended, answer) {
            fill_result(payload, answer);
        }
        Ok(())
    }

    fn record(&self, at: (Offset, u32)) -> Result<Option<Stored>, Error> {
        super::record(self.rows, &self.horizons, self.run_id, at)
    }

    /// A record's payload. If it is missing or dropped, notes that in the answer and returns `None`.
    fn payload(&self, record: Stored, at: (Offset, u32), answer: &mut Lookup) -> Option<Payload> {
        answer.dropped.extend(record.dropped(self.place, at));
        match record.payload {
            Content::Available(payload) => self.open(record.body.record_id.borrow(), at, payload, answer),
            Content::Dropped(_) => None,
        }
    }

    fn open(
        &self,
        record_id: RecordId<&str>,
        at: (Offset, u32),
        payload: Payload,
        answer: &mut Lookup,
    ) -> Option<Payload> {
        match self.contents.open(self.place, record_id, at, payload) {
            Ok(payload) => Some(payload),
            Err(lost) => {
                answer.missing_content.push(lost.missing);
                None
            }
        }
    }

    /// Fills in the result of the adopted evidence.
    fn fill_adopted_result(&self, decision: &Facts, answer: &mut Lookup) -> Result<(), Error> {
        let effect: Option<EffectRow> =
            self.rows.get(&store::effects::ended(self.run_id, EffectKind::ToolCall, self.id))?;
        let Some(evidence) = effect.as_ref().and_then(|effect| effect.adopted_by(decision)) else { return Ok(()) };
        let at = (evidence.offset, evidence.index);
        let record = super::envelope(&evidence.framed.0)?;
        let payload_type = &record.facts.payload_type;
        if let Some(by) = self.horizons.dropped_by(payload_type.as_str(), at.0, evidence.logged_at_millis) {
            answer.dropped.push(super::dropped(self.place, record.record_id, payload_type, at, by));
            return Ok(());
        }
        let Ok(payload) = record.payload() else { return Ok(()) };
        if let Some(payload) = self.open(evidence.record_id.borrow(), at, payload, answer) {
            fill_result(payload, answer);
        }
        Ok(())
    }
}

/// Fills in the result of the record that ended the call.
fn fill_result(payload: Payload, answer: &mut Lookup) {
    match payload {
        Payload::ToolCallCompleted(done) => answer.result = done.result,
        Payload::ToolCallFailed(failed) => {
            answer.error = Some(CallError { kind: failed.error_kind, message: failed.error_message });
        }
        Payload::EffectResolution(resolution) if resolution.decision == "done" => answer.result = resolution.result,
        Payload::EffectResolution(resolution) => {
            answer.error = Some(CallError { kind: "given_up".into(), message: resolution.why });
        }
        _ => {}
    }
}
