//! A call that `demo --serve` leaves pending, for a person to decide.

use super::site::WAIT;
use crate::{
    Error,
    client::{Client, Target},
    exit::Answer,
};
use runlog_producer::Security;
use runlog_schemas::answer::{ErrorKind, Outcome};
use serde::Serialize;
use serde_json::{Value, json};

/// The run id and the request id of that call.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Undecided {
    pub(super) run_id: &'static str,
    pub(super) id: &'static str,
}

const LEFT: Undecided = Undecided { run_id: "trip-undecided", id: "booking-undecided" };

/// Appends a run like that of a killed process: its booking has no recorded end and no idempotency key.
pub(super) async fn leave(url: &str) -> Result<Undecided, Error> {
    let record = |id: &str, payload: Value| json!({"run_id": LEFT.run_id, "record_id": id, "agent_id": "travel-agent", "payload": payload});
    let arguments = json!({"flight": "AQ 101", "date": "2027-05-01", "passenger": "Ada Berg"});
    let records = json!([
        record("started-undecided", json!({"type": "run_lifecycle", "status": "started"})),
        record(
            LEFT.id,
            json!({"type": "tool_call_requested", "request_id": "turn-1", "call_id": "call-1", "tool_name": "book_flight",
                   "arguments": arguments}),
        ),
    ]);
    let target = Target::run(LEFT.run_id).path("/records");
    let outcomes: Vec<Outcome> =
        Client::new(url, &Security::default())?.post(target, records.to_string(), WAIT).await?;
    match outcomes.iter().find(|outcome| Answer::from_outcome(outcome) != Answer::Yes) {
        None => Ok(LEFT),
        Some(refused) => {
            Err(Error::new(ErrorKind::Internal, format!("record {:?} was refused", refused.record_id.as_str())))
        }
    }
}
