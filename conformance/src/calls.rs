//! Tool calls: fingerprints and lookups.

use super::{
    payloads::{completed, failed, request, turn},
    rule::{Rule, rule},
};
use serde_json::{Value, json};

const SECTION: &str = "Tool calls";

pub(crate) const RULES: &[Rule] = &[
    rule("call_transition", "Judgement", "a result needs a pending call; failed after completed is refused").test(
        |scenario, mut run| {
            let unrequested = run.record(completed("nobody's", &json!(1)));
            scenario.send(&mut run, &unrequested)?.expect_refused("transition")?;
            let mut run = scenario.run();
            let request_id = scenario.pending(&mut run)?;
            scenario.append(&mut run, completed(&request_id, &json!(1)))?;
            let late = run.record(failed(&request_id, "too late"));
            scenario.send(&mut run, &late)?.expect_refused("transition").map(drop)
        },
    ),
    rule("same_completion", "Judgement", "the same completion again is a no-op").test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let first = run.record(completed(&request_id, &json!(1)));
        let ended = scenario.send(&mut run, &first)?.expect_applied()?;
        scenario.append(&mut run, completed(&request_id, &json!(1)))?;
        let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
        call.has("/position", ended.value_at("/position").clone())
    }),
    rule("fingerprint", SECTION, "a fingerprint is computed from the tool and the canonical arguments").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            for (tool, arguments, fingerprint) in VECTORS {
                let answer = scenario.query_run(&run, "/lookup", &[("tool", tool), ("args", arguments)])?.ok()?;
                answer.has("/fingerprint", fingerprint)?;
            }
            Ok(())
        },
    ),
    rule("big_integers", SECTION, "integers of 64 bits are not rounded: different integers are different calls").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            for (id, fingerprint) in [
                ("1234567890123456789", "v1:27806e68b5b3585d7079f4df44e393cc4ae7e24ec2a0f6e13040d6def16b9737"),
                ("1234567890123456788", "v1:c685a509ee16cffac0001f802b2a26c9adf86df7e82df801500685d2c17391fa"),
            ] {
                let arguments = format!("{{\"id\":{id}}}");
                let answer =
                    scenario.query_run(&run, "/lookup", &[("tool", "get_order"), ("args", &arguments)])?.ok()?;
                answer.has("/fingerprint", fingerprint)?;
            }
            Ok(())
        },
    ),
    rule("duplicate_keys", SECTION, "arguments with a duplicate key are refused").test(|scenario, mut run| {
        let record = run.record(request("book", &json!({"seat": 4711}))).0.to_string();
        let twice = record.replace(r#""seat":4711"#, r#""seat":4711,"seat":4712"#);
        scenario.body(&run, twice)?.expect_problem(400, "invalid")?;
        let query = [("tool", "book"), ("args", r#"{"seat":1,"seat":2}"#)];
        scenario.query_run(&run, "/lookup", &query)?.expect_problem(400, "invalid")
    }),
    rule("lookup_canonical", SECTION, "a lookup finds a call regardless of key order, white space and escapes").test(
        |scenario, mut run| {
            scenario.append(&mut run, request("book", &json!({"a": {"x": 1, "y": [2, 3]}, "b": "é"})))?;
            let otherwise = " { \"b\" : \"\\u00e9\", \"a\" : {\"y\":[2,3],\"x\":1} } ";
            let answer = scenario.query_run(&run, "/lookup", &[("tool", "book"), ("args", otherwise)])?.ok()?;
            answer.has("/status", "pending")?;
            let answer = scenario
                .query_run(&run, "/lookup", &[("tool", "book"), ("args", r#"{"a":{"x":1,"y":[3,2]},"b":"é"}"#)])?
                .ok()?;
            answer.has("/status", "unknown")
        },
    ),
    rule("lookup_unknown", SECTION, "a call that was never requested is unknown, also in an unknown run").test(
        |scenario, mut run| {
            let unknown_run = scenario.run();
            scenario.pending(&mut run)?;
            for answer in [
                scenario.lookup(&run, "book", &json!({"seat": 2}))?,
                scenario.lookup(&unknown_run, "book", &json!({"seat": 1}))?,
            ] {
                answer.has("/status", "unknown")?;
                answer.has("/occurrences", 0)?;
                answer.has("/result", Value::Null)?;
            }
            let third = [("tool", "book"), ("args", r#"{"seat":1}"#), ("occurrence", "3")];
            let answer = scenario.query_run(&run, "/lookup", &third)?.ok()?;
            answer.has("/status", "unknown")?;
            answer.has("/occurrences", 1)
        },
    ),
    rule(
        "lookup_completed",
        SECTION,
        "a lookup of a completed call returns its result unchanged and the position of its end",
    )
    .test(|scenario, _| {
        for result in
            [json!("{\"as\": \"text\"}"), Value::Null, json!({"id": 9_007_199_254_740_993_u64, "n": [1, null]})]
        {
            let mut run = scenario.run();
            let request_id = scenario.pending(&mut run)?;
            let record = run.record(completed(&request_id, &result));
            let ended = scenario.send(&mut run, &record)?.expect_applied()?;
            let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
            call.has("/status", "completed")?;
            call.has("/result", result)?;
            call.has("/error", Value::Null)?;
            call.has("/arguments", json!({"seat": 1}))?;
            call.has("/position", ended.value_at("/position").clone())?;
        }
        Ok(())
    }),
    rule("lookup_failed", SECTION, "a lookup of a failed call returns its error and no result").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            scenario.append(&mut run, failed(&request_id, "no seats"))?;
            let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
            call.has("/status", "failed")?;
            call.has("/result", Value::Null)?;
            call.has("/error", json!({"kind": "refused", "message": "no seats"}))
        },
    ),
    rule(
        "occurrences",
        SECTION,
        "the k-th request with a fingerprint is occurrence k; a lookup returns the last by default",
    )
    .test(|scenario, mut run| {
        let first = scenario.pending(&mut run)?;
        scenario.append(&mut run, completed(&first, &json!(1)))?;
        scenario.pending(&mut run)?;
        let last = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
        last.has("/occurrence", 2)?;
        last.has("/occurrences", 2)?;
        last.has("/status", "pending")?;
        let first = [("tool", "book"), ("args", r#"{"seat":1}"#), ("occurrence", "1")];
        scenario.query_run(&run, "/lookup", &first)?.ok()?.has("/status", "completed")
    }),
    rule("call_ids_repeat", SECTION, "a call_id does not identify a call, because providers repeat it").test(
        |scenario, mut run| {
            let [one, other] = [1, 2].map(|seat| {
                let mut payload = request("book", &json!({"seat": seat}));
                payload["call_id"] = "call_0".into();
                scenario.append(&mut run, payload)
            });
            let (one, other) = (one?, other?);
            scenario.append(&mut run, completed(&other, &json!("two")))?;
            scenario.recovery(&run)?.lists("/pending", "id", &[&one])?;
            scenario.lookup(&run, "book", &json!({"seat": 1}))?.has("/status", "pending")
        },
    ),
    rule("call_by_request", SECTION, "a call is found by the record id of its request").test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        scenario.append(&mut run, completed(&request_id, &json!(1)))?;
        let answer = scenario.query_run(&run, &format!("/calls/{request_id}"), &[])?.ok()?;
        answer.has("/status", "completed")?;
        answer.has("/occurrence", 1)?;
        scenario.query_run(&run, "/calls/nobody", &[])?.expect_problem(404, "not_found")
    }),
];

/// Tool, arguments as text, and fingerprint. Contains the examples of RFC 8785.
const VECTORS: [(&str, &str, &str); 7] = [
    ("submit", "{}", "v1:3b8879d5a131285b4cce3054685fb226f1e4cefe4ef9269bc391ca18c3f3baaf"),
    (
        "tool",
        r#"{"z":[{"d":1,"c":2},3,1],"a":{"y":0,"x":0}}"#,
        "v1:9f99243c7245f03efccb1905b13dd539e235c9503ebca56bf16a43eb60feda10",
    ),
    ("tool", r#"{"ab":3,"b":4,"a":2,"":1}"#, "v1:e485169284a75eb7f293cd82c0178a8cdda72c192be130e75c199bfeffc6ce50"),
    (
        "tool",
        r#"{"\uffff":1,"\ud800\udc00":2,"\ue000":3}"#,
        "v1:0d3c695756ced43b6adbbfc3da7adf4441756fda5e5a171e1fcbf661792a8cf5",
    ),
    (
        "tool",
        r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        "v1:befc01bf585c2fa4abaedfde1f7e7e13c131c73be69b6407ae08e6798d119d52",
    ),
    (
        "tool",
        r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
        "v1:b5433577b8124814e5ad3dccd3754b2e63475d90c816abc3f1fda689c3bc8da1",
    ),
    ("b\u{f6}\u{f6}k", r#"{"a":1}"#, "v1:7b6e265001e10ce3677e988beefb9a94e71365ba32412ee20c5214cc947b834b"),
];
