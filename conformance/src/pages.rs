//! Paged lists, timelines by cursor, and tails: complete and without repeats, also while records are appended.

use super::client::Target;
use super::{
    payloads::{completed, lifecycle, request, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Answer, Checked, Needs, Scenario},
};
use serde_json::{Value, json};

const SECTION: &str = "Reads";

pub(crate) const RULES: &[Rule] = &[
    rule("records_in_order", SECTION, "a timeline lists the applied records in log order, each with its numbers").test(
        |scenario, mut run| {
            let turn_ids = append_turns(scenario, &mut run, 3)?;
            let answer = scenario.query_run(&run, "/records", &[])?.ok()?;
            let turn_ids: Vec<&str> = turn_ids.iter().map(String::as_str).collect();
            answer.lists("/records", "record_id", &turn_ids)?;
            for (at, number) in (1..=3).enumerate() {
                answer.has(&format!("/records/{at}/journal_seq"), number)?;
                answer.has(&format!("/records/{at}/writer_seq"), number)?;
                answer.has(&format!("/records/{at}/payload_type"), "conversation_turn")?;
                answer.has(&format!("/records/{at}/epoch"), 0)?;
            }
            answer.has("/next_cursor", Value::Null)
        },
    ),
    rule("records_paged", SECTION, "a timeline's cursor stays valid while records are appended: no gap, no repeat")
        .test(|scenario, mut run| {
            let mut turn_ids = append_turns(scenario, &mut run, 5)?;
            let mut page = scenario.query_run(&run, "/records", &[("limit", "2")])?.ok()?;
            turn_ids.extend(append_turns(scenario, &mut run, 1)?);
            let mut listed_ids: Vec<String> = Vec::new();
            for _ in 0..6 {
                listed_ids.extend(ids(page.list("/records")?).into_iter().map(str::to_owned));
                if page.value_at("/next_cursor").is_null() {
                    break;
                }
                let next = cursor(&page)?;
                page = scenario.query_run(&run, "/records", &[("limit", "2"), ("cursor", &next)])?.ok()?;
            }
            page.check(listed_ids == turn_ids, format!("{turn_ids:?} over all pages, not {listed_ids:?}"))
        }),
    rule("records_newest_first", SECTION, "a timeline can be read newest first, page by page").test(
        |scenario, mut run| {
            let turn_ids = append_turns(scenario, &mut run, 3)?;
            let page = scenario.query_run(&run, "/records", &[("order", "desc"), ("limit", "2")])?.ok()?;
            page.lists("/records", "record_id", &[&turn_ids[2], &turn_ids[1]])?;
            let next = cursor(&page)?;
            append_turns(scenario, &mut run, 1)?;
            let page =
                scenario.query_run(&run, "/records", &[("order", "desc"), ("limit", "2"), ("cursor", &next)])?.ok()?;
            page.lists("/records", "record_id", &[&turn_ids[0]]).needs("records_paged")?;
            page.has("/next_cursor", Value::Null)
        },
    ),
    rule("runs_in_order", SECTION, "runs are listed by id, page by page").test(|scenario, _| {
        let mut runs = [scenario.run(), scenario.run(), scenario.run()];
        for at in [2, 0, 1] {
            scenario.append(&mut runs[at], turn("a"))?;
            check_is_listed(scenario, &runs[at])?;
        }
        let page = list_runs(scenario, &runs[1], &[("limit", "2")])?;
        page.lists("/runs", "run_id", &[&runs[0].id, &runs[1].id])?;
        let next = cursor(&page)?;
        let page = list_runs(scenario, &runs[1], &[("limit", "2"), ("cursor", &next)])?;
        page.lists("/runs", "run_id", &[&runs[2].id])?;
        page.has("/next_cursor", Value::Null)
    }),
    rule("runs_by_status", SECTION, "runs are listed by status").test(|scenario, _| {
        let (mut open, mut ended) = (scenario.run(), scenario.run());
        scenario.append(&mut open, turn("a"))?;
        check_is_listed(scenario, &open)?;
        scenario.append(&mut ended, lifecycle("failed"))?;
        check_is_listed(scenario, &ended)?;
        list_runs(scenario, &ended, &[("status", "failed")])?.lists("/runs", "run_id", &[&ended.id])?;
        list_runs(scenario, &ended, &[("status", "open")])?.lists("/runs", "run_id", &[&open.id])?;
        list_runs(scenario, &ended, &[("status", "completed")])?.lists("/runs", "run_id", &[])
    }),
    rule("recovery_paged", SECTION, "all pages of a recovery show the same state of the run").test(
        |scenario, mut run| {
            let request_ids =
                [call(scenario, &mut run, 1)?, call(scenario, &mut run, 2)?, call(scenario, &mut run, 3)?];
            let first = scenario.query_run(&run, "/recovery", &[("limit", "2")])?.ok()?;
            first.lists("/completed", "id", &[&request_ids[0], &request_ids[1]])?;
            let mut next = cursor(&first)?;
            call(scenario, &mut run, 4)?;
            let mut listed_ids = Vec::new();
            let mut page = first.clone();
            for _ in 0..6 {
                page = scenario.query_run(&run, "/recovery", &[("limit", "2"), ("cursor", &next)])?.ok()?;
                for member in ["/next_journal_seq", "/epoch", "/hash", "/position"] {
                    page.has(member, first.value_at(member).clone())?;
                }
                let completed = page.list("/completed")?;
                listed_ids
                    .extend(completed.iter().map(|call_item| call_item["id"].as_str().unwrap_or_default().to_owned()));
                if page.value_at("/next_cursor").is_null() {
                    break;
                }
                next = cursor(&page)?;
            }
            page.check(
                listed_ids == request_ids[2..],
                format!("{:?} on the next pages, not {listed_ids:?}", &request_ids[2..]),
            )
        },
    ),
    rule("tail_in_order", SECTION, "a tail sends a run's records in order, each with its cursor").test(
        |scenario, mut run| {
            let turn_ids = append_turns(scenario, &mut run, 3)?;
            let (answer, events) = tail(scenario, &run, "beginning")?;
            let lines: Vec<Value> = events.iter().map(|(_, line)| line.clone()).collect();
            answer.check(ids(&lines) == turn_ids, format!("events of {turn_ids:?}"))?;
            let own = events.iter().all(|(id, line)| !id.is_empty() && line["cursor"] == **id);
            answer.check(own, "each event's id is its line's cursor")?;
            let (answer, events) = tail(scenario, &run, "end")?;
            answer.check(events.is_empty(), "no event after the end")
        },
    ),
    rule("tail_goes_on", SECTION, "a tail resumes after a cursor, without gap or repeat").test(|scenario, mut run| {
        let turn_ids = append_turns(scenario, &mut run, 3)?;
        let (answer, events) = tail(scenario, &run, "beginning")?;
        let Some((cursor, _)) = events.get(1) else { return Err(answer.failure("three events")) };
        let more = append_turns(scenario, &mut run, 2)?;
        let (answer, events) = tail(scenario, &run, cursor)?;
        let lines: Vec<Value> = events.into_iter().map(|(_, line)| line).collect();
        let expected = [&turn_ids[2..], &more[..]].concat();
        answer.check(ids(&lines) == expected, format!("events of {expected:?}"))
    }),
    rule(
        "tail_follows",
        SECTION,
        "a tail sends records that are appended later, also of a run that does not exist yet",
    )
    .test(|scenario, mut run| {
        let mut tail = scenario.open_tail(&run)?;
        for message_id in ["a", "b", "c"] {
            let id = scenario.append(&mut run, turn(message_id))?;
            let line = scenario.next(&mut tail)?;
            let head = scenario.head(&run)?;
            head.check(line["record_id"] == id, format!("{id} as the next line of the tail, not {line}"))?;
        }
        Ok(())
    }),
    rule("cursors_refused", SECTION, "a cursor of another query is refused").test(|scenario, _| {
        let (mut one, mut other) = (scenario.run(), scenario.run());
        append_turns(scenario, &mut one, 2)?;
        append_turns(scenario, &mut other, 2)?;
        let page = scenario.query_run(&one, "/records", &[("limit", "1")])?.ok()?;
        let next = cursor(&page)?;
        scenario.query_run(&other, "/records", &[("cursor", &next)])?.expect_problem(400, "usage")?;
        scenario.query_run(&one, "/recovery", &[("cursor", &next)])?.expect_problem(400, "usage")
    }),
];

