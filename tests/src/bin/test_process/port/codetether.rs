//! codetether's write-back journal.

use super::done::Done;
use runlog_ports::{
    Blocking,
    codetether::{Checks, CommitError, Error, Op, RejectReason, TxnId, WritebackJournal},
    taken_over,
};
use runlog_producer::Config;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    Stage(Op),
    Commit(TxnId),
    Reject(TxnId, RejectReason),
    Reconcile(TxnId),
    LeftOpen,
    Jsonl,
}

pub(crate) struct Port(WritebackJournal);

impl Port {
    pub(crate) fn open(config: Config, session: &str) -> anyhow::Result<Self> {
        let clock = config.clock;
        Ok(Self(WritebackJournal::open(Blocking::connect(config)?, session, clock, Checks::default())?))
    }

    pub(crate) fn run(&self, command: Command) -> Done {
        let journal = &self.0;
        let failed = |error: Error| {
            let lost_run = matches!(&error, Error::Journal(error) if taken_over(error));
            (error.to_string(), lost_run)
        };
        Ok(match command {
            Command::Stage(op) => json!(journal.stage(op).map_err(failed)?),
            Command::Commit(txn) => json!(journal.commit(txn).map_err(|error| match error {
                CommitError::Rejected(reason) => (json!(reason).to_string(), false),
                CommitError::Journal(error) => failed(error),
            })?),
            Command::Reject(txn, reason) => json!(journal.reject(txn, reason).map_err(failed)?),
            Command::Reconcile(txn) => json!(journal.reconcile(txn).map_err(|reason| (format!("{reason:?}"), false))?),
            Command::LeftOpen => json!(journal.left_open().iter().map(|open| open.txn).collect::<Vec<_>>()),
            Command::Jsonl => json!(journal.to_jsonl().map_err(failed)?),
        })
    }
}
