//! Requests to the journal's server that the demo itself sends, not an agent: recoveries, lookups, effects, decisions.

use crate::error::Error;
use reqwest::{RequestBuilder, Url};
use runlog_producer::{BodyError, Security, read_body};
use runlog_schemas::{
    answer::{Effect, Effects, Outcome, Pending, Problem},
    json::Json,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// Time limit of an answer. With hundreds of agents on two busy cores an answer can take long.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// Added to the time limit that the server gets, so that the server's own error arrives first.
const GRACE: Duration = Duration::from_secs(5);

/// The journal's server.
#[derive(Debug)]
pub(crate) struct Server {
    http: reqwest::Client,
    url: Url,
}

impl Server {
    /// Creates a client without connecting.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::internal("cannot create the HTTP client").because(error)
        };
        let http = Security::default().client(url)?.build().map_err(|error| failed(error.into()))?;
        Ok(Self { http, url: url.parse::<Url>().map_err(|error| failed(error.into()))? })
    }

    /// Gets an answer. Encodes the segments of the path and the query.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, &str)]) -> Result<T, Error> {
        exchange(self.http.get(self.url(path, query))).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &Value) -> Result<T, Error> {
        exchange(self.http.post(self.url(path, &[])).json(body)).await
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.url.clone();
        // An http URL has segments.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().push("v1").extend(path);
        }
        url.query_pairs_mut().extend_pairs(query).append_pair("deadline_ms", &WAIT.as_millis().to_string());
        url
    }

    /// Queries all effects of the journal, with consistency `latest`.
    pub(crate) async fn effects(&self) -> Result<Vec<Effect>, Error> {
        let (mut effects, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("consistency", "latest"), ("limit", "1000")];
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page: Effects = self.get(&["effects"], &query).await?;
            effects.extend(page.effects);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(effects);
            }
        }
    }

    /// Records an operator's decision on a pending effect at its revision: `done` with this result, or `not_done`.
    pub(crate) async fn resolve(
        &self,
        run_id: &str,
        pending: &Pending,
        done: Option<Json>,
        why: &str,
    ) -> Result<Outcome, Error> {
        let decision = if done.is_some() { "done" } else { "not_done" };
        let body = json!({"decision": decision, "result": done, "revision": pending.revision,
            "who": "the demo's operator", "why": why});
        self.post(&["runs", run_id, "effects", pending.id.as_str(), "resolution"], &body).await
    }
}

async fn exchange<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, Error> {
    let failed = |error| Error::unavailable("the journal's server did not answer").because(error);
    let response = request.timeout(WAIT + GRACE).send().await.map_err(failed)?;
    let succeeded = response.status().is_success();
    let body = read_body(response).await.map_err(|unread| match unread {
        BodyError::BrokenOff(error) => failed(error),
        BodyError::TooLong(why) => Error::internal(format!("the answer of the journal's server {why}")),
    })?;
    let unreadable = |error| Error::internal("cannot read the answer of the journal's server").because(error);
    if succeeded {
        return serde_json::from_slice(&body).map_err(unreadable);
    }
    let problem: Problem = serde_json::from_slice(&body).map_err(unreadable)?;
    Err(Error::new(problem.kind, problem.detail))
}
