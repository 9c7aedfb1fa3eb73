//! Exports a run as a trajectory: Agent Trajectory Interchange Format, version 1.8 (RFC 0001 of the harbor framework).
//!
//! ```text
//!   conversation_turn  user, system        ─▶ a step                    loop_checkpoint of a run without turns:
//!                      assistant           ─▶ an agent step, open          its new messages, as if they were turns
//!                      tool                ─▶ the open step's observation, unless a call's result says it
//!   tool_call_requested                    ─▶ a call of the open step, or a step of its own
//!   tool_call_completed, _failed, decision ─▶ an observation of the call's step, or a later step if that was written
//! ```
//!
//! The document is written while records are read. Only the open step, which is bounded, and the ids of calls without a result
//! are in memory.

use super::source::{Entry, Hidden};
use runlog_schemas::{
    datum::Sha256,
    id::{RecordId, RunId},
    json::Json,
    messages,
    payload::{EffectResolution, LoopCheckpoint, Payload, PayloadType, ToolCallRequested, observed::ToolJournalEntry},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, Write},
};

mod content;
#[cfg(test)]
mod tests;

use content::{Asked, Message, NoMessage, Text};

/// The version of the format that is written.
pub(crate) const VERSION: &str = "ATIF-v1.8";
/// Largest number of calls of a step. A further call begins a new step.
const CALLS_MAX: usize = 256;
/// Content of a step at which the step ends, bytes. Later content begins a new step.
const STEP_BYTES_MAX: usize = 64 << 20;

/// Counts of the written parts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Written {
    pub(crate) steps: u64,
    pub(crate) tool_calls: u64,
    /// Records whose content is not exported.
    pub(crate) hidden: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum StepSource {
    System,
    User,
    Agent,
}

#[derive(Debug, Serialize)]
struct Step {
    step_id: u64,
    timestamp: String,
    source: StepSource,
    message: Text,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    extra: Value,
}

#[derive(Debug, Serialize)]
struct Call {
    /// The request's record id, because the provider's own id is not unique within a run. A call without a record has the provider's.
    tool_call_id: String,
    function_name: String,
    arguments: Json,
    extra: Value,
}

#[derive(Debug, Default, Serialize)]
struct Observation {
    results: Vec<Observed>,
}

#[derive(Debug, Serialize)]
struct Observed {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    content: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Value>,
}

/// An agent's step that may get further calls and results.
#[derive(Debug)]
struct Open {
    step: Step,
    /// The request id that its calls have in common.
    request_id: Option<String>,
    bytes: usize,
}

/// A trajectory during its export.
#[derive(Debug)]
pub(crate) struct Trajectory<W> {
    out: W,
    written: Written,
    open: Option<Open>,
    /// Calls without a result, with their tools. Their steps are already written.
    unanswered: HashMap<String, String>,
    agent: Option<String>,
    session: Option<String>,
    /// Whether the run has recorded turns.
    has_turns: bool,
    /// Number of calls that have records.
    recorded_calls: u64,
    /// Number of tool messages.
    tools_said: u64,
    /// Messages of checkpoints that are already steps.
    told: HashSet<Sha256>,
    /// The status and reason of the run's end.
    end: Map<String, Value>,
    /// Numbers of records that do not belong to a trajectory, by type.
    left_out: BTreeMap<String, u64>,
    /// Numbers of checkpoints' messages that do not belong to a trajectory, by reason.
    messages_left_out: BTreeMap<NoMessage, u64>,
    /// Numbers of records without content, by reason.
    hidden: BTreeMap<String, u64>,
}

impl<W: Write> Trajectory<W> {
    pub(crate) fn begin(mut out: W, run_id: &RunId) -> io::Result<Self> {
        write!(out, "{{\"schema_version\":\"{VERSION}\",\"trajectory_id\":")?;
        serde_json::to_writer(&mut out, run_id)?;
        out.write_all(b",\"steps\":[")?;
        Ok(Self {
            out,
            written: Written::default(),
            open: None,
            unanswered: HashMap::new(),
            agent: None,
            session: None,
            has_turns: false,
            recorded_calls: 0,
            tools_said: 0,
            told: HashSet::new(),
            end: Map::new(),
            left_out: BTreeMap::new(),
            messages_left_out: BTreeMap::new(),
            hidden: BTreeMap::new(),
        })
    }

