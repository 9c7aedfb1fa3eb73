//! The scripted model of an agent. Its next request depends only on its trip and on the conversation so far. So an agent that
//! resumes with the messages of its checkpoint makes the same requests as before.
//!
//! ```text
//!   search ─▶ price ─▶ price again ─▶ book ──▶ (room) ─▶ done
//!               ▲                      │
//!               └── the next flight ◀──┘ sold out
//! ```

use crate::dice::Dice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Number of price queries before a booking: calls with the same arguments.
const PRICE_POLLS: usize = 2;

const AIRPORTS: [&str; 12] = ["BER", "LIS", "OSL", "VIE", "MAD", "WAW", "ATH", "CPH", "DUB", "PRG", "ZRH", "RIX"];
const FIRST: [&str; 10] = ["Ada", "Bo", "Chidi", "Dilek", "Edda", "Femi", "Grace", "Hana", "Ines", "Jonas"];
const LAST: [&str; 10] =
    ["Achebe", "Berg", "Costa", "Duarte", "Eriksen", "Fischer", "Goyal", "Haddad", "Ito", "Jansen"];

/// The task of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    pub(crate) number: u32,
    pub(crate) run_id: String,
    pub(crate) passenger: String,
    /// Whether its bookings carry an idempotency key.
    pub(crate) keyed: bool,
    from: &'static str,
    to: &'static str,
    date: String,
    room: bool,
}

/// A message of the conversation, as checkpoints keep it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(crate) enum Message {
    User { content: String },
    Assistant { content: String, calls: Vec<Call> },
    Tool { tool: String, arguments: Value, heard: Heard },
}

/// A call that the model requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) key: Option<String>,
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Heard {
    Result(Value),
    Error { kind: String, message: String },
}

/// The next step of the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Calls that do not depend on each other.
    Calls { says: String, calls: Vec<Call> },
    /// The end of the trip.
    Done { says: String },
}

impl Trip {
    /// Creates trip `number` of a demo with this seed. `keyed` decides whether there are idempotency keys; `None` is random.
    pub(crate) fn new(seed: u64, number: u32, keyed: Option<bool>) -> Self {
        let mut dice = Dice::new(seed, number.into());
        let from = dice.below(AIRPORTS.len() as u32) as usize;
        let to = (from + 1 + dice.below(AIRPORTS.len() as u32 - 1) as usize) % AIRPORTS.len();
        let chance = dice.below(2) == 0;
        Self {
            number,
            run_id: format!("trip-{number:04}"),
            passenger: format!("{} {} ({number:04})", dice.pick(&FIRST), dice.pick(&LAST)),
            keyed: keyed.unwrap_or(chance),
            from: AIRPORTS[from],
            to: AIRPORTS[to],
            date: format!("2027-{:02}-{:02}", 1 + dice.below(12), 1 + dice.below(28)),
            room: dice.below(3) == 0,
        }
    }

    /// Returns the user's first message.
    pub(crate) fn wish(&self) -> String {
        let room = if self.room { " and a room for the night" } else { "" };
        format!("{} needs a flight from {} to {} on {}{room}.", self.passenger, self.from, self.to, self.date)
    }

    /// Returns the model's next step after the conversation.
    pub(crate) fn next(&self, messages: &[Message]) -> Step {
        let Some(flights) = result_list(messages, "search_flights") else { return self.search() };
        let refused =
            tool_answers(messages, "book_flight").filter(|(_, heard)| matches!(heard, Heard::Error { .. })).count();
        let booked = tool_answers(messages, "book_flight").count() > refused;
        if !booked {
            return match flights.get(refused).and_then(|flight| flight["flight"].as_str()) {
                Some(flight) => self.book(flight, messages),
                None => Step::Done { says: format!("No seat from {} to {} that day.", self.from, self.to) },
            };
        }
        let room = result_list(messages, "search_rooms").and_then(|rooms| rooms.first()?["room"].as_str());
        match room.filter(|_| self.room && tool_answers(messages, "book_room").count() == 0) {
            Some(room) => {
                let arguments = json!({"room": room, "date": self.date, "guest": self.passenger});
                Step::Calls {
                    says: format!("The flight is booked; {room} too."),
                    calls: vec![self.booking("book_room", room, arguments)],
                }
            }
            None => Step::Done { says: format!("{} flies to {}. Have a good trip!", self.passenger, self.to) },
        }
    }

