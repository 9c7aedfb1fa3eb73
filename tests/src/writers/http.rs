//! Batches over HTTP, to a server that restarts at another address each time.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::{FutureExt, future::BoxFuture};
use runlog_schemas::record::JournalRecord;
use serde_json::Value;
use tokio::sync::watch;

use super::Sink;

/// The pause between two checks of the server's URL.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The members that the server fills in for runs that leave their numbers to it.
const PLACE: [&str; 6] = ["writer_id", "writer_epoch", "writer_seq", "prev_hash", "journal_seq", "timestamp_millis"];

/// A server whose URL changes.
#[derive(Debug)]
pub struct Http {
    client: reqwest::Client,
    url: watch::Receiver<String>,
    /// Whether the server numbers the records of a run.
    leaves_numbers: fn(&str) -> bool,
}

impl Http {
    /// A sink that follows `url`.
    pub fn new(url: watch::Receiver<String>, leaves_numbers: fn(&str) -> bool) -> anyhow::Result<Self> {
        Ok(Self { client: crate::server::client()?, url, leaves_numbers })
    }

    fn body(&self, run_id: &str, batch: &[JournalRecord]) -> anyhow::Result<Value> {
        let mut body = serde_json::to_value(batch)?;
        if (self.leaves_numbers)(run_id) {
            let records = body.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
            records.for_each(|record| PLACE.iter().for_each(|name| drop(record.remove(*name))));
        }
        Ok(body)
    }
}

impl Sink for Http {
    fn send<'a>(&'a self, run_id: &'a str, batch: &'a [JournalRecord]) -> BoxFuture<'a, anyhow::Result<bool>> {
        async move {
            let url = format!("{}/v1/runs/{run_id}/records", self.url.borrow().clone());
            let sent = self.client.post(url).json(&self.body(run_id, batch)?).send().await;
            let Ok(response) = sent else { return Ok(false) };
            let status = response.status();
            let Ok(body) = response.text().await else { return Ok(false) };
            if status.is_server_error() {
                return Ok(false);
            }
            ensure!(status.is_success(), "{status}: {body}");
            let outcomes: Vec<Value> = serde_json::from_str(&body).context("the outcomes")?;
            ensure!(outcomes.len() == batch.len(), "{} outcomes of {}", outcomes.len(), batch.len());
            for (record, outcome) in batch.iter().zip(outcomes) {
                let taken = outcome["outcome"] == "applied" || outcome["outcome"] == "repeat";
                ensure!(taken && outcome["reason"].is_null(), "{}: {outcome}", record.body.record_id);
            }
            Ok(true)
        }
        .boxed()
    }

    fn recovered(&self) -> BoxFuture<'_, ()> {
        let mut url = self.url.clone();
        async move { drop(tokio::time::timeout(LOOK_AGAIN, url.changed()).await) }.boxed()
    }
}
