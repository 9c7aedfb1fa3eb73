//! Events: records by the summary that they bring for event streams.

use super::{
    Rule,
    payloads::{event, turn},
    run::Run,
    site::{Checked, Needs, Site},
};
use serde_json::{Value, json};

const SECTION: &str = "Reads";

pub(super) const RULES: &[Rule] = &[
    Rule::new("event_run", SECTION, "events of a run are that run's", of_run),
    Rule::new("event_family", SECTION, "events of a family are that family's", of_family),
    Rule::new("event_kind", SECTION, "events of a kind are that kind's", of_kind),
    Rule::new("event_subject", SECTION, "events about a thing are about that thing", of_subject),
    Rule::new("event_related", SECTION, "events that touch a thing name it", of_related),
    Rule::new("event_correlation", SECTION, "events with a correlation entry have it", of_correlation),
    Rule::new("event_tag", SECTION, "events with a tag have it", of_tag),
    Rule::new("event_each", SECTION, "of a record's tags, references and entries the first 64 are found by", each),
    Rule::new("event_text", SECTION, "a text over 512 bytes is not found by", long_text),
];

/// A record with a summary of its own words, which `change` makes others; its id.
fn say(site: &mut Site<'_>, run: &mut Run, change: impl FnOnce(&mut Value)) -> Checked<String> {
    let word = format!("{}.{}", run.id, run.writer_seq);
    let mut summary = event(&run.id, &format!("{word}.family"), &format!("{word}.kind"));
    change(&mut summary);
    let record = run.record(turn("m")).with("event_index", summary);
    site.send(run, &record)?.applied()?;
    Ok(record.id().to_owned())
}

/// Two records, of which a question finds the first.
fn finds(
    site: &mut Site<'_>,
    asked: &str,
    value: impl Fn(&str) -> String,
    change: impl Fn(&mut Value, &str),
) -> Checked {
    let mut run = site.run();
    let words = [format!("{}.one", run.id), format!("{}.two", run.id)];
    let first = say(site, &mut run, |summary| change(summary, &words[0]))?;
    say(site, &mut run, |summary| change(summary, &words[1]))?;
    let answer = site.events(&run, &[(asked, &value(&words[0]))])?;
    answer.lists("/events", "record_id", &[&first])?;
    answer.has("/events/0/run_id", run.id.as_str())
}

fn of_run(site: &mut Site<'_>) -> Checked {
    let (mut one, mut two) = (site.run(), site.run());
    let tag = site.prefix().to_owned();
    let mut ids = Vec::new();
    for run in [&mut one, &mut two] {
        ids.push(say(site, run, |summary| summary["tags"] = json!([tag]))?);
    }
    let answer = site.events(&one, &[("run", &one.id), ("tag", &tag)])?;
    answer.only("/events")?;
    answer.has("/events/0/run_id", one.id.as_str())
}

fn of_family(site: &mut Site<'_>) -> Checked {
    finds(site, "family", str::to_owned, |summary, word| summary["event_family"] = word.into())
}

fn of_kind(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let family = format!("{}.family", run.id);
    let kinds = ["one", "two"].map(|kind| format!("{}.{kind}", run.id));
    let mut ids = Vec::new();
    for kind in &kinds {
        let id = say(site, &mut run, |summary| {
            summary["event_family"] = family.as_str().into();
            summary["event_kind"] = kind.as_str().into();
        })?;
        ids.push(id);
    }
    let answer = site.events(&run, &[("family", &family), ("kind", &kinds[0])])?;
    answer.lists("/events", "record_id", &[&ids[0]])
}

fn of_subject(site: &mut Site<'_>) -> Checked {
    let entity = |word: &str| json!({"kind": "artifact", "id": word, "privacy": "internal"});
    let value = |word: &str| format!("artifact:{word}");
    finds(site, "subject", value, |summary, word| summary["subject_ref"] = entity(word))
}

fn of_related(site: &mut Site<'_>) -> Checked {
    let entity = |word: &str| json!([{"kind": "message", "id": word, "privacy": "internal"}]);
    let value = |word: &str| format!("message:{word}");
    finds(site, "related", value, |summary, word| summary["related_refs"] = entity(word))
}

fn of_correlation(site: &mut Site<'_>) -> Checked {
    let entries = |word: &str| json!([{"key": "trip", "value": word}]);
    let value = |word: &str| format!("trip={word}");
    finds(site, "correlation", value, |summary, word| summary["correlation_keys"] = entries(word))
}

fn of_tag(site: &mut Site<'_>) -> Checked {
    finds(site, "tag", str::to_owned, |summary, word| summary["tags"] = json!([word]))
}

/// That a tag finds no record of a server that looks at tags.
fn finds_none(site: &mut Site<'_>, run: &Run, tag: &str) -> Checked {
    let nobody = format!("{}.nobody", run.id);
    site.events(run, &[("run", &run.id), ("tag", &nobody)])?.lists("/events", "record_id", &[]).needs("event_tag")?;
    site.events(run, &[("run", &run.id), ("tag", tag)])?.lists("/events", "record_id", &[])
}

fn each(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let tags: Vec<String> = (1..=65).map(|number| format!("{}.{number}", run.id)).collect();
    let id = say(site, &mut run, |summary| summary["tags"] = json!(tags))?;
    site.events(&run, &[("run", &run.id), ("tag", &tags[63])])?.lists("/events", "record_id", &[&id])?;
    finds_none(site, &run, &tags[64])
}

fn long_text(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let tag = "x".repeat(513);
    say(site, &mut run, |summary| summary["tags"] = json!([tag]))?;
    finds_none(site, &run, &tag)
}
