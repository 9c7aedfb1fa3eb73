//! Claiming a run, and checking beforehand whether another writer is active.

use super::{
    client::RunClient,
    outcome::{refused, took_effect},
};
use crate::{
    error::{Action, ActiveWriter, Error},
    transport::{
        Transport,
        request::{AppendAsk, AppendFailed, ToAppend},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, Position, ReadBack, Recovery, Run},
    id::{Epoch, JournalSeq, OrEmpty, RecordId, RunHash, RunId, Secret, WriterId, WriterSeq},
    judge::{Reason, RunStatus},
    payload::{Payload, RunClaim},
    record::JournalRecord,
};
use serde_json::json;
use std::time::Duration;

/// A claim. Every send uses the same record, so that this process never loses the run to itself.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    writer_id: WriterId,
    record_id: RecordId,
    epoch: Epoch,
    /// The secret that the claim commits to. `None` if the server does not write commitments, and for a `Writer`, which records
    /// calls of other systems: their results may have any writer.
    secret: Option<Secret>,
    /// The secret of the handle's previous claim.
    shown: Option<Secret>,
}

/// The handle's own previous claim.
struct PreviousClaim {
    writer_id: WriterId,
    secret: Option<Secret>,
}

impl Claim {
    /// Makes the first claim of a handle, which commits to `secret`.
    pub(crate) fn first(epoch: Epoch, secret: Option<Secret>, client: &RunClient) -> Result<Self, Error> {
        Self::after(epoch, None, secret, client)
    }

    /// Makes a claim of the epoch after `epoch` that commits to `secret`. A handle that claims its run again passes its previous claim:
    /// the same writer id shows that the process of the running effects is alive, and the secret that the effects are the handle's own.
    fn after(
        epoch: Epoch,
        previous: Option<PreviousClaim>,
        secret: Option<Secret>,
        client: &RunClient,
    ) -> Result<Self, Error> {
        let epoch = epoch.next().ok_or_else(|| {
            let message = format!("run {}: epoch exhausted", client.run_id);
            Error::new(ErrorKind::Conflict, Action::Operator, message)
        })?;
        let (writer_id, shown) = match previous {
            Some(PreviousClaim { writer_id, secret }) => (writer_id, secret),
            None => (WriterId::new((client.config.ids)())?, None),
        };
        Ok(Self { writer_id, record_id: client.config.record_id()?, epoch, secret, shown })
    }

    /// The claimed epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Appends the claim and waits for its outcome. May be repeated.
    pub(crate) async fn send(&self, client: &RunClient) -> Result<(), Error> {
        let RunClient { transport, config, .. } = client;
        let Self { writer_id, record_id, epoch, secret, shown } = self.clone();
        let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: config.claimed_by.clone() };
        let mut record = JournalRecord::new(client.id(), record_id, &config.agent_id, Payload::RunClaim(claim));
        (record.body.facts.commitment, record.body.facts.shown) = (secret.map(|secret| secret.commitment()), shown);
        record.place.writer_id = writer_id.into();
        record.place.writer_epoch = epoch;
        record.place.timestamp_millis = (config.clock)();
        let trace = (config.traceparent)();
        let appended = transport.append_one(ToAppend::new(&record, trace.as_deref()), AppendAsk::JUDGED).await;
        let appended = appended.map_err(|AppendFailed { error, .. }| error)?;
        let id = record.body.record_id.borrow();
        let outcome = match appended.outcome {
            Some(outcome) => outcome,
            None => {
                let position = &appended.position;
                transport.read_back(client.id(), position, Some(id), &[], config.deadline).await?.outcome
            }
        };
        match &outcome.reason {
            _ if took_effect(&outcome) => Ok(()),
            Some(reason) if *reason == Reason::Fenced => Err(claim_lost(client.id())),
            _ => Err(refused(client.id(), Some(id), &outcome)),
        }
    }

    /// Claims the run through the server if its hash is still `hash`. May be repeated.
    ///
    /// Errors: `Conflict` if the run has another hash, `ClaimLost` if another process was faster. Neither appended the claim.
    pub(crate) async fn send_if_unchanged(&self, hash: RunHash, client: &RunClient) -> Result<(), Error> {
        let Self { writer_id, record_id, secret, shown, .. } = self;
        let body = json!({
            "record_id": record_id,
            "writer_id": writer_id,
            "claimed_by": client.config.claimed_by,
            "commitment": secret.map(|secret| secret.commitment()),
            "shown": shown.map(|shown| shown.reveal()),
            "only_if": { "hash": hash },
        });
        let claim = client.transport.claim_conditionally(client.id(), &body).await;
        claim.map_err(|error| error.about_record(record_id.borrow()))
    }

    /// Whether a read-back names this claim's writer.
    pub(crate) fn is_named_in(&self, answer: &ReadBack) -> bool {
        (answer.writer_id.borrow(), answer.epoch) == (Some(self.writer_id.borrow()), self.epoch)
    }

    /// Whether the run's current writer is this claim's.
    pub(crate) fn is_held_in(&self, head: &impl Head) -> bool {
        head.writer() == (Some(self.writer_id.borrow()), self.epoch)
    }
}

