//! Converts SWE-agent's trajectory files: one run each, in two lists. `history` contains the model's input, `trajectory` the
//! executed steps. There may be more steps (a last `submit` whose result the model never got) or none (demonstrations).
//!
//! Turns come from `history` and calls from `trajectory`. A step belongs to the message with an equal `action`:
//!
//! ```text
//!  history     s  u  a₁ u  a₂ u            a: assistant, with an action
//!  trajectory        t₁    t₂    t₃        t₃ has no message: it follows t₂'s round
//! ```

use std::collections::{HashMap, VecDeque};

use super::json::{Malformed, Value};
use super::plan::{Call, ImportedRun, Outcome, Recorder, RequestIndex};

#[cfg(test)]
mod tests;

pub(super) fn plan(file_stem: &str, top: &Value<'_>) -> Result<ImportedRun, Malformed> {
    let fields = top.object()?;
    let history = fields.required("history")?.array()?;
    let history = history.into_iter().map(Message::read).collect::<Result<Vec<_>, _>>()?;
    let steps = match fields.optional("trajectory") {
        Some(trajectory) => Steps::from_trajectory(&trajectory, &history)?,
        None => Steps::from_history(&history)?,
    };
    let mut recorder = Recorder::start("swe-agent", format!("swe-agent:{file_stem}"), top)?;
    record(&history, steps, &mut recorder)?;
    let info = fields.optional("info").map(|info| info.object()).transpose()?;
    if let Some(status) = info.and_then(|info| info.optional("exit_status")) {
        let status = status.string()?;
        let outcome = if status.starts_with("submitted") { Outcome::Completed } else { Outcome::Failed };
        recorder.end(outcome, format!("exit_status={status}"));
    }
    Ok(recorder.finish())
}

struct Message<'a> {
    value: Value<'a>,
    role: String,
    content: Value<'a>,
    is_demo: bool,
    action: Option<Action<'a>>,
    /// The first element of its `tool_calls`.
    tool_call: Option<Value<'a>>,
}

impl<'a> Message<'a> {
    fn read(value: Value<'a>) -> Result<Self, Malformed> {
        let fields = value.object()?;
        let role = fields.required("role")?.string()?;
        let is_demo = fields.optional("is_demo").map_or(Ok(false), |flag| flag.boolean())?;
        let action = fields.optional("action").map(Action::read).transpose()?;
        let tool_call = fields.elements("tool_calls")?.into_iter().next();
        Ok(Self { content: fields.or_null("content"), value, role, is_demo, action, tool_call })
    }

    fn is_assistant(&self) -> bool {
        self.role == "assistant"
    }

    /// Returns whether the message may request a call.
    fn may_act(&self) -> bool {
        self.is_assistant() && !self.is_demo
    }
}

/// A command line.
struct Action<'a> {
    value: Value<'a>,
    text: String,
}

impl<'a> Action<'a> {
    fn read(value: Value<'a>) -> Result<Self, Malformed> {
        let text = value.string()?;
        Ok(Self { value, text })
    }

    fn shell_call(&self) -> Result<Call, Malformed> {
        // The string in the file's spelling, including white space at its end.
        let arguments = format!("{{\"command\":{}}}", self.value.text());
        Call::new(None, "shell".to_owned(), &arguments, &self.value)
    }
}

/// A call, with its result if it has one already.
struct Step<'a> {
    call: Call,
    result: Option<Value<'a>>,
}

impl<'a> Step<'a> {
    fn from_message(message: &Message<'_>, action: &Action<'_>, result: Option<Value<'a>>) -> Result<Self, Malformed> {
        let call = message.tool_call.as_ref().map_or_else(|| action.shell_call(), Call::from_tool_call)?;
        Ok(Self { call, result })
    }
}

/// The calls by their positions in `history`.
#[derive(Default)]
struct Steps<'a> {
    /// Calls by the index of the assistant message that requested them.
    by_message: HashMap<usize, Step<'a>>,
    /// Steps without a message that requested them, with their indices in the trajectory. The key is the index of the message
    /// after them.
    without_message: HashMap<usize, Vec<(usize, Step<'a>)>>,
}

