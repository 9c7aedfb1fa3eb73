//! Appends records of runs: fills in the numbers that a client left out, then applies the log's own rules.

use super::{
    land::append_planned,
    origin::Origin,
    outcomes::AnswerAt,
    plan::{is_checked_draft, is_independent_of_run, is_numbered, plan_drafts},
    renumber::append_numbered,
    run_locks::{EffectLocks, LockState, Locks},
    stow::stow,
};
use runlog_projector::index::{
    error::Error,
    projector::{Author, Consistency, Projector},
};
use runlog_schemas::{
    answer::{ErrorKind, Outcome},
    draft::Draft,
    id::{RecordId, RunId},
    record::JournalRecord,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::Instant};

/// How much longer than its deadline the server waits for an append, so that the append's own error arrives first.
const ANSWER_SLACK: Duration = Duration::from_millis(500);

/// Appends through a projector, whose index numbers and judges the records. Appends of one run through one appender are
/// sequential.
#[derive(Debug)]
pub struct Appender {
    pub(super) projector: Arc<Projector>,
    /// Locks by run id.
    pub(super) run_locks: Locks<LockState>,
    /// Locks by run id, for checks of effects.
    effect_locks: EffectLocks,
    /// Locks by the record id of a claim.
    pub(super) claim_locks: Locks<()>,
    /// Appends in progress, up to [`Config::appends_max`](runlog_projector::Config::appends_max).
    in_progress: Arc<Semaphore>,
}

impl Appender {
    /// Makes an appender without appends in progress.
    pub fn new(projector: Arc<Projector>) -> Self {
        let in_progress = Arc::new(Semaphore::new(projector.config().appends_max.min(Semaphore::MAX_PERMITS)));
        let (run_locks, effect_locks) = (Locks::default(), EffectLocks::default());
        Self { projector, run_locks, effect_locks, claim_locks: Locks::default(), in_progress }
    }

    /// Appends records of one run, in order, and waits for their outcomes.
    ///
    /// Skips a record that the index already judged under the same id and with the same content. Exception: the record
    /// has the writer's next number, which only an append can consume. Refused records are appended too, as with any
    /// producer. `Overloaded` means that nothing was appended. After `Unavailable` the outcome is unknown: send the
    /// records again with the same record ids.
    ///
    /// If a record of another server took a number that this server filled in, the record is numbered and appended
    /// again. This repeats until the deadline, at most 32 times; the last try gives the outcome. A record that is
    /// numbered again may end up after the records that follow it in the request.
    ///
    /// Payloads that are too large for a record go to the content store first; if that fails, nothing is appended.
    /// Nothing is appended to a stopped partition either, since its index could not report the outcome.
    ///
    /// Errors: `Invalid` for a decision with neither the effect's revision nor its writer's epoch, unless the run has
    /// the record already; `ReconcileRequired` for an attempt on a call that must be decided first, and for other records than
    /// decisions of a run that a lost home may have continued.
    pub async fn append(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let judged = AnswerAt::Judged(Consistency::Eventual);
        self.append_from(run_id, drafts, Origin::default(), judged, deadline).await
    }

