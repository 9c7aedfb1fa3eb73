//! The desk's ledger: one line of JSON per booking, written to disk before the booking is confirmed.
//!
//! One thread owns the file. It takes all waiting requests, writes their bookings, syncs once, and only then answers. Because it
//! is the only thread, two requests with one key cannot both be booked.

use super::protocol::{Booking, Line};
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::mpsc,
};
use tokio::sync::oneshot;

/// A request to the ledger's thread.
enum Task {
    Book { item: String, date: String, customer: String, key: Option<String>, done: oneshot::Sender<Booking> },
    ByKey { key: String, answer: oneshot::Sender<Option<Booking>> },
    BookingsOf { customer: String, answer: oneshot::Sender<Vec<Booking>> },
    Count { answer: oneshot::Sender<u64> },
}

/// A handle to the thread that owns the file.
#[derive(Clone, Debug)]
pub(super) struct Ledger(mpsc::Sender<Task>);

impl Ledger {
    /// Creates a new ledger. The file must not exist.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        let (sender, tasks) = mpsc::channel();
        let books = Books { file, lines: Vec::new(), by_key: HashMap::new() };
        std::thread::Builder::new().name("ledger".into()).spawn(move || books.keep(&tasks))?;
        Ok(Self(sender))
    }

    /// Books, or finds the booking with the key. Resolves when the booking is on disk. After an error it may be on disk.
    pub(super) async fn book(
        &self,
        item: String,
        date: String,
        customer: String,
        key: Option<String>,
    ) -> io::Result<Booking> {
        self.ask(|done| Task::Book { item, date, customer, key, done }).await
    }

    pub(super) async fn by_key(&self, key: String) -> io::Result<Option<Booking>> {
        self.ask(|answer| Task::ByKey { key, answer }).await
    }

    pub(super) async fn bookings_of(&self, customer: String) -> io::Result<Vec<Booking>> {
        self.ask(|answer| Task::BookingsOf { customer, answer }).await
    }

    pub(super) async fn count(&self) -> io::Result<u64> {
        self.ask(|answer| Task::Count { answer }).await
    }

    async fn ask<T>(&self, task: impl FnOnce(oneshot::Sender<T>) -> Task) -> io::Result<T> {
        let closed = || io::Error::other("the ledger is closed");
        let (sender, answer) = oneshot::channel();
        self.0.send(task(sender)).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())
    }
}

struct Books {
    file: File,
    lines: Vec<Line>,
    by_key: HashMap<String, usize>,
}

impl Books {
    /// Serves requests until all handles are dropped or the disk fails. After a disk failure, waiting requests get no answer.
    fn keep(mut self, tasks: &mpsc::Receiver<Task>) {
        while let Ok(first) = tasks.recv() {
            let group: Vec<Task> = std::iter::once(first).chain(tasks.try_iter()).collect();
            if let Err(error) = self.settle(group) {
                tracing::error!("the desk's ledger cannot be written: {error}");
                return;
            }
        }
    }

    fn settle(&mut self, group: Vec<Task>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut answers = Vec::new();
        for task in group {
            match task {
                Task::Book { item, date, customer, key, done } => {
                    let index = self.book(item, date, customer, key, &mut bytes)?;
                    answers.push((done, index));
                }
                Task::ByKey { key, answer } => {
                    let booking = self.by_key.get(&key).map(|index| self.lines[*index].booking.clone());
                    // A closed receiver, here and below, means that the client hung up.
                    let _ = answer.send(booking);
                }
                Task::BookingsOf { customer, answer } => {
                    let bookings = self.lines.iter().filter(|line| line.booking.customer == customer);
                    let _ = answer.send(bookings.map(|line| line.booking.clone()).collect());
                }
                Task::Count { answer } => {
                    let _ = answer.send(self.lines.len() as u64);
                }
            }
        }
        if !bytes.is_empty() {
            self.file.write_all(&bytes)?;
            self.file.sync_data()?;
        }
        for (done, index) in answers {
            let _ = done.send(self.lines[index].booking.clone());
        }
        Ok(())
    }

    fn book(
        &mut self,
        item: String,
        date: String,
        customer: String,
        key: Option<String>,
        bytes: &mut Vec<u8>,
    ) -> io::Result<usize> {
        if let Some(index) = key.as_ref().and_then(|key| self.by_key.get(key)) {
            return Ok(*index);
        }
        let index = self.lines.len();
        let line = Line { booking: Booking { confirmation: confirmation(index), item, date, customer }, key };
        serde_json::to_writer(&mut *bytes, &line)?;
        bytes.push(b'\n');
        if let Some(key) = &line.key {
            self.by_key.insert(key.clone(), index);
        }
        self.lines.push(line);
        Ok(index)
    }
}

/// Returns five letters and digits, which are unique among the first 2^25 bookings.
fn confirmation(index: usize) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    // An odd factor permutes the numbers below a power of two.
    let number = (index + 1).wrapping_mul(0x0152_4C35) & ((1 << 25) - 1);
    (0..5).map(|digit| char::from(LETTERS[(number >> (5 * digit)) & 31])).collect()
}

/// Reads all lines of a ledger's file.
pub(in crate::demo) fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[tokio::test]
    async fn a_key_books_once_and_what_is_answered_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let ledger = Ledger::create(&path).unwrap();
        let book = |key: Option<&str>| ledger.book("a".into(), "d".into(), "c".into(), key.map(str::to_owned));
        let (first, again) = (book(Some("k")).await.unwrap(), book(Some("k")).await.unwrap());
        let (other, keyless) = (book(Some("l")).await.unwrap(), book(None).await.unwrap());
        assert_eq!(first, again);
        assert_eq!(ledger.by_key("k".into()).await.unwrap(), Some(first.clone()));
        let lines = read(&path).unwrap();
        let booked: Vec<Booking> = lines.into_iter().map(|line| line.booking).collect();
        assert_eq!(booked, [first, other, keyless]);
        assert_eq!(ledger.bookings_of("c".into()).await.unwrap(), booked);
        assert!(Ledger::create(&path).is_err(), "a ledger is never started over");
    }

    #[test]
    fn confirmations_do_not_repeat() {
        assert_eq!((0..20_000).map(confirmation).collect::<HashSet<_>>().len(), 20_000);
    }
}
