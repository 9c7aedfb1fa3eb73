//! Reads the lines of a file or of stdin on a separate thread, because reading blocks.

use crate::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};
use tokio::sync::mpsc;

/// The longest line that is accepted, bytes: many times the largest record as JSON.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Number of lines that are read ahead.
const AHEAD: usize = 256;

/// A line and its number, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) text: String,
}

/// Starts to read. The channel closes at the end of the input.
pub(super) fn open(file: &Path) -> Result<mpsc::Receiver<Result<Numbered, Error>>, Error> {
    let source: Box<dyn Read + Send> = if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let path = file.display().to_string();
        let unreadable = |error| Error::new(ErrorKind::Invalid, format!("cannot read {path}")).because(error);
        Box::new(File::open(file).map_err(|error| unreadable(error).with("file", path.as_str()))?)
    };
    let (sender, receiver) = mpsc::channel(AHEAD);
    let thread = std::thread::Builder::new().name("runlog-lines".into());
    thread
        .spawn(move || read(BufReader::new(source), |line| sender.blocking_send(line).is_ok()))
        .map_err(|error| Error::new(ErrorKind::Internal, "cannot start a thread to read the input").because(error))?;
    Ok(receiver)
}

/// Passes each line to `pass`, until the input ends, a line cannot be read, or `pass` returns false.
fn read(mut source: impl BufRead, mut pass: impl FnMut(Result<Numbered, Error>) -> bool) {
    for number in 1.. {
        let mut bytes = Vec::new();
        let failed = |what: &str| Error::new(ErrorKind::Invalid, format!("line {number} {what}")).with("line", number);
        let line = match source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
            Ok(0) => return,
            Ok(count) if count as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n") => {
                Err(failed("is longer than any record"))
            }
            Ok(_) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Numbered { number, text: without_mark(number, text) }),
                Err(error) => Err(failed("is not UTF-8").because(error)),
            },
            Err(error) => Err(failed("cannot be read").because(error)),
        };
        let last = line.is_err();
        if !pass(line) || last {
            return;
        }
    }
}

/// Removes the byte order mark that some editors write before the first line of a file.
fn without_mark(number: u64, text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(rest) if number == 1 => rest.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<Result<String, String>> {
        let mut lines = Vec::new();
        read(input, |line| {
            lines.push(line.map(|line| format!("{} {}", line.number, line.text)).map_err(|error| error.to_string()));
            true
        });
        lines
    }

    #[test]
    fn lines_are_numbered_and_the_last_needs_no_end() {
        assert_eq!(lines(b"a\n\nb"), [Ok("1 a\n".into()), Ok("2 \n".into()), Ok("3 b".into())]);
    }

    #[test]
    fn reading_ends_at_a_line_that_is_no_text() {
        assert_eq!(lines(b"a\n\xff\nb\n"), [Ok("1 a\n".into()), Err("line 2 is not UTF-8".into())]);
    }
}
