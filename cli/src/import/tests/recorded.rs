//! Runs the importers on recorded runs, and compares their results with a second, simpler reading of the files.

use runlog_schemas::json::Json;
use runlog_schemas::judge::Verdict;
use runlog_schemas::payload::ToolCallRequested;
use serde_json::Value;

use super::*;
use crate::import::records::tests::Journal;

/// Returns the sample files of a format. Panics without samples; scripts/test.sh skips these tests then.
fn samples(format: &str) -> Vec<PathBuf> {
    let folder = std::env::var_os("RUNLOG_SAMPLES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let entries = std::fs::read_dir(folder.join(format))
        .unwrap_or_else(|error| panic!("set RUNLOG_SAMPLES to a folder with {format}/: {}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json" || extension == "traj"));
    files.sort();
    files
}

fn parse(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn json(text: &Json) -> Value {
    serde_json::from_str(text.as_str()).unwrap()
}

/// Returns the run's messages as JSON values.
fn messages(run: &ImportedRun) -> Vec<Value> {
    run.messages.iter().map(json).collect()
}

/// Returns each call's tool, arguments and result. A failed call's message counts as its result.
fn calls(run: &ImportedRun) -> Vec<(String, Value, Option<Value>)> {
    let answer = |asked: usize| {
        run.events.iter().find_map(|event| match event {
            Event::CallCompleted { request, result } if *request == asked => Some(json(result)),
            Event::CallFailed { request, message } if *request == asked => Some(message.clone().into()),
            _ => None,
        })
    };
    let call = |(index, event): (usize, &Event)| match event {
        Event::CallRequested(ToolCallRequested { tool_name, arguments: Some(arguments), .. }) => {
            Some((tool_name.clone(), json(arguments), answer(index)))
        }
        _ => None,
    };
    run.events.iter().enumerate().filter_map(call).collect()
}

/// Checks properties of every run: each message has a turn, checkpoints grow, each call is answered once and after its request,
/// and the judge applies every record.
fn check_shape(run: &ImportedRun) {
    let mut turns = 0;
    let mut saved = 0;
    let mut answered = std::collections::HashSet::new();
    for (index, event) in run.events.iter().enumerate() {
        match event {
            Event::Turn { message, .. } => {
                assert_eq!(*message, turns, "{}", run.run_id);
                turns += 1;
            }
            Event::CallCompleted { request, .. } | Event::CallFailed { request, .. } => {
                assert!(*request < index && answered.insert(*request), "{}", run.run_id);
            }
            Event::Checkpoint { messages, unanswered } => {
                assert!(*messages == turns && *messages >= saved && unanswered.is_empty(), "{}", run.run_id);
                saved = *messages;
            }
            Event::RunStarted | Event::CallRequested(_) | Event::CallObserved(_) | Event::RunEnded { .. } => {}
        }
    }
    assert_eq!(turns, run.messages.len(), "{}", run.run_id);
    let mut journal = Journal::default();
    for record in records(run) {
        let verdict = journal.take(&record);
        assert!(matches!(verdict, Verdict::Applied { no_op: false, .. }), "{}: {verdict:?}", run.run_id);
    }
    assert_eq!(journal.head.records, run.events.len() as u64);
}

#[test]
fn every_tau_bench_run_is_planned_with_all_its_messages_calls_and_results() {
    for file in samples("tau-bench") {
        let source = parse(&file);
        let runs = plan_files(Format::TauBench, &[file], None).unwrap();
        assert_eq!(runs.len(), source.as_array().unwrap().len());
        for (run, source) in runs.iter().zip(source.as_array().unwrap()) {
            check_shape(run);
            let traj = source["traj"].as_array().unwrap();
            assert_eq!(&messages(run), traj, "{}", run.run_id);
            let requested_calls = traj.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
            let answers = traj.iter().filter(|message| message["role"] == "tool").map(|message| &message["content"]);
            let expected: Vec<_> = requested_calls
                .zip(answers)
                .map(|(call, answer)| {
                    let function = &call["function"];
                    let name = function["name"].as_str().unwrap().to_owned();
                    (name, serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap(), Some(answer.clone()))
                })
                .collect();
            assert_eq!(calls(run), expected, "{}", run.run_id);
        }
    }
}

#[test]
fn the_tau_bench_sample_has_a_hundred_runs_and_577_calls_of_which_21_failed() {
    let files = samples("tau-bench");
    let even_tasks: Vec<_> =
        files.into_iter().filter(|file| file.ends_with("gpt-4o-airline-even-tasks.json")).collect();
    if even_tasks.is_empty() {
        return;
    }
    let runs = plan_files(Format::TauBench, &even_tasks, None).unwrap();
    let failed =
        runs.iter().flat_map(|run| &run.events).filter(|event| matches!(event, Event::CallFailed { .. })).count();
    assert_eq!((runs.len(), runs.iter().map(ImportedRun::tool_calls).sum::<usize>(), failed), (100, 577, 21));
}

#[test]
fn every_swe_agent_run_is_planned_with_all_its_messages_calls_and_results() {
    for file in samples("swe-agent") {
        let source = parse(&file);
        let run = plan_files(Format::SweAgent, std::slice::from_ref(&file), None).unwrap().remove(0);
        check_shape(&run);
        assert_eq!(&messages(&run), source["history"].as_array().unwrap(), "{}", run.run_id);
        let results: Vec<_> = calls(&run).into_iter().map(|(_, _, result)| result).collect();
        if let Some(trajectory) = source["trajectory"].as_array() {
            // In these files, steps have the order of their messages.
            let observations: Vec<_> = trajectory.iter().map(|step| Some(step["observation"].clone())).collect();
            assert_eq!(results, observations, "{}", run.run_id);
        } else {
            assert_eq!(results.len(), run.tool_calls());
        }
        let last = run.events.iter().rev().find_map(|event| match event {
            Event::Checkpoint { messages, .. } => Some(*messages),
            _ => None,
        });
        assert_eq!(last, Some(run.messages.len()), "{}", run.run_id);
    }
}

#[test]
fn a_files_checkpoints_cost_at_most_twice_its_messages_and_a_little_each() {
    let formats = [("tau-bench", Format::TauBench), ("swe-agent", Format::SweAgent)];
    for (format, file) in
        formats.into_iter().flat_map(|(name, format)| samples(name).into_iter().map(move |f| (format, f)))
    {
        let (mut messages, mut whole, mut log, mut count) = (0, 0, 0, 0);
        for run in plan_files(format, std::slice::from_ref(&file), None).unwrap() {
            let size = |messages: &[Json]| messages.iter().map(|message| message.as_str().len()).sum::<usize>();
            messages += size(&run.messages);
            for (event, record) in run.events.iter().zip(records(&run)) {
                if let Event::Checkpoint { messages, .. } = event {
                    (whole, log, count) =
                        (whole + size(&run.messages[..*messages]), log + encode(&record).len(), count + 1);
                }
            }
        }
        println!(
            "{}: {count} checkpoints, {messages} bytes of messages, {whole} whole, {log} in the log",
            file.display()
        );
        assert!(log <= 2 * messages + 1024 * count, "{}", file.display());
    }
}
