//! Converts a line to an item to send. Checks the line before the first request and does not change its text.

use super::lines::Numbered;
use crate::error::Error;
use runlog_schemas::{
    answer::{ErrorKind, Feature},
    draft::{Draft, Invalid},
    id::{PartitionId, RunId},
    payload::{Payload, Skip},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The target of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    Run(RunId),
    Partition { partition: PartitionId, skip: Skip },
}

/// A record to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) line: u64,
    pub(super) to: To,
    /// `None` for a record about a partition.
    pub(super) record_id: Option<String>,
    /// The feature that the server needs to interpret the record correctly.
    pub(super) needs: Option<Feature>,
    pub(super) body: String,
}

impl Item {
    /// Parses a line. Returns `None` for an empty line.
    pub(super) fn parse(line: &Numbered) -> Result<Option<Self>, Error> {
        let text = line.text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let item = parse(text).map_err(|invalid| {
            Error::new(ErrorKind::Invalid, format!("line {}: {invalid}", line.number))
                .with("line", line.number)
                .with("pointer", invalid.pointer)
        })?;
        Ok(Some(Self { line: line.number, ..item }))
    }

    /// Adds the line's number to an error about it.
    pub(super) fn with_line(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("line {}", self.line))
            .with_details_of(&error)
            .with("line", self.line)
            .because(error)
    }
}

fn parse(text: &str) -> Result<Item, Invalid> {
    let draft = Draft::parse_new(text)?;
    let invalid = |what: &str, pointer: &str| Invalid { what: what.to_owned(), pointer: pointer.to_owned() };
    let mut members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(text).map_err(|error| invalid(&error.to_string(), ""))?;
    let needs = match &draft.record.payload {
        // A server without this feature would also void a readable record.
        Payload::Skip(_) => Some(Feature::Force),
        // A server without this feature omits facts of later versions.
        _ => match draft.record.version().number {
            1 => None,
            2 => Some(Feature::Revisions),
            _ => Some(Feature::Bases),
        },
    };
    let given = draft.record.body.record_id;
    let to = match draft.record.payload {
        Payload::Genesis(_) => {
            return Err(invalid("only the server that creates a journal writes a genesis", "/payload/type"));
        }
        Payload::RetentionHorizon(_) => {
            return Err(invalid(
                "a retention horizon belongs to a partition; `runlog retention` appends it",
                "/payload/type",
            ));
        }
        Payload::Skip(skip) => {
            let partition = members.get("partition").and_then(|raw| serde_json::from_str(raw.get()).ok());
            let partition =
                partition.ok_or_else(|| invalid("a skip needs the number of its partition", "/partition"))?;
            To::Partition { partition, skip }
        }
        _ => {
            let run_id = draft.record.body.run_id.0;
            To::Run(run_id.ok_or_else(|| invalid("a record of a run needs run_id", "/run_id"))?)
        }
    };
    if draft.has_record_id || matches!(to, To::Partition { .. }) {
        return Ok(Item {
            line: 0,
            to,
            record_id: draft.has_record_id.then(|| given.to_string()),
            needs,
            body: text.to_owned(),
        });
    }
    let record_id = crate::ambient::random_id();
    let id = serde_json::value::to_raw_value(&record_id);
    members.insert("record_id".to_owned(), id.map_err(|error| invalid(&error.to_string(), "/record_id"))?);
    let body = serde_json::to_string(&members).map_err(|error| invalid(&error.to_string(), ""))?;
    Ok(Item { line: 0, to, record_id: Some(record_id), needs, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Result<Option<Item>, Error> {
        Item::parse(&Numbered { number: 7, text: text.to_owned() })
    }

    #[test]
    fn a_record_with_its_id_is_sent_as_it_was_written() {
        let text =
            r#"{ "run_id":"r", "record_id":"a", "payload":{"type":"run_lifecycle","status":"started"}, "x":1.50 }"#;
        let item = item(text).unwrap().unwrap();
        assert_eq!((item.line, item.to, item.body.as_str()), (7, To::Run("r".parse().unwrap()), text));
    }

    #[test]
    fn a_record_without_an_id_gets_one_and_keeps_every_digit() {
        let text = r#"{"run_id":"r","payload":{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"t","arguments":{"n":12345678901234567890123,"f":1.50}}}"#;
        let first = item(text).unwrap().unwrap();
        assert!(first.body.contains(r#""arguments":{"n":12345678901234567890123,"f":1.50}"#), "{}", first.body);
        assert!(Draft::parse(&first.body).unwrap().has_record_id);
        assert_ne!(first.body, item(text).unwrap().unwrap().body);
    }

    #[test]
    fn an_invalid_line_is_refused_with_its_number_and_json_pointer() {
        for (text, pointer) in [
            ("{", ""),
            ("[]", ""),
            (r#"{"run_id":"r"}"#, "/payload"),
            (r#"{"run_id":"r","record_id":"","payload":{"type":"run_lifecycle","status":"started"}}"#, "/record_id"),
            (r#"{"run_id":"r","payload":{"type":"nonsense"}}"#, "/payload"),
            (r#"{"payload":{"type":"run_lifecycle","status":"started"}}"#, "/run_id"),
            (r#"{"payload":{"type":"genesis","journal_id":"j","partitions":1}}"#, "/payload/type"),
            (r#"{"payload":{"type":"skip","offset":1,"who":"w","why":"t"}}"#, "/partition"),
        ] {
            let error = item(text).unwrap_err();
            let document = error.document();
            assert_eq!((error.kind(), &document["error"]["line"]), (ErrorKind::Invalid, &7.into()), "{text}");
            assert_eq!(document["error"]["pointer"], pointer, "{text}: {error}");
            assert!(error.to_string().starts_with("line 7: "), "{error}");
        }
    }

    #[test]
    fn a_skip_goes_to_its_partition_and_an_empty_line_nowhere() {
        let text = r#"{"partition":2,"payload":{"type":"skip","offset":9,"who":"w","why":"t"}}"#;
        let skip = Skip { offset: 9.into(), who: "w".into(), why: "t".into() };
        assert_eq!(item(text).unwrap().unwrap().to, To::Partition { partition: 2.into(), skip });
        assert_eq!(item("  \r\n").unwrap(), None);
    }
}
