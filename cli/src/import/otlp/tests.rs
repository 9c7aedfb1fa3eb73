use super::*;
use serde_json::json;

/// Returns a span with these attributes. Its ids contain small numbers; times are seconds.
fn span(id: u8, parent: u8, operation: &str, (start, end): (u64, u64), more: &[(&str, Value)]) -> Value {
    let any = |value: &Value| match value {
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    };
    let mut attributes = vec![json!({"key": OPERATION, "value": {"stringValue": operation}})];
    attributes.extend(more.iter().map(|(key, value)| json!({"key": key, "value": any(value)})));
    let nanos = |seconds: u64| (seconds * 1_000_000_000).to_string();
    json!({
        "traceId": "0AF7651916CD43DD8448EB211C80319C", "spanId": format!("00F067AA0BA902{id:02X}"),
        "parentSpanId": if parent == 0 { String::new() } else { format!("00f067aa0ba902{parent:02x}") },
        "name": format!("{operation} x"), "startTimeUnixNano": nanos(start), "endTimeUnixNano": nanos(end),
        "attributes": attributes, "status": {},
    })
}

fn text(role: &str, content: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "content": content}]})
}

fn line(spans: &[Value]) -> String {
    json!({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}).to_string()
}

fn plan(lines: &[String]) -> Vec<ImportedRun> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    plan_files(&[file.path().to_owned()], "").unwrap()
}

/// Returns the spans of an agent that searches, books and reports. Its model gets all messages each time.
fn agent() -> Vec<Value> {
    let (ask, done) = (text("user", "book"), text("assistant", "booked"));
    let wants = json!({"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "book", "arguments": {"n": 1}}]});
    let mut wanted = wants.clone();
    wanted["finish_reason"] = "tool_call".into();
    let got = json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "B-1"}]});
    vec![
        span(
            3,
            1,
            "chat",
            (3, 4),
            &[("gen_ai.input.messages", json!([ask, wants, got])), ("gen_ai.output.messages", json!([done]))],
        ),
        span(
            4,
            1,
            "execute_tool",
            (2, 3),
            &[
                ("gen_ai.tool.name", json!("book")),
                ("gen_ai.tool.call.arguments", json!({"n": 1})),
                ("gen_ai.tool.call.result", json!("B-1")),
            ],
        ),
        span(
            2,
            1,
            "chat",
            (1, 2),
            &[("gen_ai.input.messages", json!([ask])), ("gen_ai.output.messages", json!([wanted]))],
        ),
        span(
            1,
            0,
            "invoke_agent",
            (1, 5),
            &[
                ("gen_ai.agent.name", json!("clerk")),
                ("gen_ai.input.messages", json!([ask])),
                ("gen_ai.output.messages", json!([done])),
            ],
        ),
    ]
}

#[test]
fn an_invocation_is_a_run_with_each_message_once_and_its_calls_observed() {
    let runs = plan(&[line(&agent()[..2]), line(&agent()[2..])]);
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!(run.run_id.as_str(), "otlp:0af7651916cd43dd8448eb211c80319c:00f067aa0ba90201");
    assert_eq!((run.agent_id.as_ref(), run.tool_calls()), ("clerk", 1));
    let events: Vec<String> = run
        .events
        .iter()
        .map(|event| match event {
            Event::Turn { role, content, .. } => format!("{role} {}", content.as_str()),
            Event::CallObserved(call) => {
                format!("{} {} {}", call.tool_name, call.arguments.as_str(), call.result.as_str())
            }
            Event::RunEnded { outcome, .. } => format!("{outcome:?}"),
            other => format!("{other:?}"),
        })
        .collect();
    let call_turn = r#"assistant [{"arguments":{"n":1},"id":"c1","name":"book","type":"tool_call"}]"#;
    let result_turn = r#"tool [{"id":"c1","response":"B-1","type":"tool_call_response"}]"#;
    let expected = [
        "RunStarted",
        "user \"book\"",
        call_turn,
        "book {\"n\":1} \"B-1\"",
        result_turn,
        "assistant \"booked\"",
        "Completed",
    ];
    assert_eq!(events, expected);
    assert_eq!(run.times, [1000, 1000, 2000, 3000, 3000, 4000, 5000]);
}

#[test]
fn the_order_of_lines_and_a_span_that_is_there_twice_change_nothing() {
    let one = plan(&[line(&agent())]);
    let mut reversed = agent();
    reversed.reverse();
    let other = plan(&[line(&reversed), line(&agent())]);
    assert!(one[0].same_content(&other[0]));
}

#[test]
fn a_repeated_message_of_a_continued_conversation_is_kept() {
    let (yes, ok) = (text("user", "yes"), text("assistant", "ok"));
    let chat = |id, at, input: Value, output: &Value| {
        span(
            id,
            1,
            "chat",
            (at, at + 1),
            &[("gen_ai.input.messages", input), ("gen_ai.output.messages", json!([output]))],
        )
    };
    let runs = plan(&[line(&[
        chat(2, 1, json!([yes]), &ok),
        chat(3, 3, json!([yes, ok, yes]), &ok),
        span(1, 0, "invoke_agent", (1, 5), &[]),
    ])]);
    assert_eq!(runs[0].messages.len(), 4, "{:?}", runs[0].messages);
}

#[test]
fn spans_belong_to_the_nearest_agent_or_to_their_trace() {
    let tool = |id, parent| span(id, parent, "execute_tool", (2, 3), &[]);
    let runs = plan(&[line(&[
        span(1, 0, "invoke_agent", (1, 9), &[]),
        span(2, 1, "something", (1, 9), &[]),
        span(3, 2, "invoke_agent", (1, 9), &[]),
        tool(4, 3),
        tool(5, 2),
        // Its parent is not in the file.
        tool(6, 77),
    ])]);
    let calls: Vec<(&str, usize)> = runs.iter().map(|run| (&run.run_id.as_str()[37..], run.tool_calls())).collect();
    assert_eq!(calls, [("", 1), (":00f067aa0ba90201", 1), (":00f067aa0ba90203", 1)]);
    assert!(!matches!(runs[0].events.last(), Some(Event::RunEnded { .. })), "no span shows its end");
}

#[test]
fn a_failed_span_has_its_error_and_a_file_without_a_trace_is_refused() {
    let mut failed = span(1, 0, "invoke_agent", (1, 2), &[]);
    failed["status"] = json!({"code": 2, "message": "out of money"});
    let mut broken = span(2, 1, "execute_tool", (1, 2), &[("error.type", json!("timeout"))]);
    broken["status"] = json!({"code": "STATUS_CODE_ERROR"});
    let run = plan(&[line(&[failed, broken])]).remove(0);
    assert!(
        matches!(&run.events[1], Event::CallObserved(call) if call.is_error && call.result.as_str() == "\"timeout\"")
    );
    assert_eq!(run.events[2], Event::RunEnded { outcome: Outcome::Failed, reason: "out of money".into() });
    for text in ["[]", "{}", "{\"resourceSpans\":[]} x", &line(&[json!({"traceId": "1"})])] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let refused = plan_files(&[file.path().to_owned()], "");
        assert!(matches!(refused, Err(Error::Malformed { .. })), "{text}");
    }
}
