//! Records the result of an effect, and reads recorded answers.

use super::{
    answer::{Answer, Ended, Failure},
    call_spec::CallSpec,
};
use crate::{
    error::{Action, Error, SideEffect},
    metrics::metric,
    session::{
        in_flight::InFlightCall,
        marker::{self, Reason, marker},
        shared::Busy,
        taken_call::TakenCall,
    },
};
use runlog_schemas::{
    answer::{CallError, ContentLoss, Dropped, ErrorKind, LookupStatus, MissingContent, OrOther},
    depth,
    id::RecordId,
    json::Json,
    payload::{Payload, PayloadType, ToolCallCompleted, ToolCallFailed},
};

/// The record of an effect's outcome, its result and its failure.
type Outcome = (Payload, Option<Json>, Option<CallError>);

/// The size of a held result, bytes.
fn size(result: Option<&Json>, error: Option<&CallError>) -> usize {
    result.map_or(0, |result| result.as_str().len()) + error.map_or(0, |error| error.kind.len() + error.message.len())
}

/// Reads the recorded answer of a call.
pub(super) async fn read_answer(spec: &CallSpec<'_>, taken: TakenCall, busy: &Busy) -> Result<Answer, Error> {
    let (session, client) = (spec.session, &spec.session.client);
    let id = taken.id.clone();
    let lookup = client.transport.call(client.id(), id.borrow()).await?;
    let status = lookup.status.as_str();
    // The caller has the arguments, so they may be missing. A missing answer must not look like an empty one.
    if let Some(missing) = lookup.missing_content.iter().find(|of| of.payload_type != PayloadType::ToolCallRequested) {
        return Err(answer_lost(spec, &id, status, missing));
    }
    if let Some(dropped) = lookup.dropped.iter().find(|of| of.payload_type != PayloadType::ToolCallRequested) {
        return Err(answer_dropped(spec, &id, status, dropped));
    }
    // A status without an answer must not look like an empty answer either.
    if !matches!(lookup.status, OrOther::Known(LookupStatus::Completed | LookupStatus::Failed)) {
        // The log acknowledged the result, but the journal can have refused it since.
        let mut guard = session.lock().await?;
        guard.appender.confirm_results().await?;
        if guard.appender.state.is_lost() {
            guard.appender.check_ready()?;
        }
        // Or a skip has voided it. The next call reads an unresolved call again.
        guard.replay.mark_uncertain(id.borrow(), false);
        return Err(spec.pending(&id, "its recorded answer was not found"));
    }
    // The request stays available: an agent may try the call again after this error, and its effect must not run.
    if let Some(why) = lookup.result.as_ref().and_then(|result| marker::read(&id, result)) {
        let what = format!(" is missing, because it could not be recorded ({why})");
        return Err(without_answer(spec, &id, status, (ErrorKind::MissingContent, Action::Operator), &what));
    }
    session.lock().await?.replay.mark_answered(id.borrow(), busy.period());
    taken.keep();
    client.config.count(metric::RECORDED);
    Ok(Answer { call: id, result: lookup.result, error: lookup.error, recorded: true, position: lookup.position })
}

/// Appends the result of the effect, which is held until it is in the log.
pub(super) async fn record(
    spec: &CallSpec<'_>,
    in_flight: &mut InFlightCall,
    ended: Ended,
    busy: &Busy,
) -> Result<Answer, Error> {
    let session = spec.session;
    let config = &session.client.config;
    let (payload, result, error) = match build_result(spec, in_flight.id(), ended) {
        Ok(outcome) => outcome,
        Err(why) => return Err(unknown(spec, in_flight, &why)),
    };
    let record_id = config.record_id()?;
    let is_held = in_flight.end(&record_id, payload.clone(), size(result.as_ref(), error.as_ref()));
    let ran = |failed: Error, side_effect| {
        if side_effect == SideEffect::Held {
            config.count(metric::HELD);
        }
        let what = match side_effect {
            SideEffect::Held => "its result is held, and recorded by the next operation or by reopening the run",
            SideEffect::Evidence => "its result was left as evidence",
            _ => "its result could not be recorded",
        };
        failed
            .map_message(|why| format!("the effect of call {} ran; {what}: {why}", in_flight.id()))
            .with_side_effect(side_effect)
    };
    let side_effect = if is_held { SideEffect::Held } else { SideEffect::Unrecorded };
    let mut guard = session.lock().await.map_err(|failed| ran(failed, side_effect))?;
    if let Err(failed) = session.make_ready(&mut guard).await {
        if !guard.appender.state.is_over() {
            return Err(ran(failed, side_effect));
        }
        let appended = guard.append_evidence(in_flight.id(), record_id, payload).await;
        let is_evidence = appended.is_ok_and(|kept| kept);
        let failed = ran(failed, if is_evidence { SideEffect::Evidence } else { side_effect });
        if is_evidence {
            in_flight.mark_recorded();
        }
        return Err(failed);
    }
    match guard.append_result(in_flight.id(), record_id, payload).await {
        Ok(acked) => {
            in_flight.mark_recorded();
            guard.replay.mark_answered(in_flight.id().borrow(), busy.period());
            let call = in_flight.id().clone();
            Ok(Answer { call, result, error, recorded: false, position: Some(acked.position) })
        }
        // The backend reported the refusal: the result is in the log.
        Err(failed) if failed.kind() == ErrorKind::Fenced => {
            let failed = ran(failed, SideEffect::Evidence);
            in_flight.mark_recorded();
            Err(failed)
        }
        Err(failed) if failed.action() == Action::FixTheInput => {
            let failed = ran(failed, SideEffect::Unrecorded);
            in_flight.mark_unrecordable();
            Err(failed)
        }
        Err(failed) => Err(ran(failed, side_effect)),
    }
}

