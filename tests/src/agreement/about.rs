//! Names the run and the record that a difference is about.

use super::difference::Around;
use runlog_model::{Event, History, Model};
use serde_json::Value;
use std::fmt;

/// Members of answers that name a record, the most exact first.
const NAMES: [&str; 3] = ["record_id", "request_record_id", "id"];

/// The run and the record of a difference, as far as the answers and the history name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    run: Option<String>,
    record: Option<Named>,
    /// The answers name no record: this is the newest one of the run.
    is_newest: bool,
}

/// A record of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    run: String,
    id: String,
    kind: String,
}

impl About {
    /// Finds the record that is named closest to the difference. `around` has the objects around it, from the inside.
    pub fn find(around: &Around, history: &History, model: &Model) -> Self {
        let run = around.objects().find_map(|object| text(object, "run_id"));
        if let Some(record) = around.objects().find_map(|object| named(object, run, history)) {
            return Self { run: Some(record.run.clone()), record: Some(record), is_newest: false };
        }
        let newest = run.and_then(|run| {
            let line = model.show(run)["records"].as_array_mut()?.pop()?;
            let (id, kind) = (text(&line, "record_id")?, text(&line, "payload_type")?);
            Some(Named { run: run.to_owned(), id: id.to_owned(), kind: kind.to_owned() })
        });
        Self { run: run.map(str::to_owned), is_newest: newest.is_some(), record: newest }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run.as_deref() {
            Some(run) if !run.is_empty() => write!(f, "run {run:?}")?,
            _ => write!(f, "no run")?,
        }
        let newest = if self.is_newest { "newest record " } else { "" };
        match &self.record {
            Some(Named { id, kind, .. }) => write!(f, ", {newest}{kind} {id:?}"),
            None => write!(f, ", no record"),
        }
    }
}

fn text<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object[name].as_str().filter(|text| !text.is_empty())
}

/// The record that an object of an answer names by its id or its position.
fn named(object: &Value, run: Option<&str>, history: &History) -> Option<Named> {
    let by_id = |name| {
        let id = text(object, name)?;
        records(history).find(|(_, _, record)| record.id == id && run.is_none_or(|run| record.run == run))
    };
    let by_position = || {
        let place = if object["position"].is_object() { &object["position"] } else { object };
        let offset = place["offset"].as_u64().or_else(|| place["stopped_at"].as_u64())?;
        let (partition, index) = (place["partition"].as_u64()?, place["index"].as_u64().unwrap_or(0));
        records(history).find(|(at, number, _)| *at == (partition, offset) && *number == index)
    };
    NAMES.into_iter().find_map(by_id).or_else(by_position).map(|(_, _, record)| record)
}

/// All records, each with its partition and offset and its index in a batch.
fn records(history: &History) -> impl Iterator<Item = ((u64, u64), u64, Named)> {
    history
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Deliver(delivery) => Some(delivery),
            Event::StartMoved { .. } => None,
        })
        .flat_map(|delivery| {
            let place = (u64::from(delivery.partition), delivery.offset);
            let record = delivery.what.record().cloned().unwrap_or_default();
            let members = record["payload"]["records"].as_array().cloned().unwrap_or_default();
            let each = if members.is_empty() { vec![record] } else { members };
            let run = delivery.what.record().map(|record| record["run_id"].clone()).unwrap_or_default();
            (0..).zip(each).filter_map(move |(index, record)| {
                let [id, kind] = [&record["record_id"], &record["payload"]["type"]].map(|text| text.as_str());
                let run = run.as_str().unwrap_or_default().to_owned();
                Some((place, index, Named { run, id: id?.to_owned(), kind: kind?.to_owned() }))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{difference::first, encoding};
    use serde_json::json;

    #[test]
    fn a_difference_is_about_the_record_that_is_named_closest_to_it() {
        let history = encoding::history(0);
        let (_, _, Named { run, id, kind }) = records(&history).find(|(_, _, record)| !record.run.is_empty()).unwrap();
        let answer = |status: &str| {
            let effect = json!({ "record_id": id, "evidence": [{ "id": "no record's", "status": status }] });
            json!({ "run_id": run, "record_id": "another", "effects": [effect] })
        };
        let around = first(&answer("completed"), &answer("failed")).unwrap().around;
        let about = About::find(&around, &history, &Model::new(history.journal.clone()));
        assert_eq!(about.to_string(), format!("run {run:?}, {kind} {id:?}"));
    }
}
