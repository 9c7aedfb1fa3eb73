//! The id of a log. A journal's log can be copied record by record, with its journal id; the copy has another log id.

use super::illegal::Illegal;
use std::{fmt, str::FromStr, sync::Arc};

/// The longest id of a log, bytes.
pub const LOG_ID_BYTES_MAX: usize = 160;

/// The identity of a log: `kafka:CLUSTER:TOPIC-ID`, `local:HEX` or, in tests, `memory:NAME`.
///
/// Equal ids are the same log. The topic's name is not part of the id: a topic that was deleted and created again has another
/// id. The characters are ASCII letters, digits and `.` `_` `:` `-`, so an id can follow a position or a cursor after an `@`.
/// Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(Arc<str>);

impl LogId {
    /// The id of a Kafka topic, from the ids of its cluster and of the topic as Kafka's own tools print them. `None` if
    /// an id is empty or has other characters.
    pub fn kafka(cluster: &str, topic_id: &str) -> Option<Self> {
        Self::of("kafka", &[cluster, topic_id])
    }

    /// The id of a local log, from 16 random bytes in lower-case hexadecimal. `None` for another text.
    pub fn local(hex: &str) -> Option<Self> {
        let is_hex = hex.len() == 32 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| Self::of("local", &[hex])).flatten()
    }

    /// The id of a log in memory. `None` if the name is empty or has other characters.
    pub fn memory(name: &str) -> Option<Self> {
        Self::of("memory", &[name])
    }

    /// Parses an id. Accepts every type of log, also the types of later versions.
    pub fn parse(text: &str) -> Result<Self, Illegal> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
        match text.len() {
            0 => Err(Illegal::Empty { what: "log id" }),
            bytes if bytes > LOG_ID_BYTES_MAX => Err(Illegal::TooLong { what: "log id", max: LOG_ID_BYTES_MAX, bytes }),
            _ if text.bytes().all(is_allowed) => Ok(Self(text.into())),
            _ => Err(Illegal::Characters { what: "log id", allowed: "ASCII letters, digits and . _ : -" }),
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of(adapter: &str, parts: &[&str]) -> Option<Self> {
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        Self::parse(&format!("{adapter}:{}", parts.join(":"))).ok()
    }
}

/// Splits `TEXT@LOG` at its last `@`. Positions and cursors have no `@` themselves.
pub fn split_log(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('@') {
        Some((text, log)) => (text, Some(log)),
        None => (text, None),
    }
}

impl FromStr for LogId {
    type Err = Illegal;
    fn from_str(text: &str) -> Result<Self, Illegal> {
        Self::parse(text)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints the text.
impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl serde::Serialize for LogId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for LogId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_id_names_its_adapter_and_parses_as_itself() {
        let ids = [
            (
                LogId::kafka("MkU3OEVBNTcwNTJENDM2Qk", "XvNFJqY8S9-aPtxsJ-VgvA"),
                "kafka:MkU3OEVBNTcwNTJENDM2Qk:XvNFJqY8S9-aPtxsJ-VgvA",
            ),
            (LogId::local("00112233445566778899aabbccddeeff"), "local:00112233445566778899aabbccddeeff"),
            (LogId::memory("a"), "memory:a"),
        ];
        for (id, text) in ids {
            let id = id.unwrap();
            assert_eq!((id.as_str(), &id), (text, &text.parse().unwrap()));
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!((json.as_str(), &id), (format!("{text:?}").as_str(), &serde_json::from_str(&json).unwrap()));
        }
        assert!(LogId::parse("later:1.2_x-Y").is_ok());
    }

    #[test]
    fn a_text_that_cannot_follow_a_position_is_no_log_id() {
        for text in ["", "a@b", "a,b", "a/b", "a%b", "a b", "a+b", "ü", "a\n"] {
            assert!(LogId::parse(text).is_err(), "{text:?}");
            assert!(serde_json::from_str::<LogId>(&serde_json::to_string(text).unwrap()).is_err(), "{text:?}");
        }
        assert!(LogId::parse(&"x".repeat(LOG_ID_BYTES_MAX)).is_ok());
        assert!(LogId::parse(&"x".repeat(LOG_ID_BYTES_MAX + 1)).is_err());
        let illegal = LogId::parse("a@b").unwrap_err().to_string();
        assert_eq!(illegal, "a log id has only ASCII letters, digits and . _ : -");
    }

    #[test]
    fn a_part_that_is_missing_or_illegal_gives_no_id() {
        assert_eq!(LogId::kafka("", "t"), None);
        assert_eq!(LogId::kafka("c", ""), None);
        assert_eq!(LogId::kafka("c", "XvNFJqY8S9+aPtxsJ+VgvA"), None, "the standard alphabet of base64");
        assert_eq!(LogId::kafka(&"c".repeat(LOG_ID_BYTES_MAX), "t"), None);
        assert_eq!(LogId::local("00112233445566778899AABBCCDDEEFF"), None);
        assert_eq!(LogId::local("0011"), None);
        assert_eq!(LogId::memory("a@b"), None);
    }

    #[test]
    fn the_log_of_a_position_follows_its_last_at_sign() {
        assert_eq!(split_log("3:17@kafka:c:t"), ("3:17", Some("kafka:c:t")));
        assert_eq!(split_log("3:17"), ("3:17", None));
        assert_eq!(split_log("a@b@c"), ("a@b", Some("c")));
        assert_eq!(split_log("3:17@"), ("3:17", Some("")));
    }
}