/// Makes the error for a run that has ended.
pub(crate) fn ended(run_id: RunId<&str>, status: &str) -> Error {
    let message = format!("run {run_id} is {status}: it answers recorded calls, and nothing new is recorded");
    Error::new(ErrorKind::Conflict, Action::FixTheInput, message).about_run(run_id)
}

/// Makes the error for an answer that shows a run as open, although an earlier answer showed its end.
pub(crate) fn before_its_end(run_id: RunId<&str>) -> Error {
    let message = format!(
        "an answer about run {run_id} is older than the run's end: the server reads an old state of the log; try again"
    );
    Error::new(ErrorKind::Stale, Action::Reopen, message).about_run(run_id)
}

/// Makes the error for a handle with the claimed epoch `own`, if an answer as of epoch `seen` names another writer:
/// another process claimed the run, or the answer is older than the handle's own claim.
pub(crate) fn not_writer(run_id: RunId<&str>, own: Epoch, seen: Epoch) -> Error {
    if seen >= own {
        return claim_lost(run_id);
    }
    let message = format!(
        "an answer about run {run_id} is of epoch {seen}, older than this handle's epoch {own}: the server reads an old \
         state of the log; try again"
    );
    Error::new(ErrorKind::Stale, Action::Reopen, message).about_run(run_id)
}

pub(crate) fn claim_lost(run_id: RunId<&str>) -> Error {
    Error::new(ErrorKind::ClaimLost, Action::Stop, format!("another process claimed run {run_id} first"))
}

/// A handle's claims.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Whether the handle has claimed the run: otherwise its writer id is the previous writer's.
    pub(crate) has_claimed: bool,
    /// The secret of the last claim. `None` if claims have no commitment.
    pub(crate) secret: Option<Secret>,
    /// The claim that makes a stopped handle ready again, until its outcome is known.
    pub(crate) in_flight: Option<Claim>,
}

impl Claims {
    /// The claims of a handle after its first claim. `None` if it claims nothing.
    pub(crate) fn from_first(claim: Option<&Claim>) -> Self {
        Self { has_claimed: claim.is_some(), secret: claim.and_then(|claim| claim.secret), in_flight: None }
    }

    /// The claim to send as writer `own` of the epoch `epoch`: the claim in flight, or a new claim of the next epoch.
    pub(crate) fn next(&mut self, own: &OrEmpty<WriterId>, epoch: Epoch, client: &RunClient) -> Result<Claim, Error> {
        let claim = match self.in_flight.take().filter(|claim| Some(claim.epoch) == epoch.next()) {
            Some(claim) => claim,
            None => {
                let own = own.0.clone().filter(|_| self.has_claimed);
                let previous = own.map(|writer_id| PreviousClaim { writer_id, secret: self.secret });
                let secret = self.secret.map(|_| client.config.secret());
                Claim::after(epoch, previous, secret, client)?
            }
        };
        Ok(self.in_flight.insert(claim).clone())
    }

