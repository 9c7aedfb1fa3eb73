//! Reads the envelope of one record `COUNT` times, for `scripts/instructions.sh` to count what that takes. The record is
//! like the median one of an imported tau-bench run: a call's result of some hundred bytes.

use anyhow::Context;
use runlog_schemas::{
    codec::{self, Envelope},
    json::Json,
    payload::ToolCallCompleted,
    record::JournalRecord,
};
use std::hint::black_box;

fn main() -> anyhow::Result<()> {
    let count: usize = std::env::args().nth(1).context("usage: envelope COUNT")?.parse()?;
    let result = serde_json::json!({ "reservation": "4WQ150", "text": "x".repeat(400) });
    let completed = ToolCallCompleted {
        request_record_id: "tau-bench:12:0/request/7".into(),
        result: Some(Json::from(result)),
        latency_ms: None,
    };
    let mut record = JournalRecord::new("tau-bench:12:0", "tau-bench:12:0/result/7", "import", completed.into());
    record.place.writer_id = "0b9ad2f5-7d0e-4f43-a4e4-6c5a7d0f2f11".into();
    (record.place.writer_epoch, record.place.writer_seq, record.place.journal_seq) = (1, 15, 15);
    record.place.timestamp_millis = 1_700_000_000_000;
    let framed = codec::encode(&record);
    let datum = codec::unframe(&framed)?;
    for _ in 0..count {
        black_box(Envelope::read(black_box(datum))?);
    }
    Ok(())
}
