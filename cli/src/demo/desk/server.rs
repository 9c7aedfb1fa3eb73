//! The desk's server. On each connection it answers one line of JSON after the other.

use super::{
    hold::{Holds, Stage},
    ledger::Ledger,
    protocol::{LINE_BYTES_MAX, Moment, Reply, Request, Totals},
    stock,
};
use serde_json::{Value, json};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

#[derive(Debug)]
struct Server {
    ledger: Ledger,
    holds: Holds,
    prices: AtomicU64,
}

/// Serves until listening fails.
pub(super) async fn serve(listener: TcpListener, ledger: Ledger) -> io::Result<()> {
    let server = Arc::new(Server { ledger, holds: Holds::default(), prices: AtomicU64::new(0) });
    loop {
        let (stream, _) = listener.accept().await?;
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            if let Err(error) = server.serve_connection(stream).await {
                // Expected: a killed agent closes its connection.
                tracing::debug!("a connection broke off: {error}");
            }
        });
    }
}

impl Server {
    async fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        let (reader, mut writer) = stream.split();
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        loop {
            line.clear();
            if (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let reply = match serde_json::from_str(&line) {
                Ok(request) => self.answer(request, &mut reader).await?,
                Err(error) => Some(refusal("misunderstood", &error.to_string())),
            };
            let Some(reply) = reply else { return Ok(()) };
            let mut bytes = serde_json::to_vec(&reply)?;
            bytes.push(b'\n');
            writer.write_all(&bytes).await?;
        }
    }

    /// Answers a request. Returns `None` if the customer has hung up.
    async fn answer(&self, request: Request, customer: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Reply>> {
        let value = match request {
            Request::Flights { from, to, date } => stock::flights(&from, &to, &date),
            Request::Rooms { city, date } => stock::rooms(&city, &date),
            Request::Price { item, date } => {
                stock::price(&item, &date, self.prices.fetch_add(1, Ordering::Relaxed) + 1)
            }
            Request::Book { .. } => return self.book(request, customer).await,
            Request::ByKey { key } => serde_json::to_value(self.ledger.by_key(key).await?)?,
            Request::Of { customer } => serde_json::to_value(self.ledger.bookings_of(customer).await?)?,
            Request::Totals => {
                let prices = self.prices.load(Ordering::Relaxed);
                serde_json::to_value(Totals { bookings: self.ledger.count().await?, prices })?
            }
            Request::Hold { customer, moment } => {
                self.holds.expect(customer, moment);
                Value::Null
            }
            Request::Held { customer } => json!(self.holds.wait(&customer, Stage::Held).await),
            Request::HungUp { customer } => json!(self.holds.wait(&customer, Stage::HungUp).await),
        };
        Ok(Some(Reply::Ok(value)))
    }

    async fn book(&self, request: Request, line: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Reply>> {
        let Request::Book { item, date, customer, key } = request else { return Ok(None) };
        if stock::sold_out(&item) {
            return Ok(Some(refusal("sold_out", &format!("no seat is left on {item}"))));
        }
        let hold_moment = self.holds.moment_to_hold(&customer);
        if hold_moment == Some(Moment::BeforeBooking) {
            self.hold(&customer, line).await;
            return Ok(None);
        }
        let booking = self.ledger.book(item, date, customer.clone(), key).await?;
        if hold_moment == Some(Moment::AfterBooking) {
            self.hold(&customer, line).await;
            return Ok(None);
        }
        Ok(Some(Reply::Ok(serde_json::to_value(booking)?)))
    }

    /// Waits until the customer hangs up.
    async fn hold(&self, customer: &str, line: &mut (impl AsyncRead + Unpin)) {
        self.holds.set_stage(customer, Stage::Held);
        let mut ignored = [0; 64];
        while matches!(line.read(&mut ignored).await, Ok(read) if read > 0) {}
        self.holds.set_stage(customer, Stage::HungUp);
    }
}

fn refusal(kind: &str, message: &str) -> Reply {
    Reply::Refused { kind: kind.to_owned(), message: message.to_owned() }
}
