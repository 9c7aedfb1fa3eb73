//! A writer beside a process's run: it writes records of another run over the same connection, and repeats each write
//! until its outcome is known.

use crate::{ambient, dice::Dice, ledger::run_id, stage::Stage};
use runlog_producer::{Action, Error, Json, LoopState, Runlog, Writer};
use runlog_schemas::{
    answer::ErrorKind,
    id::{JournalSeq, RecordId},
    payload::{CheckpointPrune, ConversationTurn, Payload},
    record::JournalRecord,
};
use serde_json::json;
use std::{future::pending, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// An operation of a writer ends within its own limit and this.
const SLACK: Duration = Duration::from_secs(2);

/// Records of a writer.
const RECORDS: u64 = 20;

/// A writer with its dependencies.
pub(crate) struct Scribe {
    pub(crate) stage: Arc<Stage>,
    pub(crate) life: u32,
    pub(crate) run: u32,
}

/// The operation of a writer.
enum Write {
    One(JournalRecord),
    Batch(JournalRecord, Vec<JournalRecord>),
    /// A batch with a record under the id of an earlier one, which is refused as often as it is written.
    Spoiled(JournalRecord, Vec<JournalRecord>),
    Checkpoint,
}

impl Scribe {
    /// Writes until another process has the run, and then waits forever.
    pub(crate) async fn write(&self, runlog: &Runlog) {
        let mut dice = Dice::new(self.stage.seed(), 600 + u64::from(self.life));
        if let Some(writer) = self.open(runlog).await {
            self.writes(&writer, &mut dice).await;
        }
        self.stage.tell(|| format!("life {}: its writer is done", self.life));
        pending().await
    }

    async fn open(&self, runlog: &Runlog) -> Option<Writer> {
        loop {
            match runlog.writer(run_id(self.run).as_str()).await {
                Ok(writer) => return Some(writer),
                Err(error) if error.kind() == ErrorKind::ClaimLost => return None,
                Err(_) => sleep(Duration::from_secs(1)).await,
            }
        }
    }

    fn drafted(
        &self,
        writer: &Writer,
        nth: u64,
        (dice, written): (&mut Dice, Option<&RecordId>),
    ) -> Result<Write, Error> {
        let turn = |number: u64| {
            let content = json!({ "writer": self.life, "nth": nth, "number": number });
            let message_id = format!("w-{}-{nth}-{number}", self.life);
            let content = Json::from(content);
            ConversationTurn { message_id, parent_id: None, thread_id: None, kind: "user".to_owned(), content }
        };
        Ok(match (dice.between(0, 9), written) {
            (0, _) => Write::Checkpoint,
            (1, _) => {
                let prune_covered_before = JournalSeq::new(dice.between(1, 8))?;
                Write::One(
                    writer.draft(None, CheckpointPrune { prune_covered_before, preserve_latest_terminal: false })?,
                )
            }
            (2, _) => {
                let records = [writer.draft(None, turn(1))?, writer.draft(None, turn(2))?];
                Write::Batch(writer.draft(None, turn(0))?, records.to_vec())
            }
            (3, Some(id)) => {
                let records = [writer.draft(None, turn(1))?, writer.draft(Some(id.clone()), turn(2))?];
                Write::Spoiled(writer.draft(None, turn(0))?, records.to_vec())
            }
            _ => Write::One(writer.draft(None, turn(0))?),
        })
    }

    /// Writes records. `None` once another process has the run.
    async fn writes(&self, writer: &Writer, dice: &mut Dice) -> Option<()> {
        let mut written_before = None;
        for nth in 0..RECORDS {
            sleep(Duration::from_millis(dice.between(0, 1_500))).await;
            let write = self.drafted(writer, nth, (&mut *dice, written_before.as_ref())).ok()?;
            loop {
                // An impatient caller goes away.
                let patience = if dice.percent(10) { dice.between(1, 200) } else { 3_600_000 };
                let start = Instant::now();
                let Ok(written) = timeout(Duration::from_millis(patience), self.write_once(writer, &write)).await
                else {
                    self.stage.count("write of a writer cancelled");
                    continue;
                };
                if start.elapsed() > crate::life::OPERATION + SLACK {
                    let took = start.elapsed();
                    self.stage.ledger().fail(format!("a write of life {}'s writer took {took:?}", self.life));
                }
                match written {
                    Ok(()) => {
                        if let Write::One(record) = &write {
                            written_before = Some(record.body.record_id.clone());
                        }
                        break;
                    }
                    Err(error) if matches!(write, Write::Spoiled(..)) && error.kind() == ErrorKind::Conflict => {
                        self.stage.count("batch with a record that is refused");
                        break;
                    }
                    Err(error) if matches!(write, Write::Checkpoint) && error.action() != Action::Stop => break,
                    Err(error) => self.handle_error(&error).await?,
                }
            }
        }
        Some(())
    }

    async fn handle_error(&self, error: &Error) -> Option<()> {
        self.stage.tell(|| format!("life {}: its writer: {:?} {:?}: {error}", self.life, error.kind(), error.action()));
        match error.action() {
            Action::Stop => {
                self.stage.ledger().reported_lost(self.run, self.life, error);
                None
            }
            // A skip displaced it.
            Action::FixTheInput if self.stage.ledger().is_excused(self.run, self.life) => None,
            Action::FixTheInput => {
                self.stage.ledger().fail(format!("a record of life {}'s writer is refused: {error}", self.life));
                None
            }
            _ => {
                sleep(Duration::from_millis(700)).await;
                Some(())
            }
        }
    }

    async fn write_once(&self, writer: &Writer, write: &Write) -> Result<(), Error> {
        let who = (self.run, self.life);
        let label = |id: &str| format!("record {id} of life {}'s writer", self.life);
        match write {
            Write::One(record) => {
                let written = writer.write(record.clone()).await?;
                let id = record.body.record_id.as_str().to_owned();
                let mut ledger = self.stage.ledger();
                ledger.acknowledged(who, &label(&id), &written.position, |found| found.body.record_id.as_str() == id);
                if !ledger.has_applied(&id) && !ledger.is_excused(self.run, self.life) {
                    ledger.fail(format!("{} was written, and was not applied: {written:?}", label(&id)));
                }
            }
            Write::Batch(record, records) | Write::Spoiled(record, records) => {
                let positions = writer.batch(record.body.record_id.clone(), records.clone()).await?;
                for (position, record) in positions.iter().zip(records) {
                    let id = record.body.record_id.as_str();
                    let same = |found: &JournalRecord| found.body.record_id.as_str() == id;
                    self.stage.ledger().acknowledged(who, &label(id), position, same);
                }
            }
            Write::Checkpoint => {
                let state = LoopState {
                    session_id: "session".to_owned(),
                    messages: vec![Json::from(json!({ "at": ambient::elapsed_millis() }))],
                    ..LoopState::default()
                };
                let written = writer.checkpoint(&state).await?;
                let checkpoint = |found: &JournalRecord| matches!(found.payload, Payload::LoopCheckpoint(_));
                self.stage.ledger().acknowledged(who, &label("of a checkpoint"), &written.position, checkpoint);
            }
        }
        self.stage.count("written by a writer");
        Ok(())
    }
}
