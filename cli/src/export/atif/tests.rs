use super::*;
use runlog_schemas::{
    answer::{Line, Position},
    id::{Epoch, JournalSeq, Offset, WriterSeq},
    refs::PrivacyClass,
};

/// Returns a record with this payload, as the server returns it.
fn entry(number: u64, payload: Value) -> Entry {
    let payload = Payload::from_json(&serde_json::value::to_raw_value(&payload).unwrap()).unwrap();
    let position =
        Position { topic: "t".into(), partition: 0.into(), offset: Offset::new(number).unwrap(), index: 0, log: None };
    let line = Line {
        cursor: String::new(),
        position,
        run_id: RunId::new("r".to_owned()).unwrap(),
        journal_seq: JournalSeq::ZERO,
        writer_seq: WriterSeq::ZERO,
        record_id: RecordId::new(format!("e{number}")).unwrap(),
        record_kind: String::new(),
        payload_type: payload.payload_type().into(),
        status: None,
        tool_name: None,
        answers: None,
        epoch: Epoch::ZERO,
        timestamp: "2026-11-25T10:00:00Z".into(),
        logged_at: None,
        payload: Json::from(Value::Null),
        principal: None,
        principal_verified: None,
        missing_content: None,
        unreadable: None,
        record: None,
    };
    Entry { line, envelope: None, payload: Some(payload), hidden: None }
}

