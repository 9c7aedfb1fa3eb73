//! The desk's program: a thread for each connection answers one line of JSON after the other.

use super::{
    protocol::{Booking, Line, Moment, Reply, Request, Totals},
    stock,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Lines, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// The progress of a booking that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The booking has not arrived yet.
    Awaited,
    /// The booking is held.
    Held,
    /// Its customer hung up, which ends it.
    HungUp,
}

#[derive(Debug, Default)]
struct Books {
    lines: Vec<Line>,
    prices: u64,
    /// By customer.
    holds: HashMap<String, (Moment, Stage)>,
}

/// The open desk.
#[derive(Debug)]
pub struct Counter {
    listener: TcpListener,
    ledger: File,
    books: Mutex<Books>,
    /// Notified when a hold changes.
    changed: Condvar,
}

type Customer = Lines<BufReader<TcpStream>>;

impl Counter {
    /// Listens at a free port of this machine. The file of the ledger must not exist.
    pub fn open(ledger: &Path) -> io::Result<Self> {
        let ledger = OpenOptions::new().append(true).create_new(true).open(ledger)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Ok(Self { listener, ledger, books: Mutex::default(), changed: Condvar::new() })
    }

    /// The address of the desk.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until listening fails.
    pub fn serve(self) -> io::Result<()> {
        let counter = Arc::new(self);
        loop {
            let (stream, _) = counter.listener.accept()?;
            let counter = Arc::clone(&counter);
            // An error is expected: a killed agent closes its connection.
            std::thread::Builder::new().spawn(move || counter.serve_connection(stream).ok())?;
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut customer = BufReader::new(stream.try_clone()?).lines();
        while let Some(line) = customer.next() {
            let reply = match serde_json::from_str(&line?) {
                Ok(request) => self.answer(request, &mut customer)?,
                Err(error) => Some(refusal("misunderstood", error.to_string())),
            };
            let Some(reply) = reply else { return Ok(()) };
            stream.write_all((serde_json::to_string(&reply)? + "\n").as_bytes())?;
        }
        Ok(())
    }

    /// Answers a request. Returns `None` if the customer has hung up.
    fn answer(&self, request: Request, line: &mut Customer) -> io::Result<Option<Reply>> {
        let value = match request {
            Request::Flights { from, to, date } => stock::flights(&from, &to, &date),
            Request::Rooms { city, date } => stock::rooms(&city, &date),
            Request::Price { item, date } => {
                let mut books = self.books();
                books.prices += 1;
                stock::price(&item, &date, books.prices)
            }
            Request::Book { item, date, customer, key } => {
                if stock::sold_out(&item) {
                    return Ok(Some(refusal("sold_out", format!("no seat is left on {item}"))));
                }
                let moment = self.moment_to_hold(&customer);
                if moment != Some(Moment::BeforeBooking) {
                    let booking = self.book(item, date, &customer, key)?;
                    if moment.is_none() {
                        return Ok(Some(Reply::Ok(json!(booking))));
                    }
                }
                self.hold(&customer, line);
                return Ok(None);
            }
            Request::Of { customer } => {
                let books = self.books();
                let bookings = books.lines.iter().map(|line| &line.booking);
                json!(bookings.filter(|booking| booking.customer == customer).collect::<Vec<_>>())
            }
            Request::Totals => {
                let books = self.books();
                json!(Totals { bookings: books.lines.len() as u64, prices: books.prices })
            }
            Request::Hold { customer, moment } => {
                self.books().holds.insert(customer, (moment, Stage::Awaited));
                Value::Null
            }
            Request::Held { customer } => json!(self.wait(&customer, Stage::Held)),
            Request::HungUp { customer } => json!(self.wait(&customer, Stage::HungUp)),
        };
        Ok(Some(Reply::Ok(value)))
    }

    /// Books, or finds the booking with the key. The booking is on disk when this returns. After an error it may be on disk.
    fn book(&self, item: String, date: String, customer: &str, key: Option<String>) -> io::Result<Booking> {
        let booking = {
            let mut books = self.books();
            match books.lines.iter().find(|line| key.is_some() && line.key == key) {
                Some(line) => line.booking.clone(),
                None => {
                    let confirmation = confirmation(books.lines.len());
                    let booking = Booking { confirmation, item, date, customer: customer.to_owned() };
                    let line = Line { booking: booking.clone(), key };
                    (&self.ledger).write_all((serde_json::to_string(&line)? + "\n").as_bytes())?;
                    books.lines.push(line);
                    booking
                }
            }
        };
        self.ledger.sync_data()?;
        Ok(booking)
    }

    /// Returns the moment at which the customer's booking must be held, if at all. Only the first booking is held.
    fn moment_to_hold(&self, customer: &str) -> Option<Moment> {
        self.books().holds.get(customer).filter(|(_, stage)| *stage == Stage::Awaited).map(|(moment, _)| *moment)
    }

    /// Waits until the customer hangs up.
    fn hold(&self, customer: &str, line: &mut Customer) {
        self.set_stage(customer, Stage::Held);
        line.map_while(Result::ok).for_each(drop);
        self.set_stage(customer, Stage::HungUp);
    }

    fn set_stage(&self, customer: &str, reached: Stage) {
        if let Some((_, stage)) = self.books().holds.get_mut(customer) {
            *stage = reached;
        }
        self.changed.notify_all();
    }

    /// Waits until the customer's booking reaches the stage. False if no booking is held back.
    fn wait(&self, customer: &str, wanted: Stage) -> bool {
        let earlier = |books: &mut Books| books.holds.get(customer).is_some_and(|(_, stage)| *stage < wanted);
        let books = self.changed.wait_while(self.books(), earlier).unwrap_or_else(PoisonError::into_inner);
        books.holds.contains_key(customer)
    }
}

/// Returns five letters and digits, which are unique among the first 2^25 bookings.
fn confirmation(index: usize) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    // An odd factor permutes the numbers below a power of two.
    let number = (index + 1).wrapping_mul(0x0152_4C35) & ((1 << 25) - 1);
    (0..5).map(|digit| char::from(LETTERS[(number >> (5 * digit)) & 31])).collect()
}

fn refusal(kind: &str, message: String) -> Reply {
    Reply::Refused { kind: kind.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_key_books_once_and_an_answered_booking_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let counter = Counter::open(&path).unwrap();
        let book = |key: Option<&str>| counter.book("a".into(), "d".into(), "c", key.map(str::to_owned)).unwrap();
        let (first, again, other, keyless) = (book(Some("k")), book(Some("k")), book(Some("l")), book(None));
        assert_eq!(first, again);
        assert_eq!(super::super::read_ledger(&path).unwrap(), [first, other, keyless]);
        assert!(Counter::open(&path).is_err(), "a ledger is never started over");
    }

    #[test]
    fn confirmations_do_not_repeat() {
        assert_eq!((0..20_000).map(confirmation).collect::<HashSet<_>>().len(), 20_000);
    }
}
