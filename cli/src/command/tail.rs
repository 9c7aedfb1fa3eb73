//! `tail`: follows the records of one run or of all runs, or the changes of an index.
//!
//! A live tail reconnects after its last line if the connection is lost. The first connection must succeed.

use super::timeline;
use crate::{
    args,
    client::{Event, Events, Target},
    error::Error,
    exit::Answer,
    render,
    session::{READ_WAIT, Session},
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::{Change, ErrorKind, Line, Operation, Problem, Run},
    shell,
};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest part of a changed row that is shown, characters.
const ROW_WIDTH: usize = 240;
/// Attempts to reconnect without a received line, before the command gives up.
const RECONNECTS_MAX: u32 = 10;
/// Pause before the first attempt. Each further attempt doubles it, up to the maximum.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(super) async fn run(session: &Session, args: args::Tail) -> Result<Answer, Error> {
    if let Some(run_id) = &args.run {
        let target = Target::run(run_id).with("consistency", "eventual");
        if session.find::<Run>(target, READ_WAIT).await?.is_none() {
            if args.until_end {
                let what = format!("no run {run_id}; `runlog runs --prefix` finds runs by the start of their id");
                return Err(Error::new(ErrorKind::NotFound, what).with("run_id", run_id.as_str()));
            }
            session.output.note(&format!("run {run_id} has no records yet; waiting for the first"));
        }
    }
    let path = match &args.index {
        Some(index) => Target::new("/v1/indices").segment(index).path("/changes"),
        None => args.run.as_ref().map_or_else(|| Target::new("/v1"), Target::run).path("/tail"),
    };
    let start = if args.until_end { "beginning" } else { "end" };
    let tail = Tail {
        session,
        target: path.with_flag("until_end", args.until_end).with_flag("raw", args.raw),
        from: args.from.clone().unwrap_or_else(|| start.to_owned()),
        until_end: args.until_end,
    };
    if args.index.is_some() {
        return tail
            .follow(|change: Change| {
                session.output.item(&change, print_change)?;
                Ok(change.cursor)
            })
            .await;
    }
    let human = if args.run.is_some() { timeline::human } else { timeline::human_of_all };
    tail.follow(|line: Line| {
        session.output.item(&line, human)?;
        Ok(line.cursor)
    })
    .await
}

struct Tail<'a> {
    session: &'a Session,
    target: Target,
    /// The start: `beginning`, `end`, or a cursor, exclusive.
    from: String,
    until_end: bool,
}

impl Tail<'_> {
    /// Prints the stream's items until it ends. `print` returns the cursor of each item.
    async fn follow<T: DeserializeOwned>(
        mut self,
        mut print: impl FnMut(T) -> Result<String, Error>,
    ) -> Result<Answer, Error> {
        let mut events = self.open().await?;
        loop {
            let lost = match events.next().await {
                Ok(Some(event)) => match received(&event) {
                    Ok(item) => {
                        self.from = print(item)?;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::Unavailable => error,
                    Err(error) => return Err(self.with_cursor(error)),
                },
                Ok(None) if self.until_end => return Ok(Answer::Yes),
                Ok(None) => Error::new(ErrorKind::Unavailable, "the server ended the stream"),
                Err(error) => error,
            };
            events = self.reconnect(lost).await?;
        }
    }

    async fn open(&self) -> Result<Events, Error> {
        self.session.client.events(self.target.clone().with("from", &self.from)).await
    }

    /// Opens the stream again after the last item. A tail from the end that has not received an item yet misses the
    /// records written meanwhile, and the note says so.
    async fn reconnect(&self, lost: Error) -> Result<Events, Error> {
        let missed = if self.from == "end" { "; records written meanwhile are not shown" } else { "" };
        self.session.output.note(&format!("{}; reconnecting{missed}", lost.chain()));
        let (mut last, mut pause) = (lost, PAUSE);
        for _ in 0..RECONNECTS_MAX {
            tokio::time::sleep(pause).await;
            match self.open().await {
                Ok(events) => return Ok(events),
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(self.with_cursor(error)),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        let what = format!(
            "gave up after {RECONNECTS_MAX} attempts; continue later with {}",
            shell::flag("--from", &self.from)
        );
        Err(self.with_cursor(Error::new(ErrorKind::Unavailable, what).because(last)))
    }

    fn with_cursor(&self, error: Error) -> Error {
        error.with("cursor", self.from.as_str())
    }
}

/// Decodes the item of an event.
fn received<T: DeserializeOwned>(event: &Event) -> Result<T, Error> {
    let unfit = |error| {
        Error::new(ErrorKind::Internal, "cannot read an event; is the server of another version?").because(error)
    };
    match event.event.as_str() {
        "error" | "problem" => Err(serde_json::from_str::<Problem>(&event.data).map_err(unfit)?.into()),
        _ => serde_json::from_str(&event.data).map_err(unfit),
    }
}

fn print_change(change: &Change, text: &mut Text) {
    let operation = Cell::from(change.operation.as_str());
    let operation = match change.operation.known() {
        Some(Operation::Insert) => operation.good(),
        Some(Operation::Delete) => operation.bad(),
        _ => operation.warn(),
    };
    let row = change.new.as_ref().or(change.old.as_ref()).map_or("", |row| row.as_str());
    text.columns([
        (8, render::position(&change.position).dim()),
        (7, operation),
        (0, Cell::from(format!("{} {row}", change.key.as_str())).clip(ROW_WIDTH)),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_in_a_stream_is_an_error_of_its_kind() {
        let data = r#"{"type":"about:blank#partition_stopped","title":"","status":503,"detail":"stopped","kind":"partition_stopped"}"#;
        let event = |name: &str, data: &str| Event { event: name.into(), data: data.into(), ..Event::default() };
        assert_eq!(received::<Line>(&event("error", data)).unwrap_err().kind(), ErrorKind::PartitionStopped);
        assert_eq!(received::<Line>(&event("message", "nonsense")).unwrap_err().kind(), ErrorKind::Internal);
    }
}
