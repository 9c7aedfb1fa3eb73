//! The target of a request: a path and a query, percent-encoded by RFC 3986.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path below the server's URL, with its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target(String);

impl Target {
    /// Starts at a path that needs no encoding.
    pub(crate) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// A path below one run.
    pub(crate) fn run(run_id: impl AsRef<str>) -> Self {
        Self::new("/v1/runs").segment(run_id)
    }

    /// Adds one segment, encoded.
    #[must_use]
    pub(crate) fn segment(mut self, segment: impl AsRef<str>) -> Self {
        self.0.push('/');
        self.0.extend(utf8_percent_encode(segment.as_ref(), RESERVED));
        self
    }

    /// Adds a path that needs no encoding.
    #[must_use]
    pub(crate) fn path(mut self, path: &str) -> Self {
        self.0.push_str(path);
        self
    }

    /// Adds a query parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), RESERVED));
        self
    }

    /// Adds a query parameter if it has a value.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a query parameter `true` if the flag is set.
    #[must_use]
    pub(crate) fn with_flag(self, name: &str, is_so: bool) -> Self {
        self.with_some(name, is_so.then_some("true"))
    }

    /// Sets the time limit of the server.
    #[must_use]
    pub(crate) fn deadline(self, deadline: Duration) -> Self {
        self.with("deadline_ms", deadline.as_millis())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_stays_one_segment() {
        let target = Target::run("a/b:c?d#e %2F\u{e9}\t").path("/records");
        assert_eq!(target.as_str(), "/v1/runs/a%2Fb%3Ac%3Fd%23e%20%252F%C3%A9%09/records");
        // The URL parser does not change it.
        let url = reqwest::Url::parse(&format!("http://h{}", target.as_str())).unwrap();
        assert_eq!(url.path(), target.as_str());
    }

    #[test]
    fn parameters_are_encoded_and_absent_ones_left_out() {
        let target = Target::new("/v1/x")
            .with("consistency", "at-least=1:2")
            .with_some("cursor", None::<&str>)
            .with_flag("raw", false)
            .with_flag("full", true)
            .with("args", r#"{"a":"b+c&d"}"#)
            .deadline(Duration::from_millis(1500));
        assert_eq!(
            target.as_str(),
            "/v1/x?consistency=at-least%3D1%3A2&full=true&args=%7B%22a%22%3A%22b%2Bc%26d%22%7D&deadline_ms=1500"
        );
    }
}
