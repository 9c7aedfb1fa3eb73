//! Runs agents in separate processes, some of which are killed while a booking is in flight.
//!
//! ```text
//!   desk: hold the booking ─▶ agent: intent durable, asks the desk ─▶ desk: held ─▶ journal: pending ─▶ SIGKILL
//!     with a key:     a new process resumes; the desk answers its repeated request with the existing booking
//!     without a key:  a new process gets reconcile_required; an operator asks the desk and records the decision;
//!                     another process resumes
//! ```
//!
//! Every "─▶" is an event that the demo waits for.

use crate::{
    agent::Conversation,
    demo::Demo,
    desk::{Booking, Moment, Request},
    error::Error,
    model::{Heard, Message, Trip},
    process::Process,
};
use runlog_schemas::{
    answer::{Class, Disposition, ErrorKind, Lookup, Pending, Recovery},
    id::RecordId,
    json::Json,
};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// Time limit of a process.
const AGENT_WAIT: Duration = Duration::from_secs(120);

/// A run whose process was killed in the middle of a booking, and that another process finished.
#[derive(Clone, Debug, Serialize)]
pub struct Takeover {
    pub run_id: String,
    /// The booking's request, which was durable when the process died.
    pub request_id: RecordId,
    /// Whether the desk had booked when the process died.
    pub booked_before: bool,
    /// Whether the booking had an idempotency key.
    pub keyed: bool,
    /// Whether an operator had to decide.
    pub reconciled: bool,
    pub confirmation: String,
    /// Number of processes that worked on the run.
    pub processes: u32,
}

/// Runs the trip in one process.
pub(crate) async fn run_in_one_process(demo: &Demo, trip: &Trip) -> Result<Conversation, Error> {
    start_agent(demo, trip)?.answer(AGENT_WAIT).await
}

fn start_agent(demo: &Demo, trip: &Trip) -> Result<Process, Error> {
    let mut arguments = vec![
        "demo-agent".to_owned(),
        format!("--journal={}", demo.url),
        format!("--desk={}", demo.desk.address),
        format!("--seed={}", demo.seed),
        format!("--number={}", trip.number),
    ];
    arguments.extend(trip.keyed.then(|| "--keyed".to_owned()));
    Process::start(format!("agent {}", trip.number), &arguments)
}

/// Kills the trip's process at `moment` of its flight's booking, and lets other processes finish the run.
pub(crate) async fn run_in_several_processes(
    demo: &Demo,
    trip: &Trip,
    moment: Moment,
) -> Result<(Conversation, Takeover), Error> {
    let pending = kill_while_booking(demo, trip, moment).await?;
    let before = booking_at_desk(demo, trip, &pending).await?;
    if before.is_some() != (moment == Moment::AfterBooking) {
        return Err(unexpected(trip, format!("died {moment:?}, but the desk has {before:?}")));
    }
    if !trip.keyed {
        reconcile(demo, trip, &pending, before.as_ref()).await?;
    }
    let conversation = run_in_one_process(demo, trip).await?;
    let after = booking_at_desk(demo, trip, &pending).await?;
    let confirmed = confirmed_booking(&conversation);
    if after.is_none() || confirmed != after || before.is_some_and(|before| Some(before) != confirmed) {
        return Err(unexpected(trip, format!("got {confirmed:?}, but the desk has {after:?}")));
    }
    let takeover = Takeover {
        run_id: trip.run_id.clone(),
        request_id: pending.id,
        booked_before: moment == Moment::AfterBooking,
        keyed: trip.keyed,
        reconciled: !trip.keyed,
        confirmation: confirmed.map(|booking| booking.confirmation).unwrap_or_default(),
        processes: if trip.keyed { 2 } else { 3 },
    };
    Ok((conversation, takeover))
}

