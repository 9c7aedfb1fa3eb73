//! The airline desk: a separate program that sells flights and rooms and does not use Runlog.
//!
//! ```text
//!   agent ──a line of JSON──▶ counter ─▶ ledger (append-only file, synced) ─▶ answer
//! ```
//!
//! A booking with a known idempotency key is answered with the existing booking. On request, the desk holds back one
//! customer's next booking, so that the demo can kill an agent at exactly that point.

use crate::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::Semaphore,
};

mod counter;
mod stock;

pub use counter::Counter;

/// Largest number of concurrent connections, so that hundreds of agents in one process stay within its file descriptors.
const CONNECTIONS_MAX: usize = 64;
/// Time limit of an answer.
const WAIT: Duration = Duration::from_secs(120);

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

/// A handle to the desk.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) address: SocketAddr,
    connections: Arc<Semaphore>,
}

impl Desk {
    /// Creates a handle without connecting.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Sends a request and waits for the answer. After an error it is unknown whether the desk did it.
    pub(crate) async fn ask(&self, request: &Request) -> io::Result<Reply> {
        let exchange = async {
            let _connection = self.connections.acquire().await.map_err(io::Error::other)?;
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all((serde_json::to_string(request)? + "\n").as_bytes()).await?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).await?;
            if answer.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(serde_json::from_str(&answer)?)
        };
        tokio::time::timeout(WAIT, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends a request that the desk never refuses, and returns the answer.
    pub(crate) async fn expect<T: DeserializeOwned>(&self, request: Request) -> Result<T, Error> {
        match self.ask(&request).await {
            Ok(Reply::Ok(value)) => serde_json::from_value(value).map_err(|error| {
                Error::internal(format!("the desk answered {request:?} with another type of answer")).because(error)
            }),
            Ok(refused) => Err(Error::internal(format!("the desk answered {request:?} with {refused:?}"))),
            Err(error) => Err(Error::unavailable(format!("the desk did not answer {request:?}")).because(error)),
        }
    }
}
