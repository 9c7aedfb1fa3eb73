//! Requests and answers of the desk, one line of JSON each, and the lines of its ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest line, bytes.
pub(super) const LINE_BYTES_MAX: u64 = 16 << 20;

/// What the desk is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(in crate::demo) enum Request {
    /// What flies.
    Flights { from: String, to: String, date: String },
    /// Where one can sleep.
    Rooms { city: String, date: String },
    /// What a flight costs now.
    Price { item: String, date: String },
    /// Sell.
    Book { item: String, date: String, customer: String, key: Option<String> },
    /// The booking under an idempotency key.
    ByKey { key: String },
    /// All of a customer's bookings.
    Of { customer: String },
    /// How much there was to do.
    Totals,
    /// Hold the customer's next booking back.
    Hold { customer: String, moment: Moment },
    /// Answers once that booking is held.
    Held { customer: String },
    /// Answers once the client that asked for it has hung up.
    HungUp { customer: String },
}

/// Where a booking is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::demo) enum Moment {
    /// Nothing is in the ledger yet, and nothing will be.
    BeforeBooking,
    /// It is in the ledger, and not confirmed.
    AfterBooking,
}

/// What the desk answers.
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

/// How much there was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::demo) struct Totals {
    pub(in crate::demo) bookings: u64,
    /// Prices given: one per question that arrived.
    pub(in crate::demo) prices: u64,
}
