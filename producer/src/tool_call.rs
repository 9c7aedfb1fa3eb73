//! The gate: an effect runs at most once, unless its key makes running it again safe.
//!
//! ```text
//!   recorded, completed ─▶ the recorded answer; the effect does not run
//!   recorded, pending   ─▶ retry_safe: attempt appended, checked ─▶ effect ─▶ result
//!                          otherwise: reconcile_required; nothing runs
//!   new                 ─▶ intent appended, checked ─▶ effect ─▶ result
//! ```
//!
//! Checked: read back, at `latest`, as applied *and* with this handle as the run's current writer ([`Tool::check_may_run`]).
//! Calls of one handle overlap; their intents are appended in the order of the calls (`session::intents`).

use crate::{
    error::{Action, Error, SideEffect},
    metrics::metric,
    session::{
        Session,
        activity::InFlight,
        outbox::{InFlightCall, SharedOutbox},
        replay::{CallKey, RecordedCall},
    },
};
use runlog_schemas::{
    answer::{CallError, ContentLoss, Dropped, ErrorKind, LookupStatus, MissingContent, OrOther, Position},
    canonical, depth,
    id::{Fingerprint, OrEmpty, RecordId, RunId},
    json::Json,
    payload::{Payload, PayloadType, ToolCallCompleted, ToolCallFailed, ToolCallRequested},
};

mod admission;

use admission::Admission;

/// The argument of an effect.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's record id: unique, and the same for all attempts.
    pub id: RecordId,
    /// 1 for the first attempt; higher if an earlier attempt may have run.
    pub attempt: u32,
    /// The key to pass to the receiver.
    pub idempotency_key: Option<String>,
}

/// A failed effect, which is recorded as the call's final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure, as `error_kind` of the record.
    pub kind: String,
    /// The receiver's message, as `error_message` of the record.
    pub message: String,
}

/// The outcome of an effect that may not know its own outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The effect happened.
    Done(Json),
    /// The effect did not happen and will not.
    Failed(Failure),
    /// The effect may have happened. The text is the reason for the doubt, for example a lost answer of the receiver.
    Unknown(String),
}

impl From<Result<Json, Failure>> for Ended {
    fn from(ended: Result<Json, Failure>) -> Self {
        ended.map_or_else(Self::Failed, Self::Done)
    }
}

/// A call's recorded answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The result. `None` for a failure, or if it is redacted.
    pub result: Option<Json>,
    /// The failure.
    pub error: Option<CallError>,
    /// Whether the answer came from the journal, and the effect did not run now.
    pub recorded: bool,
    /// The position of the record that ended the call.
    pub position: Option<Position>,
}

/// A prepared tool call.
#[derive(Debug)]
pub struct Tool<'a> {
    session: &'a Session,
    name: String,
    args: Result<Json, String>,
    key: Option<String>,
    repeatable: bool,
}

/// A recorded call that was taken to answer a call. If it is dropped before its answer is fetched or its next attempt is
/// acknowledged, the recorded call is restored, so that the same call does not look new.
#[derive(Debug)]
pub(crate) struct TakenCall {
    outbox: SharedOutbox,
    id: RecordId,
    /// The recorded call to restore. `None` for a call with a key, which was not removed.
    recorded: Option<RecordedCall>,
}

impl TakenCall {
    fn new(outbox: &SharedOutbox, recorded: &RecordedCall, has_key: bool) -> Self {
        let put_back = (!has_key).then(|| recorded.clone());
        Self { outbox: outbox.clone(), id: recorded.id.clone(), recorded: put_back }
    }

    /// Does not restore the call: it is answered or in flight.
    pub(crate) fn keep(mut self) {
        self.recorded = None;
    }
}

impl Drop for TakenCall {
    fn drop(&mut self) {
        self.outbox.lock().returned.extend(self.recorded.take());
    }
}

impl<'a> Tool<'a> {
    pub(crate) fn new(session: &'a Session, name: &str, args: Result<Json, String>) -> Self {
        Self { session, name: name.to_owned(), args, key: None, repeatable: false }
    }

