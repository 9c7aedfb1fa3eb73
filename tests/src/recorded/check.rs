//! Compares a journal's answers about a recorded run with its file.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{Call, Run};
use crate::{command::Runlog, random::Random};

/// Compares the timeline, the checkpoints, each call and the recovery of one run.
pub fn run(runlog: &Runlog, run: &Run, random: &mut Random) -> anyhow::Result<()> {
    let lines = runlog.json(&["show", &run.id, "--raw"])?.exits(0)?.documents()?;
    timeline(run, &lines).with_context(|| format!("timeline of {}", run.id))?;
    checkpoint(runlog, run, &lines).with_context(|| format!("checkpoint of {}", run.id))?;
    for at in 0..run.calls.len() {
        lookup(runlog, run, at, random).with_context(|| format!("call {at} of {}", run.id))?;
    }
    recovery(runlog, run, &lines).with_context(|| format!("recovery of {}", run.id))
}

fn of_type<'a>(lines: &'a [Value], payload_type: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["payload_type"] == payload_type).map(|line| &line["payload"]).collect()
}

fn timeline(run: &Run, lines: &[Value]) -> anyhow::Result<()> {
    let turns = of_type(lines, "conversation_turn");
    ensure!(turns.len() == run.messages.len(), "{} turns for {} messages", turns.len(), run.messages.len());
    for (turn, message) in turns.iter().zip(&run.messages) {
        ensure!(turn["kind"] == message["role"] && turn["content"] == message["content"], "{turn} is not {message}");
    }
    ensure!(of_type(lines, "tool_call_requested").len() == run.calls.len(), "as many requests as calls");
    let lifecycle = of_type(lines, "run_lifecycle");
    ensure!(lifecycle[0]["status"] == "started", "it begins with {}", lifecycle[0]);
    match lifecycle.get(1) {
        Some(end) => ensure!(end["status"] == run.status && end["reason"] == run.reason.as_str(), "it ends with {end}"),
        None => ensure!(run.status == "open", "it does not end"),
    }
    let numbers: Vec<u64> =
        lines.iter().filter_map(|line| line["journal_seq"].as_u64()).filter(|seq| *seq > 0).collect();
    ensure!(numbers.iter().copied().eq(1..=numbers.len() as u64), "numbers without gaps: {numbers:?}");
    let mut saved = Vec::new();
    let mut before = (0, Value::Null);
    for checkpoint in of_type(lines, "loop_checkpoint") {
        let messages = checkpoint["messages"].as_array().context("messages")?;
        ensure!(checkpoint["base"] == before.1, "its base is the previous checkpoint: {checkpoint}");
        ensure!(run.messages[before.0..].starts_with(messages), "a checkpoint contains the new messages: {checkpoint}");
        before = (before.0 + messages.len(), checkpoint["checkpoint_id"].clone());
        saved.push(before.0);
    }
    saved.dedup();
    ensure!(
        saved == run.checkpoints,
        "checkpoints of {saved:?} messages, the file has rounds to {:?}",
        run.checkpoints
    );
    Ok(())
}

fn checkpoint(runlog: &Runlog, run: &Run, lines: &[Value]) -> anyhow::Result<()> {
    let Some(count) = run.checkpoints.last() else {
        ensure!(runlog.json(&["checkpoint", &run.id])?.exits(1)?.error_kind()? == "not_found", "there is none");
        return Ok(());
    };
    let latest = runlog.answer(&["checkpoint", &run.id])?;
    ensure!(
        latest["messages"].as_array().is_some_and(|loaded| loaded == &run.messages[..*count]),
        "the latest's messages"
    );
    // The last checkpoint that covers less than the latest, queried by a covered number.
    let saved = of_type(lines, "loop_checkpoint");
    let covers = |checkpoint: &Value| checkpoint["covers_journal_seq"].as_u64();
    if let Some(at) = saved.iter().rposition(|earlier| covers(earlier) < covers(&latest)) {
        let earlier = saved[at];
        let before = covers(&latest).context("a number")? - 1;
        let loaded = runlog.answer(&["checkpoint", &run.id, "--at-or-before", &before.to_string()])?;
        ensure!(
            loaded["checkpoint_id"] == earlier["checkpoint_id"],
            "{} at or before {before}",
            loaded["checkpoint_id"]
        );
        let count: usize = saved[..=at].iter().map(|one| one["messages"].as_array().map_or(0, Vec::len)).sum();
        ensure!(
            loaded["messages"].as_array().is_some_and(|loaded| loaded == &run.messages[..count]),
            "the earlier one's messages"
        );
    }
    Ok(())
}

