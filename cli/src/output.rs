//! The only module that prints.
//!
//! ```text
//!   stdout   answers: one JSON document each with --json, otherwise text; errors too with --json
//!   stderr   errors, notes and progress, for people; the log
//! ```

use crate::{Error, text::Text};
use serde::Serialize;
use std::{
    cell::Cell,
    io::{self, ErrorKind, IsTerminal, Write},
    time::{Duration, Instant},
};

/// How answers are printed.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    colours: bool,
}

impl Output {
    /// Text is coloured where a terminal reads it, unless `NO_COLOR` says no.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet, colours: !json && may_colour(&io::stdout()) }
    }

    /// Prints an answer: `value` as one line of JSON, or what `human` makes of it.
    pub(crate) fn answer<T: Serialize>(&self, value: &T, human: impl FnOnce(&T, &mut Text)) -> Result<(), Error> {
        if self.json {
            return document(value);
        }
        let mut text = Text::new(self.colours);
        human(value, &mut text);
        write(text.into_string().as_bytes())
    }

    /// Says something on the way to an answer; with `--json` nothing, for there is one document in the end.
    pub(crate) fn say(&self, human: impl FnOnce(&mut Text)) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut text = Text::new(self.colours);
        human(&mut text);
        write(text.into_string().as_bytes())
    }

    /// Prints the answer of a command that has said everything else on the way: nothing but with `--json`.
    pub(crate) fn conclude<T: Serialize>(&self, value: &T) -> Result<(), Error> {
        if self.json { document(value) } else { Ok(()) }
    }

    /// A bar for `total` steps of `what`, where somebody can see it.
    pub(crate) fn progress(&self, what: &'static str, total: u64) -> Progress {
        let shown = !self.json && !self.quiet && io::stderr().is_terminal();
        Progress { what, total, done: Cell::new(0), drawn: Cell::new(None), shown }
    }
}

/// Prints one document, whatever the form of other answers: a line of JSON.
pub(crate) fn document<T: Serialize>(value: &T) -> Result<(), Error> {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        Error::new(runlog_schemas::answer::ErrorKind::Internal, "the answer does not serialise").because(error)
    })?;
    line.push(b'\n');
    write(&line)
}

/// Prints `error`: as a document with `json`, otherwise for people.
pub(crate) fn error(error: &Error, json: bool) {
    if error.is_output_closed() {
        return;
    }
    if json {
        // Where this cannot be printed either, the exit code is all there is to tell.
        let _ = document(&error.document());
        return;
    }
    let mut text = Text::new(may_colour(&io::stderr()));
    text.error(error.kind().as_str(), &error.chain());
    complain(text.into_string().as_bytes());
}

/// Prints what clap has to say about the command line: help and version on stdout, errors on stderr.
pub(crate) fn clap(message: &clap::Error) {
    // Where this cannot be printed, the exit code is all there is to tell.
    let _ = message.print();
}

fn write(bytes: &[u8]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::output_closed()),
        Err(error) => {
            let kind = runlog_schemas::answer::ErrorKind::Internal;
            Err(Error::new(kind, "the answer could not be written to stdout").because(error))
        }
    }
}

fn complain(bytes: &[u8]) {
    // Nobody is left to tell that stderr is closed.
    let _ = io::stderr().lock().write_all(bytes);
}

/// Whether somebody wants colours there: a terminal, unless `NO_COLOR` or `TERM=dumb` say no.
pub(crate) fn may_colour(stream: &impl IsTerminal) -> bool {
    let is = |name: &str, wanted: fn(&str) -> bool| std::env::var(name).is_ok_and(|value| wanted(&value));
    stream.is_terminal() && !is("NO_COLOR", |value| !value.is_empty()) && !is("TERM", |value| value == "dumb")
}

/// How often a bar is drawn again.
const REDRAW: Duration = Duration::from_millis(100);
/// How wide a bar is, characters.
const BAR: u64 = 30;

/// How far something is, on stderr. Gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    done: Cell<u64>,
    drawn: Cell<Option<Instant>>,
    shown: bool,
}

impl Progress {
    /// Another `steps` are done.
    pub(crate) fn advance(&self, steps: u64) {
        self.done.set(self.done.get() + steps);
        if self.shown && self.drawn.get().is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            self.drawn.set(Some(Instant::now()));
            complain(format!("\r{}", self.bar()).as_bytes());
        }
    }

    /// Makes room for a line of text; the next step draws the bar again.
    pub(crate) fn clear(&self) {
        if self.drawn.take().is_some() {
            complain(b"\r\x1b[K");
        }
    }

    fn bar(&self) -> String {
        let (done, total) = (self.done.get().min(self.total), self.total.max(1));
        let full = (BAR * done / total) as usize;
        let (filled, left) = ("#".repeat(full), ".".repeat(BAR as usize - full));
        format!("[{filled}{left}] {done}/{} {}", self.total, self.what)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_as_steps_are_done() {
        let output = Output { json: true, quiet: false, colours: false };
        let progress = output.progress("runs", 4);
        progress.advance(1);
        assert_eq!(progress.bar(), format!("[{}{}] 1/4 runs", "#".repeat(7), ".".repeat(23)));
        progress.advance(9);
        assert_eq!(progress.bar(), format!("[{}] 4/4 runs", "#".repeat(30)));
    }
}
