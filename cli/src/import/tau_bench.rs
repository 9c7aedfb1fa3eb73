//! Converts tau-bench's results: an array of runs, each with the messages of one OpenAI chat and a reward.
//!
//! A round is an assistant message with calls and the tool messages that answer them, in the order of the calls. The
//! calls' ids are ignored, because providers repeat them.

use std::collections::VecDeque;

use super::json::{Malformed, Object, Value};
use super::plan::{Call, ImportedRun, Outcome, Recorder, RequestIndex};

#[cfg(test)]
mod tests;

pub(super) fn plan(top: &Value<'_>) -> Result<Vec<ImportedRun>, Malformed> {
    top.array()?.iter().map(plan_run).collect()
}

fn plan_run(run: &Value<'_>) -> Result<ImportedRun, Malformed> {
    let fields = run.object()?;
    let run_id = format!("tau-bench:{}:{}", id(&fields, "task_id")?, id(&fields, "trial")?);
    let reward = fields.required("reward")?.number()?;
    let mut recorder = Recorder::start("tau-bench", run_id, run)?;
    let mut round = None;
    // A run whose agent failed at the start has no messages.
    for message in fields.required("traj")?.array()? {
        take(&message, &mut recorder, &mut round)?;
    }
    close(round, &mut recorder);
    recorder.end(Outcome::Completed, format!("reward={reward}"));
    Ok(recorder.finish())
}

/// Reads a whole number or a string in the file's spelling.
fn id(fields: &Object<'_>, key: &str) -> Result<String, Malformed> {
    let value = fields.required(key)?;
    if value.is_string() {
        return value.string();
    }
    match value.number()? {
        number if number.contains(['.', 'e', 'E']) => Err(value.malformed("expected a whole number")),
        number => Ok(number.to_owned()),
    }
}

/// The unanswered calls of the last assistant message with calls.
type Round = Option<VecDeque<RequestIndex>>;

fn take(message: &Value<'_>, recorder: &mut Recorder, round: &mut Round) -> Result<(), Malformed> {
    let fields = message.object()?;
    let role = fields.required("role")?;
    let role_name = role.string()?;
    match role_name.as_str() {
        "assistant" => {
            close(round.take(), recorder);
            // Some writers omit the content beside calls.
            recorder.add_turn(&role_name, message, &fields.or_null("content"))?;
            let calls = calls(&fields)?;
            if calls.is_empty() {
                recorder.checkpoint();
            } else {
                *round = Some(recorder.request(calls).into());
            }
            Ok(())
        }
        "tool" => {
            let Some(call) = round.as_mut().and_then(VecDeque::pop_front) else {
                return Err(message.malformed("a result without a call: every earlier call already has a result"));
            };
            let content = fields.required("content")?;
            answer(call, &content, recorder)?;
            recorder.add_turn(&role_name, message, &content)
        }
        "system" | "developer" | "user" => recorder.add_turn(&role_name, message, &fields.required("content")?),
        _ => Err(role.malformed(format_args!("unknown role {role_name:?}"))),
    }
}

fn calls(message: &Object<'_>) -> Result<Vec<Call>, Malformed> {
    if let Some(legacy) = message.optional("function_call") {
        return Err(legacy.malformed("a function_call is not supported, only tool_calls"));
    }
    message.elements("tool_calls")?.iter().map(Call::from_tool_call).collect()
}

fn answer(call: RequestIndex, content: &Value<'_>, recorder: &mut Recorder) -> Result<(), Malformed> {
    // A string with a lone surrogate can be recorded as a result, which is JSON text, but not as an error's message.
    let failed = content.text().starts_with("\"Error") || content.string().is_ok_and(|text| text.starts_with("Error"));
    if failed {
        recorder.fail(call, content.string()?);
        Ok(())
    } else {
        recorder.complete(call, content)
    }
}

/// Ends a round, before the next assistant message or at the end of the run. A round with an unanswered call gets no checkpoint,
/// because an agent would not save its state during a call.
fn close(round: Round, recorder: &mut Recorder) {
    if round.is_some_and(|left| left.is_empty()) {
        recorder.checkpoint();
    }
}