fn lookup(runlog: &Runlog, run: &Run, at: usize, random: &mut Random) -> anyhow::Result<()> {
    let call = &run.calls[at];
    let same = |other: &&Call| other.tool == call.tool && other.arguments == call.arguments;
    let occurrence = run.calls[..=at].iter().filter(same).count();
    let occurrences = run.calls.iter().filter(same).count();
    let arguments = respelled(&call.arguments, random);
    let mut arguments_of = vec!["lookup", &run.id, "--tool", &call.tool, "--args", &arguments];
    let number = occurrence.to_string();
    // The last occurrence is looked up without its number.
    if occurrence < occurrences {
        arguments_of.extend(["--occurrence", &number]);
    }
    let answered = runlog.json(&arguments_of)?;
    let answer = answered.clone().exits(if call.outcome.is_some() { 0 } else { 6 })?.json()?;
    let (status, result, message) = match &call.outcome {
        Some(Ok(result)) => ("completed", result.clone(), Value::Null),
        Some(Err(message)) => ("failed", Value::Null, message.as_str().into()),
        None => ("pending", Value::Null, Value::Null),
    };
    ensure!(answer["status"] == status, "status {}", answer["status"]);
    ensure!(answer["occurrence"] == occurrence && answer["occurrences"] == occurrences, "occurrence: {answer}");
    ensure!(answer["tool_name"] == call.tool.as_str() && answer["arguments"] == call.arguments, "the call: {answer}");
    ensure!(answer["result"] == result && answer["error"]["message"] == message, "the outcome: {answer}");
    Ok(())
}

/// The same value with its members in another order and with random white space.
fn respelled(value: &Value, random: &mut Random) -> String {
    let space = |random: &mut Random| [" ", "", "\n", "\t ", "  "][random.between(0, 5) as usize];
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            random.shuffle(&mut members);
            let mut parts = Vec::new();
            for (name, value) in members {
                let (before, after) = (space(random), space(random));
                parts.push(format!(
                    "{before}{}{after}:{before}{}{after}",
                    Value::from(name.as_str()),
                    respelled(value, random)
                ));
            }
            format!("{{{}{}}}", space(random), parts.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> =
                items.iter().map(|item| format!("{}{}", space(random), respelled(item, random))).collect();
            format!("[{} ]", items.join(","))
        }
        other => other.to_string(),
    }
}

fn recovery(runlog: &Runlog, run: &Run, lines: &[Value]) -> anyhow::Result<()> {
    let pending: Vec<&Call> = run.calls.iter().filter(|call| call.outcome.is_none()).collect();
    let resumable = run.status == "open" && pending.is_empty();
    let recovery = runlog.json(&["recover", &run.id])?.exits(if resumable { 0 } else { 1 })?.json()?;
    ensure!(recovery["resumable"] == resumable && recovery["reason"].is_null() == resumable, "resumable: {recovery}");
    let tools: Vec<_> =
        recovery["pending"].as_array().context("pending")?.iter().map(|call| &call["tool_name"]).collect();
    ensure!(tools.iter().copied().eq(pending.iter().map(|call| call.tool.as_str())), "pending: {tools:?}");
    let last = lines.iter().rposition(|line| line["payload_type"] == "loop_checkpoint");
    ensure!(recovery["records_after"] == lines.len() - last.map_or(0, |at| at + 1), "records_after: {recovery}");
    let saved = last.map(|at| &lines[at]["payload"]["checkpoint_id"]);
    ensure!(&recovery["checkpoint"]["checkpoint_id"] == saved.unwrap_or(&Value::Null), "checkpoint: {recovery}");
    ensure!(recovery["checkpoint"]["messages"].is_null(), "messages come with --full only");
    let uncovered = &lines[last.map_or(0, |at| at + 1)..];
    let ended = of_type(uncovered, "tool_call_completed").len() + of_type(uncovered, "tool_call_failed").len();
    ensure!(recovery["completed"].as_array().is_some_and(|calls| calls.len() == ended), "completed: {recovery}");
    let numbers = lines.iter().filter_map(|line| line["journal_seq"].as_u64()).max();
    ensure!(recovery["next_journal_seq"].as_u64() == numbers.map(|number| number + 1), "numbers: {recovery}");
    ensure!(recovery["epoch"] == 0 && recovery["position"] == lines[lines.len() - 1]["position"], "place: {recovery}");
    Ok(())
}
