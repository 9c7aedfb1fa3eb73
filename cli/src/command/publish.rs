//! `publish`: appends records, one JSON object per line, in order.
//!
//! ```text
//!   file or stdin ──thread──▶ lines ──▶ items (checked) ──▶ batches of one run ──▶ server ──▶ an outcome each
//! ```
//!
//! The lines that arrive while a batch is in flight form the next batch, so a single line is sent at once. Every record has its
//! id before it is sent, so that sending it again cannot append it twice.

use super::dead_letters::Skip;
use crate::{
    args,
    client::{self, Target},
    error::Error,
    exit::Answer,
    render,
    session::{APPEND_WAIT, Session},
};
use item::{Item, To};
use runlog_schemas::answer::{Appended, ErrorKind, Feature};
use std::time::Duration;
use tokio::sync::mpsc::error::TryRecvError;

mod item;
mod lines;

/// Limits of one request.
pub(super) const BATCH_RECORDS_MAX: usize = 256;
pub(super) const BATCH_BYTES_MAX: usize = 4 << 20;

pub(super) async fn run(session: &Session, args: args::Publish) -> Result<Answer, Error> {
    let mut lines = lines::open(&args.file)?;
    let wait = session.wait(&args.wait, APPEND_WAIT);
    if args.strict {
        session.needs(&[Feature::Strict], wait).await?;
    }
    let mut publisher = Publisher {
        session,
        wait,
        strict: args.strict,
        force: args.force,
        batch: Vec::new(),
        published: 0,
        refused: 0,
    };
    loop {
        let line = match lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                publisher.flush().await?;
                lines.recv().await
            }
        };
        let Some(line) = line else { break };
        match line.and_then(|line| Item::parse(&line)) {
            Ok(Some(item)) => publisher.take(item).await?,
            Ok(None) => {}
            Err(error) => {
                publisher.flush().await?;
                return Err(publisher.with_progress(error));
            }
        }
    }
    publisher.flush().await?;
    Ok(Answer::from_bool(publisher.refused == 0))
}

struct Publisher<'a> {
    session: &'a Session,
    wait: Duration,
    /// Whether to refuse a record instead of warning.
    strict: bool,
    /// Whether to append decisions about effects whose process is active.
    force: bool,
    /// Records of one run, or one record of a partition.
    batch: Vec<Item>,
    published: u64,
    refused: u64,
}

impl Publisher<'_> {
    async fn take(&mut self, item: Item) -> Result<(), Error> {
        let bytes = self.batch.iter().map(|item| item.body.len()).sum::<usize>() + item.body.len();
        let fits = self.batch.len() < BATCH_RECORDS_MAX && bytes <= BATCH_BYTES_MAX;
        let same = self.batch.first().is_none_or(|first| first.to == item.to && matches!(item.to, To::Run(_)));
        if !(fits && same) {
            self.flush().await?;
        }
        self.batch.push(item);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        if let Some(item) = batch.iter().find(|item| item.needs.is_some()) {
            let checked = self.session.needs(item.needs.as_slice(), self.wait).await;
            checked.map_err(|error| self.with_progress(item.with_line(error)))?;
        }
        match self.send(&batch).await {
            Ok(outcomes) => self.print(&outcomes),
            // One record is invalid. Sends the records one by one to find it; already appended records are repeats.
            Err(error) if batch.len() > 1 && error.kind().exit_code() == 3 => {
                for item in &batch {
                    let sent = self.send(std::slice::from_ref(item)).await;
                    let outcomes = sent.map_err(|error| match may_be_appended(error.kind()) {
                        true => self.with_progress(unknown(std::slice::from_ref(item), error)),
                        false => self.with_progress(item.with_line(error)),
                    })?;
                    self.print(&outcomes)?;
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Overloaded => Err(self.with_progress(error)),
            Err(error) if may_be_appended(error.kind()) => Err(self.with_progress(unknown(&batch, error))),
            Err(error) => Err(self.with_progress(batch[0].with_line(error))),
        }
    }

    async fn send(&self, batch: &[Item]) -> Result<Vec<Appended>, Error> {
        let server = &self.session.client;
        let outcomes = match &batch[0].to {
            To::Run(run_id) => {
                let bodies: Vec<&str> = batch.iter().map(|item| item.body.as_str()).collect();
                let body = format!("[{}]", bodies.join(","));
                let target = Target::run(run_id).path("/records");
                let target = target.with_flag("strict", self.strict).with_flag("force", self.force);
                server.post(target, body, self.wait).await?
            }
            To::Partition { partition, skip } => {
                let (offset, who, why) = (skip.offset, &skip.who, &skip.why);
                let body = client::body(&Skip { partition: *partition, offset, who, why, plan: None })?;
                let outcome = server.post(Target::new("/v1/skips"), body, self.wait).await?;
                vec![Appended::new(outcome, None)]
            }
        };
        if outcomes.len() != batch.len() {
            let what = format!("the server answered {} of {} records", outcomes.len(), batch.len());
            return Err(Error::new(ErrorKind::Internal, what));
        }
        Ok(outcomes)
    }

    fn print(&mut self, answers: &[Appended]) -> Result<(), Error> {
        for answer in answers {
            self.published += 1;
            self.refused += u64::from(Answer::from_outcome(&answer.outcome) == Answer::No);
            let printed = self.session.output.answer(answer, render::appended);
            printed.map_err(|error| self.with_progress(error))?;
        }
        Ok(())
    }

    /// Adds to an error how many records were published before it.
    fn with_progress(&self, error: Error) -> Error {
        let before = match self.published {
            0 => "no earlier record was published".to_owned(),
            1 => "1 earlier record was published".to_owned(),
            published => format!("{published} earlier records were published"),
        };
        Error::new(error.kind(), before).with_details_of(&error).with("published", self.published).because(error)
    }
}

/// Returns whether the records may be in the log although the answer is an error.
pub(super) fn may_be_appended(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Stale | ErrorKind::Internal)
}

/// Returns an error after which the records may be in the log. With the same ids they can be sent again safely.
fn unknown(batch: &[Item], error: Error) -> Error {
    let (first, last) = (&batch[0], &batch[batch.len() - 1]);
    let lines = match batch {
        [only] => format!("line {}", only.line),
        _ => format!("lines {} to {}", first.line, last.line),
    };
    let ids: Vec<&str> = batch.iter().filter_map(|item| item.record_id.as_deref()).collect();
    let message =
        format!("{lines} may have been published; send the same records again with these ids: {}", ids.join(" "));
    Error::new(error.kind(), message)
        .with_details_of(&error)
        .with("line", first.line)
        .with("record_ids", ids)
        .because(error)
}
