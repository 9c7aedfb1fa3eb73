//! Events: queries for records by their summaries (`event_index`).

use super::{
    payloads::{event, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Checked, Needs, Scenario},
};
use serde_json::{Value, json};

const SECTION: &str = "Reads";

pub(crate) const RULES: &[Rule] = &[
    rule("event_run", SECTION, "a query by run returns only events of that run").test(|scenario, _| {
        let (mut one, mut two) = (scenario.run(), scenario.run());
        let tag = scenario.prefix().to_owned();
        let mut ids = Vec::new();
        for run in [&mut one, &mut two] {
            ids.push(append_event(scenario, run, |summary| summary["tags"] = json!([tag]))?);
        }
        let answer = scenario.events(&one, &[("run", &one.id), ("tag", &tag)])?;
        answer.only("/events")?;
        answer.has("/events/0/run_id", one.id.as_str())
    }),
    rule("event_family", SECTION, "a query by family returns only events of that family").test(|scenario, run| {
        finds(scenario, run, "family", str::to_owned, |summary, word| summary["event_family"] = word.into())
    }),
    rule("event_kind", SECTION, "a query by kind returns only events of that kind").test(|scenario, mut run| {
        let family = format!("{}.family", run.id);
        let kinds = ["one", "two"].map(|kind| format!("{}.{kind}", run.id));
        let mut ids = Vec::new();
        for kind in &kinds {
            let id = append_event(scenario, &mut run, |summary| {
                summary["event_family"] = family.as_str().into();
                summary["event_kind"] = kind.as_str().into();
            })?;
            ids.push(id);
        }
        let answer = scenario.events(&run, &[("family", &family), ("kind", &kinds[0])])?;
        answer.lists("/events", "record_id", &[&ids[0]])
    }),
    rule("event_subject", SECTION, "a query by subject returns only events about that entity").test(|scenario, run| {
        let entity = |word: &str| json!({"kind": "artifact", "id": word, "privacy": "internal"});
        let value = |word: &str| format!("artifact:{word}");
        finds(scenario, run, "subject", value, |summary, word| summary["subject_ref"] = entity(word))
    }),
    rule("event_related", SECTION, "a query by related entity returns only events that name the entity").test(
        |scenario, run| {
            let entity = |word: &str| json!([{"kind": "message", "id": word, "privacy": "internal"}]);
            let value = |word: &str| format!("message:{word}");
            finds(scenario, run, "related", value, |summary, word| summary["related_refs"] = entity(word))
        },
    ),
    rule("event_correlation", SECTION, "a query by correlation entry returns only events with that entry").test(
        |scenario, run| {
            let entries = |word: &str| json!([{"key": "trip", "value": word}]);
            let value = |word: &str| format!("trip={word}");
            finds(scenario, run, "correlation", value, |summary, word| summary["correlation_keys"] = entries(word))
        },
    ),
    rule("event_tag", SECTION, "a query by tag returns only events with that tag").test(|scenario, run| {
        finds(scenario, run, "tag", str::to_owned, |summary, word| summary["tags"] = json!([word]))
    }),
    rule(
        "event_each",
        SECTION,
        "a record is found by the first 64 of its tags, references and entries, and not by others",
    )
    .test(|scenario, mut run| {
        let tags: Vec<String> = (1..=65).map(|number| format!("{}.{number}", run.id)).collect();
        let id = append_event(scenario, &mut run, |summary| summary["tags"] = json!(tags))?;
        scenario.events(&run, &[("run", &run.id), ("tag", &tags[63])])?.lists("/events", "record_id", &[&id])?;
        finds_none(scenario, &run, &tags[64])
    }),
    rule("event_text", SECTION, "a record is not found by a text over 512 bytes").test(|scenario, mut run| {
        let tag = "x".repeat(513);
        append_event(scenario, &mut run, |summary| summary["tags"] = json!([tag]))?;
        finds_none(scenario, &run, &tag)
    }),
];

/// Appends a record with a unique summary that `change` modifies. Returns its id.
fn append_event(scenario: &mut Scenario<'_>, run: &mut Run, change: impl FnOnce(&mut Value)) -> Checked<String> {
    let word = format!("{}.{}", run.id, run.writer_seq);
    let mut summary = event(&run.id, &format!("{word}.family"), &format!("{word}.kind"));
    change(&mut summary);
    let record = run.record(turn("m")).with("event_index", summary);
    scenario.send(run, &record)?.expect_applied()?;
    Ok(record.id().to_owned())
}

/// Appends two records and checks that a query finds only the first.
fn finds(
    scenario: &mut Scenario<'_>,
    mut run: Run,
    parameter: &str,
    value: impl Fn(&str) -> String,
    change: impl Fn(&mut Value, &str),
) -> Checked {
    let words = [format!("{}.one", run.id), format!("{}.two", run.id)];
    let first = append_event(scenario, &mut run, |summary| change(summary, &words[0]))?;
    append_event(scenario, &mut run, |summary| change(summary, &words[1]))?;
    let answer = scenario.events(&run, &[(parameter, &value(&words[0]))])?;
    answer.lists("/events", "record_id", &[&first])?;
    answer.has("/events/0/run_id", run.id.as_str())
}

/// Checks that a tag finds no record. An unused tag must not find one either: a server that ignores tags fails `event_tag`.
fn finds_none(scenario: &mut Scenario<'_>, run: &Run, tag: &str) -> Checked {
    let unused = format!("{}.nobody", run.id);
    scenario
        .events(run, &[("run", &run.id), ("tag", &unused)])?
        .lists("/events", "record_id", &[])
        .needs("event_tag")?;
    scenario.events(run, &[("run", &run.id), ("tag", tag)])?.lists("/events", "record_id", &[])
}
