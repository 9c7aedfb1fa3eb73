//! The gate: an effect runs at most once, unless its key makes running it again safe.
//!
//! ```text
//!   taken and completed ─▶ the recorded answer, the effect does not run
//!   taken and pending   ─▶ retry_safe: attempt appended, permitted ─▶ effect ─▶ result
//!                          otherwise: reconcile_required, nothing runs
//!   new                 ─▶ intent appended, permitted ─▶ effect ─▶ result
//! ```
//!
//! Permitted: read back, at `latest`, as applied *and* with this handle still the run's writer (`Pen::permit`).

use crate::{
    Action, Error, Run,
    pen::Written,
    resume::{Match, Open, Recorded},
    run::{Shared, State},
    transport::Ask,
};
use runlog_schemas::{
    answer::{CallError, ErrorKind, MissingContent, Position},
    canonical,
    id::{Fingerprint, OrEmpty, RecordId, RunId},
    json::Json,
    payload::{ToolCallAttempt, ToolCallCompleted, ToolCallFailed, ToolCallRequested},
};
use std::sync::Arc;

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

/// What may be run now.
struct Permit {
    id: RecordId,
    fingerprint: Fingerprint,
    attempt: u32,
    retry_safe: bool,
}

/// An effect under way. Dropped before it is told that the effect ended, it notes that nobody knows whether it happened:
/// the call stands there again, so that asking for it anew waits for a decision and then gets what was decided.
struct UnderWay {
    shared: Arc<Shared>,
    recorded: Recorded,
    key: Option<(String, String)>,
    ended: bool,
}

impl UnderWay {
    fn new(tool: &Tool<'_>, permit: &Permit) -> Self {
        let shared = tool.run.shared.clone();
        shared.effects().running.insert(permit.id.clone());
        let reason = "given up in its middle: the effect may have happened".into();
        let open = Open { retry_safe: permit.retry_safe, reason, attempts: permit.attempt };
        let (id, fingerprint) = (permit.id.clone(), permit.fingerprint.clone());
        let key = tool.key.clone().map(|key| (tool.name.clone(), key));
        Self { shared, recorded: Recorded { id, fingerprint, pending: Some(open) }, key, ended: false }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut effects = self.shared.effects();
        effects.running.remove(&self.recorded.id);
        if !self.ended {
            effects.abandoned.push((self.recorded.clone(), self.key.take()));
        }
    }
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
        self.shared.effects().returned.extend(self.recorded.take());
    }
}

impl<'a> Tool<'a> {
    pub(crate) fn new(run: &'a Run, name: &str, args: Result<Json, String>) -> Self {
        Self { run, name: name.to_owned(), args, key: None }
    }

