//! The gate: an effect runs at most once, unless its key makes running it again safe.
//!
//! ```text
//!   recorded, completed ─▶ the recorded answer; the effect does not run
//!   recorded, pending   ─▶ retry_safe: attempt appended, checked ─▶ effect ─▶ result
//!                          otherwise: reconcile_required; nothing runs
//!   new                 ─▶ intent appended, checked ─▶ effect ─▶ result
//! ```
//!
//! Checked: read back, at `latest`, as applied *and* with this handle as the run's current writer ([`permission`]).
//! Calls of one handle overlap; their intents are appended in the order of the calls (`session::intents`).

use crate::{
    config::failpoint,
    error::{Error, SideEffect},
    metrics::metric,
    session::{
        Session,
        in_flight::InFlightCall,
        intents::{Admitted, Intent},
        shared::{Busy, Place},
    },
};
use call_spec::{CallSpec, invalid};
use decision::{Step, ToIntend};
use runlog_schemas::{
    canonical,
    hidden::is_blank,
    id::{Fingerprint, OrEmpty},
    json::Json,
    payload::ToolCallRequested,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

mod answer;
mod call_spec;
mod decision;
mod divergence;
mod permission;
mod recording;

pub use answer::{Answer, Call, Ended, Failure};

/// How a call continues.
enum Admission {
    /// The call has ended: the journal has its answer.
    Answered(Answer),
    /// Its effect may run; with the number of attempts, including this one.
    Run(InFlightCall, u32),
}

/// A prepared tool call.
#[derive(Debug)]
pub struct Tool<'a> {
    spec: CallSpec<'a>,
    args: Result<Json, String>,
}

impl<'a> Tool<'a> {
    pub(crate) fn new(session: &'a Session, name: &str, args: Result<Json, String>) -> Self {
        let spec = CallSpec { session, name: name.to_owned(), key: None, repeatable: false };
        Self { spec, args }
    }