/// Appends turns and returns their ids.
fn append_turns(scenario: &mut Scenario<'_>, run: &mut Run, count: u32) -> Checked<Vec<String>> {
    (0..count).map(|number| scenario.append(run, turn(&number.to_string()))).collect()
}

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["record_id"].as_str().unwrap_or_default()).collect()
}

fn cursor(page: &Answer) -> Checked<String> {
    page.value_at("/next_cursor").as_str().map(str::to_owned).ok_or_else(|| page.failure("a next_cursor"))
}

fn list_runs(scenario: &mut Scenario<'_>, run: &Run, query: &[(&str, &str)]) -> Checked<Answer> {
    let (partition, offset) = run.last.unwrap_or_default();
    let mut target = Target::new("/v1/runs").with("prefix", scenario.prefix());
    for (name, value) in query {
        target = target.with(name, value);
    }
    scenario.get(target.with("consistency", format!("at-least={partition}:{offset}")))?.ok()
}

/// Checks that the run is in the list of runs.
fn check_is_listed(scenario: &mut Scenario<'_>, run: &Run) -> Checked {
    let (partition, offset) = run.last.unwrap_or_default();
    super::http::runs_at(scenario, run, &format!("at-least={partition}:{offset}")).needs("at_least_of_lists")
}

/// Appends a call and its result. Returns the id of the request.
fn call(scenario: &mut Scenario<'_>, run: &mut Run, seat: u32) -> Checked<String> {
    let request_id = scenario.append(run, request("book", &json!({"seat": seat})))?;
    scenario.append(run, completed(&request_id, &json!("done")))?;
    Ok(request_id)
}

/// Reads a tail to the current end of the run. Returns the cursor and line of each event.
fn tail(scenario: &mut Scenario<'_>, run: &Run, from: &str) -> Checked<(Answer, Vec<(String, Value)>)> {
    let answer = scenario.query_run(run, "/tail", &[("from", from), ("until_end", "true")])?.ok()?;
    let mut events = Vec::new();
    for event in answer.text.replace("\r\n", "\n").split("\n\n") {
        let field = |name: &str| {
            let lines = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            lines.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n")
        };
        if !field("data").is_empty() {
            events.push((field("id"), serde_json::from_str(&field("data")).unwrap_or_default()));
        }
    }
    Ok((answer, events))
}
