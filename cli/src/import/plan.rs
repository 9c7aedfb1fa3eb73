//! A recorded run, independent of its source format, with events in the order in which its agent would have written them.

use std::{borrow::Cow, collections::HashSet};

use runlog_schemas::canonical;
use runlog_schemas::id::{OrEmpty, RunId};
use runlog_schemas::json::Json;
use runlog_schemas::payload::{ToolCallRequested, observed::ToolJournalEntry};

use super::json::{Malformed, Value};

/// One run, ready to become records.
#[derive(Debug)]
pub(crate) struct ImportedRun {
    pub(crate) run_id: RunId,
    /// The agent of the run: the name in the source, or otherwise the name of the source format.
    pub(crate) agent_id: Cow<'static, str>,
    /// The source of the run, for messages: file and JSON path.
    pub(crate) origin: String,
    /// The source's messages in their order.
    pub(crate) messages: Vec<Json>,
    /// The events. Record ids are derived from their indices.
    pub(crate) events: Vec<Event>,
    /// The time of each event, milliseconds since the Unix epoch. Empty if the source has no times.
    pub(crate) times: Vec<u64>,
}

impl ImportedRun {
    pub(crate) fn tool_calls(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::CallRequested(_) | Event::CallObserved(_))).count()
    }

    /// Returns whether both runs result in the same records. Their origin does not matter.
    pub(super) fn same_content(&self, other: &Self) -> bool {
        let content = |run: &'_ Self| (run.run_id.clone(), run.agent_id.clone());
        content(self) == content(other)
            && (&self.messages, &self.events, &self.times) == (&other.messages, &other.events, &other.times)
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    RunStarted,
    Turn {
        role: String,
        /// Index into the run's messages. Every message is one turn, in order.
        message: usize,
        /// The message's content, or null without content.
        content: Json,
    },
    /// All calls of an assistant message have the same request id. The call id is unique within the request and begins with
    /// the source's own id, if there is one.
    CallRequested(ToolCallRequested),
    CallCompleted {
        /// Index of the request's event.
        request: usize,
        result: Json,
    },
    CallFailed {
        /// Index of the request's event.
        request: usize,
        message: String,
    },
    /// An observed call. It has no intent, so it is never pending and answers no later call.
    CallObserved(ToolJournalEntry),
    Checkpoint {
        /// The number of the run's messages, from the first, that the checkpoint contains.
        messages: usize,
        /// Indices of the events of earlier requests without an answer.
        unanswered: Vec<usize>,
    },
    RunEnded {
        outcome: Outcome,
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Completed,
    Failed,
}

/// A requested call in the source.
#[derive(Debug)]
pub(super) struct Call {
    source_id: Option<String>,
    /// The request with its hashes, without its ids.
    request: ToolCallRequested,
}

impl Call {
    /// Creates a call. `at` is the path of the arguments in the source file.
    pub(super) fn new(
        source_id: Option<String>,
        tool_name: String,
        arguments: &str,
        at: &Value<'_>,
    ) -> Result<Self, Malformed> {
        let refuse = |error: canonical::Error| at.malformed(format_args!("the arguments cannot be used: {error}"));
        let arguments = Some(Json::parse(arguments).map_err(refuse)?);
        let request = ToolCallRequested {
            request_id: String::new(),
            call_id: String::new(),
            parent_id: None,
            vendor: None,
            tool_name,
            args_sha256: String::new(),
            fingerprint: OrEmpty::NONE,
            arguments,
        };
        Ok(Self { source_id, request: request.seal().map_err(refuse)? })
    }

    /// Converts an element of OpenAI's `tool_calls`. Its arguments are JSON in a string; some writers write an object.
    pub(super) fn from_tool_call(call: &Value<'_>) -> Result<Self, Malformed> {
        let fields = call.object()?;
        let function = fields.required("function")?.object()?;
        let name = function.required("name")?;
        let tool_name = name.string()?;
        if tool_name.is_empty() {
            return Err(name.malformed("a tool's name must not be empty"));
        }
        let source_id = fields.optional("id").map(|id| id.string()).transpose()?;
        let arguments = function.required("arguments")?;
        if arguments.is_object() {
            return Self::new(source_id, tool_name, arguments.text(), &arguments);
        }
        Self::new(source_id, tool_name, &arguments.string()?, &arguments)
    }
}

/// The index of a request's event. Valid for the recorder that returned it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestIndex(usize);

/// Builds a run event by event.
#[derive(Debug)]
pub(super) struct Recorder {
    run: ImportedRun,
    unanswered: Vec<usize>,
}

impl Recorder {
    /// Starts a run. `at` is the run's path in the file.
    ///
    /// Errors: an invalid run id.
    pub(super) fn start(agent_id: &'static str, run_id: String, at: &Value<'_>) -> Result<Self, Malformed> {
        let run_id = RunId::new(run_id).map_err(|illegal| at.malformed(illegal.to_string()))?;
        let run = ImportedRun {
            run_id,
            agent_id: agent_id.into(),
            origin: at.path().to_owned(),
            messages: Vec::new(),
            events: vec![Event::RunStarted],
            times: Vec::new(),
        };
        Ok(Self { run, unanswered: Vec::new() })
    }

    /// Adds the next message.
    pub(super) fn add_turn(&mut self, role: &str, message: &Value<'_>, content: &Value<'_>) -> Result<(), Malformed> {
        let content = content.json()?;
        self.run.events.push(Event::Turn { role: role.to_owned(), message: self.run.messages.len(), content });
        self.run.messages.push(message.json()?);
        Ok(())
    }

    /// Adds the calls that the last message requested, in order.
    pub(super) fn request(&mut self, calls: Vec<Call>) -> Vec<RequestIndex> {
        let message = self.run.messages.len().saturating_sub(1);
        self.push_calls(Some(message), &message_id(message), calls)
    }

    /// Adds a call without a message that requested it.
    pub(super) fn request_without_message(&mut self, request_id: &str, call: Call) -> Vec<RequestIndex> {
        self.push_calls(None, request_id, vec![call])
    }

    fn push_calls(&mut self, message: Option<usize>, request_id: &str, calls: Vec<Call>) -> Vec<RequestIndex> {
        let mut used_ids = HashSet::new();
        let mut requested = Vec::new();
        for (index, call) in calls.into_iter().enumerate() {
            let id = call.source_id.unwrap_or_else(|| format!("call-{}", index + 1));
            requested.push(RequestIndex(self.run.events.len()));
            self.unanswered.push(self.run.events.len());
            self.run.events.push(Event::CallRequested(ToolCallRequested {
                request_id: request_id.to_owned(),
                call_id: unique(id, &mut used_ids),
                parent_id: message.map(message_id),
                ..call.request
            }));
        }
        requested
    }

    pub(super) fn complete(&mut self, call: RequestIndex, result: &Value<'_>) -> Result<(), Malformed> {
        self.mark_answered(call);
        self.run.events.push(Event::CallCompleted { request: call.0, result: result.json()? });
        Ok(())
    }

    pub(super) fn fail(&mut self, call: RequestIndex, message: String) {
        self.mark_answered(call);
        self.run.events.push(Event::CallFailed { request: call.0, message });
    }

    fn mark_answered(&mut self, call: RequestIndex) {
        self.unanswered.retain(|request| *request != call.0);
    }

    /// Adds a checkpoint with all messages so far.
    pub(super) fn checkpoint(&mut self) {
        let unanswered = self.unanswered.clone();
        self.run.events.push(Event::Checkpoint { messages: self.run.messages.len(), unanswered });
    }

    pub(super) fn end(&mut self, outcome: Outcome, reason: String) {
        self.run.events.push(Event::RunEnded { outcome, reason });
    }

    pub(super) fn finish(self) -> ImportedRun {
        self.run
    }
}

/// Returns the id of a message within its run.
pub(super) fn message_id(index: usize) -> String {
    format!("message-{index}")
}

/// Returns `id`, or `id#2`, `id#3` … if it is already used.
fn unique(id: String, used_ids: &mut HashSet<String>) -> String {
    let mut candidate = id.clone();
    for repetition in 2.. {
        if used_ids.insert(candidate.clone()) {
            break;
        }
        candidate = format!("{id}#{repetition}");
    }
    candidate
}