    /// Adds the run's next record.
    pub(crate) fn take(&mut self, entry: Entry) -> io::Result<()> {
        let Entry { line, envelope, payload, hidden } = entry;
        if let Some(why) = hidden {
            self.hide(why);
        }
        if let Some(envelope) = envelope {
            self.session = self.session.take().or(envelope.session_id);
            // Claims, which a server writes, name no agent.
            if self.agent.is_none() && line.payload_type != PayloadType::RunClaim {
                self.agent = Some(envelope.agent_id);
            }
        }
        let position = format!("{}:{}", line.position.partition, line.position.offset);
        let at = StepRecord { time: line.timestamp, position, record_id: line.record_id };
        match payload {
            Some(Payload::ConversationTurn(turn)) => {
                self.has_turns = true;
                self.message(&turn.kind, &turn.content, None, at)
            }
            Some(Payload::LoopCheckpoint(checkpoint)) if !self.has_turns => self.checkpoint(&checkpoint, at),
            Some(Payload::ToolCallRequested(request)) => self.request(request, at),
            Some(Payload::ToolCallCompleted(done)) => {
                self.result(done.request_record_id.to_string(), Text::from_result(done.result.as_ref()), None, at)
            }
            Some(Payload::ToolCallFailed(failed)) => {
                let extra = json!({ "error_kind": failed.error_kind, "is_error": true });
                self.result(failed.request_record_id.to_string(), Text::from(failed.error_message), Some(extra), at)
            }
            Some(Payload::EffectResolution(decision)) => self.decision(decision, at),
            Some(Payload::ToolJournalEntry(entry)) => self.observed(entry, at),
            Some(Payload::RunLifecycle(lifecycle)) => {
                self.end.insert("status".into(), lifecycle.status.into());
                self.end.insert("reason".into(), lifecycle.reason.into());
                Ok(())
            }
            // Their content is in other steps, or they have none.
            Some(Payload::LoopCheckpoint(_) | Payload::RunClaim(_) | Payload::ToolCallAttempt(_)) => Ok(()),
            // The record is counted as hidden.
            None => Ok(()),
            Some(_) => {
                *self.left_out.entry(line.payload_type.as_str().to_owned()).or_default() += 1;
                Ok(())
            }
        }
    }

    /// Writes the rest of the document. `position` is the position of the export.
    pub(crate) fn finish(mut self, run_id: &RunId, position: &str) -> io::Result<Written> {
        self.close()?;
        let mut extra = std::mem::take(&mut self.end);
        extra.insert("position".into(), position.into());
        if !self.unanswered.is_empty() {
            let mut ids: Vec<_> = self.unanswered.keys().map(String::as_str).collect();
            ids.sort_unstable();
            extra.insert("calls_without_result".into(), ids.into());
        }
        if !self.left_out.is_empty() {
            extra.insert("records_left_out".into(), json!(self.left_out));
        }
        if !self.messages_left_out.is_empty() {
            extra.insert("messages_left_out".into(), json!(self.messages_left_out));
        }
        if !self.hidden.is_empty() {
            extra.insert("content_left_out".into(), json!(self.hidden));
        }
        let agent = self.agent.as_deref().filter(|agent| !agent.is_empty()).unwrap_or("unknown");
        let tail = json!({
            "session_id": self.session.as_deref().unwrap_or(run_id.as_str()),
            "agent": { "name": agent, "version": "unknown" },
            "final_metrics": { "total_steps": self.written.steps },
            "extra": extra,
        });
        let tail = tail.to_string();
        self.out.write_all(b"],")?;
        // Continues the object with the members of the tail.
        self.out.write_all(&tail.as_bytes()[1..])?;
        self.out.write_all(b"\n")?;
        self.out.flush()?;
        Ok(self.written)
    }

    fn hide(&mut self, why: Hidden) {
        self.written.hidden += 1;
        *self.hidden.entry(why.to_string()).or_default() += 1;
    }

    /// Adds a message of a conversation.
    fn message(&mut self, role: &str, content: &Json, answers: Option<String>, at: StepRecord) -> io::Result<()> {
        let message = Text::from_content(content);
        let source = match role {
            "assistant" => return self.begin_step(message, at),
            "tool" => return self.tool_message(message, answers, at),
            "user" => StepSource::User,
            _ => StepSource::System,
        };
        self.close()?;
        let extra = if matches!(role, "user" | "system") { at.extra() } else { at.extra_of_role(role) };
        self.write(source, message, None, at.time, extra)
    }

    /// Adds a tool's message. The result of a call already contains it, unless there are more such messages than calls.
    fn tool_message(&mut self, message: Text, answers: Option<String>, at: StepRecord) -> io::Result<()> {
        self.tools_said += 1;
        if self.tools_said <= self.recorded_calls {
            return Ok(());
        }
        if let Some(call) = answers.filter(|call| self.is_unanswered(call)) {
            return self.result(call, message, None, at);
        }
        let observed = Observed { source_call_id: None, content: message, extra: None };
        if let Some(open) = &mut self.open {
            open.observe(observed);
            return Ok(());
        }
        self.write(StepSource::System, Text::empty(), Some(observed), at.time.clone(), at.extra())
    }

