//! The client's end: stdin and stdout, each with a thread and a bounded queue.

use super::message::LINE_BYTES_MAX;
use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    thread,
};
use tokio::sync::{mpsc, oneshot};

/// Lines that wait in a queue.
pub(crate) const LINES_MAX: usize = 64;

/// A line for the client, and a note for when it is written.
pub(crate) type ToClient = (String, Option<Box<dyn FnOnce() + Send>>);

/// Reads lines until the client closes its end. The last item is the reason, unless that is the end.
pub(crate) fn read() -> mpsc::Receiver<io::Result<String>> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        loop {
            match next_line(&mut input) {
                Ok(None) => return,
                Ok(Some(line)) if line.trim().is_empty() => {}
                line => {
                    let is_last = line.is_err();
                    if sender.blocking_send(line.map(Option::unwrap_or_default)).is_err() || is_last {
                        return;
                    }
                }
            }
        }
    });
    lines
}

/// Reads a line without its end. `None` at the end of the input; a last line without an end is incomplete.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        let too_long = || io::Error::other(format!("a message is longer than {LINE_BYTES_MAX} bytes"));
        return if line.len() < LINE_BYTES_MAX { Ok(None) } else { Err(too_long()) };
    }
    String::from_utf8(line).map(Some).map_err(io::Error::other)
}

/// Writes lines, each flushed, until the queue is closed and empty, or the client has closed its end. Then the receiver resolves.
pub(crate) fn write() -> (mpsc::Sender<ToClient>, oneshot::Receiver<()>) {
    let (sender, mut lines) = mpsc::channel::<ToClient>(LINES_MAX);
    let (ended, has_ended) = oneshot::channel::<()>();
    thread::spawn(move || {
        // Dropped at the end of the thread.
        let _ended = ended;
        let mut output = io::stdout();
        while let Some((line, note)) = lines.blocking_recv() {
            let written = output.write_all(format!("{line}\n").as_bytes()).and_then(|()| output.flush());
            if written.is_err() {
                return;
            }
            if let Some(note) = note {
                note();
            }
        }
    });
    (sender, has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_its_end_is_no_message() {
        let mut input = &b"{}\n{\"method\":\"tools/call\"}"[..];
        assert_eq!(next_line(&mut input).unwrap(), Some("{}".to_owned()));
        assert_eq!(next_line(&mut input).unwrap(), None);
    }
}
