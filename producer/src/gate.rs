//! The gate: an effect runs at most once, unless its key makes running it again safe.
//!
//! ```text
//!   taken and completed ─▶ the recorded answer, the effect does not run
//!   taken and pending   ─▶ retry_safe: attempt appended, permitted ─▶ effect ─▶ result
//!                          otherwise: reconcile_required, nothing runs
//!   new                 ─▶ intent appended, permitted ─▶ effect ─▶ result
//! ```
//!
//! Permitted: read back, at `latest`, as applied *and* with this handle still the run's writer ([`pen::permit`]). Only
//! taking a call and appending its intent is done one call at a time; read-backs and effects of many calls overlap.

use crate::{
    Action, Error, Happened, Run, failpoint,
    held::{Key, UnderWay},
    metric, pen,
    resume::{Match, Open, Recorded},
    run::{Shared, State, pending_recovery},
    within,
};
use runlog_schemas::{
    answer::{CallError, Dropped, ErrorKind, MissingContent, Position},
    canonical, depth,
    id::{Fingerprint, OrEmpty, RecordId, RunId},
    json::Json,
    payload::{Payload, ToolCallAttempt, ToolCallCompleted, ToolCallFailed, ToolCallRequested},
};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// What the effect is told.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's record id: stable over attempts, and unique.
    pub id: RecordId,
    /// 1 for the first time; more when an earlier attempt may have happened.
    pub attempt: u32,
    /// The key to hand to the receiver.
    pub idempotency_key: Option<String>,
}

/// An effect's failure: it is recorded as the call's final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A name for the kind.
    pub kind: String,
    /// What it said.
    pub message: String,
}

/// How an effect ended, where that may be unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It happened.
    Done(Json),
    /// It did not happen, finally.
    Failed(Failure),
    /// It may have happened, and this is why nobody knows: a receiver that did not answer.
    Unknown(String),
}

impl From<Result<Json, Failure>> for Ended {
    fn from(ended: Result<Json, Failure>) -> Self {
        ended.map_or_else(Self::Failed, Self::Done)
    }
}

/// A call's answer, recorded for ever.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The result; none for a failure or where it is redacted.
    pub result: Option<Json>,
    /// The failure.
    pub error: Option<CallError>,
    /// Whether it came from the journal and the effect did not run.
    pub recorded: bool,
    /// Where the record that ended the call stands.
    pub position: Option<Position>,
}

/// A call that is about to be made.
#[derive(Debug)]
pub struct Tool<'a> {
    run: &'a Run,
    name: String,
    args: Result<Json, String>,
    key: Option<String>,
}

/// A recorded call that was taken and whose answer is being fetched. Dropped before the answer is there, the call stands
/// there again: asked for anew it must not look like one that was never made.
struct Fetching {
    shared: Arc<Shared>,
    id: RecordId,
    /// What goes back; none for a call with a key, which stays where it is.
    recorded: Option<Recorded>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.shared.notes().returned.extend(self.recorded.take());
    }
}

impl<'a> Tool<'a> {
    pub(crate) fn new(run: &'a Run, name: &str, args: Result<Json, String>) -> Self {
        Self { run, name: name.to_owned(), args, key: None }
    }

    /// Names the effect towards its receiver, which makes a pending one safe to run again.
    ///
    /// Scoped to run and tool: the same key of another tool, or in another run, is another call. In its scope it stands for
    /// one call for ever, whatever the checkpoint that the agent resumed at covers.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Runs `effect` unless the journal already has the call's answer, and records how it ended: [`Tool::once_or_unknown`]
    /// for an effect that always knows.
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