    /// Adds the new messages of a checkpoint, if the run has no recorded turns.
    fn checkpoint(&mut self, checkpoint: &LoopCheckpoint, at: StepRecord) -> io::Result<()> {
        // A checkpoint without a base repeats the messages of earlier checkpoints.
        let repeats = checkpoint.base.is_none();
        for (index, message) in checkpoint.messages.iter().enumerate() {
            let is_new = self.told.insert(messages::hash(message));
            if repeats && !is_new {
                continue;
            }
            let Message { role, content, has_calls, calls, answers, is_piece } = match content::parse_message(message) {
                Ok(message) => message,
                Err(_) if !is_new => continue,
                Err(why) => {
                    *self.messages_left_out.entry(why).or_default() += 1;
                    continue;
                }
            };
            let (is_empty, has_recorded) = (matches!(content.as_str(), "null" | "\"\""), self.recorded_calls > 0);
            // The calls and results have their own records. A piece has an id, so the same piece is the same message.
            if is_piece && !is_new || has_recorded && (role == "tool" || is_empty && has_calls) {
                continue;
            }
            let at = StepRecord { position: format!("{}#{index}", at.position), ..at.clone() };
            self.message(&role, &content, answers, at.clone())?;
            if role == "assistant" && !has_recorded {
                self.add_calls(calls, &at)?;
            }
        }
        Ok(())
    }

    /// Adds the calls of an assistant's message that have no records.
    fn add_calls(&mut self, calls: Vec<Asked>, at: &StepRecord) -> io::Result<()> {
        for Asked { id, tool, arguments } in calls {
            if !self.open.as_ref().is_some_and(Open::has_room) {
                self.begin_step(Text::empty(), at.clone())?;
            }
            let (arguments, _) = content::arguments(Some(arguments));
            let extra = json!({ "position": at.position });
            // The format does not allow an empty id.
            let tool_call_id = if id.is_empty() { at.position.clone() } else { id };
            self.call(Call { tool_call_id, function_name: tool_or_unknown(tool), arguments, extra }, None);
        }
        Ok(())
    }

    /// Whether a step has the call, and no result of it.
    fn is_unanswered(&self, call: &str) -> bool {
        let of_step = |step: &Step| step.tool_calls.iter().any(|each| each.tool_call_id == call);
        self.unanswered.contains_key(call) || self.open.as_ref().is_some_and(|open| of_step(&open.step))
    }

    fn request(&mut self, request: ToolCallRequested, at: StepRecord) -> io::Result<()> {
        let ToolCallRequested { request_id, call_id, tool_name, arguments, fingerprint, vendor, .. } = request;
        let joins = self
            .open
            .as_ref()
            .is_some_and(|open| open.request_id.as_ref().is_none_or(|of| *of == request_id) && open.has_room());
        if !joins {
            self.begin_step(Text::empty(), at.clone())?;
        }
        let mut extra = json!({ "call_id": call_id, "fingerprint": fingerprint, "position": at.position });
        if let Some(vendor) = vendor {
            extra["vendor"] = vendor.into();
        }
        let hidden = arguments.is_none();
        let (arguments, is_object) = content::arguments(arguments);
        if hidden {
            extra["arguments"] = "[not exported]".into();
        } else if !is_object {
            extra["arguments_are"] = "not an object: they are the member `value`".into();
        }
        let (tool_call_id, function_name) = (at.record_id.to_string(), tool_or_unknown(tool_name));
        self.recorded_calls += 1;
        self.call(Call { tool_call_id, function_name, arguments, extra }, Some(request_id));
        Ok(())
    }

    /// Adds a call and its result that another system recorded.
    fn observed(&mut self, entry: ToolJournalEntry, at: StepRecord) -> io::Result<()> {
        if !self.open.as_ref().is_some_and(Open::has_room) {
            self.begin_step(Text::empty(), at.clone())?;
        }
        let (arguments, _) = content::arguments(Some(entry.arguments));
        let extra = json!({ "observed": true, "position": at.position });
        let id = at.record_id.to_string();
        self.recorded_calls += 1;
        self.call(
            Call { tool_call_id: id.clone(), function_name: tool_or_unknown(entry.tool_name), arguments, extra },
            None,
        );
        if let Some(open) = &mut self.open {
            let extra = entry.is_error.then(|| json!({ "is_error": true }));
            open.observe(Observed { source_call_id: Some(id), content: Text::from_result(Some(&entry.result)), extra });
        }
        Ok(())
    }