    fn search(&self) -> Step {
        let flights = json!({"from": self.from, "to": self.to, "date": self.date});
        let mut calls = vec![call("search_flights", flights)];
        if self.room {
            calls.push(call("search_rooms", json!({"city": self.to, "date": self.date})));
        }
        Step::Calls { says: "Let me see what there is.".into(), calls }
    }

    /// Requests the price [`PRICE_POLLS`] times, then books.
    fn book(&self, flight: &str, messages: &[Message]) -> Step {
        let polls = tool_answers(messages, "get_price").filter(|(arguments, _)| arguments["flight"] == flight).count();
        if polls < PRICE_POLLS {
            let says = if polls == 0 { format!("What does {flight} cost?") } else { "Is that still the price?".into() };
            return Step::Calls { says, calls: vec![call("get_price", json!({"flight": flight, "date": self.date}))] };
        }
        let arguments = json!({"flight": flight, "date": self.date, "passenger": self.passenger});
        Step::Calls { says: format!("I take {flight}."), calls: vec![self.booking("book_flight", flight, arguments)] }
    }

    fn booking(&self, tool: &str, item: &str, arguments: Value) -> Call {
        let key = self.keyed.then(|| format!("{}/{item}/{}", self.run_id, self.date));
        Call { key, ..call(tool, arguments) }
    }
}

fn call(tool: &str, arguments: Value) -> Call {
    Call { tool: tool.to_owned(), arguments, key: None }
}

/// Returns the answers of `tool` with the arguments of their calls.
fn tool_answers<'a>(messages: &'a [Message], tool: &'a str) -> impl Iterator<Item = (&'a Value, &'a Heard)> {
    messages.iter().filter_map(move |message| match message {
        Message::Tool { tool: name, arguments, heard } if name == tool => Some((arguments, heard)),
        _ => None,
    })
}

/// Returns the list from the result of `tool`.
fn result_list<'a>(messages: &'a [Message], tool: &'a str) -> Option<&'a Vec<Value>> {
    tool_answers(messages, tool).find_map(|(_, heard)| match heard {
        Heard::Result(list) => list.as_array(),
        Heard::Error { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(trip: &Trip, sold_out: usize) -> Vec<String> {
        let (mut messages, mut tools) = (Vec::new(), Vec::new());
        while let Step::Calls { calls, .. } = trip.next(&messages) {
            for Call { tool, arguments, .. } in calls {
                let refused = tool == "book_flight" && tools.iter().filter(|name| **name == tool).count() < sold_out;
                let heard = if refused {
                    Heard::Error { kind: "sold_out".into(), message: String::new() }
                } else {
                    Heard::Result(json!([{"flight": "A 1", "room": "R"}, {"flight": "B 2"}]))
                };
                tools.push(tool.clone());
                messages.push(Message::Tool { tool, arguments, heard });
            }
        }
        tools
    }

    #[test]
    fn a_price_is_polled_twice_and_a_flight_that_is_sold_out_gives_way_to_the_next() {
        let trip = Trip { room: false, ..Trip::new(1, 1, None) };
        let once = ["search_flights", "get_price", "get_price", "book_flight"];
        assert_eq!(play(&trip, 0), once);
        assert_eq!(play(&trip, 1), [&once[..], &once[1..]].concat());
        assert_eq!(play(&trip, 2), [&once[..], &once[1..]].concat(), "there are but two flights");
        let with_room = Trip { room: true, ..trip };
        let expected = ["search_flights", "search_rooms", "get_price", "get_price", "book_flight", "book_room"];
        assert_eq!(play(&with_room, 0), expected);
    }

    #[test]
    fn a_trip_follows_from_seed_and_number() {
        assert_eq!(Trip::new(7, 3, None), Trip::new(7, 3, None));
        assert_ne!(Trip::new(7, 3, None).wish(), Trip::new(8, 3, None).wish());
        assert!((0..200).all(|number| {
            let trip = Trip::new(1, number, Some(true));
            trip.from != trip.to && trip.keyed
        }));
    }
}
