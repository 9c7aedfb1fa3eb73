//! The demo's environment: the journal's server, the desk, the seed, and the parent's HTTP requests to the journal.

use super::{desk::Desk, process::Process};
use crate::{
    Error,
    client::{Client, Target},
};
use runlog_producer::Security;
use runlog_schemas::{
    answer::{Effect, Effects, Lookup, Outcome, Pending, Recovery},
    id::RecordId,
    json::Json,
};
use std::time::Duration;

/// Time limit of an answer. With hundreds of agents on two busy cores an answer can take long.
pub(super) const WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Site {
    pub(super) seed: u64,
    /// The journal's server.
    pub(super) url: String,
    pub(super) client: Client,
    pub(super) desk: Desk,
}

impl Site {
    pub(super) fn new(seed: u64, url: String, desk: Desk) -> Result<Self, Error> {
        Ok(Self { seed, client: Client::new(&url, &Security::default())?, url, desk })
    }

    /// Starts an agent in a separate process.
    pub(super) fn agent(&self, number: u32, keyed: bool) -> Result<Process, Error> {
        let mut arguments = vec![
            "demo-agent".to_owned(),
            format!("--journal={}", self.url),
            format!("--desk={}", self.desk.address()),
            format!("--seed={}", self.seed),
            format!("--number={number}"),
        ];
        arguments.extend(keyed.then(|| "--keyed".to_owned()));
        Process::start(format!("agent {number}"), &arguments)
    }

    /// Queries the recovery of a run.
    pub(super) async fn recovery(&self, run_id: &str) -> Result<Recovery, Error> {
        self.client.get(Target::run(run_id).path("/recovery"), WAIT).await
    }

    /// Queries a call by its request's record id.
    pub(super) async fn call(&self, run_id: &str, id: RecordId<&str>) -> Result<Lookup, Error> {
        self.client.get(Target::run(run_id).path("/calls").segment(id), WAIT).await
    }

    /// Queries all effects of the journal, at `latest`.
    pub(super) async fn effects(&self) -> Result<Vec<Effect>, Error> {
        let (mut effects, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let target = Target::new("/v1/effects").with("consistency", "latest").with("limit", 1000);
            let page: Effects = self.client.get(target.with_some("cursor", cursor.as_deref()), WAIT).await?;
            effects.extend(page.effects);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(effects);
            }
        }
    }

    /// Records an operator's decision on a pending effect at its revision: `done` with this result, or `not_done`.
    pub(super) async fn resolve(
        &self,
        run_id: &str,
        pending: &Pending,
        done: Option<Json>,
        why: &str,
    ) -> Result<Outcome, Error> {
        let decision = if done.is_some() { "done" } else { "not_done" };
        let body = serde_json::json!({"decision": decision, "result": done, "revision": pending.revision,
            "who": "the demo's operator", "why": why});
        let target = Target::run(run_id).path("/effects").segment(&pending.id).path("/resolution");
        self.client.post(target, body.to_string(), WAIT).await
    }
}
