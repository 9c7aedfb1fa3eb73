//! Lists of a run newest first: their pages are complete while the run grows.

use runlog_log::memory::MemoryLog;
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::sync::Arc;

const RUN: &str = "grows";

struct Site(Served);

impl Site {
    async fn start() -> Self {
        Self(Served::over(Arc::new(MemoryLog::new(1))).await.unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.0.get(&format!("/v1/runs/{path}")).await
    }

    async fn append(&self, run: &str, id: &str, payload: &Value, correlation: &[(&str, &str)]) {
        let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
        let entries: Vec<Value> = correlation.iter().map(entry).collect();
        let mut record = json!({ "run_id": run, "record_id": id, "payload": payload });
        if !entries.is_empty() {
            record["event_index"] = json!({ "run_id": run, "agent_id": "test", "event_family": "test", "event_kind": "turn",
                "source": { "kind": "host", "id": "test", "trust": "host_provided", "privacy": "internal" },
                "subject_ref": { "kind": "run", "id": run, "privacy": "internal" }, "privacy_class": "internal",
                "delivery_semantics": "journal_backed", "correlation_keys": entries });
        }
        let (_, answer) = self.0.post(&format!("/v1/runs/{run}/records"), &record).await;
        assert_eq!(answer["outcome"], "applied", "{answer}");
    }

    /// Appends a turn with its number's parity and its remainder modulo three as correlation entries.
    async fn append_turn(&self, run: &str, number: usize) {
        let payload = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": number });
        let (even, rest) = (number.is_multiple_of(2).to_string(), (number % 3).to_string());
        self.append(run, &number.to_string(), &payload, &[("even", &even), ("rest", &rest)]).await;
    }

    async fn checkpoint(&self, number: u64) {
        let payload = json!({ "type": "loop_checkpoint", "checkpoint_id": format!("c/{number}"), "checkpoint_seq": number,
            "covers_journal_seq": number / 2, "schema_version": 1, "messages": [{ "n": number }], "state": number });
        self.append(RUN, &format!("c{number}"), &payload, &[]).await;
    }

    /// The items of all pages of `limit`; `grow` is called before each but the first.
    async fn pages(&self, path: &str, (list, id): (&str, &str), grow: impl AsyncFn()) -> Vec<String> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..100 {
            let (status, page) = self.get(&format!("{path}{cursor}")).await;
            assert_eq!(status, 200, "{path}{cursor}: {page}");
            let items = page[list].as_array().unwrap();
            found.extend(items.iter().map(|item| item[id].as_str().unwrap().to_owned()));
            let Some(next) = page["next_cursor"].as_str() else { return found };
            cursor = format!("&cursor={next}");
            grow().await;
        }
        panic!("{path} has no end: {found:?}");
    }
}

const RECORDS: (&str, &str) = ("records", "record_id");
const CHECKPOINTS: (&str, &str) = ("checkpoints", "checkpoint_id");