/// Builds the redacted record of an effect's outcome and the answer for the caller. The error is the reason for an unknown
/// outcome.
fn build_result(spec: &CallSpec<'_>, request: &RecordId, ended: Ended) -> Result<Outcome, String> {
    let (config, request_record_id) = (&spec.session.client.config, request.clone());
    match ended {
        Ended::Done(result) => {
            let bytes = result.as_str().len();
            let mut recorded = config.redacted(Some(&spec.name), &result);
            if marker::read(request, &recorded).is_some() {
                recorded = marker(request, Reason::Invalid, "the result is a marker of this call", bytes);
            }
            let done = |result| ToolCallCompleted {
                request_record_id: request_record_id.clone(),
                result: Some(result),
                latency_ms: None,
            };
            let mut payload = Payload::from(done(recorded));
            if let Err(too_deep) = depth::check_payload(&payload) {
                let why = too_deep.to_string();
                tracing::warn!(call = request.as_str(), "the result of a call is not recorded: {why}");
                payload = done(marker(request, Reason::NoJson, &why, bytes)).into();
            }
            Ok((payload, Some(result), None))
        }
        Ended::Failed(Failure { kind, message }) => {
            let (error_kind, error_message) = (kind.clone(), config.redacted_text(&message));
            let failed = ToolCallFailed { request_record_id, error_kind, error_message, latency_ms: None };
            Ok((failed.into(), None, Some(CallError { kind, message })))
        }
        Ended::Unknown(why) => Err(why),
    }
}

/// Makes the error of an effect with an unknown outcome: the result is not recorded, and the call stays pending.
fn unknown(spec: &CallSpec<'_>, in_flight: &InFlightCall, why: &str) -> Error {
    let id = in_flight.id();
    let error = if in_flight.has_key() {
        let message = format!(
            "the effect of call {id} of {} may have happened: {why}; its key makes it safe to retry",
            spec.name
        );
        Error::new(ErrorKind::Unavailable, Action::Retry, message).about_record(id.borrow())
    } else {
        spec.pending(id, why)
    };
    error.with_side_effect(SideEffect::Unrecorded)
}

/// Makes the error of a call that ended, if the content of its answer is missing: its effect does not run again.
fn answer_lost(spec: &CallSpec<'_>, id: &RecordId, status: &str, missing: &MissingContent) -> Error {
    let MissingContent { sha256, bytes, reason, .. } = missing;
    let (kind, action) = match reason {
        OrOther::Known(ContentLoss::Unavailable) => (ErrorKind::Unavailable, Action::Retry),
        _ => (ErrorKind::MissingContent, Action::Operator),
    };
    let what = format!(", content {sha256} of {bytes} bytes, is {reason} in the content store");
    without_answer(spec, id, status, (kind, action), &what)
}

/// Makes the error of a call that ended, if retention removed its answer: its effect does not run again.
fn answer_dropped(
    spec: &CallSpec<'_>,
    id: &RecordId,
    status: &str,
    Dropped { dropped: horizon, .. }: &Dropped,
) -> Error {
    let what =
        format!(" was removed by the retention horizon at partition {}, offset {}", horizon.partition, horizon.offset);
    without_answer(spec, id, status, (ErrorKind::MissingContent, Action::Operator), &what)
}

fn without_answer(
    spec: &CallSpec<'_>,
    id: &RecordId,
    status: &str,
    (kind, action): (ErrorKind, Action),
    what: &str,
) -> Error {
    let message = format!(
        "call {id} of {} in run {} is {status} and was not run again; its recorded answer{what}",
        spec.name, spec.session.client.run_id
    );
    Error::new(kind, action, message).about_record(id.borrow())
}
