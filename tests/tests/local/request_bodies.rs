//! Bodies of requests as bytes on a connection: JSON that two readers would understand differently is refused, with the JSON pointer.

use anyhow::{Context, ensure};
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

const RECORDS: &str = "/v1/runs/r/records";
const CLAIMS: &str = "/v1/runs/r/claims";
const RESOLUTION: &str = "/v1/runs/r/effects/asked/resolution";

/// Sends bytes, and reads the answer: its status and its text.
fn exchange(server: &Server, request: &str) -> anyhow::Result<(u16, String)> {
    answer_of(send(server, request)?)
}

/// Sends bytes and closes the sending side. Then reads the answer.
fn cut_off(server: &Server, request: &str) -> anyhow::Result<(u16, String)> {
    let stream = send(server, request)?;
    stream.shutdown(Shutdown::Write)?;
    answer_of(stream)
}

fn send(server: &Server, request: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").context("an address")?)?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

fn answer_of(mut stream: TcpStream) -> anyhow::Result<(u16, String)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, body.to_owned()))
}

fn post(server: &Server, path: &str, body: &str) -> anyhow::Result<(u16, Value)> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}");
    let (status, answer) = exchange(server, &format!("{head}\r\n\r\n{body}"))?;
    Ok((status, serde_json::from_str(&answer)?))
}