fn numbers(which: impl Iterator<Item = usize>) -> Vec<String> {
    which.map(|number| number.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_records_newest_first_have_each_record_once_while_the_run_grows() {
    let site = Site::start().await;
    for number in 0..12 {
        site.append_turn(RUN, number).await;
        site.append_turn("another", number).await;
    }
    let next = std::sync::atomic::AtomicUsize::new(12);
    let grow = async || site.append_turn(RUN, next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).await;
    let all = site.pages(&format!("{RUN}/records?order=desc&limit=5"), RECORDS, grow).await;
    assert_eq!(all, numbers((0..12).rev()));
    let of = async |query: &str| site.pages(&format!("{RUN}/records?limit=1&{query}"), RECORDS, async || {}).await;
    // Numbers divisible by 6, with either entry first; and numbers that match only one entry.
    for both in ["correlation=even%3Dtrue&correlation=rest%3D0", "correlation=rest%3D0&correlation=even%3Dtrue"] {
        assert_eq!(of(both).await, ["0", "6", "12"], "{both}");
        assert_eq!(of(&format!("{both}&order=desc")).await, ["12", "6", "0"], "{both}");
    }
    assert_eq!(of("correlation=even%3Dtrue&correlation=even%3Dfalse").await, [""; 0]);
    let (_, tenth) = site.get(&format!("{RUN}/records?limit=10")).await;
    let at = &tenth["records"][9]["position"]["offset"];
    assert_eq!(of(&format!("order=desc&as_of=0:{at}")).await, numbers((0..10).rev()));
    assert_eq!(of(&format!("order=desc&correlation=rest%3D0&as_of=0:{at}")).await, ["9", "6", "3", "0"]);
    // A cursor marks a record for either order.
    let cursor = tenth["next_cursor"].as_str().unwrap();
    let (_, before) = site.get(&format!("{RUN}/records?order=desc&limit=100&cursor={cursor}")).await;
    let before: Vec<_> = before["records"].as_array().unwrap().iter().map(|line| line["record_id"].clone()).collect();
    assert_eq!(before, numbers((0..9).rev()));
    for wrong in ["order=newest", "correlation=x", "correlation=x%3D1&correlation=y", "order=desc&order=asc"] {
        let (status, problem) = site.get(&format!("{RUN}/records?{wrong}")).await;
        assert_eq!((status, &problem["kind"]), (400, &json!("usage")), "{wrong}: {problem}");
    }
    let many = vec!["correlation=a%3D1"; 65].join("&");
    assert_eq!(site.get(&format!("{RUN}/records?{many}")).await.0, 400);
    let (status, found) = site.get("nobody/records?order=desc&correlation=a%3D1").await;
    assert_eq!((status, &found["kind"]), (404, &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_a_time_are_shown_newest_first() {
    let site = Site::start().await;
    for number in 0..4 {
        let payload =
            json!({ "type": "conversation_turn", "message_id": number.to_string(), "kind": "user", "content": 1 });
        site.append(RUN, &number.to_string(), &payload, &[]).await;
    }
    let path = format!("{RUN}/records?at=2100-01-01T00:00:00Z&limit=1");
    assert_eq!(site.pages(&path, RECORDS, async || {}).await, numbers(0..4));
    assert_eq!(site.pages(&format!("{path}&order=desc"), RECORDS, async || {}).await, numbers((0..4).rev()));
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_listed_newest_first_and_each_is_found_by_its_id() {
    let site = Site::start().await;
    for number in 0..6 {
        site.append_turn(RUN, number).await;
    }
    for number in 1..=7 {
        site.checkpoint(number).await;
    }
    let next = std::sync::atomic::AtomicU64::new(8);
    let grow = async || site.checkpoint(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).await;
    let all = site.pages(&format!("{RUN}/checkpoints?limit=3"), CHECKPOINTS, grow).await;
    assert_eq!(all, ["c/7", "c/6", "c/5", "c/4", "c/3", "c/2", "c/1"]);
    let covering = site.pages(&format!("{RUN}/checkpoints?limit=1&at_or_before=2"), CHECKPOINTS, async || {}).await;
    assert_eq!(covering, ["c/5", "c/4", "c/3", "c/2", "c/1"]);

    let (_, page) = site.get(&format!("{RUN}/checkpoints")).await;
    let (_, latest) = site.get(&format!("{RUN}/checkpoints/latest")).await;
    let first = &page["checkpoints"][0];
    assert_eq!((&first["checkpoint_id"], &first["message_count"]), (&latest["checkpoint_id"], &json!(1)), "{page}");
    for listed in page["checkpoints"].as_array().unwrap() {
        let id = listed["checkpoint_id"].as_str().unwrap().replace('/', "%2F");
        let (status, found) = site.get(&format!("{RUN}/checkpoints/{id}")).await;
        let number = &listed["checkpoint_seq"];
        assert_eq!((status, &found["position"], &found["state"]), (200, &listed["position"], number), "{found}");
        assert_eq!(found["messages"], json!([{ "n": number }]), "{found}");
    }
    for path in ["grows/checkpoints/c", "nobody/checkpoints", "nobody/checkpoints/c%2F1"] {
        let (status, problem) = site.get(path).await;
        assert_eq!((status, &problem["kind"]), (404, &json!("not_found")), "{path}: {problem}");
    }
    // A pruned checkpoint is absent from both.
    let prune = json!({ "type": "checkpoint_prune", "prune_covered_before": 2, "preserve_latest_terminal": true });
    site.append(RUN, "prune", &prune, &[]).await;
    let covering = site.pages(&format!("{RUN}/checkpoints?limit=1&at_or_before=2"), CHECKPOINTS, async || {}).await;
    assert_eq!(covering, ["c/5", "c/4"]);
    assert_eq!(site.get(&format!("{RUN}/checkpoints/c%2F3")).await.0, 404);
    let (_, records) = site.get(&format!("{RUN}/records?limit=1")).await;
    let cursor = records["next_cursor"].as_str().unwrap();
    for wrong in ["limit=0".to_owned(), "limit=1001".to_owned(), format!("cursor={cursor}")] {
        let (status, problem) = site.get(&format!("{RUN}/checkpoints?{wrong}")).await;
        assert_eq!((status, &problem["kind"]), (400, &json!("usage")), "{wrong}: {problem}");
    }
}
