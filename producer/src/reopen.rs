//! Going on behind a failed, unknown or cancelled append, with nothing lost and nothing doubled.
//!
//! ```text
//!   stopped ─▶ claim own epoch + 1 ─▶ behind it: what landed stays, what did not is sent again ─▶ usable
//!                    └─ another writer has the run: held results are left as evidence ─▶ claim_lost
//! ```
//!
//! Behind the claim nothing that is still on its way under the old epoch takes effect any more, so that what is read there
//! is final. A record that is sent again keeps its id and its content, and gets new numbers, which are no part of the
//! content's hash: wherever the first one lands after all, one of the two is a repeat, or fenced.
//!
//! Cancelled at any point, it can be called again: the claim keeps its record until it is settled, and every record stays
//! where it is until it is known to be in the log.

use crate::{
    Error,
    claim::claim_lost,
    held::NeverStarted,
    metric,
    pen::{Halt, taken},
    resume::{Open, Recorded},
    run::{Shared, State, gone, pending_recovery, read_only},
    saved::Saved,
};
use runlog_schemas::{
    answer::{ErrorKind, Pending, Recovery},
    id::RecordId,
    record::{JournalRecord, RecordKind},
};

/// What [`crate::Run::reopen`] found and did. All zero and empty where the handle did not stand still.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reopened {
    /// Records whose append was unknown and that had landed.
    pub landed: usize,
    /// Records that were appended again, or for the first time: what did not land, and held results.
    pub appended: usize,
    /// Record ids and reasons of what had landed and was refused there for its content; it is not sent again.
    pub refused: Vec<(RecordId, String)>,
    /// Intents whose effect never started: recorded as not done, and safe to ask for again.
    pub not_done: usize,
}

/// Reopens the handle; see [`crate::Run::reopen`].
pub(crate) async fn reopen(shared: &Shared, state: &mut State) -> Result<Reopened, Error> {
    // A cancelled append shows here.
    drop(state.pen.usable());
    match &state.pen.halt {
        None => return Ok(Reopened::default()),
        Some(Halt::Ended(error)) => return Err(error.told_again()),
        Some(Halt::Lost(_)) => return Err(lost(shared, state).await),
        Some(Halt::Stopped { .. }) => {}
    }
    match go_on(shared, state).await {
        Err(error) if matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced) => {
            Err(lost(shared, state).await)
        }
        Err(error) => Err(error.stopping()),
        Ok(done) => {
            shared.config.count(metric::REOPENED);
            tracing::info!(run = shared.run_id.as_str(), epoch = state.pen.epoch.get(), ?done, "reopened");
            Ok(done)
        }
    }
}

async fn go_on(shared: &Shared, state: &mut State) -> Result<Reopened, Error> {
    let behind = take_over(shared, state).await?;
    let mut done = Reopened::default();
    if behind.status != "open" {
        ended(shared, state, &behind.status).await?;
        return Ok(done);
    }
    shared.take_notes(state);
    settle_sent(shared, state, &mut done).await?;
    if let Some(Halt::Ended(_)) = state.pen.halt {
        shared.leave_all(state).await?;
        return Ok(done);
    }
    settle_held(shared, state, &mut done).await?;
    shared.adopt_pending(state).await?;
    settle_never_started(shared, state, &behind, &mut done).await?;
    state.pen.halt = None;
    Ok(done)
}

/// Takes the run over behind this handle's own epoch. A run that this handle ended needs no claim.
async fn take_over(shared: &Shared, state: &mut State) -> Result<Recovery, Error> {
    let head = head(shared).await?;
    if head.status != "open" && state.pen.has(Some(&head)) {
        return Ok(head);
    }
    state.pen.take_over(Some(head), async { self::head(shared).await.map(Some) }).await
}

/// The run at `latest`, with all that is pending.
async fn head(shared: &Shared) -> Result<Recovery, Error> {
    let run_id = shared.run_id.borrow();
    pending_recovery(&shared.transport, run_id).await?.ok_or_else(|| gone(run_id))
}

/// Another process has the run. What effects came to is left for it first; where that fails, it is tried again.
async fn lost(shared: &Shared, state: &mut State) -> Error {
    if !state.pen.is_lost() {
        state.pen.lose(claim_lost(shared.run_id.borrow()));
    }
    shared.notes().never_started.clear();
    match shared.leave_all(state).await {
        Ok(()) => claim_lost(shared.run_id.borrow()),
        Err(error) => error.stopping(),
    }
}

/// The handle's own record ended the run after all: what effects came to since is evidence.
async fn ended(shared: &Shared, state: &mut State, status: &str) -> Result<(), Error> {
    shared.notes().never_started.clear();
    shared.leave_all(state).await?;
    state.pen.halt = Some(Halt::Ended(read_only(shared.run_id.borrow(), status)));
    Ok(())
}

/// What became of a record, by its id, read behind the claim.
async fn landed(shared: &Shared, state: &State, record_id: &RecordId, done: &mut Reopened) -> Result<Landed, Error> {
    let Some(found) = shared.transport.landed(shared.run_id.borrow(), record_id.borrow()).await? else {
        return Ok(Landed::No);
    };
    if (&found.writer_id, found.epoch) != (&state.pen.writer_id, state.pen.epoch) {
        return Err(claim_lost(shared.run_id.borrow()));
    }
    if taken(&found.outcome) {
        done.landed += 1;
        return Ok(Landed::Applied);
    }
    let reason = found.outcome.reason.unwrap_or_default();
    tracing::warn!(
        run = shared.run_id.as_str(),
        record = record_id.as_str(),
        reason,
        "a record whose append was unknown was refused"
    );
    done.refused.push((record_id.clone(), reason.clone()));
    Ok(Landed::Refused(reason))
}