    fn call(&mut self, call: Call, request_id: Option<String>) {
        self.written.tool_calls += 1;
        if let Some(open) = &mut self.open {
            open.request_id = open.request_id.take().or(request_id);
            open.bytes += call.arguments.as_str().len();
            open.step.tool_calls.push(call);
        }
    }

    fn decision(&mut self, decision: EffectResolution, at: StepRecord) -> io::Result<()> {
        let EffectResolution { request_record_id, decision, result, who, why } = decision;
        let extra = json!({ "decision": decision, "who": who, "why": why });
        let content = match decision.as_str() {
            "done" => Text::from_result(result.as_ref()),
            "adopt" => Text::from("[the result of a refused record: `runlog lookup` shows it]".to_owned()),
            "give_up" => Text::from(format!("given up: {why}")),
            // The call is still pending.
            _ => return Ok(()),
        };
        self.result(request_record_id.to_string(), content, Some(extra), at)
    }

    /// Adds the end of a call to its step, or as a new step if its step is already written.
    fn result(&mut self, request: String, content: Text, extra: Option<Value>, at: StepRecord) -> io::Result<()> {
        let own = |open: &&mut Open| open.step.tool_calls.iter().any(|call| call.tool_call_id == request);
        if let Some(open) = self.open.as_mut().filter(own) {
            open.observe(Observed { source_call_id: Some(request), content, extra });
            return Ok(());
        }
        let tool = self.unanswered.remove(&request).unwrap_or_else(|| "a call".into());
        self.close()?;
        let mut more = extra.unwrap_or_else(|| json!({}));
        more["request_record_id"] = request.into();
        let observed = Observed { source_call_id: None, content, extra: Some(more) };
        let message = Text::from(format!("the result of an earlier call of {tool}"));
        self.write(StepSource::System, message, Some(observed), at.time.clone(), at.extra())
    }

    /// Writes the open step and begins a new agent step.
    fn begin_step(&mut self, message: Text, at: StepRecord) -> io::Result<()> {
        self.close()?;
        let bytes = message.bytes();
        let step = Step {
            step_id: 0,
            source: StepSource::Agent,
            message,
            tool_calls: Vec::new(),
            observation: None,
            extra: at.extra(),
            timestamp: at.time,
        };
        self.open = Some(Open { step, request_id: None, bytes });
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(Open { step, .. }) = self.open.take() else { return Ok(()) };
        let results = step.observation.iter().flat_map(|observation| &observation.results);
        let answered: HashSet<_> = results.filter_map(|observed| observed.source_call_id.as_ref()).collect();
        let left = step.tool_calls.iter().filter(|call| !answered.contains(&call.tool_call_id));
        self.unanswered.extend(left.map(|call| (call.tool_call_id.clone(), call.function_name.clone())));
        self.put(step)
    }

    fn write(
        &mut self,
        source: StepSource,
        message: Text,
        observed: Option<Observed>,
        timestamp: String,
        extra: Value,
    ) -> io::Result<()> {
        let observation = observed.map(|observed| Observation { results: vec![observed] });
        self.put(Step { step_id: 0, timestamp, source, message, tool_calls: Vec::new(), observation, extra })
    }

    fn put(&mut self, step: Step) -> io::Result<()> {
        if self.written.steps > 0 {
            self.out.write_all(b",")?;
        }
        self.written.steps += 1;
        serde_json::to_writer(&mut self.out, &Step { step_id: self.written.steps, ..step })?;
        Ok(())
    }
}

impl Open {
    fn has_room(&self) -> bool {
        self.step.tool_calls.len() < CALLS_MAX && self.bytes < STEP_BYTES_MAX
    }

    fn observe(&mut self, observed: Observed) {
        self.bytes += observed.content.bytes();
        self.step.observation.get_or_insert_default().results.push(observed);
    }
}

/// The record of a step.
#[derive(Clone, Debug)]
struct StepRecord {
    time: String,
    position: String,
    record_id: RecordId,
}

impl StepRecord {
    fn extra(&self) -> Value {
        json!({ "record_id": self.record_id, "position": self.position })
    }

    fn extra_of_role(&self, role: &str) -> Value {
        json!({ "record_id": self.record_id, "position": self.position, "role": role })
    }
}

/// Returns a tool's name. The format does not allow an empty name.
fn tool_or_unknown(tool: String) -> String {
    if tool.is_empty() { "unknown".to_owned() } else { tool }
}
