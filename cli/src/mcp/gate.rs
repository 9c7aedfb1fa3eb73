//! The gate: two directions, each with a bounded queue, and a task per call.
//!
//! Neither direction waits for the other, so a server that writes before it reads cannot stop both.

use super::{
    answer::{Reply, ended},
    calls::Admission,
    message::{self, CallRequest, Id, Message},
    naming,
    policy::{Hints, Policy, Rule, Runs as Often},
    runs::{OpenRun, Runs},
    stdio::ToClient,
    upstream::{FromServer, Response, Upstream},
};
use runlog_producer::{Answer, Error, Json};
use runlog_schemas::{
    answer::{LookupStatus, OrOther},
    id::{Fingerprint, RecordId, RunId},
};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};

/// Gated calls in flight. A further call is refused, and nothing runs.
const CALLS_MAX: u32 = 256;
/// Requests for lists of tools, whose answers have hints.
const LISTS_MAX: usize = 64;

/// JSON-RPC's codes of errors.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;
const SERVER_ERROR: i32 = -32000;

/// Facts from the messages of both ends. Its lock is taken before the lock of a run's calls.
#[derive(Debug, Default)]
struct Learned {
    /// Requests of gated calls, from their arrival until the client has the answer or cancels; with the run, once it is open.
    requests: HashMap<Id, Option<Arc<OpenRun>>>,
    /// Requests whose answers name the server or list tools.
    initialize: Option<Id>,
    lists: Vec<Id>,
    /// The name of the server.
    server: Option<String>,
    hints: HashMap<String, Hints>,
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    policy: Policy,
    runs: Runs,
    upstream: Arc<Upstream>,
    client: mpsc::Sender<ToClient>,
    learned: Mutex<Learned>,
    in_flight: Arc<Semaphore>,
    /// The address of the server's page for decisions.
    page: String,
    id: fn() -> String,
}

/// A gated call.
struct Gated {
    request: CallRequest,
    rule: Rule,
    run: Arc<OpenRun>,
    args: Json,
    fingerprint: Fingerprint,
}