    /// Appends as [`append`](Self::append) does, for the caller of `origin`. `at` determines when it answers.
    ///
    /// Errors: `Invalid`, with nothing appended, if `at` is the acknowledgement and a record lacks a number.
    ///
    /// Cancellation: the append continues in its own task, and the run stays locked until the log has answered.
    pub(crate) async fn append_from(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        origin: Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let unnumbered = drafts.iter().position(|draft| !is_numbered(draft));
        if let Some(index) = unnumbered.filter(|_| at == AnswerAt::Acknowledged) {
            let message = format!(
                "record {index} lacks a number, and with return=ack the server cannot fill it in: send writer_seq and \
                 journal_seq, or leave return=ack out"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let (appender, run_id) = (Arc::clone(self), run_id.to_owned());
        let late = format!(
            "timed out after {} waiting for the log to acknowledge records of run {run_id}: they may be in the log; send \
             them again with the same record ids",
            humantime::format_duration(deadline)
        );
        let append = async move { appender.append_locked(run_id.borrow(), drafts, origin, at, deadline).await };
        self.detached(append, deadline, late).await
    }

    /// Appends in its own task, which continues if the caller is dropped. After the deadline, `late` is the error.
    pub(super) async fn detached<T: Send + 'static>(
        self: &Arc<Self>,
        append: impl Future<Output = Result<T, Error>> + Send + 'static,
        deadline: Duration,
        late: String,
    ) -> Result<T, Error> {
        let permit = self.in_progress.clone().try_acquire_owned().map_err(|_| {
            let max = self.projector.config().appends_max;
            Error::new(ErrorKind::Overloaded, format!("{max} appends are in progress; nothing was appended"))
        })?;
        let append = self.projector.executor().spawn(async move {
            let _permit = permit;
            append.await
        });
        match tokio::time::timeout(deadline.saturating_add(ANSWER_SLACK), append).await {
            Ok(Ok(appended)) => appended,
            Ok(Err(error)) if error.is_cancelled() => {
                Err(Error::new(ErrorKind::Unavailable, "the server is shutting down").because(error))
            }
            Ok(Err(error)) => Err(Error::new(ErrorKind::Internal, "an append panicked").because(error)),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, late)),
        }
    }

    /// Numbers and appends records while the run is locked, if they need numbers.
    pub(super) async fn append_locked(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        origin: Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let started = Instant::now();
        // Before content is stored, and before the run is in doubt here: the home may know better.
        self.projector.home().check_home("an append")?;
        self.projector.running(self.projector.partition_of(run_id))?;
        let author = Author::of(drafts.iter().map(|draft| &draft.record));
        self.projector.check_author(run_id, author).await?;
        let mut drafts = stow(&self.projector, drafts, &origin.caller, deadline).await?;
        for draft in drafts.iter_mut().filter(|draft| !draft.has_record_id) {
            draft.name(RecordId::new((self.projector.config().ids)())?);
        }
        let left = || deadline.saturating_sub(started.elapsed());
        let drafts = Arc::new(drafts);
        if drafts.iter().all(is_independent_of_run) {
            let all: Vec<usize> = (0..drafts.len()).collect();
            let planned = match plan_drafts(&self.projector, run_id, &drafts, &all, &origin).await {
                // The log may have the claim of the records' epoch already.
                Err(error) if error.kind() == ErrorKind::Stale => {
                    let partition = self.projector.partition_of(run_id);
                    self.projector.wait(partition, Consistency::Latest, left()).await?;
                    plan_drafts(&self.projector, run_id, &drafts, &all, &origin).await?
                }
                planned => planned?,
            };
            let shared = self.effect_locks.share(run_id, left()).await?;
            let landed = append_planned(&self.projector, run_id, planned, &origin, Some(shared), at, left()).await;
            if at == AnswerAt::Acknowledged || landed.is_err() {
                self.run_locks.forget_numbered(run_id);
            }
            return Ok(landed?.into_iter().map(|(_, outcome)| outcome).collect());
        }
        let earlier = || format!("an earlier append to run {run_id}");
        let mut locked = self.run_locks.lock(run_id.as_str(), left(), earlier).await?;
        let _no_result = match drafts.iter().any(is_checked_draft) {
            true => Some(self.effect_locks.exclude(run_id, left()).await?),
            false => None,
        };
        append_numbered(&self.projector, run_id, &mut locked, &drafts, &origin, at, left()).await
    }

    pub(super) async fn append_made(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        record: JournalRecord,
        origin: Origin,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let mut outcomes = self
            .append_from(
                run_id,
                vec![draft_without_numbers(record)],
                origin,
                AnswerAt::Judged(Consistency::Eventual),
                deadline,
            )
            .await?;
        outcomes.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "an append without an outcome"))
    }
}

/// Wraps a record that the server makes in a draft without numbers.
pub(super) fn draft_without_numbers(record: JournalRecord) -> Draft {
    Draft {
        record,
        has_record_id: true,
        has_journal_seq: false,
        has_writer_seq: false,
        has_writer_epoch: false,
        has_writer_id: false,
        has_timestamp: false,
    }
}
