//! The only module that prints.
//!
//! ```text
//!   stdout   answers: one JSON document each with --json, otherwise text; errors too with --json
//!   stderr   errors, notes and progress, for people; the log
//! ```

use crate::{
    error::Error,
    text::{Cell, Text, clean, clean_json, clean_line},
};
use serde::Serialize;
use std::{
    cell,
    io::{self, ErrorKind, IsTerminal, Write},
    time::{Duration, Instant},
};

/// How answers are printed.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    colours: bool,
    /// Width at which tables wrap, characters. `None` without a terminal.
    width: Option<u16>,
}

impl Output {
    /// Creates an output. Text on a terminal is coloured, unless `NO_COLOR` is set.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let width = (!json && io::stdout().is_terminal()).then(comfy_table::Table::new).and_then(|table| table.width());
        Self { json, quiet, colours: !json && may_colour(&io::stdout()), width }
    }

    /// Prints an answer: `value` as one line of JSON, or the text of `human`. If the reader of stdout has closed it, the
    /// command continues without output, so that its exit code still reports the answer. `runlog lookup … | head -0` of a
    /// pending call must not end with 0, which means done.
    pub(crate) fn answer<T: Serialize>(&self, value: &T, human: impl FnOnce(&T, &mut Text)) -> Result<(), Error> {
        unless_closed(self.item(value, human))
    }

    /// Prints an item of a stream in the same way. Fails if the reader of stdout has closed it; then the stream ends.
    pub(crate) fn item<T: Serialize>(&self, value: &T, human: impl FnOnce(&T, &mut Text)) -> Result<(), Error> {
        if self.json {
            return document(value);
        }
        let mut text = Text::new(self.colours).wrapped_at(self.width);
        human(value, &mut text);
        write(text.into_string().as_bytes())
    }

    /// Prints a part of an answer at once. With `--json` it prints nothing, because one document follows at the end.
    pub(crate) fn say(&self, human: impl FnOnce(&mut Text)) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut text = Text::new(self.colours).wrapped_at(self.width);
        human(&mut text);
        write(text.into_string().as_bytes())
    }

    /// Prints the answer of a command that has printed its text with `say`. Without `--json` it prints nothing.
    pub(crate) fn conclude<T: Serialize>(&self, value: &T) -> Result<(), Error> {
        if self.json { document(value) } else { Ok(()) }
    }

    /// Prints a note on stderr, unless `--quiet` was given.
    pub(crate) fn note(&self, what: &str) {
        if !self.quiet {
            note(|text| text.line([Cell::from(what).dim()]));
        }
    }

    /// Creates a progress bar for `total` steps of `what`. It is visible if stderr is a terminal.
    pub(crate) fn progress(&self, what: &'static str, total: u64) -> Progress {
        let shown = !self.json && !self.quiet && io::stderr().is_terminal();
        Progress { what, total, done: cell::Cell::new(0), drawn: cell::Cell::new(None), shown }
    }
}

/// Ignores that the reader of stdout has closed it.
pub(crate) fn unless_closed(printed: Result<(), Error>) -> Result<(), Error> {
    printed.or_else(|error| if error.is_output_closed() { Ok(()) } else { Err(error) })
}

/// Prints one document as a line of JSON, regardless of the output format.
pub(crate) fn document<T: Serialize>(value: &T) -> Result<(), Error> {
    let line = serde_json::to_string(value).map_err(|error| {
        Error::new(runlog_schemas::answer::ErrorKind::Internal, "cannot serialise the answer").because(error)
    })?;
    let mut line = clean_json(&line).into_owned();
    line.push('\n');
    write(line.as_bytes())
}

/// Prints bytes unchanged, regardless of the output format: a completion script.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Error> {
    write(bytes)
}

/// Prints the rest of a file of JSON, part by part.
pub(crate) fn json_from(file: &mut impl io::Read) -> Result<(), Error> {
    let failed = |error: io::Error| {
        Error::new(runlog_schemas::answer::ErrorKind::Internal, "cannot read the answer again").because(error)
    };
    let (mut bytes, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = file.read(&mut part).map_err(failed)?;
        bytes.extend_from_slice(part.get(..read).unwrap_or_default());
        let valid = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // The next part contains the rest of the last character.
            Err(error) if error.error_len().is_none() && read > 0 => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => return Err(failed(io::Error::other(error))),
        };
        write(clean_json(valid).as_bytes())?;
        let printed = valid.len();
        bytes.drain(..printed);
        if read == 0 {
            return Ok(());
        }
    }
}

