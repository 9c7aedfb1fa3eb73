//! Converts GenAI spans of OpenTelemetry: `invoke_agent` to a run, `chat` to its messages, `execute_tool` to an observed call.
//!
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/>. A span belongs to the nearest `invoke_agent` above it, or without one
//! to a run of its trace. A run's events are ordered by time. A model's input has the time of the span's start. Its answer and a
//! tool's result have the time of the span's end.
//!
//! An observer recorded the call after the effect, without an intent or a claim. So an observed call is never pending,
//! and no gate accepts it as an answer.

use super::{
    error::Error,
    files::{Format, read_text},
    plan::{Event, ImportedRun},
};
use crate::import::plan::Outcome;
use runlog_schemas::{datum::Sha256, id::RunId, json::Json, payload::observed::ToolJournalEntry};
use serde_json::Value;
use spans::Span;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
};

mod spans;
#[cfg(test)]
mod tests;

/// Largest number of ancestors of a span. More ancestors mean a cycle.
const DEPTH_MAX: usize = 1000;
/// Operations of a model with messages.
const CHATS: [&str; 3] = ["chat", "generate_content", "text_completion"];
const OPERATION: &str = "gen_ai.operation.name";
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Trace and span.
type SpanId = (String, String);

/// Reads all files and creates a run for each agent invocation. Runs are in the order of their ids.
pub(super) fn plan_files(files: &[PathBuf], run_prefix: &str) -> Result<Vec<ImportedRun>, Error> {
    let mut all: BTreeMap<SpanId, (Span, &PathBuf)> = BTreeMap::new();
    for file in files {
        let text = read_text(file, Format::Otlp)?;
        let malformed = |what: String| Error::Malformed { file: file.clone(), path: "$".to_owned(), what };
        for mut span in spans::read(&text).map_err(|error| malformed(error.to_string()))? {
            // Hexadecimal ids may have either case.
            for id in [&mut span.trace_id, &mut span.span_id, &mut span.parent_span_id] {
                id.make_ascii_lowercase();
            }
            if span.trace_id.is_empty() || span.span_id.is_empty() {
                return Err(malformed(format!("span {:?} has no traceId or no spanId", span.name)));
            }
            // A retrying collector writes a span again.
            all.entry((span.trace_id.clone(), span.span_id.clone())).or_insert((span, file));
        }
    }
    let spans: HashMap<SpanId, &Span> = all.iter().map(|(id, (span, _))| (id.clone(), span)).collect();
    let mut runs: BTreeMap<(String, Option<String>), Vec<&Span>> = BTreeMap::new();
    for (span, _) in all.values().filter(|(span, _)| belongs_to_run(span)) {
        runs.entry((span.trace_id.clone(), agent_of(span, &spans))).or_default().push(span);
    }
    let plan = |((trace, agent), spans): (&(String, Option<String>), &Vec<&Span>)| {
        let file = spans.first().and_then(|span| all.get(&(span.trace_id.clone(), span.span_id.clone())));
        let file = file.map(|(_, file)| (*file).clone()).unwrap_or_default();
        let id = agent.as_ref().map_or_else(|| trace.clone(), |agent| format!("{trace}:{agent}"));
        let malformed = |what: String| Error::Malformed { file: file.clone(), path: format!("trace {trace}"), what };
        let run_id = RunId::new(format!("{run_prefix}otlp:{id}")).map_err(|illegal| malformed(illegal.to_string()))?;
        Ok(run(run_id, format!("{} trace {trace}", file.display()), spans))
    };
    runs.iter().map(plan).collect()
}

fn operation(span: &Span) -> &str {
    span.text(OPERATION).unwrap_or_default()
}

fn is_agent(span: &Span) -> bool {
    operation(span) == "invoke_agent"
}

fn belongs_to_run(span: &Span) -> bool {
    is_agent(span) || operation(span) == "execute_tool" || CHATS.contains(&operation(span))
}

