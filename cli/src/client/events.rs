//! Server-sent events, as the HTML standard's "Parsing an event stream" has them, without reconnecting.

use crate::Error;
use runlog_schemas::answer::ErrorKind;

/// The longest event that is taken, bytes: many times what the largest record is as JSON.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its type; empty is `message`.
    pub(crate) name: String,
    /// Its data lines.
    pub(crate) data: String,
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    response: reqwest::Response,
    url: String,
    parser: Parser,
}

impl Events {
    pub(super) fn new(response: reqwest::Response, url: String) -> Self {
        Self { response, url, parser: Parser::default() }
    }

    /// The next event; none when the server ended the stream. Cancel safe: what was received stays.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.parser.next().map_err(|what| self.broken(what))? {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.parser.push(&bytes),
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.broken("it broke off").because(error.without_url())),
            }
        }
    }

    fn broken(&self, what: &str) -> Error {
        Error::new(ErrorKind::Unavailable, format!("the stream from {} cannot be read on: {what}", self.url))
    }
}

/// Bytes to events.
#[derive(Debug, Default)]
struct Parser {
    bytes: Vec<u8>,
    /// What of `bytes` was looked at.
    at: usize,
    event: Event,
    has_data: bool,
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Event>, &'static str> {
        while let Some(length) = self.bytes[self.at..].iter().position(|byte| *byte == b'\n') {
            let line = &self.bytes[self.at..self.at + length];
            let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.is_empty() {
                self.at += length + 1;
                let event = std::mem::take(&mut self.event);
                if std::mem::take(&mut self.has_data) {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    if self.has_data {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                    self.has_data = true;
                }
                "event" => value.clone_into(&mut self.event.name),
                // A line's own cursor says what `id` says; comments keep the connection alive.
                _ => {}
            }
            self.at += length + 1;
        }
        let held = self.bytes.len() - self.at + self.event.data.len();
        if held > EVENT_BYTES_MAX { Err("an event is larger than any record") } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, chunk: usize) -> Vec<(String, String)> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for bytes in text.as_bytes().chunks(chunk) {
            parser.push(bytes);
            while let Some(event) = parser.next().unwrap() {
                events.push((event.name, event.data));
            }
        }
        events
    }

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text =
            ": hello\n\nid: 1\ndata: {\"a\":\ndata:\"é\"}\n\nevent: end\r\ndata\r\n\r\nevent: lost\n\ndata: half";
        let expected = vec![(String::new(), "{\"a\":\n\"é\"}".to_owned()), ("end".to_owned(), String::new())];
        for chunk in [1, 2, 3, 7, 1000] {
            assert_eq!(parse(text, chunk), expected, "chunks of {chunk}");
        }
    }
}