impl<'a> Steps<'a> {
    /// Finds the calls without a trajectory: each action is a call, and the message after it is its result.
    fn from_history(history: &[Message<'a>]) -> Result<Self, Malformed> {
        let mut steps = Self::default();
        for (index, message) in history.iter().enumerate().filter(|(_, message)| message.may_act()) {
            if let Some(action) = &message.action {
                let next = history.get(index + 1).map(|next| next.value.object()?.required("content"));
                steps.by_message.insert(index, Step::from_message(message, action, next.transpose()?)?);
            }
        }
        Ok(steps)
    }

    fn from_trajectory(trajectory: &Value<'a>, history: &[Message<'a>]) -> Result<Self, Malformed> {
        let mut unpaired: HashMap<&str, VecDeque<usize>> = HashMap::new();
        for (index, message) in history.iter().enumerate().filter(|(_, message)| message.may_act()) {
            if let Some(action) = &message.action {
                unpaired.entry(&action.text).or_default().push_back(index);
            }
        }
        let mut steps = Self::default();
        // A step without a message follows the rounds of all earlier steps. It never precedes the end of the demonstrations.
        let mut next_round = history.iter().position(Message::may_act).unwrap_or(history.len());
        for (index, step) in trajectory.array()?.iter().enumerate() {
            let fields = step.object()?;
            let action = Action::read(fields.required("action")?)?;
            let result = Some(fields.required("observation")?);
            if let Some(message_index) = unpaired.get_mut(action.text.as_str()).and_then(VecDeque::pop_front) {
                steps.by_message.insert(message_index, Step::from_message(&history[message_index], &action, result)?);
                next_round = next_round.max(round_end(history, message_index));
            } else {
                let step = Step { call: action.shell_call()?, result };
                steps.without_message.entry(next_round).or_default().push((index, step));
            }
        }
        Ok(steps)
    }
}

/// Returns the end of a round: the next assistant message, or the end of the history.
fn round_end(history: &[Message<'_>], start: usize) -> usize {
    let next = history.iter().skip(start + 1).position(Message::is_assistant);
    next.map_or(history.len(), |distance| start + 1 + distance)
}

fn record(history: &[Message<'_>], mut steps: Steps<'_>, recorder: &mut Recorder) -> Result<(), Malformed> {
    let mut round_is_complete = false;
    for (index, message) in history.iter().enumerate() {
        if message.is_assistant() {
            close(std::mem::take(&mut round_is_complete), steps.without_message.remove(&index), recorder)?;
        }
        recorder.add_turn(&message.role, &message.value, &message.content)?;
        match steps.by_message.remove(&index) {
            Some(Step { call, result }) => {
                round_is_complete = result.is_some();
                answer(recorder.request(vec![call]), result, recorder)?;
            }
            None if message.is_assistant() => recorder.checkpoint(),
            None => {}
        }
    }
    close(round_is_complete, steps.without_message.remove(&history.len()), recorder)
}

fn answer(calls: Vec<RequestIndex>, result: Option<Value<'_>>, recorder: &mut Recorder) -> Result<(), Malformed> {
    let Some(result) = result else { return Ok(()) };
    calls.into_iter().try_for_each(|call| recorder.complete(call, &result))
}

/// Ends a round. Steps between it and the next round get their own rounds.
fn close(
    is_complete: bool,
    without_message: Option<Vec<(usize, Step<'_>)>>,
    recorder: &mut Recorder,
) -> Result<(), Malformed> {
    if is_complete {
        recorder.checkpoint();
    }
    for (index, Step { call, result }) in without_message.into_iter().flatten() {
        let requested = recorder.request_without_message(&format!("trajectory-{index}"), call);
        answer(requested, result, recorder)?;
        recorder.checkpoint();
    }
    Ok(())
}