    /// Runs `effect` unless the journal already has the call's answer, and records how it ended. The answer is returned
    /// once it is acknowledged.
    ///
    /// Errors under which the effect did not run: `ReconcileRequired` where an earlier one may have happened; `Fenced` where
    /// another process took the run over; `MissingContent` where the call ended and its recorded answer is lost,
    /// `Unavailable` where that cannot be fetched now, where the same call is running in this process, or where there are
    /// too many; `Stale` where the intent could not be read back in time; `Conflict` where the key stands for other
    /// arguments. Where the effect ran, [`Error::happened`] says so: `Held` where its end could not be recorded yet, `Evidence`
    /// where the run was lost meanwhile, `Effect` where it said itself that it does not know, or where its end can never
    /// be recorded (`TooLarge`).
    ///
    /// Cancelled before the effect starts, the call counts as never started; while it runs, the call stays pending; after it
    /// ended, its end is held and recorded by what the handle does next. Calls of one handle may run at the same time:
    /// intents are appended in the order in which the calls come, results in the order in which the effects end.
    #[tracing::instrument(skip_all, fields(run = self.run.shared.run_id.as_str(), tool = self.name))]
    pub async fn once_or_unknown<F, Fut>(self, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(Call) -> Fut,
        Fut: Future<Output = Ended>,
    {
        let (request, fingerprint) = self.request()?;
        let shared = &self.run.shared;
        let admitted = async {
            let slot = shared.slot().await?;
            match Box::pin(self.admit(request, fingerprint, slot)).await? {
                Admission::Recorded(recorded) => self.recorded(recorded).await.map(Err),
                Admission::Run(under_way, attempt) => Ok(Ok((under_way, attempt))),
            }
        };
        let (mut under_way, attempt) = match shared.within(admitted).await? {
            Ok(admitted) => admitted,
            Err(recorded) => return Ok(recorded),
        };
        let call = Call { id: under_way.id().clone(), attempt, idempotency_key: self.key.clone() };
        under_way.runs();
        self.run.shared.config.count(metric::EFFECTS);
        let ended = effect(call).await;
        let recorded = Box::pin(self.record(&mut under_way, ended));
        let recorded = within(&shared.config, shared.run_id.borrow(), Happened::Held, recorded).await;
        // What is cancelled behind its effect is held, where there is room to hold it: see `record`.
        let unheld = |error: &Error| error.happened() == Happened::Held && !shared.notes().holds(under_way.id());
        recorded.map_err(|error| if unheld(&error) { error.left(Happened::Effect) } else { error })
    }

    fn request(&self) -> Result<(ToolCallRequested, Fingerprint), Error> {
        let args = self.args.clone().map_err(|error| invalid(&format!("the arguments do not serialise: {error}")))?;
        let request = ToolCallRequested {
            request_id: (self.run.shared.config.ids)(),
            call_id: "1".into(),
            parent_id: None,
            vendor: None,
            tool_name: self.name.clone(),
            args_sha256: String::new(),
            fingerprint: OrEmpty::NONE,
            arguments: Some(args),
        };
        let mut request = request.seal().map_err(|error: canonical::Error| invalid(&error.to_string()))?;
        // The fingerprint is that of the true arguments.
        let redacted = |args: &Json| self.run.shared.config.redacted(Some(&self.name), args);
        request.arguments = request.arguments.as_ref().map(redacted);
        let fingerprint = request.fingerprint.0.clone().ok_or_else(|| invalid("a call without arguments"))?;
        Ok((request, fingerprint))
    }

    fn key(&self) -> Key {
        self.key.clone().map(|key| (self.name.clone(), key))
    }

    /// Takes what is recorded, or appends the intent: one step under the handle's lock. Then, without it, reads the intent
    /// back.
    async fn admit(
        &self,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admission, Error> {
        let shared = &self.run.shared;
        let mut guard = shared.lock().await?;
        shared.ready(&mut guard).await?;
        if guard.resume.unresolved().is_some() {
            // Somebody may have decided meanwhile.
            if let Some(now) = pending_recovery(&shared.transport, shared.run_id.borrow()).await? {
                guard.resume.refresh(&now);
            }
        }
        let (under_way, attempt, written) =
            match guard.resume.take(&self.name, self.key.as_deref(), fingerprint.borrow()) {
                Match::Conflict(id) => return Err(self.conflict(&id)),
                Match::Taken(recorded) if shared.notes().running.contains(&recorded.id) => {
                    return Err(self.running(&recorded.id));
                }
                Match::Taken(Recorded { pending: Some(open), id, fingerprint }) => {
                    let recorded = Recorded { id, fingerprint, pending: Some(open.clone()) };
                    self.again(&mut guard, recorded, open, slot).await?
                }
                Match::Taken(recorded) => return Ok(Admission::Recorded(self.fetching(recorded))),
                Match::New => self.intend(&mut guard, request, fingerprint, slot).await?,
            };
        let writer = (guard.pen.writer_id.clone(), guard.pen.epoch);
        drop(guard);
        (shared.config.failpoints)(failpoint::INTENT_ACKNOWLEDGED);
        let writer = (&writer.0, writer.1);
        let permitted = pen::permit(&shared.transport, &shared.config, shared.run_id.borrow(), &written, writer).await;
        if let Err(error) = permitted {
            return Err(shared.lock().await?.pen.stop_or_lose(error).left(Happened::Unknown));
        }
        Ok(Admission::Run(under_way, attempt))
    }

    /// A pending call: run it again only where that is safe, behind an attempt that is read back as applied.
    async fn again(
        &self,
        state: &mut State,
        recorded: Recorded,
        open: Open,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admitted, Error> {
        let shared = &self.run.shared;
        if !open.retry_safe {
            let id = recorded.id.clone();
            state.resume.put_back(self.key(), recorded);
            return Err(reconcile(shared.run_id.borrow(), id.borrow(), &self.name, &open.reason));
        }
        let attempt = open.attempts + 1;
        let payload = ToolCallAttempt { request_record_id: recorded.id.clone(), attempt, reason: open.reason.clone() };
        let id = match shared.config.record_id() {
            Ok(id) => id,
            Err(error) => {
                state.resume.put_back(self.key(), recorded);
                return Err(error);
            }
        };
        let written = match state.pen.append(id, payload.into(), None).await {
            Ok(written) => written,
            Err(error) => {
                state.resume.put_back(self.key(), recorded);
                return Err(error);
            }
        };
        let call = Recorded { pending: Some(Open { attempts: attempt, ..open }), ..recorded };
        let by = (written.record_id.clone(), written.position.clone());
        Ok((UnderWay::admitted(shared.clone(), call, self.key(), by, slot), attempt, written))
    }

    /// A new call: nothing new runs while an older effect is unresolved.
    async fn intend(
        &self,
        state: &mut State,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admitted, Error> {
        let shared = &self.run.shared;
        if !shared.allow_unresolved
            && let Some(id) = state.resume.unresolved()
        {
            let why = "nothing new runs before it is resolved";
            return Err(reconcile(shared.run_id.borrow(), id, "an earlier tool", why));
        }
        let written = state.pen.append(shared.config.record_id()?, request.into(), self.key.as_deref()).await?;
        let open = Open { retry_safe: self.key.is_some(), reason: "running in this process".into(), attempts: 1 };
        let recorded = Recorded { id: written.record_id.clone(), fingerprint, pending: Some(open) };
        state.resume.asked(written.journal_seq, &self.name, self.key.as_deref(), recorded.clone());
        let by = (written.record_id.clone(), written.position.clone());
        Ok((UnderWay::admitted(shared.clone(), recorded, self.key(), by, slot), 1, written))
    }

    fn fetching(&self, recorded: Recorded) -> Fetching {
        let id = recorded.id.clone();
        Fetching { shared: self.run.shared.clone(), id, recorded: self.key.is_none().then_some(recorded) }
    }

    /// The answer that the journal has.
    async fn recorded(&self, mut fetching: Fetching) -> Result<Answer, Error> {
        let shared = &self.run.shared;
        let id = fetching.id.clone();
        let found = shared.transport.call(shared.run_id.borrow(), id.borrow()).await?;
        // The arguments are the caller's own; an answer that is not there must not look like an empty one.
        if let Some(missing) = found.missing_content.iter().find(|of| of.payload_type != "tool_call_requested") {
            return Err(lost(shared.run_id.borrow(), id.borrow(), &self.name, &found.status, missing));
        }
        if let Some(dropped) = found.dropped.iter().find(|of| of.payload_type != "tool_call_requested") {
            return Err(dropped_away(shared.run_id.borrow(), id.borrow(), &self.name, &found.status, dropped));
        }
        shared.lock().await?.resume.answered(id.borrow());
        fetching.recorded = None;
        shared.config.count(metric::RECORDED);
        Ok(Answer { result: found.result, error: found.error, recorded: true, position: found.position })
    }

    /// Appends how the effect ended. From its first line on that is held, until it is in the log.
    async fn record(&self, under_way: &mut UnderWay, ended: Ended) -> Result<Answer, Error> {
        let shared = &self.run.shared;
        let (payload, result, error) = match self.outcome(under_way.id(), ended) {
            Ok(outcome) => outcome,
            Err(why) => return Err(self.unknown(under_way, &why)),
        };
        if let Err(too_deep) = depth::of_payload(&payload) {
            // Not even held: it could be recorded at no time.
            let ran = |why: &str| {
                format!("the effect of call {} ran; its result could not be recorded: {why}", under_way.id())
            };
            return Err(Error::from(too_deep).of(ran).left(Happened::Effect));
        }
        let record_id = shared.config.record_id()?;
        let held = under_way.ends(&record_id, payload.clone(), size(result.as_ref(), error.as_ref()));
        let ran = |failed: Error, happened| {
            if happened == Happened::Held {
                shared.config.count(metric::HELD);
            }
            let what = match happened {
                Happened::Held => "its result is held, to be recorded when the handle goes on",
                Happened::Evidence => "its result was left as evidence",
                _ => "its result could not be recorded",
            };
            failed.of(|why| format!("the effect of call {} ran; {what}: {why}", under_way.id())).left(happened)
        };
        let kept = if held { Happened::Held } else { Happened::Effect };
        let mut guard = shared.lock().await.map_err(|failed| ran(failed, kept))?;
        if let Err(failed) = shared.ready(&mut guard).await {
            if !guard.pen.is_lost() {
                return Err(ran(failed, kept));
            }
            let left = shared.leave(&mut guard, &record_id, payload).await;
            let happened = if left.is_ok() { Happened::Evidence } else { kept };
            let failed = ran(failed, happened);
            if left.is_ok() {
                under_way.is_over();
            }
            return Err(failed);
        }
        match guard.pen.append(record_id, payload, None).await {
            Ok(written) => {
                under_way.is_over();
                guard.resume.answered(under_way.id().borrow());
                Ok(Answer { result, error, recorded: false, position: Some(written.position) })
            }
            // The way told that it was refused: it stands in the log.
            Err(failed) if failed.kind() == ErrorKind::Fenced => {
                let failed = ran(failed, Happened::Evidence);
                under_way.is_over();
                Err(failed)
            }
            Err(failed) if failed.action() == Action::FixTheInput => {
                let failed = ran(failed, Happened::Effect);
                under_way.is_uncertain();
                Err(failed)
            }
            Err(failed) => Err(ran(failed, kept)),
        }
    }

    /// How an effect ended, or why that is unknown. The caller gets what it came to, the record what may be recorded of that.
    fn outcome(&self, request: &RecordId, ended: Ended) -> Result<Outcome, String> {
        let (config, request_record_id) = (&self.run.shared.config, request.clone());
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
        let message = format!("the idempotency key stands for call {id} of {} with other arguments", self.name);
        Error::new(ErrorKind::Conflict, Action::FixTheInput, message)
    }

    fn running(&self, id: &RecordId) -> Error {
        let message = format!("call {id} of {} is running in this process; ask again when it has ended", self.name);
        Error::new(ErrorKind::Unavailable, Action::Retry, message)
    }

    /// The effect does not know whether it happened: nothing is recorded, and the call stays pending.
    fn unknown(&self, under_way: &UnderWay, why: &str) -> Error {
        let id = under_way.id();
        let error = if under_way.has_key() {
            let message = format!(
                "nobody knows whether the effect of call {id} of {} happened: {why}; its key makes it safe to ask again",
                self.name
            );
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        } else {
            reconcile(self.run.shared.run_id.borrow(), id.borrow(), &self.name, why)
        };
        error.left(Happened::Effect)
    }
}

/// The record of how an effect ended, its result and its failure.
type Outcome = (Payload, Option<Json>, Option<CallError>);

/// Bytes that holding it takes.
fn size(result: Option<&Json>, error: Option<&CallError>) -> usize {
    result.map_or(0, |result| result.as_str().len()) + error.map_or(0, |error| error.kind.len() + error.message.len())
}

/// A call whose intent, or attempt, is acknowledged; which attempt it is; that record.
type Admitted = (UnderWay, u32, pen::Written);

enum Admission {
    Recorded(Fetching),
    Run(UnderWay, u32),
}

/// The call ended, and what it answered cannot be had: it is not run again for that.
fn lost(run_id: RunId<&str>, id: RecordId<&str>, tool: &str, status: &str, missing: &MissingContent) -> Error {
    let MissingContent { sha256, bytes, reason, .. } = missing;
    let (kind, action) = match reason.as_str() {
        "unavailable" => (ErrorKind::Unavailable, Action::Retry),
        _ => (ErrorKind::MissingContent, Action::Operator),
    };
    let message = format!(
        "call {id} of {tool} in run {run_id} is {status} and was not run again; its recorded answer, content {sha256} of \
         {bytes} bytes, is {reason} in the content store"
    );
    Error::new(kind, action, message)
}

/// The call ended, and retention took its answer away: it is not run again for that.
fn dropped_away(run_id: RunId<&str>, id: RecordId<&str>, tool: &str, status: &str, dropped: &Dropped) -> Error {
    let horizon = &dropped.dropped;
    let message = format!(
        "call {id} of {tool} in run {run_id} is {status} and was not run again; its recorded answer was dropped by the \
         retention horizon at partition {}, offset {}",
        horizon.partition, horizon.offset
    );
    Error::new(ErrorKind::MissingContent, Action::Operator, message)
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, Action::FixTheInput, message)
}

fn reconcile(run_id: RunId<&str>, id: RecordId<&str>, tool: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::ReconcileRequired,
        Action::Operator,
        format!(
            "call {id} of {tool} in run {run_id} is pending: {why}; find out whether it happened, then \
             `runlog effects resolve {run_id} {id} …`"
        ),
    )
}
