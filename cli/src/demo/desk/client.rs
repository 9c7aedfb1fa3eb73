//! The client of the desk.

use super::protocol::{Booking, LINE_BYTES_MAX, Moment, Reply, Request, Totals};
use crate::Error;
use runlog_schemas::answer::ErrorKind;
use serde::de::DeserializeOwned;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::Semaphore,
};

/// Largest number of concurrent connections, so that hundreds of agents in one process stay within its file descriptors.
const CONNECTIONS_MAX: usize = 64;

/// A handle to the desk.
#[derive(Clone, Debug)]
pub(in crate::demo) struct Desk {
    address: SocketAddr,
    connections: Arc<Semaphore>,
}

impl Desk {
    /// Creates a handle without connecting.
    pub(in crate::demo) fn new(address: SocketAddr) -> Self {
        Self { address, connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    pub(in crate::demo) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request and waits for the answer. After an error it is unknown whether the desk did it.
    pub(in crate::demo) async fn ask(&self, request: &Request, wait: Duration) -> io::Result<Reply> {
        let exchange = async {
            let _connection = self.connections.acquire().await.map_err(io::Error::other)?;
            let mut stream = TcpStream::connect(self.address).await?;
            let mut line = serde_json::to_vec(request)?;
            line.push(b'\n');
            stream.write_all(&line).await?;
            let mut answer = String::new();
            BufReader::new(stream).take(LINE_BYTES_MAX).read_line(&mut answer).await?;
            if answer.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(serde_json::from_str(&answer)?)
        };
        tokio::time::timeout(wait, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Returns all bookings of a customer.
    pub(in crate::demo) async fn bookings_of(&self, customer: &str, wait: Duration) -> Result<Vec<Booking>, Error> {
        self.expect(Request::Of { customer: customer.to_owned() }, wait).await
    }

    pub(in crate::demo) async fn by_key(&self, key: &str, wait: Duration) -> Result<Option<Booking>, Error> {
        self.expect(Request::ByKey { key: key.to_owned() }, wait).await
    }

    pub(in crate::demo) async fn totals(&self, wait: Duration) -> Result<Totals, Error> {
        self.expect(Request::Totals, wait).await
    }

    /// Makes the desk hold back the customer's next booking.
    pub(in crate::demo) async fn hold(&self, customer: &str, moment: Moment, wait: Duration) -> Result<(), Error> {
        self.expect(Request::Hold { customer: customer.to_owned(), moment }, wait).await
    }

    /// Waits until the desk holds that booking.
    pub(in crate::demo) async fn wait_until_held(&self, customer: &str, wait: Duration) -> Result<(), Error> {
        self.wait_for_stage(Request::Held { customer: customer.to_owned() }, wait).await
    }

    /// Waits until the desk has seen the client of that booking hang up: the booking will not continue.
    pub(in crate::demo) async fn wait_until_hung_up(&self, customer: &str, wait: Duration) -> Result<(), Error> {
        self.wait_for_stage(Request::HungUp { customer: customer.to_owned() }, wait).await
    }

    async fn wait_for_stage(&self, request: Request, wait: Duration) -> Result<(), Error> {
        match self.expect(request.clone(), wait).await? {
            true => Ok(()),
            false => Err(unexpected(format!("{request:?}: no such booking is held back"))),
        }
    }

    async fn expect<T: DeserializeOwned>(&self, request: Request, wait: Duration) -> Result<T, Error> {
        match self.ask(&request, wait).await {
            Ok(Reply::Ok(value)) => serde_json::from_value(value).map_err(|error| {
                unexpected(format!("the desk answered {request:?} with another type of answer")).because(error)
            }),
            Ok(refused) => Err(unexpected(format!("the desk answered {request:?} with {refused:?}"))),
            Err(error) => {
                let what = format!("the desk did not answer {request:?} within {} s", wait.as_secs());
                Err(Error::new(ErrorKind::Unavailable, what).because(error))
            }
        }
    }
}

fn unexpected(what: String) -> Error {
    Error::new(ErrorKind::Internal, what)
}
