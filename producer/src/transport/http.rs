//! Append and query through a server.

mod text;

use self::text::{at_least_at, format_position, json, segment};
use super::{
    receipts::Receipts,
    request::{AppendAsk, AppendFailed, AppendUntil, Appended, RecordFilter, RecoveryQuery, ToAppend},
};
use crate::{
    answer_body::{BodyError, read_body},
    config::Config,
    error::{Action, Error},
    http_sender::{HttpSender, NoResponse},
};
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use runlog_content::Store;
use runlog_schemas::{
    answer::{
        self, Checkpoint, Claim, Disposition, ErrorKind, Feature, Journal, Lines, Lookup, OrOther, Position, Problem,
        ReadBack, Recovery, Run, Uploaded,
    },
    id::{self, Illegal, JournalSeq, OrEmpty, RecordId, RunId},
    record::{JournalRecord, RecordKind},
    trace::TRACEPARENT,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// The client waits this much longer than the deadline that it sends to the server.
const SLACK: Duration = Duration::from_secs(5);

/// The header with the receipts of uploaded content.
const RECEIPT: &str = "Runlog-Receipt";

/// How long an idle connection is kept: less than the 10 s after which a server closes it.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The shortest wait before a query is sent again.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The time to wait before the next try, if the server asked for one with 429. A `Retry-After` date is ignored.
fn retry_after(response: &Response) -> Option<Duration> {
    let after = response.headers().get(RETRY_AFTER).filter(|_| response.status() == StatusCode::TOO_MANY_REQUESTS)?;
    let seconds = after.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).max(PAUSE_MIN))
}

/// A server.
#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    /// Sends requests instead of the client, if set.
    sender: Option<HttpSender>,
    server: String,
    deadline: Duration,
    content: Option<Store>,
    /// The server's features.
    features: Vec<OrOther<Feature>>,
    /// Receipts of contents that were uploaded through the server; absent if the producer writes to the store itself.
    receipts: Option<Receipts>,
}