fn export(payloads: &[Value]) -> Value {
    let mut out = Vec::new();
    let run_id = RunId::new("r".to_owned()).unwrap();
    let mut trajectory = Trajectory::begin(&mut out, &run_id).unwrap();
    for (number, payload) in (1..).zip(payloads) {
        trajectory.take(entry(number, payload.clone())).unwrap();
    }
    trajectory.finish(&run_id, "0:9").unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn turn(kind: &str, content: &str) -> Value {
    json!({"type": "conversation_turn", "message_id": "m", "kind": kind, "content": content})
}

fn request(response: &str, tool: &str) -> Value {
    json!({"type": "tool_call_requested", "request_id": response, "call_id": "c", "tool_name": tool, "arguments": {"n": 1}})
}

fn completed(request: &str, result: Value) -> Value {
    json!({"type": "tool_call_completed", "request_record_id": request, "result": result})
}

/// Returns source, message, tools and results of each step.
fn step_summaries(trajectory: &Value) -> Vec<(Value, Value, Vec<Value>, Vec<Value>)> {
    let list = |value: &Value, name: &str| -> Vec<Value> {
        value.as_array().into_iter().flatten().map(|item| item[name].clone()).collect()
    };
    let steps = trajectory["steps"].as_array().unwrap().iter();
    steps
        .map(|step| {
            let results = list(&step["observation"]["results"], "content");
            (step["source"].clone(), step["message"].clone(), list(&step["tool_calls"], "function_name"), results)
        })
        .collect()
}

#[test]
fn a_response_is_a_step_with_its_calls_and_their_results_once() {
    let trajectory = export(&[
        json!({"type": "run_lifecycle", "status": "started"}),
        turn("user", "book"),
        turn("assistant", "I look"),
        request("r1", "find"),
        request("r1", "price"),
        completed("e4", json!("[1]")),
        turn("tool", "[1]"),
        completed("e5", json!({"price": 2})),
        turn("tool", "{\"price\":2}"),
        turn("assistant", "done"),
        json!({"type": "run_lifecycle", "status": "completed", "reason": "all well"}),
    ]);
    assert_eq!(
        step_summaries(&trajectory),
        [
            (json!("user"), json!("book"), vec![], vec![]),
            (
                json!("agent"),
                json!("I look"),
                vec![json!("find"), json!("price")],
                vec![json!("[1]"), json!("{\"price\":2}")]
            ),
            (json!("agent"), json!("done"), vec![], vec![]),
        ]
    );
    assert_eq!(trajectory["extra"]["status"], "completed");
    assert_eq!(trajectory["steps"][1]["observation"]["results"][1]["source_call_id"], "e5");
}

#[test]
fn a_result_that_comes_after_its_step_is_not_lost() {
    let trajectory = export(&[
        turn("assistant", "I book"),
        request("r1", "book"),
        request("r1", "pay"),
        turn("user", "hurry"),
        completed("e2", json!("B-1")),
        json!({"type": "effect_resolution", "request_record_id": "e3", "decision": "not_done", "who": "jo", "why": "?"}),
    ]);
    let steps = step_summaries(&trajectory);
    assert_eq!(steps[2], (json!("system"), json!("the result of an earlier call of book"), vec![], vec![json!("B-1")]));
    assert_eq!(trajectory["extra"]["calls_without_result"], json!(["e3"]));
}

#[test]
fn a_tool_turn_without_a_recorded_call_is_an_observation() {
    let trajectory = export(&[turn("assistant", "I look"), turn("tool", "found"), turn("user", "thanks")]);
    assert_eq!(step_summaries(&trajectory)[0], (json!("agent"), json!("I look"), vec![], vec![json!("found")]));
}

#[test]
fn calls_of_two_responses_are_two_steps_and_a_step_is_bounded() {
    let mut payloads = vec![request("r1", "a"), request("r2", "b")];
    payloads.extend((0..300).map(|_| request("r3", "c")));
    let trajectory = export(&payloads);
    let calls: Vec<usize> = step_summaries(&trajectory).iter().map(|step| step.2.len()).collect();
    assert_eq!(calls, [1, 1, CALLS_MAX, 300 - CALLS_MAX]);
}

#[test]
fn a_run_without_turns_exports_each_checkpoint_message_once() {
    let checkpoint = |number: u64, base: Option<&str>, messages: Value| {
        json!({"type": "loop_checkpoint", "checkpoint_id": format!("k{number}"), "checkpoint_seq": number,
               "covers_journal_seq": 0, "messages": messages, "base": base})
    };
    let (ask, call) =
        (json!({"role": "user", "content": "hi"}), json!({"role": "assistant", "content": null, "tool_calls": [{}]}));
    let (said, done) = (
        json!({"role": "tool", "content": "x"}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]}),
    );
    let trajectory = export(&[
        checkpoint(1, None, json!([ask])),
        request("r1", "find"),
        completed("e2", json!("x")),
        checkpoint(2, Some("k1"), json!([call, said])),
        checkpoint(3, None, json!([ask, call, said, done])),
    ]);
    let parts = json!([{"type": "text", "text": "done"}]);
    assert_eq!(
        step_summaries(&trajectory),
        [
            (json!("user"), json!("hi"), vec![], vec![]),
            (json!("agent"), json!(""), vec![json!("find")], vec![json!("x")]),
            (json!("agent"), parts, vec![], vec![]),
        ]
    );
}

#[test]
fn the_messages_and_calls_of_a_langgraph_thread_are_steps_and_its_other_values_are_counted() {
    let piece = |kind: &str, value: Value| {
        let name = format!("langchain_core.messages.{kind}:Message");
        json!(["value", { "$type": name, "value": value, "form": 5 }])
    };
    let human = piece("human", json!({ "content": "to London", "type": "human", "id": "1" }));
    let calls = json!([{ "name": "find", "args": { "to": "LHR" }, "id": "c1", "type": "tool_call" }]);
    let ai = piece("ai", json!({ "content": "", "type": "ai", "tool_calls": calls }));
    let tool = piece("tool", json!({ "content": "BA117", "type": "tool", "tool_call_id": "c1" }));
    let (value, encoded) =
        (json!(["value", { "$type": "app:Seat", "value": { "row": 12 } }]), json!(["msgpack", "gQ=="]));
    let checkpoint = |number: u64, base: Option<&str>, messages: &[&Value]| {
        json!({"type": "loop_checkpoint", "checkpoint_id": format!("k{number}"), "checkpoint_seq": number,
               "covers_journal_seq": 0, "messages": messages, "base": base})
    };
    let trajectory = export(&[
        checkpoint(1, None, &[&human, &value, &encoded]),
        checkpoint(2, Some("k1"), &[&ai]),
        checkpoint(3, Some("k2"), &[&tool, &human]),
        checkpoint(4, None, &[&human, &value, &encoded, &ai, &tool]),
    ]);
    assert_eq!(
        step_summaries(&trajectory),
        [
            (json!("user"), json!("to London"), vec![], vec![]),
            (json!("agent"), json!(""), vec![json!("find")], vec![json!("BA117")]),
        ]
    );
    assert_eq!(trajectory["steps"][1]["tool_calls"][0]["arguments"], json!({ "to": "LHR" }));
    assert_eq!(trajectory["steps"][1]["observation"]["results"][0]["source_call_id"], "c1");
    assert_eq!(trajectory["extra"]["messages_left_out"], json!({ "other_value": 1, "encoded": 1 }));
}