/// Writes log lines to stderr and escapes invisible characters. Each write contains whole lines.
#[derive(Debug)]
pub(crate) struct LogLines {
    json: bool,
}

impl LogLines {
    /// Creates a log writer for lines of JSON or of text.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let clean = if self.json { clean_json(&text) } else { clean_line(&text) };
        io::stderr().lock().write_all(clean.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Prints something for people on stderr.
pub(crate) fn note(human: impl FnOnce(&mut Text)) {
    let mut text = Text::new(may_colour(&io::stderr()));
    human(&mut text);
    complain(text.into_string().as_bytes());
}

/// Prints a question on stderr, without a line end.
pub(crate) fn ask(question: &str) {
    complain(clean(question).as_bytes());
}

/// Prints `error`: as a document with `json`, otherwise for people.
pub(crate) fn error(error: &Error, json: bool) {
    if error.is_output_closed() {
        return;
    }
    if json {
        // If this cannot be printed either, the exit code remains.
        let _ = document(&error.document());
        return;
    }
    let mut text = Text::new(may_colour(&io::stderr()));
    text.error(error.kind().as_str(), &error.chain());
    complain(text.into_string().as_bytes());
}

/// Prints clap's message: help and version on stdout, errors on stderr.
pub(crate) fn clap(message: &clap::Error) {
    // If this cannot be printed, the exit code remains.
    let _ = message.print();
}

fn write(bytes: &[u8]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::output_closed()),
        Err(error) => {
            let kind = runlog_schemas::answer::ErrorKind::Internal;
            Err(Error::new(kind, "cannot write the answer to stdout").because(error))
        }
    }
}

fn complain(bytes: &[u8]) {
    // Ignores a closed stderr, because it cannot be reported.
    let _ = io::stderr().lock().write_all(bytes);
}

/// Returns whether to colour a stream: a terminal, unless `NO_COLOR` or `TERM=dumb` is set.
pub(crate) fn may_colour(stream: &impl IsTerminal) -> bool {
    let is = |name: &str, wanted: fn(&str) -> bool| std::env::var(name).is_ok_and(|value| wanted(&value));
    stream.is_terminal() && !is("NO_COLOR", |value| !value.is_empty()) && !is("TERM", |value| value == "dumb")
}

/// Interval at which a bar is drawn again.
const REDRAW: Duration = Duration::from_millis(100);
/// Width of a bar, characters.
const BAR: u64 = 30;

/// A progress bar on stderr. Dropping it erases it.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    done: cell::Cell<u64>,
    drawn: cell::Cell<Option<Instant>>,
    shown: bool,
}

impl Progress {
    /// Counts `steps` more steps.
    pub(crate) fn advance(&self, steps: u64) {
        self.done.set(self.done.get() + steps);
        if self.shown && self.drawn.get().is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            self.drawn.set(Some(Instant::now()));
            complain(format!("\r{}", self.bar()).as_bytes());
        }
    }

    /// Erases the bar before a line of text. The next step draws it again.
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

    /// Returns one byte per read.
    struct Slow<'b>(&'b [u8]);

    impl io::Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let end = into.len().min(1);
            io::Read::read(&mut self.0, &mut into[..end])
        }
    }

    #[test]
    fn a_character_may_be_in_two_parts_of_a_file() {
        assert!(json_from(&mut Slow("\"ä決\u{200b}\"\n".as_bytes())).is_ok());
        assert!(json_from(&mut Slow(&"ä".as_bytes()[..1])).is_err(), "half a character");
    }

    #[test]
    fn a_bar_fills_as_steps_are_done() {
        let output = Output { json: true, quiet: false, colours: false, width: None };
        let progress = output.progress("runs", 4);
        progress.advance(1);
        assert_eq!(progress.bar(), format!("[{}{}] 1/4 runs", "#".repeat(7), ".".repeat(23)));
        progress.advance(9);
        assert_eq!(progress.bar(), format!("[{}] 4/4 runs", "#".repeat(30)));
    }
}
