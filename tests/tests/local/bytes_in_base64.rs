//! Bytes are appended as base64 or in hexadecimal, are the same record in either form, and are returned in the
//! requested form.

use runlog_log::memory::MemoryLog;
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::sync::Arc;

fn host(bytes: &Value) -> Value {
    json!({ "run_id": "r", "record_id": "thing", "record_kind": "telemetry", "privacy": "public",
        "payload": { "type": "host_payload", "family": "test", "payload_type": "thing", "schema_version": 1,
            "content_type": "application/octet-stream", "bytes": bytes } })
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_one_record_in_either_form_and_returned_in_the_requested_form() {
    let served = Served::over(Arc::new(MemoryLog::new(1))).await.unwrap();
    let path = "/v1/runs/r/records";
    let post = async |bytes: Value| served.post(path, &host(&bytes)).await;
    let (status, applied) = post(json!({ "base64": "AP9+" })).await;
    assert_eq!((status, &applied["outcome"], &applied["warnings"]), (200, &json!("applied"), &json!([])), "{applied}");
    let (_, again) = post(json!("00ff7e")).await;
    assert_eq!((&again["outcome"], &again["reason"]), (&json!("repeat"), &Value::Null), "{again}");
    for wrong in [json!({ "base64": "AP9" }), json!({ "hex": "00" }), json!("AP9+"), json!([0])] {
        let (status, problem) = post(wrong.clone()).await;
        assert_eq!((status, &problem["kind"]), (400, &json!("invalid")), "{wrong}: {problem}");
    }
    for (query, expected) in
        [("", json!("00ff7e")), ("bytes=hex", json!("00ff7e")), ("bytes=base64", json!({ "base64": "AP9+" }))]
    {
        let (_, page) = served.get(&format!("{path}?whole=true&{query}")).await;
        let line = &page["records"][0];
        assert_eq!(line["payload"]["bytes"], expected, "{query}: {line}");
        assert_eq!(line["record"]["payload"]["bytes"], expected, "{query}: {line}");
        // A returned record can be appended unchanged.
        let (_, again) = served.post(path, &line["record"]).await;
        assert_eq!((&again["outcome"], &again["reason"]), (&json!("repeat"), &Value::Null), "{again}");
    }
    assert_eq!(served.get(&format!("{path}?bytes=octal")).await.0, 400);
}
