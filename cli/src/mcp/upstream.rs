//! The MCP server: a process, or a URL.
//!
//! A gated request ends in exactly one [`Response`]. The transport reports requests that will get none.

use super::{
    message::{Id, Message},
    stdio::LINES_MAX,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{mpsc, oneshot};

pub(crate) mod child;
pub(crate) mod http;

/// The end of a gated request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The text of `result`.
    Result(String),
    /// The text of `error`.
    Error(String),
    /// The request did not reach the server.
    NotSent(String),
    /// The server may have acted on the request.
    Lost(String),
}

/// From the transport.
#[derive(Debug)]
pub(crate) enum FromServer {
    /// A message of the server.
    Line(String),
    /// A request that gets no response.
    Failed(Id, Response),
    /// The server is gone, for this reason.
    Gone(String),
}

/// A message to send, with the id if it is a request.
#[derive(Debug)]
pub(crate) struct ToServer {
    pub(crate) line: String,
    pub(crate) message: Message,
}

#[derive(Debug, Default)]
struct State {
    /// Gated requests without a response.
    waiting: HashMap<Id, oneshot::Sender<Response>>,
    /// Why the server is gone.
    gone: Option<String>,
}

/// The way to the server.
#[derive(Debug)]
pub(crate) struct Upstream {
    queue: Mutex<Option<mpsc::Sender<ToServer>>>,
    state: Mutex<State>,
}

impl Upstream {
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<ToServer>) {
        let (queue, lines) = mpsc::channel(LINES_MAX);
        (Arc::new(Self { queue: Mutex::new(Some(queue)), state: Mutex::default() }), lines)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> Option<mpsc::Sender<ToServer>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends nothing more: a process sees the end of its input.
    pub(crate) fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sends a message that is not gated. `false` if the server is gone.
    pub(crate) async fn pass(&self, line: String, message: Message) -> bool {
        let Some(queue) = self.queue() else { return false };
        queue.send(ToServer { line, message }).await.is_ok()
    }

    /// Sends a gated request and waits for its end, for as long as the server runs.
    pub(crate) async fn call(&self, id: &Id, line: String) -> Response {
        let (sender, response) = oneshot::channel();
        let message = match Message::parse(&line) {
            Ok(message) => message,
            Err(why) => return Response::NotSent(why),
        };
        let gone =
            || Response::NotSent(self.state().gone.clone().unwrap_or_else(|| "the MCP server is gone".to_owned()));
        {
            let mut state = self.state();
            if state.gone.is_none() {
                state.waiting.insert(id.clone(), sender);
            }
        }
        let is_sent = match self.queue() {
            Some(queue) => queue.send(ToServer { line, message }).await.is_ok(),
            None => false,
        };
        if !is_sent {
            self.state().waiting.remove(id);
            return gone();
        }
        response.await.unwrap_or_else(|_| gone())
    }

    /// Whether a gated request with this id waits.
    pub(crate) fn is_waiting(&self, id: &Id) -> bool {
        self.state().waiting.contains_key(id)
    }

    /// Ends a gated request. `false` if no such request waits.
    pub(crate) fn respond(&self, id: &Id, response: Response) -> bool {
        let waiting = self.state().waiting.remove(id);
        // A call that was dropped has no receiver.
        waiting.map(|sender| sender.send(response).is_ok()).is_some()
    }

    /// Ends all gated requests: the server may have acted on them.
    pub(crate) fn mark_gone(&self, why: &str) {
        let mut state = self.state();
        state.gone = Some(why.to_owned());
        for (_, sender) in state.waiting.drain() {
            drop(sender.send(Response::Lost(format!("{why} before it answered"))));
        }
    }
}
