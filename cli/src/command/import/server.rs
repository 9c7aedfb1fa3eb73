//! Imports through a server. All runs are checked before the first record is appended.
//!
//! The first records of a run may be in the journal already and are repeats; the other records are new. So the check of a run
//! can stop at the first request with a new record: the records after it are new too.

use super::progress::{Steps, Tally, Written};
use crate::{
    client::{self, Client, Target},
    command::publish::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX},
    error::Error,
    exit::Answer,
    import::{ImportedRun, records},
    output::{Output, Progress},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, OrOther, Outcome, Reason},
    record::JournalRecord,
};
use std::time::Duration;

/// Runs in flight: enough to share the log's writes to disk, few enough to be fair to other clients.
const CONCURRENCY: usize = 8;

pub(super) async fn send(
    client: &Client,
    wait: Duration,
    runs: &[ImportedRun],
    output: &Output,
    written: &Written,
) -> Result<Tally, Error> {
    let sender = Sender { client, wait };
    let checked = output.progress("runs checked", runs.len() as u64);
    let checks = stream::iter(runs).map(|run| sender.check(run, &checked)).buffered(CONCURRENCY);
    let present: Vec<usize> = checks.try_collect().await?;
    drop(checked);
    let steps = &Steps::new(output, runs, written);
    let appends = runs.iter().zip(present).map(|(run, present)| sender.append(run, present, steps));
    let tallies: Vec<(u64, u64)> = stream::iter(appends).buffered(CONCURRENCY).try_collect().await?;
    Ok(Tally {
        appended: tallies.iter().map(|(appended, _)| appended).sum(),
        duplicates: Some(tallies.iter().map(|(_, duplicates)| duplicates).sum()),
    })
}

struct Sender<'a> {
    client: &'a Client,
    wait: Duration,
}

/// The records of one request.
struct Batch {
    records: Vec<JournalRecord>,
    body: String,
}

impl Sender<'_> {
    /// Returns the number of the run's records, from the first on, that are in the journal already.
    async fn check(&self, run: &ImportedRun, progress: &Progress) -> Result<usize, Error> {
        let mut present = 0;
        for batch in batches(run, 0) {
            let batch = batch?;
            let outcomes = self.post(run, &batch, true).await?;
            if let Some((record, outcome)) = first_refusal(&batch, &outcomes) {
                return Err(refusal_error(run, record, outcome, "nothing was imported"));
            }
            let repeats = outcomes.iter().take_while(|outcome| outcome.outcome == Disposition::Repeat).count();
            present += repeats;
            if repeats < batch.records.len() {
                break;
            }
        }
        progress.advance(1);
        Ok(present)
    }

    /// Appends the run's records after the records that are present. Returns the numbers of new and of present records.
    async fn append(&self, run: &ImportedRun, present: usize, steps: &Steps<'_>) -> Result<(u64, u64), Error> {
        let (mut appended, mut duplicates) = (0, present as u64);
        steps.advance(present, 0);
        for batch in batches(run, present) {
            let batch = batch?;
            let outcomes = self.post(run, &batch, false).await?;
            if let Some((record, outcome)) = first_refusal(&batch, &outcomes) {
                let what =
                    "another writer appended to the run during the import; records that are already imported stay";
                return Err(refusal_error(run, record, outcome, what));
            }
            let repeats = outcomes.iter().filter(|outcome| outcome.outcome == Disposition::Repeat).count() as u64;
            duplicates += repeats;
            appended += outcomes.len() as u64 - repeats;
            steps.advance(outcomes.len(), outcomes.len() as u64 - repeats);
        }
        Ok((appended, duplicates))
    }

    async fn post(&self, run: &ImportedRun, batch: &Batch, check: bool) -> Result<Vec<Outcome>, Error> {
        let target = Target::run(&run.run_id).path("/records").with_flag("check", check);
        let posted = self.client.post(target, batch.body.clone(), self.wait).await;
        let outcomes: Vec<Outcome> = posted.map_err(|error| {
            Error::new(error.kind(), format!("run {}, from {}, was not imported", run.run_id, run.origin))
                .with_details_of(&error)
                .with("run_id", run.run_id.as_str())
                .because(error)
        })?;
        if outcomes.len() == batch.records.len() {
            return Ok(outcomes);
        }
        let what = format!("the server answered {} of {} records", outcomes.len(), batch.records.len());
        Err(Error::new(ErrorKind::Internal, what))
    }
}

