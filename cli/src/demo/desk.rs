//! The airline desk: a program of its own that sells flights and rooms and knows nothing of Runlog.
//!
//! ```text
//!   agent ──a line of JSON──▶ server ─▶ ledger (append-only file, fsynced) ─▶ answer
//! ```
//!
//! A booking under an idempotency key that it has seen is answered with the booking there is. Told to, it holds one
//! customer's next booking back: so a demo can see to it that somebody dies at that very point.

use crate::{Error, args, exit::Answer, output};
use runlog_schemas::answer::ErrorKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpListener;

mod client;
mod hold;
mod ledger;
mod server;
mod stock;

pub(super) use client::Desk;
pub(super) use ledger::read;

/// The longest line, bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// What the desk is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Request {
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
    /// Answers once whoever asked for it has hung up.
    HungUp { customer: String },
}

/// Where a booking is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Moment {
    /// Nothing is in the ledger yet, and nothing will be.
    BeforeBooking,
    /// It is in the ledger, and nobody is told.
    AfterBooking,
}

/// What the desk answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Ok(Value),
    Refused { kind: String, message: String },
}

/// A sale.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Booking {
    pub(super) confirmation: String,
    pub(super) item: String,
    pub(super) date: String,
    pub(super) customer: String,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) booking: Booking,
    pub(super) key: Option<String>,
}

/// How much there was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) bookings: u64,
    /// Prices given: one per question that arrived.
    pub(super) prices: u64,
}

/// Runs the desk until stdin closes. Its first line on stdout says where it listens.
pub(crate) fn run(args: &args::DemoDesk) -> Result<Answer, Error> {
    super::process::end_with_parent();
    let failed = |what: &str, error: std::io::Error| Error::new(ErrorKind::Internal, what.to_owned()).because(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("no runtime for the desk", error))?;
    let ledger = ledger::Ledger::create(&args.ledger).map_err(|error| failed("the desk has no ledger", error))?;
    runtime.block_on(async {
        let listener =
            TcpListener::bind("127.0.0.1:0").await.map_err(|error| failed("the desk cannot listen", error))?;
        let address = listener.local_addr().map_err(|error| failed("the desk cannot listen", error))?;
        output::document(&serde_json::json!({ "listening": address }))?;
        server::serve(listener, ledger).await.map_err(|error| failed("the desk cannot listen any more", error))?;
        Ok(Answer::Yes)
    })
}