/// Converts `not_found` to `None`.
fn none_if_absent<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Http {
    pub(crate) async fn connect(server: &str, config: &Config) -> Result<Self, Error> {
        let (deadline, sender, content) = (config.deadline, config.http.clone(), config.content_store()?);
        let security = config.security()?;
        let client = match &sender {
            Some(sender) => sender.client(),
            None => security.client(server)?.connect_timeout(deadline).pool_idle_timeout(IDLE_MAX).build().map_err(
                |error| {
                    Error::new(ErrorKind::Internal, Action::Operator, format!("cannot create an HTTP client: {error}"))
                },
            )?,
        };
        let (server, features) = (server.to_owned(), Vec::new());
        let mut http = Self { client, sender, server, deadline, content, features, receipts: None };
        let journal = http.journal().await?;
        // A server with authentication accepts a record that names content only with the receipt of its upload. Without
        // the feature `uploads`, the producer writes content to the store itself, and the server may refuse the record.
        if security.token.is_some() && journal.has(Feature::Uploads) {
            http.receipts = Some(Receipts::default());
        }
        http.features = journal.features;
        Ok(http)
    }

    /// Whether the server had a feature when this connected.
    pub(super) fn has(&self, feature: Feature) -> bool {
        self.features.iter().any(|has| *has == feature)
    }

    /// Formats the parameter that requests the outcomes of other records; empty without positions.
    fn also(&self, positions: &[Position]) -> String {
        if positions.is_empty() {
            return String::new();
        }
        format!("&also={}", positions.iter().map(|position| self.position(position)).collect::<Vec<_>>().join(","))
    }

    /// Formats a position for a query. A server that knows logs compares the position's log with its own.
    fn position(&self, position: &Position) -> String {
        format!("{}{}", format_position(position), self.log_of(position))
    }

    /// `@LOG` for a position that names its log; empty for a server that does not know logs.
    fn log_of(&self, position: &Position) -> String {
        let log = position.log.as_ref().filter(|_| self.has(Feature::Logs));
        log.map_or_else(String::new, |log| format!("@{log}"))
    }

    /// The content store that the producer writes to.
    pub(crate) fn content(&self) -> Option<&Store> {
        self.content.as_ref()
    }

    /// Moves a payload that is too large for a record into the content store, through the server if uploads need
    /// receipts.
    pub(crate) async fn offload(&self, store: &Store, mut record: JournalRecord) -> Result<JournalRecord, Error> {
        let Some(receipts) = &self.receipts else { return Ok(store.stow(record).await?) };
        let whole = record.clone();
        if record.detach(store.inline_bytes_max()).is_none() {
            return Ok(record);
        }
        let id = &record.body.record_id;
        let failed = |error| {
            Error::new(ErrorKind::Internal, Action::Operator, format!("record {id} does not serialise: {error}"))
        };
        let body = serde_json::to_string(&whole).map_err(failed)?;
        drop(whole);
        let (run, deadline) = (segment(record.body.run_id.as_str()), self.deadline.as_millis());
        let url = self.url(&format!("/v1/runs/{run}/contents?deadline_ms={deadline}"))?;
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(body);
        let response = self.send(request).await.map_err(|error| self.unreachable(&error))?;
        let uploaded: Uploaded = self.answer(response).await?;
        if let Some(receipt) = uploaded.receipt {
            receipts.keep(&record, receipt);
        }
        Ok(record)
    }

    pub(crate) async fn journal(&self) -> Result<Journal, Error> {
        self.get("/v1/journal").await
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, NoResponse> {
        let wait = self.deadline + SLACK;
        let request = request.timeout(wait);
        let Some(sender) = &self.sender else { return Ok(request.send().await?) };
        let late = |_| Err(NoResponse { sent: true, why: "timed out".to_owned() });
        tokio::time::timeout(wait, sender.send(request.build()?)).await.unwrap_or_else(late)
    }

    fn unreachable(&self, error: &NoResponse) -> Error {
        let message = format!("no answer from {}: {}", self.server, error.why);
        Error::new(ErrorKind::Unavailable, Action::Retry, message)
    }

    async fn answer<T: DeserializeOwned>(&self, response: Response) -> Result<T, Error> {
        let status = response.status();
        let body = match read_body(response).await {
            Ok(body) => body,
            Err(BodyError::BrokenOff(error)) => return Err(self.unreachable(&error.into())),
            // It may be the answer of an append, which may have happened.
            Err(BodyError::TooLong(why)) => {
                let message = format!("the answer {status} of {} {why}", self.server);
                return Err(Error::new(ErrorKind::Internal, Action::Operator, message));
            }
        };
        let not_ours = if status.is_success() {
            match serde_json::from_slice(&body) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            }
        } else {
            match serde_json::from_slice::<Problem>(&body) {
                Ok(problem) => return Err(problem.into()),
                Err(error) => error,
            }
        };
        Err(self.foreign_answer(status, &not_ours))
    }

    /// Makes the error for an answer that is incomplete or not Runlog's. A proxy's status shows whether to retry, but
    /// not whether the server acted.
    fn foreign_answer(&self, status: StatusCode, error: &serde_json::Error) -> Error {
        let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
        let (kind, action) = if status.is_server_error() || later.contains(&status) || error.is_eof() {
            (ErrorKind::Unavailable, Action::Retry)
        } else {
            (ErrorKind::Internal, Action::Operator)
        };
        Error::new(kind, action, format!("answer {status} from {} is not a Runlog answer: {error}", self.server))
    }

    /// Makes the URL of a path and query. Refuses a segment that the client would remove from the path, since the path
    /// would then name another resource.
    fn url(&self, path: &str) -> Result<String, Error> {
        let mut segments = path.split('?').next().unwrap_or_default().split('/');
        match segments.find_map(id::dots) {
            Some(text) => Err(Illegal::Dots { what: "part of a path", text }.into()),
            None => Ok(format!("{}{path}", self.server)),
        }
    }

    /// Sends a query and returns its answer. A query that is refused for now (429 with `Retry-After`) is repeated until
    /// the deadline: a failed read-back would stop the handle, which then claims and recovers, and so adds to the load.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let (url, begun) = (self.url(path)?, Instant::now());
        loop {
            let response = self.send(self.client.get(&url)).await.map_err(|error| self.unreachable(&error))?;
            match retry_after(&response).filter(|pause| begun.elapsed().saturating_add(*pause) < self.deadline) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return self.answer(response).await,
            }
        }
    }

    /// As [`Http::get`], with `None` for `not_found`.
    async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        none_if_absent(self.get(path).await)
    }

    /// As [`Http::get`], or with the query `older` if the server refuses the query: an address may lead to several servers, and an
    /// older one does not know all parameters.
    async fn get_or<T: DeserializeOwned>(&self, path: &str, older: &str) -> Result<T, Error> {
        match self.get(path).await {
            Err(error) if error.kind() == ErrorKind::Usage && path != older => self.get(older).await,
            answer => answer,
        }
    }

    /// As [`Http::get_or`], with `None` for `not_found`. The query ends with the position `at_least`, or with `latest`.
    async fn find_at<T: DeserializeOwned>(&self, path: &str, at_least: Option<&Position>) -> Result<Option<T>, Error> {
        let Some(position) = at_least else { return self.find(&format!("{path}&consistency=latest")).await };
        let consistency = at_least_at(position);
        let older = format!("{path}&consistency={}", segment(&consistency));
        let path = format!("{path}&consistency={}", segment(&format!("{consistency}{}", self.log_of(position))));
        none_if_absent(self.get_or(&path, &older).await)
    }

    /// Refuses a record whose facts an older server would drop: a decision without the state that it was made at stays
    /// valid after later evidence. For calls, the server's features at connection time count.
    async fn understands(&self, record: &JournalRecord) -> Result<(), Error> {
        let feature = match record.version().number {
            1 => return Ok(()),
            2 => Feature::Revisions,
            _ if record.body.record_kind != RecordKind::EffectResolution && self.has(Feature::Bases) => return Ok(()),
            _ => Feature::Bases,
        };
        if self.journal().await?.has(feature) {
            return Ok(());
        }
        let message = format!(
            "the server at {} does not have the feature {}, which record {} needs; {}. Nothing was appended",
            self.server,
            feature,
            record.body.record_id,
            feature.remedy()
        );
        Err(Error::new(ErrorKind::Unavailable, Action::Operator, message))
    }

    /// Appends records of one run. A server without the features for `ask` waits for the judgement and reports no other
    /// outcomes.
    pub(crate) async fn append(&self, all: &[ToAppend<'_>], ask: AppendAsk<'_>) -> Result<Vec<Appended>, AppendFailed> {
        let until = match ask.until {
            AppendUntil::Acknowledged if !self.has(Feature::AnswerAtAck) => AppendUntil::Judged,
            AppendUntil::ReadBack if !self.has(Feature::ReadBack) => AppendUntil::Judged,
            until => until,
        };
        let also = if self.has(Feature::AnswerAtAck) { ask.also } else { &[] };
        match self.append_as(all, AppendAsk { until, also }).await {
            // The address may lead to several servers. An older one knows neither parameter, and appended nothing.
            Err(failed)
                if failed.untouched
                    && failed.error.kind() == ErrorKind::Usage
                    && (until != AppendUntil::Judged || !also.is_empty()) =>
            {
                self.append_as(all, AppendAsk::JUDGED).await
            }
            appended => appended,
        }
    }

    /// Sends one record as an object, which is also the form of its answer, and several records as an array.
    async fn append_as(&self, all: &[ToAppend<'_>], ask: AppendAsk<'_>) -> Result<Vec<Appended>, AppendFailed> {
        let AppendAsk { until, also } = ask;
        let failed = |error: Error, untouched| AppendFailed { error, untouched };
        let Some(&ToAppend { record: first, trace }) = all.first() else { return Ok(Vec::new()) };
        let records: Vec<&JournalRecord> = all.iter().map(|one| one.record).collect();
        for record in &records {
            self.understands(record).await.map_err(|error| failed(error, true))?;
        }
        let body = if let [only] = records[..] { json(only) } else { serde_json::to_string(&records) };
        let body = body.map_err(|error| {
            let message = format!("record {} does not serialise: {error}", first.body.record_id);
            failed(Error::new(ErrorKind::Internal, Action::Operator, message), true)
        })?;
        let run = segment(first.body.run_id.as_str());
        let (deadline, also) = (self.deadline.as_millis(), self.also(also));
        let until_then = match until {
            AppendUntil::Acknowledged => "&return=ack",
            AppendUntil::Judged => "",
            AppendUntil::ReadBack => "&consistency=latest",
        };
        let url = self.url(&format!("/v1/runs/{run}/records?deadline_ms={deadline}{until_then}{also}"));
        let url = url.map_err(|error| failed(error, true))?;
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(body);
        let request = if let Some(trace) = trace { request.header(TRACEPARENT, trace) } else { request };
        let receipt = self.receipts.as_ref().and_then(|receipts| receipts.find(first));
        let request = if let Some(receipt) = receipt { request.header(RECEIPT, receipt) } else { request };
        let response = self.send(request).await.map_err(|error| {
            // Without a connection the request was not sent. Otherwise the record may be in the log.
            failed(self.unreachable(&error), !error.sent)
        })?;
        let answers: Result<Vec<answer::Appended>, Error> = if records.len() == 1 {
            self.answer(response).await.map(|only| vec![only])
        } else {
            self.answer(response).await
        };
        let answers = answers.map_err(|error| {
            let kind = error.kind();
            let later = [ErrorKind::Overloaded, ErrorKind::Unauthenticated, ErrorKind::ReconcileRequired];
            // A mirror, and a server without the partition, append nothing. Any other server that is unavailable may have appended the
            // record.
            let is_elsewhere = kind == ErrorKind::Unavailable && error.action() == Action::Operator;
            let refused = kind.never_accepted() || later.contains(&kind) || is_elsewhere;
            failed(error, refused)
        })?;
        let appended = |answer: answer::Appended| {
            let position = answer.outcome.position.clone();
            let judged = answer.outcome.outcome != Disposition::Appended;
            let writer = answer.writer.filter(|_| until == AppendUntil::ReadBack);
            let outcome = judged.then_some(answer.outcome);
            Appended { position, outcome, writer, changed: answer.changed, also: answer.also }
        };
        let others = |(answer, record): (&answer::Appended, &&JournalRecord)| {
            answer.outcome.record_id.borrow().is_some_and(|id| id != record.body.record_id.borrow())
        };
        if answers.iter().zip(&records).any(others) {
            let message = format!("the answer to an append, from {}, is about another record", self.server);
            return Err(failed(Error::new(ErrorKind::Internal, Action::Operator, message), false));
        }
        Ok(answers.into_iter().map(appended).collect())
    }

    /// Claims a run.
    pub(super) async fn claim(&self, run_id: RunId<&str>, claim: &Value) -> Result<(), Error> {
        let deadline = self.deadline.as_millis();
        let url = self.url(&format!("/v1/runs/{}/claims?deadline_ms={deadline}", segment(&run_id)))?;
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(claim.to_string());
        let response = self.send(request).await.map_err(|error| self.unreachable(&error))?;
        self.answer(response).await.map(|_: Claim| ())
    }

    pub(crate) async fn read_back(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
        also: &[Position],
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        let path = |position: &str| {
            format!(
                "/v1/runs/{}/outcome?position={position}&record_id={}&consistency=latest&deadline_ms={}",
                segment(&run_id),
                segment(OrEmpty::from(record_id).as_str()),
                deadline.as_millis(),
            )
        };
        let also = if self.has(Feature::AnswerAtAck) { self.also(also) } else { String::new() };
        self.get_or(&format!("{}{also}", path(&self.position(position))), &path(&format_position(position))).await
    }

    pub(crate) async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
        at_least: Option<&Position>,
    ) -> Result<Option<ReadBack>, Error> {
        let (run, record, deadline) = (segment(&run_id), segment(&record_id), self.deadline.as_millis());
        self.find_at(&format!("/v1/runs/{run}/outcome?record_id={record}&deadline_ms={deadline}"), at_least).await
    }

    pub(crate) async fn run(&self, run_id: RunId<&str>) -> Result<Option<Run>, Error> {
        let deadline = self.deadline.as_millis();
        self.find(&format!("/v1/runs/{}?consistency=latest&deadline_ms={deadline}", segment(&run_id))).await
    }

    pub(crate) async fn recovery(
        &self,
        run_id: RunId<&str>,
        query: RecoveryQuery,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        let mut path = format!(
            "/v1/runs/{}/recovery?full=true&from_start={}&content={}&limit={}&deadline_ms={}",
            segment(&run_id),
            query.from_start,
            query.content,
            query.limit,
            self.deadline.as_millis()
        );
        if let Some(cursor) = cursor {
            path.push_str(&format!("&cursor={cursor}"));
        }
        self.find(&path).await
    }

    pub(crate) async fn records(
        &self,
        run_id: RunId<&str>,
        which: &RecordFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Lines>, Error> {
        let deadline = self.deadline.as_millis();
        let mut path = format!("/v1/runs/{}/records?whole=true&limit={limit}&deadline_ms={deadline}", segment(&run_id));
        let correlation = which.correlation.as_ref().map(|(key, value)| format!("{key}={value}"));
        let terms = [
            ("family", &which.family),
            ("kind", &which.kind),
            ("correlation", &correlation),
            ("tag", &which.tag),
            ("cursor", &cursor.map(str::to_owned)),
        ];
        for (name, value) in terms {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", segment(value)));
            }
        }
        self.find(&path).await
    }

    pub(crate) async fn checkpoint(
        &self,
        run_id: RunId<&str>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        let (run, deadline) = (segment(&run_id), self.deadline.as_millis());
        let before = at_or_before.map(|seq| format!("&at_or_before={seq}")).unwrap_or_default();
        self.find(&format!("/v1/runs/{run}/checkpoints/latest?deadline_ms={deadline}{before}")).await
    }

    pub(crate) async fn call(&self, run_id: RunId<&str>, id: RecordId<&str>) -> Result<Lookup, Error> {
        let deadline = self.deadline.as_millis();
        self.get(&format!("/v1/runs/{}/calls/{}?deadline_ms={deadline}", segment(&run_id), segment(&id))).await
    }

    pub(crate) async fn call_with_key(
        &self,
        run_id: RunId<&str>,
        (tool, key): (&str, &str),
        at_least: &Position,
    ) -> Result<Option<Lookup>, Error> {
        let (run, tool, key, deadline) = (segment(&run_id), segment(tool), segment(key), self.deadline.as_millis());
        let path = format!("/v1/runs/{run}/lookup?tool={tool}&key={key}&deadline_ms={deadline}");
        self.find_at(&path, Some(at_least)).await
    }
}
