//! Parses and checks the values of arguments.

use crate::error::Error;
use runlog_schemas::{
    answer::ErrorKind,
    canonical,
    id::{Fingerprint, Illegal, LogId, Offset, PartitionId, RecordId, RunId, split_log},
    json::Json,
    judge::lifecycle::EffectKind,
};
use runlog_server::auth::token_file::Scope;
use std::{fmt, str::FromStr, time::Duration};

/// A position in the log, `PARTITION:OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) partition: PartitionId,
    pub(crate) offset: Offset,
}

impl FromStr for LogPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(partition, offset)| {
            Some(Self { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
        });
        numbers.ok_or_else(|| "expected PARTITION:OFFSET, such as 3:4711".to_owned())
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition, self.offset)
    }
}

/// A position, and the log that it belongs to: `PARTITION:OFFSET`, or `PARTITION:OFFSET@LOG`. A server refuses the position of
/// another log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) position: LogPosition,
    pub(crate) log: Option<LogId>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (position, log) = split_log(text);
        let log = log.map(|log| log.parse().map_err(|illegal: Illegal| illegal.to_string())).transpose()?;
        Ok(Self { position: position.parse()?, log })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.log {
            Some(log) => write!(f, "{}@{log}", self.position),
            None => self.position.fmt(f),
        }
    }
}

/// Parses the author or the reason of a decision: a text that is not blank.
pub(crate) fn statement(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("expected a text that is not blank".to_owned()) } else { Ok(text.to_owned()) }
}

/// A position or time to answer for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// The position, inclusive.
    Position(Place),
    /// An RFC 3339 time, parsed by the server.
    Time(String),
}

impl FromStr for AsOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let begins = |digits: usize| text.len() > digits && text.bytes().take(digits).all(|byte| byte.is_ascii_digit());
        // Four digits and a hyphen start a time, never a position.
        if begins(4) && text.as_bytes().get(4) == Some(&b'-') {
            return Ok(Self::Time(text.to_owned()));
        }
        let position = text.parse().map(Self::Position);
        position.map_err(|_| {
            "expected PARTITION:OFFSET, such as 3:4711, or a time, such as 2026-11-22T10:00:00Z".to_owned()
        })
    }
}

/// The freshness of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
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
                Some(position) => position.parse().map(Self::AtLeast),
                None => Err("expected eventual, latest or at-least=PARTITION:OFFSET".to_owned()),
            },
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eventual => f.write_str("eventual"),
            Self::Latest => f.write_str("latest"),
            Self::AtLeast(position) => write!(f, "at-least={position}"),
        }
    }
}

/// The longest accepted time limit.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest duration of a token.
const LONG_DURATION_MAX: Duration = Duration::from_secs(3653 * 24 * 60 * 60);

/// Parses a duration with its unit: `500ms`, `10s`, `2m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("expected a duration with a unit, such as 500ms or 10s: {error}"))?;
    if duration.is_zero() || duration > DURATION_MAX {
        return Err("expected between 1ms and 24h".to_owned());
    }
    Ok(duration)
}

/// Parses a duration of at least a second and at most ten years.
pub(crate) fn long_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("expected a duration with a unit, such as 12h or 90d: {error}"))?;
    if duration < Duration::from_secs(1) || duration > LONG_DURATION_MAX {
        return Err("expected between 1s and 10years".to_owned());
    }
    Ok(duration)
}