/// A record of the run `r` in epoch 1, with further members of the envelope.
fn record(id: &str, payload: &str, members: &str) -> String {
    format!(r#"{{"run_id":"r","record_id":"{id}","writer_id":"w","writer_epoch":1,"payload":{payload}{members}}}"#)
}

fn call(arguments: &str) -> String {
    format!(
        r#"{{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"pay","arguments":{arguments}}}"#
    )
}

/// A server with the run `r`, which has a claim and a call.
fn with_run(story: impl FnOnce(&Server) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    for (path, body) in [(CLAIMS, r#"{"writer_id":"w"}"#), (RECORDS, record("asked", &call(r#"{"n":1}"#), "").as_str())]
    {
        let (status, answer) = post(&server, path, body)?;
        ensure!(status == 200, "{path}: {answer}");
    }
    story(&server)?;
    server.terminate()?;
    Ok(())
}

fn user_turn(content: &str) -> String {
    format!(r#"{{"type":"conversation_turn","message_id":"m","kind":"user","content":{content}}}"#)
}

fn done(result: &str) -> String {
    format!(r#"{{"type":"tool_call_completed","request_record_id":"asked","result":{result}}}"#)
}

/// Each body is refused, its detail names the pointer, and the run stays as it is.
fn check_refusals(server: &Server, cases: &[(&str, String, &str)]) -> anyhow::Result<()> {
    let (_, before) = server.get("/v1/runs/r")?;
    for (path, body, pointer) in cases {
        let (status, problem) = post(server, path, body)?;
        let detail = problem["detail"].as_str().unwrap_or_default();
        let is_refused = status == 400 && (problem["kind"] == "invalid" || problem["kind"] == "usage");
        ensure!(is_refused, "{path} {body}: {status} {problem}");
        ensure!(detail.contains(pointer), "{path} {body}: {pointer} is not in {detail}");
    }
    let (_, after) = server.get("/v1/runs/r")?;
    ensure!(after["position"] == before["position"], "something was appended: {before} {after}");
    Ok(())
}

#[test]
fn two_members_of_one_name_are_refused_at_every_level_of_every_body() -> anyhow::Result<()> {
    let batch = |member: &str| format!(r#"{{"type":"batch","records":[{member}]}}"#);
    let hash = "0".repeat(64);
    with_run(|server| {
        check_refusals(
            server,
            &[
                (RECORDS, record("a", &user_turn("1"), r#","record_id":"b""#), r#""/record_id""#),
                (RECORDS, record("a", &user_turn("1"), r#","writer_epoch":1"#), r#""/writer_epoch""#),
                (RECORDS, record("a", &user_turn("1"), &format!(r#","payload":{}"#, user_turn("2"))), r#""/payload""#),
                (RECORDS, record("a", &user_turn("1"), r#","facts":{"epoch":1,"epoch":1}"#), r#""/facts/epoch""#),
                (RECORDS, record("a", &user_turn("1"), r#","later":[{"x":1,"x":1}]"#), r#""/later/0/x""#),
                (RECORDS, record("a", &user_turn(r#"1,"kind":"tool""#), ""), r#""/payload/kind""#),
                (
                    RECORDS,
                    record("a", &user_turn(r#"{"b/c":[0,{"d":1,"\u0064":2}]}"#), ""),
                    r#""/payload/content/b~1c/1/d""#,
                ),
                (RECORDS, record("a", &call(r#"{"n":{"m":1,"m":1}}"#), ""), r#""/payload/arguments/n/m""#),
                (RECORDS, record("a", &done(r#"{"ok":true,"ok":false}"#), ""), r#""/payload/result/ok""#),
                (
                    RECORDS,
                    record("a", &batch(&record("b", &user_turn("1"), r#","tags":[],"tags":[]"#)), ""),
                    r#""/payload/records/0/tags""#,
                ),
                (
                    RECORDS,
                    format!(
                        "[{},{}]",
                        record("a", &user_turn("1"), ""),
                        record("b", &user_turn("1"), r#","tags":[],"tags":[]"#)
                    ),
                    r#"record 1: two members of one object have this name, at "/tags""#,
                ),
                (CLAIMS, r#"{"record_id":"c","record_id":"d"}"#.into(), r#""/record_id""#),
                (CLAIMS, format!(r#"{{"only_if":{{"hash":"{hash}","hash":"{hash}"}}}}"#), r#""/only_if/hash""#),
                (
                    RESOLUTION,
                    r#"{"decision":"done","result":{"a":1,"a":2},"revision":1,"who":"jo","why":"seen"}"#.into(),
                    r#""/result/a""#,
                ),
                ("/v1/runs/s/copies", r#"{"from":"r","from":"q"}"#.into(), r#""/from""#),
                ("/v1/runs/r/contents", record("a", &user_turn(r#"{"x":1,"x":1}"#), ""), r#""/payload/content/x""#),
                (
                    "/v1/skips",
                    r#"{"partition":0,"offset":1,"offset":2,"who":"jo","why":"seen"}"#.into(),
                    r#""/offset""#,
                ),
                (
                    "/v1/horizons",
                    r#"{"family":"wake","until":"2026-11-22T10:00:00Z","who":"jo","who":"al","why":"policy"}"#.into(),
                    r#""/who""#,
                ),
            ],
        )
    })
}

#[test]
fn an_array_in_place_of_an_object_is_refused_within_a_body() -> anyhow::Result<()> {
    let decision =
        r#"{"type":"effect_resolution","request_record_id":"asked","decision":"not_done","who":"jo","why":"seen"}"#;
    let marker = r#"{"type":"recovery","unsafe_pending":[["e","i",null,null,"x"]],"recovery_reason":"x"}"#;
    with_run(|server| {
        check_refusals(
            server,
            &[
                (CLAIMS, json!({ "only_if": ["0".repeat(64)] }).to_string(), "not an object"),
                (RECORDS, record("a", &call("1"), r#","facts":[]"#), r#""/facts""#),
                (RECORDS, record("a", decision, r#","facts":[null,null,1,null,null,null,null,null]"#), r#""/facts""#),
                (RECORDS, record("a", &call("1"), r#","validity":[0,true]"#), r#""/validity""#),
                (RECORDS, record("a", &call("1"), r#","correlation_keys":[["k","v"]]"#), r#""/correlation_keys/0""#),
                (RECORDS, record("a", marker, ""), r#""/payload/unsafe_pending/0""#),
            ],
        )
    })
}

#[test]
fn a_record_that_leaves_no_next_number_is_refused() -> anyhow::Result<()> {
    const LAST: &str = "9223372036854775807";
    let last = |name: &str| record("a", &call("1"), &format!(r#","{name}":{LAST}"#));
    let claim = format!(r#"{{"type":"run_claim","writer_id":"w","epoch":{LAST}}}"#);
    let checkpoint = format!(
        r#"{{"type":"loop_checkpoint","checkpoint_id":"k","checkpoint_seq":{LAST},"covers_journal_seq":1,"messages":[]}}"#
    );
    let attempt = r#"{"type":"tool_call_attempt","request_record_id":"asked","attempt":2147483647,"reason":"again"}"#;
    let batch = format!(r#"{{"type":"batch","records":[{}]}}"#, last("journal_seq"));
    let epoch = record("a", &call("1"), "").replace(r#""writer_epoch":1"#, &format!(r#""writer_epoch":{LAST}"#));
    with_run(|server| {
        check_refusals(
            server,
            &[
                (RECORDS, last("writer_seq"), r#""/writer_seq""#),
                (RECORDS, last("journal_seq"), r#""/journal_seq""#),
                (RECORDS, epoch, r#""/writer_epoch""#),
                (RECORDS, record("a", &claim, ""), r#""/payload/epoch""#),
                (RECORDS, record("a", &checkpoint, ""), r#""/payload/checkpoint_seq""#),
                (RECORDS, record("a", attempt, ""), r#""/payload/attempt""#),
                (RECORDS, record("a", &batch, ""), r#""/payload/records/0/journal_seq""#),
            ],
        )?;
        let before = checkpoint.replace(LAST, "9223372036854775806");
        let (status, answer) = post(server, RECORDS, &record("before", &before, ""))?;
        ensure!(status == 200 && answer["outcome"] == "applied", "{answer}");
        let (_, run) = server.get("/v1/runs/r")?;
        ensure!(run["next_checkpoint_seq"].as_u64() == LAST.parse().ok(), "{run}");
        Ok(())
    })
}

#[test]
fn a_number_is_found_by_every_spelling_and_returned_as_it_was_sent() -> anyhow::Result<()> {
    let look_up = |server: &Server, number: &str| {
        let path = format!("/v1/runs/r/lookup?tool=pay&args=%7B%22n%22:{number}%7D");
        exchange(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    };
    let beyond_double = format!("1{}", "0".repeat(400));
    with_run(|server| {
        for (sent, others) in [
            ("1.0", &["1", "1e0", "0.1e1"][..]),
            ("1E2", &["100", "100.00"]),
            ("-0", &["0", "-0.0", "0e5"]),
            ("9007199254740993", &["9007199254740993"]),
            ("12345678901234567890123", &["12345678901234567890123"]),
        ] {
            let body = record(&format!("sent-{sent}"), &call(&format!(r#"{{"n":{sent}}}"#)), "");
            let (status, answer) = post(server, RECORDS, &body)?;
            ensure!(status == 200 && answer["outcome"] == "applied", "{sent}: {answer}");
            for spelled in others.iter().chain([&sent]) {
                let (status, answer) = look_up(server, spelled)?;
                let returned = format!(r#""arguments":{{"n":{sent}}}"#);
                ensure!(status == 200 && answer.contains(&returned), "{sent} as {spelled}: {answer}");
            }
        }
        // Not unknown: no append accepts it.
        let (status, answer) = look_up(server, &beyond_double)?;
        ensure!(status == 400 && answer.contains("number out of range"), "{answer}");
        let refused = |at: &str| format!("a number beyond the range of a double, at {at:?}");
        check_refusals(
            server,
            &[
                (RECORDS, record("a", &call(&beyond_double), ""), &refused("/payload/arguments")),
                (RECORDS, record("a", &done(&format!("[-{beyond_double}]")), ""), &refused("/payload/result/0")),
                (RECORDS, record("a", &user_turn(r#"{"n":1e309}"#), ""), &refused("/payload/content/n")),
                (
                    RESOLUTION,
                    r#"{"decision":"done","result":1e309,"revision":1,"who":"jo","why":"seen"}"#.into(),
                    &refused("/result"),
                ),
            ],
        )
    })
}

#[test]
fn a_record_sent_again_is_a_repeat_unless_a_value_is_spelled_otherwise() -> anyhow::Result<()> {
    let again = r#"{ "payload": {"tool_name":"p\u0061y","call_id":"c","arguments":ARGS,"type":"tool_call_requested","request_id":"q"},
        "writer_epoch":1,"writer_id":"w","agent_id":"unknown","tags":[],"session_id":null,"record_id":"ID","run_id":"r" }"#;
    with_run(|server| {
        for (sent, spelled, outcome) in [
            (r#"{"a":1,"b":"é"}"#, "{ \"a\" : 1,\n \"b\":\"é\" }", "repeat"),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, "refused"),
            (r#"{"a":1}"#, r#"{"a":1.0}"#, "refused"),
            (r#"{"a":"é"}"#, r#"{"a":"\u00e9"}"#, "refused"),
        ] {
            let id = sent.replace('"', "'");
            let (_, first) = post(server, RECORDS, &record(&id, &call(sent), ""))?;
            ensure!(first["outcome"] == "applied", "{sent}: {first}");
            let (_, second) = post(server, RECORDS, &again.replace("ID", &id).replace("ARGS", spelled))?;
            ensure!(second["outcome"] == outcome, "{sent} and {spelled}: {second}");
            ensure!(outcome == "repeat" || second["reason"] == "conflict", "{second}");
        }
        Ok(())
    })
}

#[test]
fn values_that_no_lookup_or_reader_can_use_are_refused() -> anyhow::Result<()> {
    let named = |name: &str| record("a", &call("1").replace(r#""pay""#, &format!("{name:?}")), "");
    let decision = |decision: &str, more: &str| {
        let payload =
            format!(r#"{{"type":"effect_resolution","request_record_id":"asked","decision":"{decision}"{more}}}"#);
        record("a", &payload, r#","facts":{"epoch":1}"#)
    };
    let retraction = |who: &str, why: &str| {
        let payload = format!(r#"{{"type":"retraction","retracted_record_id":"asked","who":"{who}","why":"{why}"}}"#);
        record("a", &payload, "")
    };
    let resolution = |members: &str| format!(r#"{{"revision":1,"who":"jo","why":"seen",{members}}}"#);
    with_run(|server| {
        check_refusals(
            server,
            &[
                (RECORDS, named(""), "needs tool_name"),
                (RECORDS, named(&"é".repeat(513)), r#""/payload/tool_name""#),
                (RECORDS, record("a", &call("1"), r#","idempotency_key":"""#), r#""/idempotency_key""#),
                (RECORDS, decision("not_done", r#","who":"  ","why":"seen""#), r#""/payload/who""#),
                (RECORDS, decision("not_done", r#","who":"jo","why":"\t\n""#), r#""/payload/why""#),
                (RECORDS, decision("not_done", r#","result":5,"who":"jo","why":"seen""#), r#""/payload/result""#),
                (RECORDS, decision("give_up", r#","result":{},"who":"jo","why":"seen""#), r#""/payload/result""#),
                (RECORDS, retraction("", "seen"), r#""/payload/who""#),
                (RECORDS, retraction("jo", " "), r#""/payload/why""#),
                (RESOLUTION, resolution(r#""decision":"not_done","result":5"#), "`result`"),
                (RESOLUTION, resolution(r#""decision":"give_up","result":false"#), "`result`"),
                (
                    RESOLUTION,
                    r#"{"decision":"give_up","revision":1,"who":"\u2003","why":"seen"}"#.into(),
                    "must name who decided",
                ),
            ],
        )?;
        let longest = "é".repeat(512);
        let (status, answer) = post(server, RECORDS, &named(&longest))?;
        ensure!(status == 200 && answer["outcome"] == "applied", "{answer}");
        let encoded = "%C3%A9".repeat(512);
        let (_, found) = server.get(&format!("/v1/runs/r/lookup?tool={encoded}&args=1"))?;
        ensure!(found["status"] == "pending", "{found}");
        Ok(())
    })
}

#[test]
fn a_body_unlike_its_head_is_a_client_error() -> anyhow::Result<()> {
    let body = r#"{"claimed_by":"host a"}"#;
    let (length, chunk) = (format!("Content-Length: {}", body.len()), format!("{:x}\r\n{body}\r\n", body.len()));
    let chunked = "Transfer-Encoding: chunked";
    with_run(|server| {
        for (headers, body) in [
            (format!("Content-Length: {}", body.len() + 1), body),
            (format!("{chunked}\r\n{length}"), body),
            (format!("{length}\r\n{chunked}"), body),
            (chunked.to_owned(), body),
            (chunked.to_owned(), chunk.as_str()),
        ] {
            let request = format!("POST {CLAIMS} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n{body}");
            let (status, answer) = cut_off(server, &request)?;
            let problem: Value = serde_json::from_str(&answer)?;
            ensure!(status == 400 && problem["kind"] == "invalid", "{request}: {status} {problem}");
            ensure!(problem["detail"].as_str().unwrap_or_default().contains("Content-Length"), "{problem}");
        }
        let (_, run) = server.get("/v1/runs/r")?;
        ensure!(run["epoch"] == 1, "the request was accepted as a claim: {run}");
        Ok(())
    })
}

#[test]
fn a_record_too_large_for_every_content_store_must_be_shortened() -> anyhow::Result<()> {
    let text = "x".repeat(1 << 20);
    with_run(|server| {
        for (path, body) in [
            (CLAIMS, format!(r#"{{"claimed_by":"{text}"}}"#)),
            (RECORDS, record("a", &call("1"), &format!(r#","agent_id":"{text}""#))),
        ] {
            let (status, problem) = post(server, path, &body)?;
            let detail = problem["detail"].as_str().unwrap_or_default();
            ensure!(status == 413 && detail.contains("shorten it"), "{path}: {status} {problem}");
            ensure!(!detail.contains("content store"), "{path}: {problem}");
        }
        Ok(())
    })
}