/// Returns the run's records from index `from` on, in requests of bounded size.
fn batches(run: &ImportedRun, from: usize) -> impl Iterator<Item = Result<Batch, Error>> {
    let mut records = records(run).skip(from).map(encode).peekable();
    std::iter::from_fn(move || {
        let mut batch = Batch { records: Vec::new(), body: String::new() };
        while let Some(next) = records.next_if(|next| match next {
            Ok((_, text)) => {
                let fits = batch.body.len() + text.len() < BATCH_BYTES_MAX && batch.records.len() < BATCH_RECORDS_MAX;
                fits || batch.records.is_empty()
            }
            Err(_) => batch.records.is_empty(),
        }) {
            let (record, text) = match next {
                Ok(next) => next,
                Err(error) => return Some(Err(error)),
            };
            batch.body.push(if batch.records.is_empty() { '[' } else { ',' });
            batch.body.push_str(&text);
            batch.records.push(record);
        }
        batch.body.push(']');
        (!batch.records.is_empty()).then_some(Ok(batch))
    })
}

fn encode(record: JournalRecord) -> Result<(JournalRecord, String), Error> {
    let text = client::body(&record)?;
    Ok((record, text))
}

fn first_refusal<'a>(batch: &'a Batch, outcomes: &'a [Outcome]) -> Option<(&'a JournalRecord, &'a Outcome)> {
    let mut both = batch.records.iter().zip(outcomes);
    both.find(|(_, outcome)| Answer::from_outcome(outcome) == Answer::No)
}

fn refusal_error(run: &ImportedRun, record: &JournalRecord, outcome: &Outcome, done: &str) -> Error {
    let reason = outcome.reason.as_ref().map_or("unknown", OrOther::as_str);
    let (kind, why) = if outcome.reason.as_ref().is_some_and(|reason| *reason == Reason::Fenced) {
        (ErrorKind::Fenced, "the run is incomplete and has been claimed since")
    } else {
        (ErrorKind::Invalid, "the journal contains a run with this id and other content")
    };
    let message = format!(
        "{done}: run {}, from {}: record {} ({}) is refused as {reason}: {why}; --run-prefix gives the imported runs other ids",
        run.run_id,
        run.origin,
        record.body.record_id,
        record.payload.payload_type()
    );
    Error::new(kind, message)
        .with("run_id", run.run_id.as_str())
        .with("record_id", record.body.record_id.as_str())
        .with("reason", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Format, plan_files};
    use runlog_schemas::draft::Draft;

    fn run(messages: usize) -> ImportedRun {
        let turns = vec![r#"{"role":"user","content":"hi ☃"}"#; messages].join(",");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!(r#"[{{"task_id":1,"trial":0,"reward":1.0,"traj":[{turns}]}}]"#)).unwrap();
        plan_files(Format::TauBench, &[file.path().to_owned()], None).unwrap().remove(0)
    }

    #[test]
    fn batches_are_bounded_and_leave_nothing_out() {
        let run = run(1000);
        for from in [0, 1, 999] {
            let sent = batches(&run, from).map(|batch| batch.map(|batch| batch.records).unwrap());
            let sent: Vec<Vec<JournalRecord>> = sent.collect();
            assert!(sent.iter().all(|batch| (1..=BATCH_RECORDS_MAX).contains(&batch.len())));
            let expected: Vec<JournalRecord> = records(&run).skip(from).collect();
            assert_eq!(sent.concat(), expected);
        }
        assert_eq!(batches(&run, run.events.len()).count(), 0);
    }

    #[test]
    fn what_is_sent_reads_back_as_the_same_record() {
        let run = run(3);
        for batch in batches(&run, 0) {
            let batch = batch.unwrap();
            let texts: Vec<&serde_json::value::RawValue> = serde_json::from_str(&batch.body).unwrap();
            for (text, record) in texts.into_iter().zip(&batch.records) {
                assert_eq!(&Draft::parse(text.get()).unwrap().record, record);
            }
        }
    }

    #[test]
    fn a_refusal_names_run_record_and_reason() {
        let run = run(1);
        let record = records(&run).next().unwrap();
        let position = runlog_schemas::answer::Position {
            topic: "t".into(),
            partition: 0.into(),
            offset: 0.into(),
            index: 0,
            log: None,
        };
        let outcome = |reason: Reason| Outcome {
            position: position.clone(),
            outcome: Disposition::Refused.into(),
            reason: Some(reason.into()),
            record_id: runlog_schemas::id::OrEmpty::NONE,
            journal_seq: None,
            record_writer: None,
        };
        let fenced = refusal_error(&run, &record, &outcome(Reason::Fenced), "nothing was imported");
        assert_eq!((fenced.kind(), fenced.kind().exit_code()), (ErrorKind::Fenced, 3));
        let conflict = refusal_error(&run, &record, &outcome(Reason::Conflict), "nothing was imported");
        assert_eq!(conflict.kind(), ErrorKind::Invalid);
        let text = conflict.to_string();
        assert!(["tau-bench:1:0", "conflict", "--run-prefix"].iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(conflict.document()["error"]["record_id"], record.body.record_id.as_str());
    }
}