    /// Sets the key by which the receiver recognises the effect. It makes a pending call safe to run again.
    ///
    /// Keys are scoped to run and tool: the same key for another tool, or in another run, is another call. Within its scope a
    /// key always identifies one call, at any checkpoint that the agent resumes at. For a call with an empty key, `once`
    /// returns `Invalid` and appends nothing.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Declares that the effect may run any number of times, like a tool that only reads: a call whose process died runs again
    /// without a key and without a decision.
    ///
    /// Requires a server with the feature `bases`; other servers treat the call as any other.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// As [`Tool::once_or_unknown`], for an effect that always knows how it ended.
    pub async fn once<F, Fut>(self, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(Call) -> Fut,
        Fut: Future<Output = Result<Json, Failure>>,
    {
        let effect = |call| {
            let running = effect(call);
            async move { Ended::from(running.await) }
        };
        self.once_or_unknown(effect).await
    }

    /// Runs `effect` unless the journal already has the call's answer, and records its outcome. The answer is returned after
    /// its acknowledgement. The journal may refuse its record after that. If another process writes the run, the next operation
    /// is `Fenced`. If an operator decided the call meanwhile, the next operation that reads back reports it, with the call's
    /// id: a `checkpoint`, `end`, `flush` or `reopen` before it returns, and another call before its effect runs.
    ///
    /// The effect did not run if the error is `ReconcileRequired` (an earlier effect may have happened), `Fenced` (another
    /// process took the run over), `MissingContent` (the call ended, and its recorded answer is lost), `Unavailable` (the
    /// recorded answer is unreachable now, the same call is running in this process, or too many calls are in flight), `Stale`
    /// (the read-back of this intent, or of an earlier call's, was late) or `Conflict` (the key belongs to a call with other
    /// arguments, the intent's id to another record, an earlier call's result was refused after its acknowledgement, or the run
    /// has ended without an answer to the call). If a call does not start because another call failed, its error has the other
    /// error's kind.
    ///
    /// If the effect ran, [`Error::side_effect`] is `Held` if its result could not be recorded yet, `Evidence` if the run was
    /// lost or ended in the meantime, and `Unrecorded` if the effect does not know its outcome, or if its result can never be
    /// recorded (`TooLarge`).
    ///
    /// A call that is cancelled before its effect starts counts as never started. If it is cancelled while the effect runs, it
    /// stays pending. If it is cancelled after that, its result is held, and the next operation of the handle records it.
    ///
    /// Calls of one handle may overlap. Intents are appended in the order of the calls; intents that wait for another append
    /// are sent together. Results are appended in the order in which the effects end. If the intent of a call is appended and
    /// its effect may not run, the effects of later calls do not run either, if their intents wait or are already appended. So
    /// each call waits for the calls before it; after [`Config::read_back`](crate::Config::read_back) the handle is stopped.
    /// Poll all started calls.
    #[tracing::instrument(skip_all, fields(run = self.session.run_id.as_str(), tool = self.name))]
    pub async fn once_or_unknown<F, Fut>(self, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(Call) -> Fut,
        Fut: Future<Output = Ended>,
    {
        let session = self.session;
        let busy = session.activity.begin();
        let (request, fingerprint) = self.request()?;
        let admitted = async {
            let slot = session.call_slot().await?;
            match Box::pin(self.admit(request, fingerprint, slot)).await? {
                Admission::Recorded(recorded) => self.recorded(recorded, &busy).await.map(Err),
                Admission::Run(in_flight, attempt) => Ok(Ok((in_flight, attempt))),
            }
        };
        let (mut in_flight, attempt) = match session.time_limited(admitted).await? {
            Ok(admitted) => admitted,
            Err(recorded) => return Ok(recorded),
        };
        let call = Call { id: in_flight.id().clone(), attempt, idempotency_key: self.key.clone() };
        in_flight.start();
        self.session.config.count(metric::EFFECTS);
        let ended = effect(call).await;
        let recorded = Box::pin(self.record(&mut in_flight, ended, &busy));
        let recorded = session.config.time_limited(session.run_id.borrow(), SideEffect::Held, recorded).await;
        // A cancelled result is held, if the outbox has capacity: see `record`.
        let unheld = |error: &Error| {
            error.side_effect() == SideEffect::Held && !session.outbox.lock().holds_result_of(in_flight.id())
        };
        recorded.map_err(|error| if unheld(&error) { error.with_side_effect(SideEffect::Unrecorded) } else { error })
    }

    fn request(&self) -> Result<(ToolCallRequested, Fingerprint), Error> {
        if self.key.as_deref() == Some("") {
            let message = format!(
                "the idempotency key of {} is empty: pass a key that only this call has, or none for a call without one",
                self.name
            );
            return Err(invalid(&message));
        }
        let args = self
            .args
            .clone()
            .map_err(|error| invalid(&format!("the arguments of {} do not serialise: {error}", self.name)))?;
        let request = ToolCallRequested {
            request_id: (self.session.config.ids)(),
            call_id: "1".into(),
            parent_id: None,
            vendor: None,
            tool_name: self.name.clone(),
            args_sha256: String::new(),
            fingerprint: OrEmpty::NONE,
            arguments: Some(args),
        };
        let mut request = request.seal().map_err(|error: canonical::Error| invalid(&error.to_string()))?;
        // The fingerprint covers the arguments before redaction.
        let redacted = |args: &Json| self.session.config.redacted(Some(&self.name), args);
        request.arguments = request.arguments.as_ref().map(redacted);
        let fingerprint = request.fingerprint.0.clone().ok_or_else(|| invalid("a call without arguments"))?;
        Ok((request, fingerprint))
    }

    fn key(&self) -> CallKey {
        self.key.clone().map(|key| (self.name.clone(), key))
    }

    /// Reads the recorded answer.
    async fn recorded(&self, taken: TakenCall, busy: &InFlight) -> Result<Answer, Error> {
        let session = self.session;
        let id = taken.id.clone();
        let lookup = session.transport.call(session.run_id.borrow(), id.borrow()).await?;
        // The caller has the arguments, so they may be missing. A missing answer must not look like an empty one.
        if let Some(missing) =
            lookup.missing_content.iter().find(|of| of.payload_type != PayloadType::ToolCallRequested)
        {
            return Err(answer_lost(session.run_id.borrow(), id.borrow(), &self.name, lookup.status.as_str(), missing));
        }
        if let Some(dropped) = lookup.dropped.iter().find(|of| of.payload_type != PayloadType::ToolCallRequested) {
            return Err(answer_dropped(
                session.run_id.borrow(),
                id.borrow(),
                &self.name,
                lookup.status.as_str(),
                dropped,
            ));
        }
        // A status without an answer must not look like an empty answer either.
        if !matches!(lookup.status, OrOther::Known(LookupStatus::Completed | LookupStatus::Failed)) {
            return Err(reconcile(
                session.run_id.borrow(),
                id.borrow(),
                &self.name,
                "its recorded answer was not found",
            ));
        }
        session.lock().await?.replay.mark_answered(id.borrow(), busy.period());
        taken.keep();
        session.config.count(metric::RECORDED);
        Ok(Answer { result: lookup.result, error: lookup.error, recorded: true, position: lookup.position })
    }

    /// Appends the result of the effect, which is held until it is in the log.
    async fn record(&self, in_flight: &mut InFlightCall, ended: Ended, busy: &InFlight) -> Result<Answer, Error> {
        let session = self.session;
        let (payload, result, error) = match self.outcome(in_flight.id(), ended) {
            Ok(outcome) => outcome,
            Err(why) => return Err(self.unknown(in_flight, &why)),
        };
        if let Err(too_deep) = depth::check_payload(&payload) {
            // The result is not held, because it can never be recorded.
            let ran = |why: &str| {
                format!("the effect of call {} ran; its result could not be recorded: {why}", in_flight.id())
            };
            return Err(Error::from(too_deep).map_message(ran).with_side_effect(SideEffect::Unrecorded));
        }
        let record_id = session.config.record_id()?;
        let is_held = in_flight.end(&record_id, payload.clone(), size(result.as_ref(), error.as_ref()));
        let ran = |failed: Error, side_effect| {
            if side_effect == SideEffect::Held {
                session.config.count(metric::HELD);
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
            let appended = guard.append_evidence(&record_id, payload).await;
            let is_evidence = appended.is_ok_and(|kept| kept);
            let failed = ran(failed, if is_evidence { SideEffect::Evidence } else { side_effect });
            if is_evidence {
                in_flight.mark_recorded();
            }
            return Err(failed);
        }
        match guard.appender.append_result(in_flight.id(), record_id, payload).await {
            Ok(acked) => {
                in_flight.mark_recorded();
                guard.replay.mark_answered(in_flight.id().borrow(), busy.period());
                Ok(Answer { result, error, recorded: false, position: Some(acked.position) })
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
    fn outcome(&self, request: &RecordId, ended: Ended) -> Result<Outcome, String> {
        let (config, request_record_id) = (&self.session.config, request.clone());
        match ended {
            Ended::Done(result) => {
                let recorded = Some(config.redacted(Some(&self.name), &result));
                let done = ToolCallCompleted { request_record_id, result: recorded, latency_ms: None };
                Ok((done.into(), Some(result), None))
            }
            Ended::Failed(Failure { kind, message }) => {
                let (error_kind, error_message) = (kind.clone(), config.redacted_text(&message));
                let failed = ToolCallFailed { request_record_id, error_kind, error_message, latency_ms: None };
                Ok((failed.into(), None, Some(CallError { kind, message })))
            }
            Ended::Unknown(why) => Err(why),
        }
    }

    fn conflict(&self, id: &RecordId) -> Error {
        let message = format!("the idempotency key belongs to call {id} of {}, which has other arguments", self.name);
        Error::new(ErrorKind::Conflict, Action::FixTheInput, message).about_record(id.borrow())
    }

    fn running(&self, id: &RecordId) -> Error {
        let message = format!("call {id} of {} is running in this process; retry when it has ended", self.name);
        Error::new(ErrorKind::Unavailable, Action::Retry, message).about_record(id.borrow())
    }

    /// The error of an effect with an unknown outcome: the result is not recorded, and the call stays pending.
    fn unknown(&self, in_flight: &InFlightCall, why: &str) -> Error {
        let id = in_flight.id();
        let error = if in_flight.has_key() {
            let message = format!(
                "the effect of call {id} of {} may have happened: {why}; its key makes it safe to retry",
                self.name
            );
            Error::new(ErrorKind::Unavailable, Action::Retry, message).about_record(id.borrow())
        } else {
            reconcile(self.session.run_id.borrow(), id.borrow(), &self.name, why)
        };
        error.with_side_effect(SideEffect::Unrecorded)
    }
}

/// The record of an effect's outcome, its result and its failure.
type Outcome = (Payload, Option<Json>, Option<CallError>);

/// The size of a held result, bytes.
fn size(result: Option<&Json>, error: Option<&CallError>) -> usize {
    result.map_or(0, |result| result.as_str().len()) + error.map_or(0, |error| error.kind.len() + error.message.len())
}

/// The call ended, and the content of its answer is missing: its effect does not run again.
fn answer_lost(run_id: RunId<&str>, id: RecordId<&str>, tool: &str, status: &str, missing: &MissingContent) -> Error {
    let MissingContent { sha256, bytes, reason, .. } = missing;
    let (kind, action) = match reason {
        OrOther::Known(ContentLoss::Unavailable) => (ErrorKind::Unavailable, Action::Retry),
        _ => (ErrorKind::MissingContent, Action::Operator),
    };
    let message = format!(
        "call {id} of {tool} in run {run_id} is {status} and was not run again; its recorded answer, content {sha256} of \
         {bytes} bytes, is {reason} in the content store"
    );
    Error::new(kind, action, message).about_record(id)
}

/// The call ended, and retention removed its answer: its effect does not run again.
fn answer_dropped(run_id: RunId<&str>, id: RecordId<&str>, tool: &str, status: &str, dropped: &Dropped) -> Error {
    let horizon = &dropped.dropped;
    let message = format!(
        "call {id} of {tool} in run {run_id} is {status} and was not run again; its recorded answer was removed by the \
         retention horizon at partition {}, offset {}",
        horizon.partition, horizon.offset
    );
    Error::new(ErrorKind::MissingContent, Action::Operator, message).about_record(id)
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, Action::FixTheInput, message)
}

fn reconcile(run_id: RunId<&str>, id: RecordId<&str>, tool: &str, why: &str) -> Error {
    let message = format!(
        "call {id} of {tool} in run {run_id} is pending: {why}; find out whether it happened, then \
         `runlog effects resolve {run_id} {id} …`"
    );
    Error::new(ErrorKind::ReconcileRequired, Action::Operator, message).about_run(run_id).about_record(id)
}
