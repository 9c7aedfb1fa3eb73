//! LangGraph's checkpointers at equal durability: `RunlogSaver`, and the savers for SQLite and PostgreSQL. Each saves and
//! loads a long thread. `clients/python/tests/saver_latency.py` measures them.

use anyhow::Context;
use runlog_tests::programs::{here, output};
use serde::Deserialize;
use std::{collections::BTreeMap, process::Command};

use crate::{
    Scale,
    peers::{Peer, Peers},
    report::{Figure, Goal, Row, Unit},
};

/// Turns of a thread; the last fifty are measured.
const TURNS: u32 = 500;

/// The output of the program.
#[derive(Debug, Deserialize)]
struct Printed {
    /// The versions of each peer and of its store.
    versions: BTreeMap<String, String>,
    /// The rounds of each saver, by its name.
    savers: BTreeMap<String, Vec<Thread>>,
}

/// A thread: medians of its last turns, ms, and the bytes that all its turns stored.
#[derive(Debug, Deserialize)]
struct Thread {
    save: f64,
    load: f64,
    both: f64,
    bytes: f64,
}

/// The figure; `None` if both peers are missing.
pub(crate) fn run(scale: &Scale, peers: &Peers) -> anyhow::Result<Option<Figure>> {
    let sqlite = peers.get(Peer::Sqlite, || importable("langgraph.checkpoint.sqlite.aio"));
    let postgres = peers.get(Peer::Postgres, || {
        importable("langgraph.checkpoint.postgres.aio")?;
        output(Command::new(here("../scripts/setup.sh")).arg("postgres"))?;
        // The script installs PostgreSQL only on Debian.
        output(Command::new("sh").args(["-c", "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"])).map(drop)
    });
    if sqlite.is_none() && postgres.is_none() {
        return Ok(None);
    }
    let mut program = python("saver-latency");
    program.args(["--turns", &TURNS.to_string(), "--rounds", &scale.threads.to_string()]);
    for (there, name) in [(sqlite, "sqlite"), (postgres, "postgres")] {
        if there.is_none() {
            program.args(["--without", name]);
        }
    }
    let printed = output(&mut program)?;
    let printed: Printed = serde_json::from_str(&printed).with_context(|| format!("the savers' figures: {printed}"))?;
    figure(&printed).map(Some)
}

fn figure(printed: &Printed) -> anyhow::Result<Figure> {
    let values = |name: &str, of: fn(&Thread) -> f64| -> Vec<f64> {
        printed.savers.get(name).into_iter().flatten().map(of).collect()
    };
    let ours = values("Runlog", |thread| thread.both);
    anyhow::ensure!(!ours.is_empty(), "no figures of Runlog's saver: {printed:?}");
    let mut rows = Vec::new();
    for name in ["PostgreSQL", "SQLite"].into_iter().filter(|name| printed.savers.contains_key(*name)) {
        let both =
            Row::ratio(format!("{name}'s save and load over Runlog's"), &values(name, |thread| thread.both), &ours);
        rows.push(if name == "PostgreSQL" { both.goal(Goal::AtLeast(10.0)) } else { both });
        let (bytes, mine) = (values(name, |thread| thread.bytes), values("Runlog", |thread| thread.bytes));
        rows.push(Row::ratio(format!("{name}'s bytes over Runlog's"), &bytes, &mine));
    }
    for name in ["Runlog", "PostgreSQL", "SQLite"].into_iter().filter(|name| printed.savers.contains_key(*name)) {
        rows.push(Row::new(format!("{name}, save and load"), Unit::Millis, values(name, |thread| thread.both)));
        rows.push(Row::new(format!("{name}, save"), Unit::Millis, values(name, |thread| thread.save)));
        rows.push(Row::new(format!("{name}, load"), Unit::Millis, values(name, |thread| thread.load)));
        rows.push(Row::new(
            format!("{name}, on disk"),
            Unit::Mebibytes,
            values(name, |thread| thread.bytes / 1048576.0),
        ));
    }
    let versions: Vec<_> = printed.versions.iter().map(|(name, version)| format!("{name}'s is {version}")).collect();
    Ok(Figure {
        title: "Checkpoints of LangGraph".into(),
        method: format!(
            "A thread of {TURNS} turns whose message list grows by 700 bytes of prose a turn, saved whole after each; medians of the \
             last fifty turns, of a save and of the load of the newest checkpoint after it, in Python. All are synced to disk before \
             a save returns: Runlog with a local log, SQLite with synchronous=FULL, PostgreSQL with its defaults. On disk are, of \
             Runlog, log and indices; of PostgreSQL what its database grew by, without its WAL. Savers: {}.",
            versions.join("; ")
        ),
        rows,
    })
}

fn python(mode: &str) -> Command {
    let mut command = Command::new(here("../scripts/python.sh"));
    command.arg(mode);
    command
}

/// Creates the Python environment if it is missing, and fails unless it has the module.
fn importable(module: &str) -> anyhow::Result<()> {
    output(python("run").args(["-c", &format!("import {module}")])).map(drop)
}