/// Finds the nearest `invoke_agent`, starting at the span itself.
fn agent_of(span: &Span, spans: &HashMap<SpanId, &Span>) -> Option<String> {
    let mut ancestor = span;
    for _ in 0..DEPTH_MAX {
        if is_agent(ancestor) {
            return Some(ancestor.span_id.clone());
        }
        ancestor = spans.get(&(ancestor.trace_id.clone(), ancestor.parent_span_id.clone()))?;
    }
    None
}

/// One moment of a run.
enum Moment<'a> {
    /// The input of a model or an agent.
    Input(&'a Span),
    /// The answer of a model or an agent.
    Output(&'a Span),
    /// The result of a tool.
    ToolResult(&'a Span),
}

/// Converts the spans of a run, in any order. There must be at least one.
fn run(run_id: RunId, origin: String, spans: &[&Span]) -> ImportedRun {
    let mut moments: Vec<(u64, u8, &str, Moment<'_>)> = Vec::new();
    for span in spans {
        let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano.max(span.start_time_unix_nano));
        if operation(span) == "execute_tool" {
            moments.push((end, 1, &span.span_id, Moment::ToolResult(span)));
            continue;
        }
        // At equal times, an agent's own messages precede its model's messages, and its answer comes last.
        let (input_rank, output_rank) = if is_agent(span) { (0, 3) } else { (2, 2) };
        moments.push((start, input_rank, &span.span_id, Moment::Input(span)));
        moments.push((end, output_rank, &span.span_id, Moment::Output(span)));
    }
    moments.sort_by_key(|(time, rank, id, _)| (*time, *rank, *id));
    let agent = spans.iter().find(|span| is_agent(span));
    let name = agent.and_then(|agent| agent.text("gen_ai.agent.name").or_else(|| agent.text("gen_ai.agent.id")));
    let start = spans.iter().map(|span| span.start_time_unix_nano).min().unwrap_or_default();
    let mut writer = Writer {
        run: ImportedRun {
            run_id,
            agent_id: name.map_or("otlp".into(), |name| name.to_owned().into()),
            origin,
            messages: Vec::new(),
            events: vec![Event::RunStarted],
            times: vec![start / NANOS_PER_MILLI],
        },
        conversation: Vec::new(),
        seen_messages: HashSet::new(),
        instructions: BTreeSet::new(),
    };
    for (time, _, _, moment) in moments {
        match moment {
            Moment::Input(span) => {
                writer.add_instructions(span, time);
                writer.add_input(span, time);
            }
            Moment::Output(span) => writer.add_output(span, time),
            Moment::ToolResult(span) => writer.add_observed_call(span, time),
        }
    }
    // A run without its agent's span has no known end.
    if let Some(agent) = agent {
        let outcome = if agent.failure().is_some() { Outcome::Failed } else { Outcome::Completed };
        let reason = agent.failure().unwrap_or_default().to_owned();
        writer.push(Event::RunEnded { outcome, reason }, agent.end_time_unix_nano);
    }
    writer.run
}

struct Writer {
    run: ImportedRun,
    /// The messages of the model's conversation so far.
    conversation: Vec<Sha256>,
    /// All messages so far.
    seen_messages: HashSet<Sha256>,
    /// Instructions that the run already contains.
    instructions: BTreeSet<String>,
}

impl Writer {
    fn push(&mut self, event: Event, nanos: u64) {
        self.run.events.push(event);
        // Times never decrease within a run, even if the clocks of its processes disagree.
        let last = self.run.times.last().copied().unwrap_or_default();
        self.run.times.push(last.max(nanos / NANOS_PER_MILLI));
    }

    /// Adds the input of a model or an agent. A model gets its whole conversation each time. Only the messages after the
    /// recorded part are new. If the conversation was cut or edited, or the run has several conversations, a message is
    /// new if its content is new.
    fn add_input(&mut self, span: &Span, nanos: u64) {
        let input = messages(span, "gen_ai.input.messages");
        let common =
            self.conversation.iter().zip(&input).take_while(|(earlier_key, (key, _))| *earlier_key == key).count();
        let continues = common > 0 && common == self.conversation.len();
        for (key, message) in input.iter().skip(common) {
            if self.seen_messages.insert(*key) || continues {
                self.add_message(message, nanos);
            }
        }
        if !input.is_empty() {
            self.conversation = input.into_iter().map(|(key, _)| key).collect();
        }
    }

    /// Adds the answer of a model or an agent. An agent repeats the last answer of its model.
    fn add_output(&mut self, span: &Span, nanos: u64) {
        for (key, message) in messages(span, "gen_ai.output.messages") {
            if !is_agent(span) {
                self.conversation.push(key);
            }
            if self.seen_messages.insert(key) || !is_agent(span) {
                self.add_message(&message, nanos);
            }
        }
    }

    fn add_message(&mut self, message: &Value, nanos: u64) {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user").to_owned();
        let content = message.get("parts").map_or(Value::Null, content_of);
        let number = self.run.messages.len();
        self.run.messages.push(Json::from(message.clone()));
        self.push(Event::Turn { role, message: number, content: Json::from(content) }, nanos);
    }

    fn add_instructions(&mut self, span: &Span, nanos: u64) {
        let Some(parts) = span.attributes.get("gen_ai.system_instructions").map(structured) else { return };
        if self.instructions.insert(parts.to_string()) {
            self.add_message(&serde_json::json!({ "role": "system", "parts": parts }), nanos);
        }
    }

    fn add_observed_call(&mut self, span: &Span, nanos: u64) {
        let attribute = |name: &str| span.attributes.get(name);
        let fallback_name = span.name.strip_prefix("execute_tool ").unwrap_or(&span.name);
        let tool_name = span.text("gen_ai.tool.name").unwrap_or(fallback_name);
        let failure = span.failure();
        let result = attribute("gen_ai.tool.call.result").cloned();
        let result = result.or_else(|| failure.map(Value::from)).unwrap_or_default();
        let session = span.text("gen_ai.conversation.id").unwrap_or(&span.trace_id);
        let call = ToolJournalEntry {
            session_id: format!("otlp:{session}"),
            // Unique for the span: no other call has this fingerprint, and no gate looks it up.
            call_fingerprint: format!("otlp:{}:{}", span.trace_id, span.span_id),
            tool_name: if tool_name.is_empty() { "unknown".to_owned() } else { tool_name.to_owned() },
            arguments: Json::from(attribute("gen_ai.tool.call.arguments").map(structured).unwrap_or_default()),
            result: Json::from(result),
            is_error: failure.is_some(),
            timestamp_ms: nanos / NANOS_PER_MILLI,
        };
        self.push(Event::CallObserved(call), nanos);
    }
}

/// Reads a structured attribute: a structured value, or JSON in a text.
fn structured(attribute: &Value) -> Value {
    let text = attribute.as_str().and_then(|text| serde_json::from_str(text).ok());
    text.unwrap_or_else(|| attribute.clone())
}

/// Returns the messages of an attribute, each with its key.
fn messages(span: &Span, attribute: &str) -> Vec<(Sha256, Value)> {
    match span.attributes.get(attribute).map(structured) {
        Some(Value::Array(messages)) => messages.into_iter().map(|message| (key(&message), message)).collect(),
        _ => Vec::new(),
    }
}

/// The hash that identifies a message: role and parts. It excludes the finish reason, which an answer has and the same
/// message in a later input has not.
fn key(message: &Value) -> Sha256 {
    let text = serde_json::json!([message.get("role"), message.get("parts")]).to_string();
    Sha256::of(text.as_bytes())
}

/// Replaces a single text part by its text. Other parts stay unchanged.
fn content_of(parts: &Value) -> Value {
    match parts.as_array().map(Vec::as_slice) {
        Some([only]) if only.get("type").is_some_and(|kind| kind == "text") => {
            only.get("content").cloned().unwrap_or_default()
        }
        Some([]) => Value::Null,
        _ => parts.clone(),
    }
}