/// Parses a scope of a token.
pub(crate) fn scope(text: &str) -> Result<Scope, String> {
    text.parse().map_err(|_| {
        let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// The earliest time of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Milliseconds since the Unix epoch.
    Time(u64),
    /// This long before now.
    Ago(Duration),
}

impl Since {
    /// Milliseconds since the Unix epoch. `now` is the current time in the same unit.
    pub(crate) fn millis(self, now: u64) -> u64 {
        match self {
            Self::Time(millis) => millis,
            Self::Ago(ago) => now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// Parses an RFC 3339 time, or a duration with its unit.
pub(crate) fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(Since::Ago(ago));
    }
    let time = millis(text).map(Since::Time);
    time.ok_or_else(|| "expected a duration, such as 2h, or a time, such as 2026-11-22T10:00:00Z".to_owned())
}

/// Converts an RFC 3339 time in UTC to milliseconds since the Unix epoch.
pub(crate) fn millis(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339_weak(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Formats milliseconds since the Unix epoch as an RFC 3339 time in UTC.
pub(crate) fn rfc3339(millis: u64) -> String {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

/// Parses a count of at least 1.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a whole number, at least 1".to_owned())
}

/// Parses a count from 1 to 4294967295.
pub(crate) fn positive_u32(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "expected a whole number from 1 to 4294967295".to_owned())
}

/// Parses a run id. Refuses `.` and `..`, which a URL path would drop.
pub(crate) fn run_id(text: &str) -> Result<RunId, String> {
    segment(text, "a run id")
}

/// Parses the kind of an effect.
pub(crate) fn effect_kind(text: &str) -> Result<EffectKind, String> {
    text.parse().map_err(|_| {
        let kinds: Vec<_> = EffectKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let kinds = kinds.join(", ");
        format!("{text:?} is not one of {kinds}")
    })
}

/// Parses a record id. Refuses `.` and `..` too.
pub(crate) fn record_id(text: &str) -> Result<RecordId, String> {
    segment(text, "a record id")
}

fn segment<T: FromStr<Err = Illegal>>(text: &str, what: &str) -> Result<T, String> {
    match text {
        "" => Err(format!("{what} must not be empty")),
        "." | ".." => Err(format!("{what} must not be {text}: a URL cannot name it")),
        _ => text.parse().map_err(|illegal: Illegal| illegal.to_string()),
    }
}

/// Parses the JSON value of `flag` and returns it compact.
pub(crate) fn json(flag: &str, text: &str) -> Result<Json, Error> {
    Json::parse(text).map_err(|error| value_error(flag, error))
}

/// Parses the JSON value of `flag` and returns its canonical form (RFC 8785), for a fingerprint. Refuses duplicate keys.
pub(crate) fn arguments(flag: &str, text: &str) -> Result<String, Error> {
    canonical::canonicalize(text).map_err(|error| value_error(flag, error))
}

/// Computes the fingerprint of a call. Its arguments are the JSON value of `flag` and must have a canonical form.
pub(crate) fn fingerprint(flag: &str, tool: &str, arguments: &str) -> Result<Fingerprint, Error> {
    Fingerprint::of_call(tool, arguments).map_err(|error| value_error(flag, error))
}

fn value_error(flag: &str, error: canonical::Error) -> Error {
    let pointer = error.pointer.clone();
    let what = match error.problem {
        canonical::Problem::Syntax { .. } => {
            format!("the value of {flag} is not JSON; a text needs quotes of its own, such as {flag} '\"paid\"'")
        }
        _ => format!("the value of {flag} is not accepted"),
    };
    Error::new(ErrorKind::Invalid, what).with("flag", flag).with("pointer", pointer).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::id::ID_BYTES_MAX;

    #[test]
    fn a_consistency_reads_as_it_prints() {
        for text in ["eventual", "latest", "at-least=3:9223372036854775807", "at-least=3:4@kafka:c:t"] {
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
            "at-least=3:4@",
            "at-least=3:4@a/b",
        ] {
            assert!(text.parse::<Consistency>().is_err(), "{text}");
        }
        assert_eq!("3:4@local:x".parse::<AsOf>(), Ok(AsOf::Position("3:4@local:x".parse().unwrap())));
    }

    #[test]
    fn a_count_must_be_positive() {
        assert_eq!((positive("7"), positive_u32("4294967295")), (Ok(7), Ok(u32::MAX)));
        for text in ["", "0", "-1", "x", "4294967296"] {
            let error = positive_u32(text).unwrap_err();
            assert!(error.contains("from 1 to 4294967295") && !error.contains(".."), "{error}");
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
    fn since_is_a_time_or_a_duration_before_now() {
        assert_eq!(parse_since("2h").map(|since| since.millis(10_000_000)), Ok(2_800_000));
        assert_eq!(parse_since("1970-01-01T00:00:07Z").map(|since| since.millis(10_000_000)), Ok(7000));
        assert_eq!(parse_since("1d").map(|since| since.millis(5)), Ok(0));
        for text in ["", "soon", "10", "2026"] {
            assert!(parse_since(text).is_err(), "{text}");
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
    fn a_refused_json_value_names_flag_and_pointer() {
        let error = arguments("--args", r#"{"a":{"b":1,"b":2}}"#).unwrap_err();
        assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::Invalid, 3));
        let document = error.document();
        assert_eq!((&document["error"]["flag"], &document["error"]["pointer"]), (&"--args".into(), &"/a".into()));
        assert!(json("--done", r#"{"b":1,"b":2}"#).is_ok());
        for text in ["{", "paid", "--who"] {
            let error = json("--done", text).unwrap_err().to_string();
            assert!(error.contains(r#"--done '"paid"'"#), "{error}");
        }
    }
}