    /// Marks a claim as applied.
    pub(crate) fn mark_applied(&mut self, claim: &Claim) {
        *self = Self::from_first(Some(claim));
    }
}

/// The state of a run that its next writer continues from.
pub(crate) trait Head {
    /// The current writer and its epoch.
    fn writer(&self) -> (Option<WriterId<&str>>, Epoch);
    /// The next `writer_seq`, `journal_seq` and `checkpoint_seq`.
    fn next(&self) -> (WriterSeq, JournalSeq, u64);
    /// The `prev_hash` of the next record.
    fn hash(&self) -> RunHash;
    /// The last applied record.
    fn position(&self) -> &Position;
}

/// The epoch of a head; 0 for a run without records.
pub(crate) fn epoch_of(head: Option<&impl Head>) -> Epoch {
    head.map_or(Epoch::ZERO, |head| head.writer().1)
}

macro_rules! head {
    ($($answer:ident)*) => {$(
        impl Head for $answer {
            fn writer(&self) -> (Option<WriterId<&str>>, Epoch) {
                (self.writer_id.borrow(), self.epoch)
            }
            fn next(&self) -> (WriterSeq, JournalSeq, u64) {
                (self.next_writer_seq, self.next_journal_seq, self.next_checkpoint_seq)
            }
            fn hash(&self) -> RunHash {
                self.hash
            }
            fn position(&self) -> &Position {
                &self.position
            }
        }
    )*};
}

head!(Run Recovery);

/// Returns the run if it may be taken over. Fails if the run is open and its last record is younger than `within`.
///
/// The side that answers for the journal measures the age, from the log's timestamp of the record; no agent's clock is
/// involved. In-process and on a server with its own log, one clock provides both times. With Kafka, the broker sets
/// the timestamp and the query server the current time, so the age includes the difference of their clocks. This only
/// affects politeness: claims alone decide which process writes a run.
pub(crate) async fn check_inactive(
    transport: &Transport,
    run_id: RunId<&str>,
    within: Duration,
) -> Result<Option<Run>, Error> {
    let Some(run) = transport.run(run_id).await? else { return Ok(None) };
    let age = run.age_millis.map(Duration::from_millis);
    // A status that this build does not know may be one of an active run.
    let ended = run.status.known().is_some_and(|status| *status != RunStatus::Open);
    if !ended && age.is_none_or(|age| age < within) {
        return Err(active(run_id, &run.writer_id, run.epoch, age));
    }
    Ok(Some(run))
}

/// Fails if a record was appended between [`check_inactive`] and the head that a claim would follow.
pub(crate) fn check_unchanged(run_id: RunId<&str>, seen: Option<&Run>, head: Option<&Recovery>) -> Result<(), Error> {
    match (seen, head) {
        (_, None) => Ok(()),
        // Its pending effects are of records that a skip voided.
        (None, Some(head)) if head.checkpoint.is_none() && head.records_after == 0 => Ok(()),
        (Some(seen), Some(head)) if seen.position == head.position => Ok(()),
        (_, Some(head)) => Err(active(run_id, &head.writer_id, head.epoch, Some(Duration::ZERO))),
    }
}

fn active(run_id: RunId<&str>, writer_id: &OrEmpty<WriterId>, epoch: Epoch, age: Option<Duration>) -> Error {
    let when = match age {
        Some(age) => format!("appended its last record {} ago", humantime::format_duration(age)),
        None => {
            "has a last record whose time is in the future; if its process is dead, open the run without the age check"
                .into()
        }
    };
    let message = format!("run {run_id} is active and was not taken over: writer {writer_id} in epoch {epoch} {when}");
    let active = ActiveWriter { writer_id: writer_id.clone(), epoch, age: age.unwrap_or_default() };
    Error::new(ErrorKind::Unavailable, Action::Retry, message).because_of(active)
}
