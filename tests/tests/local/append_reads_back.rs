//! An append at `latest` reads back: its answer names the writer of every claim that was in the log after the record was
//! judged.

#![allow(clippy::unwrap_used, reason = "tests")]

use runlog_log::{Ack, BoundsAnswer, Delivery, Entry, Error, Log, Offset, PartitionId, Reader, memory::MemoryLog};
use runlog_projector::{Config, Projector, server::access::AllowedHosts};
use runlog_schemas::{
    id::{Epoch, RecordId, RunId, WriterId},
    payload::RunClaim,
    record::JournalRecord,
};
use runlog_tests::{served, server::client};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const RUN: &str = "r";
const DEADLINE: Duration = Duration::from_secs(30);

/// A log in which another server's claim lands behind the next append. Readers get the claim once somebody has asked for
/// the log's end after it landed.
#[derive(Clone, Debug)]
struct Overtaken {
    log: MemoryLog,
    claim: Arc<Mutex<Option<Entry>>>,
    hidden: Arc<Mutex<Option<Offset>>>,
}

impl Log for Overtaken {
    fn topic(&self) -> &str {
        self.log.topic()
    }
    fn partitions(&self) -> u32 {
        self.log.partitions()
    }
    fn value_bytes_max(&self) -> usize {
        self.log.value_bytes_max()
    }
    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let Some(claim) = self.claim.lock().unwrap().take() else { return self.log.append(partition, batch) };
        let Self { log, hidden, .. } = self.clone();
        Box::pin(async move {
            // The claim's offset: readers get what is below it.
            *hidden.lock().unwrap() =
                Some(log.bounds(partition, DEADLINE).await?.end.saturating_add(batch.len() as u64));
            let landed = log.append(partition, batch).await?;
            log.append(partition, vec![claim]).await?;
            Ok(landed)
        })
    }
    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        Box::pin(async move {
            let bounds = self.log.bounds(partition, deadline).await?;
            let mut hidden = self.hidden.lock().unwrap();
            if hidden.is_some_and(|hidden| hidden < bounds.end) {
                *hidden = None;
            }
            Ok(bounds)
        })
    }
    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        let (reader, hidden) = (self.log.reader(from)?, self.hidden.clone());
        Ok(Box::new(HeldBack { reader, hidden, held: Vec::new() }))
    }
}

struct HeldBack {
    reader: Box<dyn Reader>,
    hidden: Arc<Mutex<Option<Offset>>>,
    held: Vec<Delivery>,
}

impl Reader for HeldBack {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let mut found = std::mem::take(&mut self.held);
        if found.is_empty() {
            found = self.reader.poll(max, timeout)?;
        }
        if let Some(hidden) = *self.hidden.lock().unwrap() {
            let shown = found.iter().take_while(|delivery| delivery.offset < hidden).count();
            self.held = found.split_off(shown);
        }
        Ok(found)
    }
    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.held.first().map(|delivery| delivery.offset).or_else(|| self.reader.position(partition))
    }
    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.held.clear();
        self.reader.seek(partition, next)
    }
    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.reader.release(partition)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_at_latest_names_the_writer_whose_claim_landed_right_behind_it() {
    let log = Overtaken { log: MemoryLog::new(1), claim: Arc::default(), hidden: Arc::default() };
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path(), || 0, || "writer".into());
    let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
    let address = served::start(projector.clone(), AllowedHosts::default()).await.unwrap();
    let url = format!("http://{address}/v1/runs/{RUN}");
    let http = client().unwrap();
    let post = async |path: &str, body: &Value| {
        let answer = http.post(format!("{url}{path}")).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, claim) = post("/claims", &json!({})).await;
    assert_eq!((status, &claim["writer_id"], &claim["epoch"]), (200, &json!("writer"), &json!(1)), "{claim}");
    let intent = |id: &str| {
        json!({ "run_id": RUN, "record_id": id, "writer_id": "writer", "writer_epoch": 1,
            "payload": { "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "book",
                "arguments": {} } })
    };
    let (_, kept) = post("/records?consistency=latest", &intent("kept")).await;
    let told = |answer: &Value| [answer["outcome"].clone(), answer["journal_seq"].clone(), answer["writer"].clone()];
    assert_eq!(told(&kept), [json!("applied"), json!(1), json!({ "writer_id": "writer", "epoch": 1 })], "{kept}");

    let (writer_id, epoch) = (WriterId::new("other").unwrap().to_owned(), Epoch::new(2).unwrap());
    let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: "another server".into() };
    let (run_id, record_id) = (RunId::new(RUN).unwrap(), RecordId::new("other-claim".to_owned()).unwrap());
    let mut claim = JournalRecord::new(run_id, record_id, "runlog", claim.into());
    (claim.place.writer_id, claim.place.writer_epoch) = (writer_id.into(), epoch);
    *log.claim.lock().unwrap() = Some(projector.entry(&claim).unwrap());
    let (status, lost) = post("/records?consistency=latest", &intent("lost")).await;
    assert_eq!(status, 200, "{lost}");
    let other = json!({ "writer_id": "other", "epoch": 2 });
    assert_eq!(told(&lost), [json!("applied"), json!(2), other.clone()], "applied, and the run is lost: {lost}");

    // A repeat reads back, too, and what is no consistency appends nothing.
    let (_, again) = post("/records?consistency=latest", &intent("kept")).await;
    assert_eq!(told(&again), [json!("repeat"), json!(1), other], "{again}");
    for wrong in ["newest", "at-least=1:0"] {
        let (status, problem) = post(&format!("/records?consistency={wrong}"), &intent("more")).await;
        assert_eq!((status, &problem["kind"]), (400, &json!("usage")), "{problem}");
    }
    let (_, more) = post("/records", &intent("more")).await;
    assert_eq!(more["outcome"], "refused", "it was not in the log before: {more}");
    let (status, late) = post("/records?consistency=at-least=0:1000&deadline_ms=500", &intent("late")).await;
    assert_eq!((status, &late["kind"]), (503, &json!("stale")), "{late}");
    let (_, late) = post("/records", &intent("late")).await;
    assert_eq!(late["reason"], "fenced", "it is in the log, of a writer that lost the run: {late}");
}
