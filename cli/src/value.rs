//! The values of arguments: how each is read, and what is refused.

use crate::Error;
use runlog_schemas::{
    answer::ErrorKind,
    canonical,
    id::{Illegal, Offset, PartitionId, RecordId, RunId},
    json::Json,
};
use std::{fmt, str::FromStr, time::Duration};

/// A partition and an offset, `P:O`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) partition: PartitionId,
    pub(crate) offset: Offset,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(partition, offset)| {
            Some(Self { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
        });
        numbers.ok_or_else(|| format!("{text:?} is not PARTITION:OFFSET, such as 3:4711"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition, self.offset)
    }
}

/// A moment that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// Behind the record there.
    Position(Place),
    /// RFC 3339; the server reads it.
    Time(String),
}

impl FromStr for AsOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let begins = |digits: usize| text.len() > digits && text.bytes().take(digits).all(|byte| byte.is_ascii_digit());
        // A year and a hyphen: nothing else of a time is like a position.
        if begins(4) && text.as_bytes().get(4) == Some(&b'-') {
            return Ok(Self::Time(text.to_owned()));
        }
        let place = text.parse().map(Self::Position);
        place.map_err(|_| format!("{text:?} is neither a time, such as 2026-11-22T10:00:00Z, nor PARTITION:OFFSET"))
    }
}

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    Eventual,
    Latest,
    AtLeast(Place),
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "eventual" => Ok(Self::Eventual),
            "latest" => Ok(Self::Latest),
            _ => match text.strip_prefix("at-least=") {
                Some(place) => place.parse().map(Self::AtLeast),
                None => Err(format!("{text:?} is none of eventual, latest and at-least=PARTITION:OFFSET")),
            },
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eventual => f.write_str("eventual"),
            Self::Latest => f.write_str("latest"),
            Self::AtLeast(place) => write!(f, "at-least={place}"),
        }
    }
}

/// The longest wait that can be asked for: beyond it nothing is bounded any more.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration with its unit: `500ms`, `10s`, `2m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{text:?} is not a duration such as 500ms or 10s: {error}"))?;
    if duration.is_zero() || duration > DURATION_MAX {
        return Err(format!("{text:?} is not between 1ms and 24h"));
    }
    Ok(duration)
}

/// A run's id. It is one segment of a URL's path, so it cannot be what a URL takes for a way up.
pub(crate) fn run_id(text: &str) -> Result<RunId, String> {
    segment(text, "a run id")
}

/// A record's id, likewise.
pub(crate) fn record_id(text: &str) -> Result<RecordId, String> {
    segment(text, "a record id")
}

fn segment<T: FromStr<Err = Illegal>>(text: &str, what: &str) -> Result<T, String> {
    match text {
        "" | "." | ".." => Err(format!("{what} cannot be {text:?}")),
        _ => text.parse().map_err(|illegal: Illegal| illegal.to_string()),
    }
}

/// JSON given as the value of `flag`, compact.
pub(crate) fn json(flag: &str, text: &str) -> Result<Json, Error> {
    Json::parse(text).map_err(|error| refused(flag, error))
}

/// JSON that a fingerprint can be taken of, in canonical form: without duplicate keys.
pub(crate) fn arguments(flag: &str, text: &str) -> Result<String, Error> {
    canonical::canonicalize(text).map_err(|error| refused(flag, error))
}

fn refused(flag: &str, error: canonical::Error) -> Error {
    let pointer = error.pointer.clone();
    Error::new(ErrorKind::Invalid, format!("the value of {flag} was not taken"))
        .with("flag", flag)
        .with("pointer", pointer)
        .because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::id::ID_BYTES_MAX;

    #[test]
    fn a_consistency_reads_as_it_prints() {
        for text in ["eventual", "latest", "at-least=3:9223372036854775807"] {
            assert_eq!(text.parse::<Consistency>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "Latest",
            "at-least",
            "at-least=3",
            "at-least=3:-1",
            "at-least=3:9223372036854775808",
            "at-least=2147483648:0",
            "at-least=3:4:5",
            "at-least=:4",
        ] {
            assert!(text.parse::<Consistency>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_needs_a_unit_and_is_bounded() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        for text in ["", "10", "0s", "-1s", "25h", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_id_that_a_url_would_drop_is_refused() {
        assert!(run_id("tau-bench:0:0").is_ok() && run_id("a/../b").is_ok());
        for text in ["", ".", "..", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert!(run_id(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_refused_json_value_names_flag_and_place() {
        let error = arguments("--args", r#"{"a":{"b":1,"b":2}}"#).unwrap_err();
        assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::Invalid, 3));
        let document = error.document();
        assert_eq!((&document["error"]["flag"], &document["error"]["pointer"]), (&"--args".into(), &"/a".into()));
        assert!(json("--done", r#"{"b":1,"b":2}"#).is_ok() && json("--done", "{").is_err());
    }
}
