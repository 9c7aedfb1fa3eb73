//! bob-core's tool journal.

use super::done::Done;
use bob_core::{
    error::StoreError,
    journal::{JournalEntry, ToolJournalPort},
};
use runlog_ports::{bob_core::ToolJournal, taken_over};
use runlog_producer::{Config, Error, Runlog};
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Runtime;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    Append(JournalEntry),
    Lookup(String, String),
    Entries(String),
}

pub(crate) struct Port {
    runtime: Runtime,
    journal: ToolJournal,
}

impl Port {
    pub(crate) fn open(config: Config) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let journal = ToolJournal::new(runtime.block_on(Runlog::connect(config))?);
        Ok(Self { runtime, journal })
    }

    pub(crate) fn run(&self, command: Command) -> Done {
        let done = self.runtime.block_on(async {
            Ok(match command {
                Command::Append(entry) => json!(self.journal.append(entry).await?),
                Command::Lookup(session, fingerprint) => json!(self.journal.lookup(&session, &fingerprint).await?),
                Command::Entries(session) => json!(self.journal.entries(&session).await?),
            })
        });
        done.map_err(|error: StoreError| {
            let journal = if let StoreError::Other(error) = &error { error.downcast_ref::<Error>() } else { None };
            (error.to_string(), journal.is_some_and(taken_over))
        })
    }
}
