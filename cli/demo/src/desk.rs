//! The airline desk: a separate program that sells flights and rooms and does not use Runlog.
//!
//! ```text
//!   agent ──a line of JSON──▶ counter ─▶ ledger (append-only file, synced) ─▶ answer
//! ```
//!
//! A booking with a known idempotency key is answered with the existing booking. On request, the desk holds back one
//! customer's next booking, so that the demo can kill an agent at exactly that point.

use crate::error::Error;
use serde::de::DeserializeOwned;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::Semaphore,
};

mod counter;
mod protocol;
mod stock;

pub use counter::Counter;
pub(crate) use protocol::{Booking, Moment, Reply, Request, Totals, read_ledger};

/// Largest number of concurrent connections, so that hundreds of agents in one process stay within its file descriptors.
const CONNECTIONS_MAX: usize = 64;
/// Time limit of an answer.
const WAIT: Duration = Duration::from_secs(120);

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
