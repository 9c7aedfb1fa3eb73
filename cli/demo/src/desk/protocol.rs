//! The requests and answers of the desk, and the lines of its ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{io, path::Path};

/// A request to the desk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Lists flights.
    Flights { from: String, to: String, date: String },
    /// Lists hotel rooms.
    Rooms { city: String, date: String },
    /// Returns the current price of a flight.
    Price { item: String, date: String },
    /// Books a flight or a room.
    Book { item: String, date: String, customer: String, key: Option<String> },
    /// Returns all of a customer's bookings.
    Of { customer: String },
    /// Returns the counts of bookings and price queries.
    Totals,
    /// Holds back the customer's next booking.
    Hold { customer: String, moment: Moment },
    /// Answers when that booking is held.
    Held { customer: String },
    /// Answers when the client of that booking has hung up: the booking will not continue.
    HungUp { customer: String },
}

/// The point at which a booking is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Moment {
    /// Before the booking is written to the ledger. It will not be written.
    BeforeBooking,
    /// After the booking is in the ledger. It will not be confirmed.
    AfterBooking,
}

/// An answer of the desk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Ok(Value),
    Refused { kind: String, message: String },
}

/// A sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booking {
    pub(crate) confirmation: String,
    pub(crate) item: String,
    pub(crate) date: String,
    pub(crate) customer: String,
}

/// A line of the ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) booking: Booking,
    pub(crate) key: Option<String>,
}

/// Reads all bookings of a ledger's file.
pub(crate) fn read_ledger(path: &Path) -> io::Result<Vec<Booking>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str::<Line>(line)?.booking)).collect()
}

/// Counts of bookings and price queries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) bookings: u64,
    /// Returned prices: one per query that arrived.
    pub(crate) prices: u64,
}
