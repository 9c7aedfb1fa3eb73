//! Events: applied records by the summary that they bring for event streams.
//!
//! The server gives a record without a summary one about its tool call, otherwise about its run. The model does not
//! know the kind of that summary, so questions name only its run and subject.

use crate::{
    fold::Model,
    record::{answers, hidden, list, number, payload_type, text, value_at},
    rule::Rule,
    run::Entry,
};
use serde_json::{Value, json};

/// The number of related references, correlation entries and tags of a record that are indexed.
const EACH_MAX: usize = 64;
/// The longest text that is indexed, bytes.
const TEXT_BYTES_MAX: usize = 512;

/// The filters of a question; an event must match all of them. Pairs are kind and id, key and value.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// The run.
    pub run_id: Option<String>,
    /// The family.
    pub family: Option<String>,
    /// The kind within its family.
    pub kind: Option<String>,
    /// Its subject.
    pub subject: Option<(String, String)>,
    /// The entities that it concerns.
    pub related: Option<(String, String)>,
    /// A correlation entry.
    pub correlation: Option<(String, String)>,
    /// A tag.
    pub tag: Option<String>,
}

impl Model {
    /// Whether one filter excludes a record. An absent filter and a switched-off rule exclude none.
    fn leaves_out<T>(&self, rule: Rule, wanted: Option<&T>, says: impl Fn(&T) -> bool) -> bool {
        wanted.is_some_and(|wanted| self.rules.fires(rule, !says(wanted)))
    }

    /// Whether a text is short enough for the index.
    fn short(&self, texts: &[&str]) -> bool {
        !self.rules.fires(Rule::EventText, texts.iter().any(|text| text.len() > TEXT_BYTES_MAX))
    }

    /// Whether one of a record's first items of a list is the wanted item.
    fn has(&self, items: &[Value], is: impl Fn(&Value) -> bool) -> bool {
        let Some(place) = items.iter().position(is) else { return false };
        !self.rules.fires(Rule::EventEach, place >= EACH_MAX)
    }

    fn matches(&self, filter: &EventFilter, entry: &Entry) -> bool {
        let record = &*entry.record;
        let Some(event) = value_at(record, "/event_index") else {
            let EventFilter { run_id: _, family, kind, subject, related, correlation, tag } = filter;
            let about = |wanted: &(String, String)| *wanted == subject_of(record);
            return [family, kind, tag].iter().all(|wanted| wanted.is_none())
                && [related, correlation].iter().all(|wanted| wanted.is_none())
                && !self.leaves_out(Rule::EventSubject, subject.as_ref(), about);
        };
        let entity = |entity: &Value, (kind, id): &(String, String)| {
            text(entity, "/kind") == kind && text(entity, "/id") == id && self.short(&[id])
        };
        let correlates = |entry: &Value, (key, value): &(String, String)| {
            text(entry, "/key") == key && text(entry, "/value") == value && self.short(&[key, value])
        };
        let family = |wanted: &String| text(event, "/event_family") == wanted && self.short(&[wanted]);
        !self.leaves_out(Rule::EventFamily, filter.family.as_ref(), family)
            && !self.leaves_out(Rule::EventKind, filter.kind.as_ref(), |wanted| text(event, "/event_kind") == wanted)
            && !self.leaves_out(Rule::EventSubject, filter.subject.as_ref(), |wanted| {
                value_at(event, "/subject_ref").is_some_and(|subject| entity(subject, wanted))
            })
            && !self.leaves_out(Rule::EventRelated, filter.related.as_ref(), |wanted| {
                self.has(list(event, "/related_refs"), |item| entity(item, wanted))
            })
            && !self.leaves_out(Rule::EventCorrelation, filter.correlation.as_ref(), |wanted| {
                self.has(list(event, "/correlation_keys"), |item| correlates(item, wanted))
            })
            && !self.leaves_out(Rule::EventTag, filter.tag.as_ref(), |wanted| {
                self.has(list(event, "/tags"), |item| item.as_str() == Some(wanted) && self.short(&[wanted]))
            })
    }

    /// `events`, by partition and place.
    pub fn events(&self, filter: &EventFilter) -> Value {
        let mut events = Vec::new();
        for (partition, rows) in (0..).zip(&self.partitions) {
            let runs = rows.runs.iter();
            let runs =
                runs.filter(|(id, _)| !self.leaves_out(Rule::EventRun, filter.run_id.as_ref(), |run| run == *id));
            for (run_id, entry) in runs.flat_map(|(id, run)| run.applied_entries().map(move |entry| (id, entry))) {
                if self.matches(filter, entry) {
                    let place = (partition, entry.offset, entry.index);
                    events.push((
                        place,
                        json!({
                            "position": self.position(partition, entry.offset, entry.index),
                            "run_id": run_id,
                            "record_id": entry.id,
                            "journal_seq": number(&entry.record, "/journal_seq"),
                            "payload_type": payload_type(&entry.record),
                            "event": value_at(&entry.record, "/event_index"),
                        }),
                    ));
                }
            }
        }
        events.sort_by_key(|(place, _)| *place);
        json!({"events": events.into_iter().map(|(_, event)| event).collect::<Vec<_>>()})
    }

    /// What to ask for: each filter alone, and some together.
    pub fn event_questions(runs: &[String]) -> Vec<EventFilter> {
        let some = |text: &str| Some(text.to_owned());
        let pair = |one: &str, other: &str| Some((one.to_owned(), other.to_owned()));
        let all = EventFilter::default;
        let mut questions = vec![
            EventFilter { family: some("order"), ..all() },
            EventFilter { family: some("audit"), kind: some("closed"), ..all() },
            EventFilter { subject: pair("artifact", "a-1"), ..all() },
            EventFilter { related: pair("message", "m-1"), ..all() },
            EventFilter { related: pair("message", "m-65"), ..all() },
            EventFilter { correlation: pair("trip", "1"), ..all() },
            EventFilter { tag: some("red"), ..all() },
            EventFilter { tag: some("tag-65"), ..all() },
            EventFilter { tag: Some(long()), ..all() },
            EventFilter { tag: some("red"), correlation: pair("trip", "2"), family: some("order"), ..all() },
        ];
        for run_id in runs {
            questions.push(EventFilter { run_id: some(run_id), ..all() });
            questions.push(EventFilter { run_id: some(run_id), tag: some("blue"), ..all() });
            questions.push(EventFilter { subject: pair("run", run_id), ..all() });
            questions.push(EventFilter { subject: pair("run", run_id), run_id: some(&runs[0]), ..all() });
        }
        questions
    }
}

/// The default subject of a record without a subject: kind and id.
fn subject_of(record: &Value) -> (String, String) {
    let call = match payload_type(record) {
        _ if hidden(record) => "",
        "tool_call_requested" => text(record, "/record_id"),
        "tool_call_attempt" | "tool_call_completed" | "tool_call_failed" | "effect_resolution" => answers(record),
        _ => "",
    };
    let (kind, id) = if call.is_empty() { ("run", text(record, "/run_id")) } else { ("tool_call", call) };
    (kind.to_owned(), id.to_owned())
}

/// A text that is too long to be found by.
pub(crate) fn long() -> String {
    "x".repeat(TEXT_BYTES_MAX + 1)
}
