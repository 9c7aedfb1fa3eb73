//! "Was this done already?"

use super::Place;
use crate::{
    Error,
    store::{
        self, Rows,
        effects::EffectRow,
        tool_calls::{CallRow, by_fingerprint, count, key},
    },
};
use runlog_schemas::{
    answer::{CallError, Lookup},
    payload::Payload,
};

/// Occurrence `occurrence` (from 1; none asks for the last) of a fingerprint: three gets, and one per record whose
/// content is returned.
pub fn one<R: Rows>(
    rows: &R,
    place: Place<'_>,
    run_id: &str,
    fingerprint: &str,
    occurrence: Option<u32>,
) -> Result<Lookup, Error> {
    let occurrences: u32 = rows.get(&count(run_id, fingerprint))?.unwrap_or(0);
    let wanted = occurrence.unwrap_or(occurrences);
    let mut answer = Lookup {
        status: "unknown".into(),
        fingerprint: fingerprint.to_owned(),
        occurrence: (wanted > 0).then_some(wanted),
        occurrences,
        tool_name: None,
        arguments: None,
        result: None,
        error: None,
        position: None,
    };
    let Some(id) = rows.get::<String>(&by_fingerprint(run_id, fingerprint, wanted))? else { return Ok(answer) };
    fill(rows, place, run_id, &id, &mut answer)?;
    Ok(answer)
}

/// A call by its request's record id.
pub fn by_request<R: Rows>(rows: &R, place: Place<'_>, run_id: &str, id: &str) -> Result<Option<Lookup>, Error> {
    let Some(row) = rows.get::<CallRow>(&key(run_id, id))? else { return Ok(None) };
    let occurrences: u32 = rows.get(&count(run_id, &row.fingerprint))?.unwrap_or(0);
    let mut answer = Lookup {
        status: "unknown".into(),
        fingerprint: row.fingerprint,
        occurrence: Some(row.occurrence),
        occurrences,
        tool_name: None,
        arguments: None,
        result: None,
        error: None,
        position: None,
    };
    fill(rows, place, run_id, id, &mut answer)?;
    Ok(Some(answer))
}

fn fill<R: Rows>(rows: &R, place: Place<'_>, run_id: &str, id: &str, answer: &mut Lookup) -> Result<(), Error> {
    let Some(call) = rows.get::<CallRow>(&key(run_id, id))? else { return Ok(()) };
    answer.status = call.status.as_str().into();
    answer.tool_name = Some(call.tool_name.clone());
    answer.position = Some(place.at(call.status_offset, call.status_index));
    let request = super::record(rows, run_id, call.request_offset, call.request_index)?;
    if let Some(Payload::ToolCallRequested(request)) = request.map(|record| record.payload) {
        answer.arguments = request.arguments;
    }
    if (call.status_offset, call.status_index) != (call.request_offset, call.request_index)
        && let Some(record) = super::record(rows, run_id, call.status_offset, call.status_index)?
    {
        outcome(rows, run_id, id, record.payload, answer)?;
    }
    Ok(())
}

/// What the record that ended a call says.
fn outcome<R: Rows>(rows: &R, run_id: &str, id: &str, payload: Payload, answer: &mut Lookup) -> Result<(), Error> {
    match payload {
        Payload::ToolCallCompleted(done) => answer.result = done.result,
        Payload::ToolCallFailed(failed) => {
            answer.error = Some(CallError { kind: failed.error_kind, message: failed.error_message });
        }
        Payload::EffectResolution(resolution) => match resolution.decision.as_str() {
            "done" => answer.result = resolution.result,
            "adopt" => {
                let effect: Option<EffectRow> = rows.get(&store::effects::ended(run_id, id))?;
                if let Some(evidence) = effect.as_ref().and_then(|effect| effect.evidence.last()) {
                    let adopted = super::envelope(&evidence.framed.0)?.payload();
                    if let Ok(payload) = adopted {
                        outcome(rows, run_id, id, payload, answer)?;
                    }
                }
            }
            _ => answer.error = Some(CallError { kind: "given_up".into(), message: resolution.why }),
        },
        _ => {}
    }
    Ok(())
}
