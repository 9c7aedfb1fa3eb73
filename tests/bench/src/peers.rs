//! Alternatives to Runlog, and their installation. The report names a peer that cannot be installed.

use clap::ValueEnum;
use runlog_tests::programs::{here, output};
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, path::PathBuf, process::Command};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// Apache Kafka's ProducerPerformance and ConsumerPerformance.
    KafkaTools,
    /// The same indices with Kafka Streams.
    Streams,
    /// LangGraph's saver for SQLite.
    Sqlite,
    /// LangGraph's saver for PostgreSQL, and Debian's PostgreSQL.
    Postgres,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KafkaTools => "Apache Kafka's performance tools",
            Self::Streams => "Kafka Streams",
            Self::Sqlite => "LangGraph's saver for SQLite",
            Self::Postgres => "LangGraph's saver for PostgreSQL",
        }
    }
}

/// A peer without figures in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotRun {
    pub peer: Peer,
    /// Whether the command line left it out; otherwise the run fails.
    pub left_out: bool,
    pub why: String,
}

/// The peers of a run.
#[derive(Debug)]
pub(crate) struct Peers {
    without: Vec<Peer>,
    not_run: RefCell<Vec<NotRun>>,
}

impl Peers {
    /// All peers except `without`.
    pub(crate) fn new(without: Vec<Peer>) -> Self {
        Self { without, not_run: RefCell::default() }
    }

    /// The result of `install`; `None` if the peer is left out or cannot be installed. The report then names it.
    pub(crate) fn get<T>(&self, peer: Peer, install: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let left_out = self.without.contains(&peer);
        let failed = if left_out {
            "left out by the command line".to_owned()
        } else {
            match install() {
                Ok(installed) => return Some(installed),
                // The error in one line; the output of a program may have several.
                Err(error) => format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "),
            }
        };
        eprintln!("not run: {}: {failed}", peer.name());
        let not_run = NotRun { peer, left_out, why: failed };
        let mut all = self.not_run.borrow_mut();
        // Several figures may have the same peer.
        if !all.contains(&not_run) {
            all.push(not_run);
        }
        None
    }

    pub(crate) fn not_run(self) -> Vec<NotRun> {
        self.not_run.into_inner()
    }
}

/// The folder of the pinned jars, which are fetched if missing.
pub(crate) fn jars() -> anyhow::Result<PathBuf> {
    output(Command::new(here("java/jars.sh")).arg(here("peers"))).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_cannot_be_installed_is_named_once_and_fails_the_run_unless_it_was_left_out() {
        for left_out in [false, true] {
            let peers = Peers::new(left_out.then_some(Peer::KafkaTools).into_iter().collect());
            for _ in 0..2 {
                assert_eq!(peers.get(Peer::KafkaTools, || anyhow::bail!("no Maven") as anyhow::Result<()>), None);
            }
            let not_run = peers.not_run();
            assert_eq!(not_run.iter().map(|peer| peer.left_out).collect::<Vec<_>>(), [left_out]);
            assert_eq!(not_run.iter().any(|peer| peer.why == "no Maven"), !left_out);
        }
    }
}