#[test]
fn the_calls_of_a_checkpoint_without_recorded_calls_are_exported() {
    let function = json!({ "name": "pay", "arguments": "{\"sum\":1}" });
    let calls = json!([{ "id": "c1", "type": "function", "function": function }]);
    let messages = json!([
        { "role": "assistant", "content": null, "tool_calls": calls },
        { "role": "tool", "content": "paid", "tool_call_id": "c1" },
    ]);
    let trajectory = export(&[json!({"type": "loop_checkpoint", "checkpoint_id": "k", "checkpoint_seq": 1,
        "covers_journal_seq": 0, "messages": messages})]);
    let steps = step_summaries(&trajectory);
    assert_eq!(steps, [(json!("agent"), json!(""), vec![json!("pay")], vec![json!("paid")])]);
    assert_eq!(trajectory["steps"][0]["tool_calls"][0]["arguments"], json!({ "sum": 1 }));
}

#[test]
fn hidden_content_and_left_out_records_are_counted() {
    let mut out = Vec::new();
    let run_id = RunId::new("r".to_owned()).unwrap();
    let mut trajectory = Trajectory::begin(&mut out, &run_id).unwrap();
    let hidden =
        Entry { payload: None, hidden: Some(Hidden::Class(PrivacyClass::Secret)), ..entry(1, turn("user", "x")) };
    trajectory.take(hidden).unwrap();
    trajectory
        .take(entry(
            2,
            json!({"type": "model_attempt", "provider_route_id": "r",
        "provider_model_id": "m", "request_message_count": 2, "stop_reason": "tool_use"}),
        ))
        .unwrap();
    assert_eq!(trajectory.finish(&run_id, "0:2").unwrap().hidden, 1);
    let extra = serde_json::from_slice::<Value>(&out).unwrap()["extra"].clone();
    assert_eq!(extra["content_left_out"], json!({"[hidden: secret]": 1}));
    assert_eq!(extra["records_left_out"], json!({"model_attempt": 1}));
}

#[test]
fn content_is_converted_to_the_forms_of_the_format() {
    let from_content = |text: &str| serde_json::to_value(Text::from_content(&Json::parse(text).unwrap())).unwrap();
    assert_eq!(from_content("null"), json!(""));
    assert_eq!(from_content(r#""a\u00e9""#), json!("aé"));
    assert_eq!(
        from_content(r#"[{"type":"text","content":"as traced"}]"#),
        json!([{"type": "text", "text": "as traced"}])
    );
    // A lone surrogate is not a valid text.
    assert_eq!(from_content(r#""\ud83d""#), json!(r#""\ud83d""#));
    assert_eq!(
        from_content(r#"[{"type":"image_url","image_url":"u"}]"#),
        json!(r#"[{"type":"image_url","image_url":"u"}]"#)
    );
    let result = |text: &str| serde_json::to_value(Text::from_result(Some(&Json::parse(text).unwrap()))).unwrap();
    assert_eq!((result("null"), result("1.50"), result(r#""x""#)), (json!("null"), json!("1.50"), json!("x")));
    assert_eq!(content::arguments(Some(Json::parse("[1]").unwrap())).0.as_str(), r#"{"value":[1]}"#);
}