impl Gate {
    pub(crate) fn new(
        (policy, runs): (Policy, Runs),
        upstream: Arc<Upstream>,
        client: mpsc::Sender<ToClient>,
        page: String,
        id: fn() -> String,
    ) -> Arc<Self> {
        let in_flight = Arc::new(Semaphore::new(CALLS_MAX as usize));
        Arc::new(Self { policy, runs, upstream, client, learned: Mutex::default(), in_flight, page, id })
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line to the client. The client is gone if nothing receives.
    async fn tell(&self, line: String) {
        drop(self.client.send((line, None)).await);
    }

    /// Passes on the messages of the client, until it closes its end.
    ///
    /// Errors: its end cannot be read.
    pub(crate) async fn serve_client(
        self: &Arc<Self>,
        mut lines: mpsc::Receiver<io::Result<String>>,
    ) -> io::Result<()> {
        while let Some(line) = lines.recv().await {
            let line = line?;
            match Message::split(&line) {
                Ok(all) if all.len() == 1 && all[0] == line => self.receive(line).await,
                // Each element of a batch alone, so that none passes the gate.
                Ok(all) => {
                    for each in all {
                        self.receive(each).await;
                    }
                }
                Err(why) => self.refuse_line(&why).await,
            }
        }
        self.confirm();
        Ok(())
    }

    async fn refuse_line(&self, why: &str) {
        let what = format!("runlog: the message was not passed on: {why}");
        self.tell(message::error(None, &message::error_object(PARSE_ERROR, &what))).await;
    }

    async fn receive(self: &Arc<Self>, line: String) {
        let message = match Message::parse(&line) {
            Ok(message) => message,
            Err(why) => return self.refuse_line(&why).await,
        };
        let is_cancelled = message.method.as_deref() == Some("notifications/cancelled") && self.cancel(&message);
        // The client has sent a message, so it has what was written before.
        self.confirm();
        match (message.method.as_deref(), &message.id) {
            // The effect is not cancelled.
            _ if is_cancelled => {}
            (Some("tools/call"), None) => tracing::warn!("a tools/call without an id was not passed on"),
            (Some("tools/call"), Some(id)) => {
                let id = id.clone();
                self.call(id, line, message).await;
            }
            _ => self.pass(line, message).await,
        }
    }

    /// Passes a message to the server, unchanged.
    async fn pass(&self, line: String, message: Message) {
        let id = message.id.clone().filter(|_| message.method.is_some());
        if let Some(id) = &id {
            let mut learned = self.learned();
            match message.method.as_deref() {
                Some("initialize" | "server/discover") => learned.initialize = Some(id.clone()),
                Some("tools/list") if learned.lists.len() < LISTS_MAX => learned.lists.push(id.clone()),
                _ => {}
            }
        }
        if !self.upstream.pass(line, message).await
            && let Some(id) = id
        {
            let gone = message::error_object(SERVER_ERROR, "runlog: the MCP server is gone");
            self.tell(message::error(Some(&id), &gone)).await;
        }
    }

    /// Notes that the client no longer waits for a request. Returns whether the request is a gated call.
    fn cancel(&self, message: &Message) -> bool {
        let params = message.params();
        let id = params.get("requestId").and_then(|id| Message::parse(&format!(r#"{{"id":{}}}"#, id.get())).ok()?.id);
        let Some(id) = id else { return false };
        let Some(run) = self.learned().requests.remove(&id) else { return false };
        if let Some(run) = run {
            run.calls().cancel(&id);
        }
        true
    }

    /// Notes that the client has the answers that were written.
    fn confirm(&self) {
        for run in self.runs.all() {
            let received = run.calls().confirm();
            if !received.is_empty() {
                let mut learned = self.learned();
                received.iter().for_each(|id| drop(learned.requests.remove(id)));
                run.mark_dirty();
            }
        }
    }

    /// Begins a `tools/call`.
    async fn call(self: &Arc<Self>, id: Id, line: String, message: Message) {
        let request = match CallRequest::parse(id.clone(), message.clone()) {
            Ok(request) => request,
            Err(why) => {
                return self.tell(message::error(Some(&id), &message::error_object(INVALID_PARAMS, &why))).await;
            }
        };
        let hints = self.learned().hints.get(&request.tool).copied().unwrap_or_default();
        let rule = self.policy.rule(&request.tool, hints);
        if rule.runs == Often::Ungated {
            return self.pass(line, message).await;
        }
        let is_repeated = {
            let mut learned = self.learned();
            let is_repeated = learned.requests.contains_key(&id) || self.upstream.is_waiting(&id);
            if !is_repeated {
                learned.requests.insert(id.clone(), None);
            }
            is_repeated
        };
        if is_repeated {
            let what = "runlog: another request with this id is not answered";
            return self.tell(message::error(Some(&id), &message::error_object(INVALID_REQUEST, what))).await;
        }
        let Ok(permit) = Arc::clone(&self.in_flight).try_acquire_owned() else {
            let what = format!("{CALLS_MAX} calls are in flight; {} did not run, repeat it later", request.tool);
            return self.answer_without_call(&id, &Reply::refusal(&what)).await;
        };
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            gate.run_call(request, rule).await;
            drop(permit);
        });
    }

    /// Answers a request that has no call with an end.
    async fn answer_without_call(&self, id: &Id, reply: &Reply) {
        let is_waiting = self.learned().requests.remove(id).is_some();
        if is_waiting {
            self.tell(reply.to_line(id)).await;
        }
    }

    async fn run_call(self: &Arc<Self>, request: CallRequest, rule: Rule) {
        let (id, tool) = (request.id.clone(), request.tool.clone());
        let gated = match self.prepare(request, rule).await {
            Ok(Some(gated)) => gated,
            // The client cancelled it while the run was opened: nothing ran, and nothing will.
            Ok(None) => return,
            Err(why) => {
                let reply = Reply::refusal(&format!("{tool} did not run: {why}"));
                return self.answer_without_call(&id, &reply).await;
            }
        };
        let Gated { request, rule, run, fingerprint, .. } = &gated;
        let call_id = naming::call_id(&request.meta);
        let admission = {
            // Under this lock, so that a cancellation either finds the call or prevents it.
            let learned = self.learned();
            if !learned.requests.contains_key(&id) {
                return;
            }
            run.calls().admit(&id, fingerprint, call_id, rule.one_at_a_time)
        };
        match admission {
            Admission::Joined => {}
            Admission::Ended(call) => self.replay(&gated, call).await,
            Admission::Begun(nth) => self.perform(&gated, nth).await,
        }
    }

    /// Opens the run of a call. `None` if the client cancelled the request meanwhile.
    async fn prepare(&self, request: CallRequest, rule: Rule) -> Result<Option<Gated>, String> {
        let args = Json::parse(&request.arguments()).map_err(|error| error.to_string())?;
        let fingerprint = Fingerprint::of_call(&request.tool, args.as_str()).map_err(|error| error.to_string())?;
        let server = self.learned().server.clone();
        let run_id: RunId = self.runs.naming.run_of(&request.meta, server.as_deref())?;
        let run = self.runs.open(&run_id).await?;
        run.ready().await.map_err(|error| error.to_string())?;
        let is_waiting = match self.learned().requests.get_mut(&request.id) {
            Some(waiting) => {
                *waiting = Some(Arc::clone(&run));
                true
            }
            None => false,
        };
        Ok(is_waiting.then_some(Gated { request, rule, run, args, fingerprint }))
    }

    /// Answers a request from the journal.
    async fn replay(&self, gated: &Gated, call: RecordId) {
        let Gated { request, run, fingerprint, .. } = gated;
        let read = self.runs.runlog.call(run.run.id().clone(), &call).await;
        let (failed, is_lost) = match read {
            Ok(read) if !read.missing_content.is_empty() || !read.dropped.is_empty() => {
                ("its recorded answer is not in the journal any more".to_owned(), true)
            }
            Ok(read) if matches!(read.status, OrOther::Known(LookupStatus::Completed | LookupStatus::Failed)) => {
                let reply = Reply::from_end(read.result.as_ref(), read.error.as_ref(), true);
                return self.deliver(gated, std::slice::from_ref(&request.id), &call, &reply).await;
            }
            Ok(read) => (format!("the journal has the call as {}", read.status.as_str()), false),
            Err(error) => (error.to_string(), false),
        };
        if !is_lost {
            run.calls().park(fingerprint.clone(), call.clone());
        }
        let why = format!("{} ended before and did not run again: {failed} (call {call})", request.tool);
        self.answer_without_call(&request.id, &Reply::refusal(&why)).await;
    }

    /// Makes a call through the producer's gate, and answers the requests that wait for it.
    async fn perform(&self, gated: &Gated, nth: u64) {
        let Gated { request, rule, run, args, fingerprint } = gated;
        let argument = rule.idempotency_key.as_deref();
        let own = argument.and_then(|name| request.text_argument(name));
        let key = argument.map(|_| own.clone().or_else(|| run.calls().take_key(fingerprint)).unwrap_or_else(self.id));
        let mut tool = run.run.tool(&request.tool, args);
        if let Some(key) = &key {
            tool = tool.idempotency_key(key);
        }
        if rule.runs == Often::Repeatable {
            tool = tool.repeatable();
        }
        let effect = |call: runlog_producer::Call| async move {
            let with_key = argument.zip(call.idempotency_key.as_deref());
            let response = match request.for_server(call.id.as_str(), with_key) {
                Ok(line) => self.upstream.call(&request.id, line).await,
                Err(why) => Response::NotSent(why),
            };
            ended(response)
        };
        let made = tool.once_or_unknown(effect).await;
        match made {
            Ok(answer) => {
                let waiters = run.calls().end(nth, Some(&answer.call));
                let reply = Reply::from_end(answer.result.as_ref(), answer.error.as_ref(), answer.recorded);
                let Answer { call, .. } = &answer;
                self.deliver(gated, &waiters, call, &reply).await;
            }
            Err(error) => {
                run.note(&error);
                if let Some(key) = key.filter(|_| own.is_none()) {
                    run.calls().put_back_key(fingerprint, key);
                }
                self.fail(gated, nth, &error).await;
            }
        }
    }

    async fn fail(&self, gated: &Gated, nth: u64, error: &Error) {
        let reply = Reply::from_error(error, &gated.request.tool, &self.page);
        let waiters = gated.run.calls().end(nth, None);
        if waiters.is_empty() {
            tracing::warn!("a call that the client cancelled failed: {error}");
        }
        for waiter in waiters {
            self.answer_without_call(&waiter, &reply).await;
        }
    }

    /// Answers requests with the end of a call.
    async fn deliver(&self, gated: &Gated, waiters: &[Id], call: &RecordId, reply: &Reply) {
        let Gated { run, fingerprint, .. } = gated;
        for waiter in waiters {
            {
                let learned = self.learned();
                let mut calls = run.calls();
                calls.write(waiter, fingerprint, call);
                // A cancellation that arrived since found no answer to take back.
                if !learned.requests.contains_key(waiter) {
                    calls.cancel(waiter);
                    continue;
                }
            }
            let (run, id) = (Arc::clone(run), waiter.clone());
            let note: Box<dyn FnOnce() + Send> = Box::new(move || run.calls().flushed(&id));
            drop(self.client.send((reply.to_line(waiter), Some(note))).await);
        }
    }

    /// Passes on the messages of the server, until it is gone. Returns why.
    pub(crate) async fn serve_server(&self, mut from_server: mpsc::Receiver<FromServer>) -> String {
        let mut why = "the MCP server is gone".to_owned();
        while let Some(each) = from_server.recv().await {
            match each {
                FromServer::Line(line) => self.receive_from_server(line).await,
                FromServer::Failed(id, response) => {
                    let what = match &response {
                        Response::NotSent(why) | Response::Lost(why) => format!("runlog: {why}"),
                        Response::Result(_) | Response::Error(_) => String::new(),
                    };
                    if !self.upstream.respond(&id, response) {
                        self.tell(message::error(Some(&id), &message::error_object(SERVER_ERROR, &what))).await;
                    }
                }
                FromServer::Gone(reason) => {
                    why = reason;
                    break;
                }
            }
        }
        self.upstream.mark_gone(&why);
        why
    }

    async fn receive_from_server(&self, line: String) {
        let is_batch = line.trim_start().starts_with('[');
        match Message::split(&line).ok().filter(|_| is_batch) {
            None => self.receive_one(line).await,
            Some(all) => {
                for each in all {
                    self.receive_one(each).await;
                }
            }
        }
    }

    async fn receive_one(&self, line: String) {
        // A line that is no message is the client's to judge.
        if let Ok(message) = Message::parse(&line)
            && let (None, Some(id)) = (&message.method, &message.id)
        {
            if self.upstream.is_waiting(id) {
                let text = |name: &str| message.members.get(name).map(|value| value.get().to_owned());
                let response = match (text("result"), text("error")) {
                    (Some(result), None) => Response::Result(result),
                    (None, Some(error)) => Response::Error(error),
                    _ => Response::Lost("the MCP server answered with neither a result nor an error".to_owned()),
                };
                self.upstream.respond(id, response);
                return;
            }
            self.learn(id, &message);
        }
        self.tell(line).await;
    }

    /// Learns the server's name and the hints of its tools.
    fn learn(&self, id: &Id, message: &Message) {
        let mut learned = self.learned();
        if learned.initialize.as_ref() == Some(id) {
            learned.initialize = None;
            let result = message.members.members("result").unwrap_or_default();
            let info = result.members("serverInfo").or_else(|| {
                result.members("_meta").and_then(|meta| meta.members("io.modelcontextprotocol/serverInfo"))
            });
            learned.server = info.and_then(|info| info.text("name")).or_else(|| learned.server.take());
        }
        if let Some(at) = learned.lists.iter().position(|list| list == id) {
            learned.lists.swap_remove(at);
            let result = message.members.members("result").unwrap_or_default();
            let tools: Vec<message::Members> =
                result.get("tools").and_then(|tools| serde_json::from_str(tools.get()).ok()).unwrap_or_default();
            for tool in tools {
                let annotations = tool.members("annotations").unwrap_or_default();
                let hints = Hints {
                    read_only: annotations.is_true("readOnlyHint"),
                    idempotent: annotations.is_true("idempotentHint"),
                };
                if let Some(name) = tool.text("name") {
                    learned.hints.insert(name, hints);
                }
            }
        }
    }

    /// Waits until no call is in flight, for at most `wait`.
    pub(crate) async fn drain(&self, wait: Duration) {
        drop(timeout(wait, self.in_flight.acquire_many(CALLS_MAX)).await);
    }

    /// Records which answers the client has.
    pub(crate) async fn save(&self) {
        for run in self.runs.all() {
            run.save().await;
        }
    }
}