    /// Sets the key by which the receiver recognises the effect. It makes a pending call safe to run again.
    ///
    /// Keys are scoped to run and tool: the same key for another tool, or in another run, is another call. Within its scope a
    /// key always identifies one call, at any checkpoint that the agent resumes at. For a call with an empty key, `once`
    /// returns `Invalid` and appends nothing.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    /// Declares that the effect may run any number of times, like a tool that only reads: a call whose process died runs again
    /// without a key and without a decision.
    ///
    /// Requires a server with the feature `bases`; other servers treat the call as any other.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.spec.repeatable = true;
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
    /// lost or ended in the meantime, and `Unrecorded` if the effect does not know its outcome.
    ///
    /// A result that cannot be recorded, because it has too many bytes or levels, is returned. The journal then has a marker in its
    /// place: the call is completed, and another process that makes it gets `MissingContent`. Of a failure with a long message the
    /// beginning is recorded.
    ///
    /// NaN and the infinities in a result are null, unless [`values::result`](crate::values::result) makes its JSON.
    ///
    /// A call that is cancelled before its effect starts counts as never started. If it is cancelled while the effect runs, it
    /// stays pending. If it is cancelled after that, its result is held, and the next operation of the handle records it.
    ///
    /// Calls of one handle may overlap. Intents are appended in the order of the calls; intents that wait for another append
    /// are sent together. Results are appended in the order in which the effects end. If the intent of a call is appended and
    /// its effect may not run, the effects of later calls do not run either, if their intents wait or are already appended. So
    /// each call waits for the calls before it; after [`Config::read_back`](crate::Config::read_back) the handle is stopped.
    /// Poll all started calls.
    #[tracing::instrument(skip_all, fields(run = self.spec.session.client.run_id.as_str(), tool = self.spec.name))]
    pub async fn once_or_unknown<F, Fut>(self, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(Call) -> Fut,
        Fut: Future<Output = Ended>,
    {
        let (spec, session) = (&self.spec, self.spec.session);
        let config = &session.client.config;
        let busy = Busy::begin(&session.client.shared);
        let (request, fingerprint) = self.request()?;
        let admitted = async {
            let slot = session.call_slot().await?;
            Box::pin(self.admit(request, fingerprint, slot, &busy)).await
        };
        let (mut in_flight, attempt) = match session.time_limited(admitted).await? {
            Admission::Answered(answer) => return Ok(answer),
            Admission::Run(in_flight, attempt) => (in_flight, attempt),
        };
        let call = Call { id: in_flight.id().clone(), attempt, idempotency_key: spec.key.clone() };
        in_flight.start();
        config.count(metric::EFFECTS);
        let ended = effect(call).await;
        let recorded = Box::pin(recording::record(spec, &mut in_flight, ended, &busy));
        let recorded = config.time_limited(session.client.id(), SideEffect::Held, recorded).await;
        // A cancelled result is held, if the outbox has capacity: see `recording::record`.
        let unheld = |error: &Error| error.side_effect() == SideEffect::Held && !in_flight.is_held();
        recorded.map_err(|error| if unheld(&error) { error.with_side_effect(SideEffect::Unrecorded) } else { error })
    }

    fn request(&self) -> Result<(ToolCallRequested, Fingerprint), Error> {
        let spec = &self.spec;
        let config = &spec.session.client.config;
        if spec.key.as_deref().is_some_and(is_blank) {
            let message = format!(
                "the idempotency key of {} is empty or blank: give a key that only this call has, or none for a call without one",
                spec.name
            );
            return Err(invalid(&message));
        }
        let args = self
            .args
            .clone()
            .map_err(|error| invalid(&format!("the arguments of {} do not serialise: {error}", spec.name)))?;
        let request = ToolCallRequested {
            request_id: (config.ids)(),
            call_id: "1".into(),
            parent_id: None,
            vendor: None,
            tool_name: spec.name.clone(),
            args_sha256: String::new(),
            fingerprint: OrEmpty::NONE,
            arguments: Some(args),
        };
        let mut request = request.seal().map_err(|error: canonical::Error| invalid(&error.to_string()))?;
        // The fingerprint covers the arguments before redaction.
        let redacted = |args: &Json| config.redacted(Some(&spec.name), args);
        request.arguments = request.arguments.as_ref().map(redacted);
        let fingerprint = request.fingerprint.0.clone().ok_or_else(|| invalid("a call without arguments"))?;
        Ok((request, fingerprint))
    }

    /// Finds the recorded answer, or appends the intent, in the order of the calls. Then reads the intent back, concurrently
    /// with other calls. If the effect of an earlier open call may not run, this call's effect does not run either.
    async fn admit(
        &self,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        slot: OwnedSemaphorePermit,
        busy: &Busy,
    ) -> Result<Admission, Error> {
        let (spec, session) = (&self.spec, self.spec.session);
        let client = &session.client;
        let mut guard = session.lock().await?;
        let ended = decision::make_ready(spec, &mut guard).await?;
        guard.find_covered(&spec.key()).await?;
        if spec.repeatable {
            guard.replay.mark_repeatable(&spec.name);
        }
        let record_id = client.config.record_id()?;
        let step = decision::decide(spec, &mut guard, (request, fingerprint, record_id.clone()), ended).await?;
        let ToIntend { payload, call, attempt, taken, basis } = match step {
            Step::Answer(taken) => {
                drop((guard, slot));
                return recording::read_answer(spec, taken, busy).await.map(Admission::Answered);
            }
            Step::Append(to_intend) => *to_intend,
        };
        if taken.is_none() {
            divergence::check(spec, &guard.replay).await?;
        }
        let attempt_at = taken.is_some().then_some((attempt, basis));
        let record = decision::build_intent(spec, &mut guard, (record_id, payload), attempt_at).await?;
        let permit = session.permit(&mut guard, &record).await?;
        let trace = (client.config.traceparent)();
        let (reply, answer) = oneshot::channel();
        let (key, tool) = (spec.key(), spec.name.clone());
        let place = Place::last(&client.shared);
        let intent = Intent { record, trace, call, attempt, key, tool, taken, slot, permit, place, reply };
        let admitted = session.append_intent(guard, intent, answer).await?;
        (client.config.failpoints)(failpoint::INTENT_ACKNOWLEDGED);
        let Admitted { call, attempt, acked, epoch, place, refusals } = admitted;
        match permission::permit_effect(spec, call, acked, epoch, refusals, &place).await {
            Ok(call) => Ok(Admission::Run(call, attempt)),
            Err(error) => {
                place.fail(&error);
                Err(error)
            }
        }
    }
}
