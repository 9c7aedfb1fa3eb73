//! Whether a run is being written, before it is taken over from whoever writes it.
//!
//! No clock of an agent has a part in this: the age of a run's last record is told by whoever answers for the journal, as
//! the time since the log stamped it. On a log inside the process, or a server's own, both times are of one clock. With
//! Kafka the stamp is a broker's and the time now the query server's: what these differ by is an error of the age, no
//! more. It is one of politeness and never of correctness: who writes a run is decided by claims alone.

use crate::{Action, Active, Error, transport::Transport};
use runlog_schemas::{
    answer::{ErrorKind, Recovery, Run},
    id::{Epoch, OrEmpty, RunId, WriterId},
};
use std::time::Duration;

/// The run as it is; an error where it is open and its last record is younger than `within`.
pub(crate) async fn look(transport: &Transport, run_id: RunId<&str>, within: Duration) -> Result<Option<Run>, Error> {
    let Some(run) = transport.run(run_id).await? else { return Ok(None) };
    let age = Duration::from_millis(run.age_millis.unwrap_or_default());
    if run.status == "open" && age < within {
        return Err(active(run_id, &run.writer_id, run.epoch, age));
    }
    Ok(Some(run))
}

/// An error where something was appended between that look and the head that a claim would follow.
pub(crate) fn unchanged(run_id: RunId<&str>, seen: Option<&Run>, head: Option<&Recovery>) -> Result<(), Error> {
    match (seen, head) {
        (_, None) => Ok(()),
        (Some(seen), Some(head)) if seen.position == head.position => Ok(()),
        (_, Some(head)) => Err(active(run_id, &head.writer_id, head.epoch, Duration::ZERO)),
    }
}

fn active(run_id: RunId<&str>, writer_id: &OrEmpty<WriterId>, epoch: Epoch, age: Duration) -> Error {
    let message = format!(
        "run {run_id} is active: writer {writer_id} of epoch {epoch}, its last record was appended {age:?} ago; it was \
         not taken over"
    );
    let active = Active { writer_id: writer_id.clone(), epoch, age };
    Error::new(ErrorKind::Unavailable, Action::Retry, message).because_of(active)
}
