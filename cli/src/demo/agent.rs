//! An agent. It opens its run, resumes from the run's last checkpoint, and works until the model requests no more calls. Only
//! the model is scripted; records, calls and checkpoints equal a real agent's.

use super::{
    desk::{Desk, Reply, Request},
    model::{Call, Heard, Message, Step, Trip},
};
use crate::{Error, args, exit::Answer, output};
use futures_util::future::try_join_all;
use runlog_producer::{Config, Failure, Journal, Json, LoopState, Outcome, Run, Runlog};
use runlog_schemas::answer::ErrorKind;
use serde::{Deserialize, Serialize};
use std::{io, time::Duration};
use tokio::sync::oneshot;

/// Time limit of the desk's answer.
const DESK_WAIT: Duration = Duration::from_secs(120);
/// Time limit of reading an intent back. It is long, because hundreds of agents share this machine with other programs.
const READ_BACK: Duration = Duration::from_secs(30);
/// The agent name in every record.
const AGENT: &str = "travel-agent";

/// The result of one life of an agent: one process or task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Life {
    pub(super) run_id: String,
    /// The whole conversation.
    pub(super) messages: Vec<Message>,
    /// Calls that the journal answered, so that their effect did not run.
    pub(super) recorded: u32,
    /// Effects that an earlier life may have started and this life ran with the same key.
    pub(super) again: u32,
}

/// Runs an agent in its own process.
pub(crate) fn run(args: &args::DemoAgent) -> Result<Answer, Error> {
    super::process::end_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Internal, "no runtime for the agent").because(error))?;
    let trip = Trip::new(args.seed, args.number, Some(args.keyed));
    let life = runtime.block_on(async { live(&connect(&args.journal).await?, &Desk::new(args.desk), &trip).await })?;
    output::document(&life)?;
    Ok(Answer::Yes)
}

/// Connects to a journal over HTTP.
pub(super) async fn connect(journal: &str) -> Result<Runlog, Error> {
    let journal = Journal::parse(journal, None).ok_or_else(|| {
        Error::usage(format!("invalid journal URL {journal}; expected one such as http://127.0.0.1:7070"))
    })?;
    Ok(Runlog::connect(Config { read_back: READ_BACK, ..Config::new(journal, AGENT) }).await?)
}

/// Takes over the trip's run and works until the run ends.
pub(super) async fn live(runlog: &Runlog, desk: &Desk, trip: &Trip) -> Result<Life, Error> {
    let run = runlog.open(&trip.run_id).await?;
    let messages = checkpoint_messages(&run)?;
    let mut life = Life { run_id: trip.run_id.clone(), messages, recorded: 0, again: 0 };
    if life.messages.is_empty() {
        let content = trip.wish();
        run.turn("user", &content).await?;
        life.messages.push(Message::User { content });
    }
    loop {
        match trip.next(&life.messages) {
            Step::Calls { says, calls } => {
                run.turn("assistant", &says).await?;
                let acts = try_join_all(calls.iter().map(|call| act(&run, desk, trip, call))).await?;
                life.messages.push(Message::Assistant { content: says, calls });
                for Act { message, recorded, again } in acts {
                    life.messages.push(message);
                    life.recorded += u32::from(recorded);
                    life.again += u32::from(again);
                }
                run.checkpoint(&state(trip, &life.messages)?).await?;
            }
            Step::Done { says } => {
                run.turn("assistant", &says).await?;
                run.end(Outcome::Completed).await?;
                return Ok(life);
            }
        }
    }
}

/// Returns the conversation of the latest checkpoint.
fn checkpoint_messages(run: &Run) -> Result<Vec<Message>, Error> {
    let Some(checkpoint) = &run.recovery().checkpoint else { return Ok(Vec::new()) };
    let messages = checkpoint.messages.iter().flatten().map(|message| serde_json::from_str(message.as_str()));
    messages.collect::<Result<_, _>>().map_err(|error| {
        let what = format!(
            "checkpoint {} of run {} is not a checkpoint of this demo's agent",
            checkpoint.checkpoint_id,
            run.id()
        );
        Error::new(ErrorKind::Invalid, what).because(error)
    })
}

fn state(trip: &Trip, messages: &[Message]) -> Result<LoopState, Error> {
    let is = |wanted: fn(&Message) -> bool| messages.iter().filter(|message| wanted(message)).count() as u64;
    let messages_json: Result<Vec<Json>, _> = messages.iter().map(Json::of).collect();
    Ok(LoopState {
        session_id: trip.run_id.clone(),
        turn: is(|message| matches!(message, Message::Assistant { .. })),
        messages: messages_json
            .map_err(|error| Error::new(ErrorKind::Internal, "a message does not serialise").because(error))?,
        state: None,
        tool_calls_count: is(|message| matches!(message, Message::Tool { .. })),
    })
}

struct Act {
    message: Message,
    recorded: bool,
    again: bool,
}

/// Makes a call at most once.
async fn act(run: &Run, desk: &Desk, trip: &Trip, call: &Call) -> Result<Act, Error> {
    let mut tool = run.tool(&call.tool, &call.arguments);
    if let Some(key) = &call.key {
        tool = tool.idempotency_key(key);
    }
    let (error_sender, desk_error) = oneshot::channel::<io::Error>();
    let (request, mut again) = (request(trip, call), false);
    let effect = async |effect_call: runlog_producer::Call| {
        again = effect_call.attempt > 1;
        match desk.ask(&request, DESK_WAIT).await {
            Ok(Reply::Ok(value)) => Ok(value.into()),
            Ok(Reply::Refused { kind, message }) => Err(Failure { kind, message }),
            Err(error) => {
                // It may have happened, so there is no result to record. The call stays pending.
                let _ = error_sender.send(error);
                std::future::pending().await
            }
        }
    };
    let answer = tokio::select! {
        biased;
        answer = tool.once(effect) => answer?,
        Ok(error) = desk_error => {
            let what = format!("run {}: the desk did not answer {}; it may have done it", trip.run_id, call.tool);
            return Err(Error::new(ErrorKind::Unavailable, what).because(error));
        }
    };
    let heard = match (answer.result, answer.error) {
        (_, Some(error)) => Heard::Error { kind: error.kind, message: error.message },
        (result, None) => Heard::Result(result.map_or(serde_json::Value::Null, |result| result.to_value())),
    };
    let message = Message::Tool { tool: call.tool.clone(), arguments: call.arguments.clone(), heard };
    Ok(Act { message, recorded: answer.recorded, again })
}

/// Returns the request to the desk for a call.
fn request(trip: &Trip, call: &Call) -> Request {
    let text = |name: &str| call.arguments[name].as_str().unwrap_or_default().to_owned();
    let date = text("date");
    match call.tool.as_str() {
        "search_flights" => Request::Flights { from: text("from"), to: text("to"), date },
        "search_rooms" => Request::Rooms { city: text("city"), date },
        "get_price" => Request::Price { item: text("flight"), date },
        "book_room" => {
            Request::Book { item: text("room"), date, customer: trip.passenger.clone(), key: call.key.clone() }
        }
        _ => Request::Book { item: text("flight"), date, customer: trip.passenger.clone(), key: call.key.clone() },
    }
}
