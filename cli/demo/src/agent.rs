//! An agent. It opens its run, resumes from the run's last checkpoint, and works until the model requests no more calls. Only
//! the model is scripted; records, calls and checkpoints equal a real agent's.

use crate::{
    desk::{Desk, Reply, Request},
    error::Error,
    model::{Call, Heard, Message, Step, Trip},
};
use futures_util::future::try_join_all;
use runlog_producer::{Config, Ended, Failure, Journal, Json, LoopState, Outcome, Run, Runlog};
use runlog_schemas::answer::ErrorKind;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, time::Duration};

/// Time limit of reading an intent back. It is long, because hundreds of agents share this machine with other programs.
const READ_BACK: Duration = Duration::from_secs(30);
/// The agent name in every record.
pub(crate) const AGENT: &str = "travel-agent";

/// The conversation of one agent: the result of a process or a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conversation {
    pub(crate) run_id: String,
    /// The whole conversation.
    pub(crate) messages: Vec<Message>,
}

/// Runs agent `number` of the demo with this seed, in its own process.
pub async fn run_agent(
    journal: &str,
    desk: SocketAddr,
    seed: u64,
    number: u32,
    keyed: bool,
) -> Result<Conversation, Error> {
    run_trip(&connect(journal).await?, &Desk::new(desk), &Trip::new(seed, number, Some(keyed))).await
}

/// Connects to a journal over HTTP.
pub(crate) async fn connect(journal: &str) -> Result<Runlog, Error> {
    let journal = Journal::parse(journal, None).ok_or_else(|| {
        let what = format!("invalid journal URL {journal}; expected one such as http://127.0.0.1:7070");
        Error::new(ErrorKind::Usage, what)
    })?;
    Ok(Runlog::connect(Config { read_back: READ_BACK, ..Config::new(journal, AGENT) }).await?)
}

/// Takes over the trip's run and works until the run ends.
pub(crate) async fn run_trip(runlog: &Runlog, desk: &Desk, trip: &Trip) -> Result<Conversation, Error> {
    let run = runlog.open(&trip.run_id).await?;
    let messages = checkpoint_messages(&run)?;
    let mut conversation = Conversation { run_id: trip.run_id.clone(), messages };
    if conversation.messages.is_empty() {
        let content = trip.wish();
        run.turn("user", &content).await?;
        conversation.messages.push(Message::User { content });
    }
    loop {
        match trip.next(&conversation.messages) {
            Step::Calls { says, calls } => {
                run.turn("assistant", &says).await?;
                let answers = try_join_all(calls.iter().map(|call| act(&run, desk, trip, call))).await?;
                conversation.messages.push(Message::Assistant { content: says, calls });
                conversation.messages.extend(answers);
                run.checkpoint(&state(trip, &conversation.messages)?).await?;
            }
            Step::Done { says } => {
                run.turn("assistant", &says).await?;
                run.end(Outcome::Completed).await?;
                return Ok(conversation);
            }
        }
    }
}

/// Returns the conversation of the latest checkpoint.
fn checkpoint_messages(run: &Run) -> Result<Vec<Message>, Error> {
    let Some(checkpoint) = &run.recovery().checkpoint else { return Ok(Vec::new()) };
    let messages = checkpoint.messages.iter().flatten().map(|message| serde_json::from_str(message.as_str()));
    messages.collect::<Result<_, _>>().map_err(|error| {
        let (id, run_id) = (&checkpoint.checkpoint_id, run.id());
        let what = format!("checkpoint {id} of run {run_id} is not a checkpoint of this demo's agent");
        Error::new(ErrorKind::Invalid, what).because(error)
    })
}

fn state(trip: &Trip, messages: &[Message]) -> Result<LoopState, Error> {
    let count = |wanted: fn(&Message) -> bool| messages.iter().filter(|message| wanted(message)).count() as u64;
    let messages_json: Result<Vec<Json>, _> = messages.iter().map(Json::of).collect();
    Ok(LoopState {
        session_id: trip.run_id.clone(),
        turn: count(|message| matches!(message, Message::Assistant { .. })),
        messages: messages_json.map_err(|error| Error::internal("a message does not serialise").because(error))?,
        state: None,
        tool_calls_count: count(|message| matches!(message, Message::Tool { .. })),
    })
}

/// Makes a call at most once. If the desk does not answer, the call stays pending: it may have happened.
async fn act(run: &Run, desk: &Desk, trip: &Trip, call: &Call) -> Result<Message, Error> {
    let mut tool = run.tool(&call.tool, &call.arguments);
    if let Some(key) = &call.key {
        tool = tool.idempotency_key(key);
    }
    let request = request(trip, call);
    let effect = async |_: runlog_producer::Call| match desk.ask(&request).await {
        Ok(Reply::Ok(value)) => Ended::Done(value.into()),
        Ok(Reply::Refused { kind, message }) => Ended::Failed(Failure { kind, message }),
        Err(error) => Ended::Unknown(format!("the desk did not answer: {error}")),
    };
    let answer = tool.once_or_unknown(effect).await?;
    let heard = match (answer.result, answer.error) {
        (_, Some(error)) => Heard::Error { kind: error.kind, message: error.message },
        (result, None) => Heard::Result(result.map_or(serde_json::Value::Null, |result| result.to_value())),
    };
    Ok(Message::Tool { tool: call.tool.clone(), arguments: call.arguments.clone(), heard })
}

/// Returns the request to the desk for a call.
fn request(trip: &Trip, call: &Call) -> Request {
    let text = |name: &str| call.arguments[name].as_str().unwrap_or_default().to_owned();
    let date = text("date");
    let book =
        |item| Request::Book { item, date: text("date"), customer: trip.passenger.clone(), key: call.key.clone() };
    match call.tool.as_str() {
        "search_flights" => Request::Flights { from: text("from"), to: text("to"), date },
        "search_rooms" => Request::Rooms { city: text("city"), date },
        "get_price" => Request::Price { item: text("flight"), date },
        "book_room" => book(text("room")),
        _ => book(text("flight")),
    }
}
