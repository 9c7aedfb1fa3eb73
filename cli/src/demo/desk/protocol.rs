//! Requests and answers of the desk, one line of JSON each, and the lines of its ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest line, bytes.
pub(super) const LINE_BYTES_MAX: u64 = 16 << 20;

/// A request to the desk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(in crate::demo) enum Request {
    /// Lists flights.
    Flights { from: String, to: String, date: String },
    /// Lists hotel rooms.
    Rooms { city: String, date: String },
    /// Returns the current price of a flight.
    Price { item: String, date: String },
    /// Books a flight or a room.
    Book { item: String, date: String, customer: String, key: Option<String> },
    /// Returns the booking with an idempotency key.
    ByKey { key: String },
    /// Returns all of a customer's bookings.
    Of { customer: String },
    /// Returns the counts of bookings and price queries.
    Totals,
    /// Holds back the customer's next booking.
    Hold { customer: String, moment: Moment },
    /// Answers when that booking is held.
    Held { customer: String },
    /// Answers when the client of that booking has hung up.
    HungUp { customer: String },
}

/// The point at which a booking is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::demo) enum Moment {
    /// Before the booking is written to the ledger. It will not be written.
    BeforeBooking,
    /// After the booking is in the ledger. It will not be confirmed.
    AfterBooking,
}

/// An answer of the desk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::demo) enum Reply {
    Ok(Value),
    Refused { kind: String, message: String },
}

/// A sale.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::demo) struct Booking {
    pub(in crate::demo) confirmation: String,
    pub(in crate::demo) item: String,
    pub(in crate::demo) date: String,
    pub(in crate::demo) customer: String,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::demo) struct Line {
    #[serde(flatten)]
    pub(in crate::demo) booking: Booking,
    pub(in crate::demo) key: Option<String>,
}

/// Counts of bookings and price queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::demo) struct Totals {
    pub(in crate::demo) bookings: u64,
    /// Returned prices: one per query that arrived.
    pub(in crate::demo) prices: u64,
}
