//! Claiming a run, and taking its numbers from behind the claim.
//!
//! ```text
//!   the run stands as the handle knows it ─▶ the next epoch is claimed ─┐
//!   the run is that claim's already ────────────────────────────────────┴▶ its numbers, read behind the claim
//!   the run is anybody else's ─▶ claim_lost
//! ```

use crate::{
    Action, Config, Error,
    pen::{Pen, refused},
    transport::{AppendFailed, Transport},
};
use runlog_schemas::{
    answer::{ErrorKind, Recovery, Run},
    id::{Epoch, JournalSeq, RecordId, RunHash, RunId, WriterId, WriterSeq},
    payload::{Payload, RunClaim},
    record::JournalRecord,
};

/// A claim on its way: the same record however often it is sent, so that this process never loses to itself.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    writer_id: WriterId,
    record_id: RecordId,
    epoch: Epoch,
}

impl Claim {
    /// A claim of the epoch behind `epoch`.
    pub(crate) fn behind(epoch: Epoch, config: &Config, run_id: RunId<&str>) -> Result<Self, Error> {
        let epoch = epoch.next().ok_or_else(|| {
            let message = format!("run {run_id} was claimed as often as can be counted");
            Error::new(ErrorKind::Conflict, Action::Operator, message)
        })?;
        Ok(Self { writer_id: WriterId::new((config.ids)())?, record_id: config.record_id()?, epoch })
    }

    /// Appends the claim and waits until it is judged. It may have been sent before.
    pub(crate) async fn send(&self, transport: &Transport, config: &Config, run_id: RunId<&str>) -> Result<(), Error> {
        let Self { writer_id, record_id, epoch } = self.clone();
        let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: config.claimed_by.clone() };
        let mut record = JournalRecord::new(run_id, record_id, &config.agent_id, Payload::RunClaim(claim));
        record.place.writer_id = writer_id.into();
        record.place.writer_epoch = epoch;
        record.place.timestamp_millis = (config.clock)();
        let trace = (config.traceparent)();
        let appended = transport.append(&record, trace.as_deref()).await.map_err(|AppendFailed { error, .. }| error)?;
        let outcome = match appended.outcome {
            Some(outcome) => outcome,
            None => {
                let id = record.body.record_id.borrow();
                transport.read_back(run_id, &appended.position, Some(id), config.deadline).await?.outcome
            }
        };
        match (outcome.outcome.as_str(), outcome.reason.as_deref()) {
            ("applied" | "repeat", None) => Ok(()),
            (_, Some("fenced")) => Err(claim_lost(run_id)),
            _ => Err(refused(run_id, Some(record.body.record_id.borrow()), &outcome)),
        }
    }

    /// Whether the run is this claim's.
    pub(crate) fn has(&self, head: &impl Head) -> bool {
        head.writer() == (Some(self.writer_id.borrow()), self.epoch)
    }
}

pub(crate) fn claim_lost(run_id: RunId<&str>) -> Error {
    Error::new(ErrorKind::ClaimLost, Action::Stop, format!("another process claimed run {run_id} first"))
}

/// What the journal says of a run, to whoever writes it.
pub(crate) trait Head {
    /// Who writes it, and in which epoch.
    fn writer(&self) -> (Option<WriterId<&str>>, Epoch);
    /// The writer's next number, the run's, and that of its checkpoints.
    fn next(&self) -> (WriterSeq, JournalSeq, u64);
    /// What the first record behind it names.
    fn hash(&self) -> RunHash;
}

impl Head for Run {
    fn writer(&self) -> (Option<WriterId<&str>>, Epoch) {
        (self.writer_id.borrow(), self.epoch)
    }
    fn next(&self) -> (WriterSeq, JournalSeq, u64) {
        (self.next_writer_seq, self.next_journal_seq, self.next_checkpoint_seq)
    }
    fn hash(&self) -> RunHash {
        self.hash
    }
}

impl Head for Recovery {
    fn writer(&self) -> (Option<WriterId<&str>>, Epoch) {
        (self.writer_id.borrow(), self.epoch)
    }
    fn next(&self) -> (WriterSeq, JournalSeq, u64) {
        (self.next_writer_seq, self.next_journal_seq, self.next_checkpoint_seq)
    }
    fn hash(&self) -> RunHash {
        self.hash
    }
}

impl Pen {
    /// Whether the run stands as this handle knows it; none is a run without records.
    pub(crate) fn has(&self, head: Option<&impl Head>) -> bool {
        head.map_or((None, Epoch::ZERO), Head::writer) == (self.writer_id.borrow(), self.epoch)
    }

    /// Claims the run behind the epoch that this handle knows, and takes its numbers from there: where the run stands then.
    /// `head` is the run as it is; `behind` reads it again, and is asked once the claim is settled.
    ///
    /// Cancelled at any point, or failed, it can be called again: the claim stays the same until it is settled.
    pub(crate) async fn take_over<H: Head>(
        &mut self,
        mut head: Option<H>,
        behind: impl Future<Output = Result<Option<H>, Error>>,
    ) -> Result<H, Error> {
        let run_id = self.run_id.clone();
        let claim = match self.claiming.take().filter(|claim| Some(claim.epoch) == self.epoch.next()) {
            Some(claim) => claim,
            None => Claim::behind(self.epoch, &self.config, run_id.borrow())?,
        };
        self.claiming = Some(claim.clone());
        if !head.as_ref().is_some_and(|head| claim.has(head)) {
            if !self.has(head.as_ref()) {
                return Err(claim_lost(run_id.borrow()));
            }
            claim.send(&self.transport, &self.config, run_id.borrow()).await?;
            head = behind.await?;
        }
        let head = head.filter(|head| claim.has(head)).ok_or_else(|| claim_lost(run_id.borrow()))?;
        self.stand(&head);
        self.claiming = None;
        Ok(head)
    }

    /// Takes writer, epoch and numbers from the run as it is.
    pub(crate) fn stand(&mut self, head: &impl Head) {
        let (writer_id, epoch) = head.writer();
        (self.writer_id, self.epoch) = (writer_id.into(), epoch);
        (self.next_writer_seq, self.next_journal_seq, self.next_checkpoint_seq) = head.next();
        self.prev_hash = Some(head.hash().into());
    }
}