/// What became of a record.
enum Landed {
    No,
    Applied,
    /// For its content: it is never taken under this id.
    Refused(String),
}

/// The record whose append was unknown.
async fn settle_sent(shared: &Shared, state: &mut State, done: &mut Reopened) -> Result<(), Error> {
    let Some(sent) = state.pen.sent.clone() else { return Ok(()) };
    let id = sent.body.record_id.clone();
    if shared.notes().leave(&id) {
        // It is among those that are held.
        state.pen.sent = None;
        return Ok(());
    }
    let intent = matches!(sent.body.facts.payload_type.as_str(), "tool_call_requested" | "tool_call_attempt");
    match landed(shared, state, &id, done).await? {
        Landed::Applied if intent => {
            state.pen.sent = None;
            let request = sent.body.facts.answers.clone().unwrap_or_else(|| id.clone());
            let intent = NeverStarted { request, call: None, key: None, record_id: id, position: None };
            shared.notes().never_started.push(intent);
        }
        Landed::Applied => is_in(shared, state, &sent),
        Landed::Refused(_) => state.pen.sent = None,
        // Its effect never started, and whoever asked was told so: there is nothing to record.
        Landed::No if intent => state.pen.sent = None,
        Landed::No => {
            state.pen.send(sent.clone()).await?;
            done.appended += 1;
            is_in(shared, state, &sent);
        }
    }
    Ok(())
}

/// Results of effects that ran.
async fn settle_held(shared: &Shared, state: &mut State, done: &mut Reopened) -> Result<(), Error> {
    while let Some(held) = shared.left() {
        let mut record_id = held.record_id.clone();
        let again = match landed(shared, state, &record_id, done).await? {
            Landed::Applied => false,
            // Somebody decided what the call came to, and that is its answer.
            Landed::Refused(reason) if matches!(reason.as_str(), "transition" | "ended") => false,
            // Refused for a number of its own: as another record it can be taken.
            Landed::Refused(_) => {
                let fresh = shared.config.record_id()?;
                shared.notes().rename(&record_id, &fresh);
                record_id = fresh;
                true
            }
            Landed::No => true,
        };
        if again {
            let record = state.pen.stowed(record_id.clone(), held.payload, None).await?;
            state.pen.send(record).await?;
            done.appended += 1;
        }
        shared.recorded(state, &record_id);
    }
    Ok(())
}

/// What a record changes in the handle, now that it is in the log.
fn is_in(shared: &Shared, state: &mut State, record: &JournalRecord) {
    state.pen.sent = None;
    let facts = &record.body.facts;
    match record.body.record_kind {
        RecordKind::CheckpointPrune => state.saved = Saved::default(),
        RecordKind::LoopCheckpoint => {
            state.pen.next_checkpoint_seq =
                state.pen.next_checkpoint_seq.max(facts.checkpoint_seq.map_or(0, |seq| seq + 1));
        }
        _ => {}
    }
    if facts.payload_type == "run_lifecycle"
        && let Some(status @ ("completed" | "failed" | "cancelled")) = facts.status.as_deref()
    {
        state.pen.halt = Some(Halt::Ended(read_only(shared.run_id.borrow(), status)));
    }
    shared.recorded(state, &record.body.record_id);
}

/// Intents in the log whose effect never started: whoever resumes this run elsewhere could not know.
async fn settle_never_started(
    shared: &Shared,
    state: &mut State,
    behind: &Recovery,
    done: &mut Reopened,
) -> Result<(), Error> {
    loop {
        let Some(intent) = shared.notes().never_started.first().cloned() else { return Ok(()) };
        let pending = behind.pending.iter().find(|pending| pending.id == intent.request);
        let Some((pending, call)) = pending.and_then(|pending| Some((pending, started_never(pending)?))) else {
            // Refused, or somebody decided on it.
            if shared
                .transport
                .landed(shared.run_id.borrow(), intent.request.borrow())
                .await?
                .is_none_or(|of| !taken(&of.outcome))
            {
                state.resume.forget(&intent.request);
            }
            shared.notes().never_started.retain(|other| other.record_id != intent.record_id);
            continue;
        };
        let key = pending.idempotency_key.clone().map(|key| (pending.tool_name.clone(), key));
        if key.is_none() {
            let record = state.pen.stowed(shared.config.record_id()?, shared.not_done(&call.id), None).await?;
            state.pen.send(record).await?;
            done.not_done += 1;
        }
        shared.stands_again(state, Some(call), key, &intent.record_id);
    }
}

fn started_never(pending: &Pending) -> Option<Recorded> {
    let mut recorded = Recorded::pending(pending)?;
    recorded.pending = recorded.pending.map(|open| Open { retry_safe: true, ..open });
    Some(recorded)
}

/// Whether a record says how an effect ended.
pub(crate) fn is_result(record: &JournalRecord) -> bool {
    matches!(record.body.facts.payload_type.as_str(), "tool_call_completed" | "tool_call_failed")
}