/// Kills the trip's first process once its booking's intent is durable and its result is not, and returns the intent.
async fn kill_while_booking(demo: &Demo, trip: &Trip, moment: Moment) -> Result<Pending, Error> {
    let customer = || trip.passenger.clone();
    let not_held = || unexpected(trip, "is no booking that the desk holds back".into());
    demo.desk.expect::<()>(Request::Hold { customer: customer(), moment }).await?;
    let mut process = start_agent(demo, trip)?;
    tokio::select! {
        held = demo.desk.expect::<bool>(Request::Held { customer: customer() }) => {
            held?.then_some(()).ok_or_else(not_held)?;
        }
        ended = process.document::<Conversation>(AGENT_WAIT) => {
            return Err(ended.err().unwrap_or_else(|| unexpected(trip, "ended before it was killed".into())));
        }
    }
    let before_kill = pending_booking(demo, trip).await?;
    process.kill().await?;
    let hung_up: bool = demo.desk.expect(Request::HungUp { customer: customer() }).await?;
    hung_up.then_some(()).ok_or_else(not_held)?;
    let after_kill = pending_booking(demo, trip).await?;
    if after_kill.id != before_kill.id {
        return Err(unexpected(trip, format!("left {after_kill:?}, {before_kill:?} was observed")));
    }
    Ok(after_kill)
}

/// Returns the only pending effect of the run. It must be the booking, in the class that follows from its key.
async fn pending_booking(demo: &Demo, trip: &Trip) -> Result<Pending, Error> {
    let class = if trip.keyed { Class::RetrySafe } else { Class::ReconcileRequired };
    let recovery: Recovery = demo.server.get(&["runs", &trip.run_id, "recovery"], &[]).await?;
    match <[Pending; 1]>::try_from(recovery.pending) {
        Ok([one]) if one.tool_name == "book_flight" && one.class == class => Ok(one),
        other => Err(unexpected(trip, format!("has pending {other:?}; expected was one booking, {class}"))),
    }
}

/// Queries the desk for the pending booking by its content.
async fn booking_at_desk(demo: &Demo, trip: &Trip, pending: &Pending) -> Result<Option<Booking>, Error> {
    let call: Lookup = demo.server.get(&["runs", &trip.run_id, "calls", pending.id.as_str()], &[]).await?;
    let arguments = call.arguments.map_or(Value::Null, |arguments| arguments.to_value());
    let mut bookings: Vec<Booking> = demo.desk.expect(Request::Of { customer: trip.passenger.clone() }).await?;
    bookings.retain(|booking| arguments["flight"] == *booking.item && arguments["date"] == *booking.date);
    if bookings.len() > 1 {
        return Err(unexpected(trip, format!("was booked more than once: {bookings:?}")));
    }
    Ok(bookings.pop())
}

/// Checks that a new process refuses to continue. Then an operator queries the desk and decides.
async fn reconcile(demo: &Demo, trip: &Trip, pending: &Pending, booked: Option<&Booking>) -> Result<(), Error> {
    match run_in_one_process(demo, trip).await {
        Err(error) if error.kind() == ErrorKind::ReconcileRequired => {}
        other => return Err(unexpected(trip, format!("did not get reconcile_required: {other:?}"))),
    }
    let done = booked.map(Json::of).transpose();
    let done = done.map_err(|error| Error::internal("a booking does not serialise").because(error))?;
    let why = if done.is_some() {
        "the desk's ledger has this booking"
    } else {
        "the desk's ledger has no such booking, and the process that requested it is dead"
    };
    let outcome = demo.server.resolve(&trip.run_id, pending, done, why).await?;
    if outcome.outcome == Disposition::Applied {
        return Ok(());
    }
    Err(unexpected(trip, format!("the decision was not applied: {outcome:?}")))
}

/// Returns the flight booking that the desk confirmed to an agent.
fn confirmed_booking(conversation: &Conversation) -> Option<Booking> {
    conversation.messages.iter().find_map(|message| match message {
        Message::Tool { tool, heard: Heard::Result(booking), .. } if tool == "book_flight" => {
            serde_json::from_value(booking.clone()).ok()
        }
        _ => None,
    })
}

fn unexpected(trip: &Trip, what: String) -> Error {
    Error::internal(format!("run {} {what}", trip.run_id))
}