    /// Names the effect towards its receiver, which makes a pending one safe to run again. Scoped to run and tool.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Runs `effect` unless the journal already has the call's answer, and records how it ended.
    ///
    /// Errors: `ReconcileRequired` where the effect may have happened (nothing runs); `Fenced` where another process
    /// took the run over (nothing runs); `MissingContent` where the call ended and its recorded answer is lost (nothing
    /// runs), `Unavailable` where that cannot be fetched now; `Stale` where the intent could not be read back in time (nothing runs);
    /// `Conflict` where the key stands for other arguments. An error after the effect ran says so. Cancelled while the
    /// effect runs, the call stays pending.
    pub async fn once<F, Fut>(self, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(Call) -> Fut,
        Fut: Future<Output = Result<Json, Failure>>,
    {
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
        let request = request.seal().map_err(|error: canonical::Error| invalid(&error.to_string()))?;
        let fingerprint = request.fingerprint.0.clone().ok_or_else(|| invalid("a call without arguments"))?;
        let (permit, mut under_way) = match self.admit(request, fingerprint).await? {
            Admission::Recorded(recorded) => return self.recorded(recorded).await,
            Admission::Run(permit, under_way) => (permit, under_way),
        };
        let call = Call { id: permit.id.clone(), attempt: permit.attempt, idempotency_key: self.key.clone() };
        let ended = effect(call).await;
        let answer = self.record(&permit, ended).await;
        under_way.ended = true;
        answer
    }

    /// Takes what is recorded, or appends the intent: one step under the handle's lock.
    async fn admit(&self, request: ToolCallRequested, fingerprint: Fingerprint) -> Result<Admission, Error> {
        let shared = &self.run.shared;
        let mut guard = shared.state.lock().await;
        guard.pen.usable()?;
        let (abandoned, returned) = shared.effects().take_notes();
        // The last one first: each goes to the front.
        for (recorded, key) in abandoned.into_iter().rev() {
            guard.resume.uncertain(recorded.id.borrow(), key.is_some());
            guard.resume.put_back(key, recorded);
        }
        for recorded in returned {
            guard.resume.put_back(None, recorded);
        }
        if guard.resume.unresolved().is_some() {
            // Somebody may have decided meanwhile.
            let ask = Ask { from_start: true, content: false };
            if let Some(now) = shared.transport.recovery(shared.run_id.borrow(), ask, None).await? {
                guard.resume.refresh(&now);
            }
        }
        match guard.resume.take(&self.name, self.key.as_deref(), fingerprint.borrow()) {
            Match::Conflict(id) => Err(Error::new(
                ErrorKind::Conflict,
                Action::FixTheInput,
                format!("the idempotency key stands for call {id} of {} with other arguments", self.name),
            )),
            Match::Taken(recorded) if shared.effects().running.contains(&recorded.id) => Err(Error::new(
                ErrorKind::Unavailable,
                Action::Retry,
                format!(
                    "call {} of {} is running in this process; ask again when it has ended",
                    recorded.id, self.name
                ),
            )),
            Match::Taken(recorded) => match recorded.pending.clone() {
                None => Ok(Admission::Recorded(self.fetching(recorded))),
                Some(open) => {
                    let permit = self.again(&mut guard, recorded, open).await?;
                    let under_way = UnderWay::new(self, &permit);
                    Ok(Admission::Run(permit, under_way))
                }
            },
            Match::New => {
                let permit = self.intend(&mut guard, request, fingerprint).await?;
                let under_way = UnderWay::new(self, &permit);
                Ok(Admission::Run(permit, under_way))
            }
        }
    }

    /// A pending call: run it again only where that is safe, behind an attempt that was read back as applied.
    async fn again(&self, state: &mut State, recorded: Recorded, open: Open) -> Result<Permit, Error> {
        let shared = &self.run.shared;
        let key = self.key.clone().map(|key| (self.name.clone(), key));
        if !open.retry_safe {
            let id = recorded.id.clone();
            state.resume.put_back(key, recorded);
            return Err(reconcile(shared.run_id.borrow(), id.borrow(), &self.name, &open.reason));
        }
        let attempt = open.attempts + 1;
        let payload = ToolCallAttempt { request_record_id: recorded.id.clone(), attempt, reason: open.reason.clone() };
        let appended = match shared.config.record_id() {
            Ok(id) => state.pen.append(id, payload.into(), None).await,
            Err(error) => Err(error),
        };
        let written = match appended {
            Ok(written) => written,
            Err(error) => {
                state.resume.put_back(key, recorded);
                return Err(error);
            }
        };
        state.pen.permit(&written, shared.config.read_back).await?;
        let Recorded { id, fingerprint, .. } = recorded;
        Ok(Permit { id, fingerprint, attempt, retry_safe: self.key.is_some() })
    }

    /// A new call: nothing new runs while an older effect is unresolved.
    async fn intend(
        &self,
        state: &mut State,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
    ) -> Result<Permit, Error> {
        let shared = &self.run.shared;
        if !shared.allow_unresolved
            && let Some(id) = state.resume.unresolved()
        {
            return Err(reconcile(
                shared.run_id.borrow(),
                id,
                "an earlier tool",
                "nothing new runs before it is resolved",
            ));
        }
        let id = shared.config.record_id()?;
        let written: Written = state.pen.append(id, request.into(), self.key.as_deref()).await?;
        let retry_safe = self.key.is_some();
        let open = Open { retry_safe, reason: "running in this process".into(), attempts: 1 };
        let recorded =
            Recorded { id: written.record_id.clone(), fingerprint: fingerprint.clone(), pending: Some(open) };
        state.resume.asked(written.journal_seq, &self.name, self.key.as_deref(), recorded);
        state.pen.permit(&written, shared.config.read_back).await?;
        Ok(Permit { id: written.record_id, fingerprint, attempt: 1, retry_safe })
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
        shared.state.lock().await.resume.answered(id.borrow());
        fetching.recorded = None;
        Ok(Answer { result: found.result, error: found.error, recorded: true, position: found.position })
    }

    /// Appends how the effect ended.
    async fn record(&self, permit: &Permit, ended: Result<Json, Failure>) -> Result<Answer, Error> {
        let shared = &self.run.shared;
        let request_record_id = permit.id.clone();
        let (payload, result, error) = match ended {
            Ok(result) => {
                let done = ToolCallCompleted { request_record_id, result: Some(result.clone()), latency_ms: None };
                (done.into(), Some(result), None)
            }
            Err(Failure { kind, message }) => {
                let failed = ToolCallFailed {
                    request_record_id,
                    error_kind: kind.clone(),
                    error_message: message.clone(),
                    latency_ms: None,
                };
                (failed.into(), None, Some(CallError { kind, message }))
            }
        };
        let mut guard = shared.state.lock().await;
        let appended = match shared.config.record_id() {
            Ok(id) => guard.pen.append(id, payload, None).await,
            Err(error) => Err(error),
        };
        match appended {
            Ok(written) => {
                guard.resume.answered(permit.id.borrow());
                Ok(Answer { result, error, recorded: false, position: Some(written.position) })
            }
            Err(failed) => {
                guard.resume.uncertain(permit.id.borrow(), permit.retry_safe);
                Err(Error::new(
                    failed.kind(),
                    failed.action(),
                    format!("the effect of call {} ran and its result could not be recorded: {failed}", permit.id),
                ))
            }
        }
    }
}

enum Admission {
    Recorded(Fetching),
    Run(Permit, UnderWay),
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
