//! Findings about the home of the journal: the role of this server, and a mirror whose records cannot be trusted.
//!
//! No advice of a finding appends to a mirror or gives a mirror a home: a wrong home stops the journal's own servers on every
//! mirror.

use super::{many, warning};
use crate::app::App;
use runlog_log::{LogSettings, Weakness};
use runlog_projector::index::{
    error::Error,
    home::{READ_UNCOMMITTED, Role},
    query::{self, counts::COUNT_MAX, runs::Filter},
    store::{
        Rows as _,
        meta::{self, HomeRow, Progress},
    },
};
use runlog_schemas::{
    answer::{Finding, PartitionHealth, PartitionState, Severity},
    id::{LogId, PartitionId},
    shell,
};

/// The command that gives the journal a home.
fn init(log: &str) -> String {
    shell::command("runlog home init", &[log], "--who NAME --why TEXT")
}

/// The prefix of the ids of Kafka topics. Other logs have no mirrors.
const KAFKA: &str = "kafka:";

/// The home of a journal, as this server knows it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) journal: String,
    /// The server's own log.
    pub(super) own: Option<LogId>,
    pub(super) role: Role,
    pub(super) known: Option<HomeRow>,
    /// Whether the server leaves out records of open and aborted transactions.
    pub(super) reads_committed: bool,
    /// The running partitions that have applied the whole log.
    pub(super) caught_up: Vec<CaughtUp>,
    /// The open runs that a lost home may have continued; at most [`COUNT_MAX`] runs of a partition are looked at.
    pub(super) runs_in_doubt: u64,
}

/// A partition that has applied the whole log.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaughtUp {
    pub(super) partition: PartitionId,
    /// The epoch of the home that it knows; 0 if it knows none.
    pub(super) epoch: u32,
    /// Whether the last offset of the log is a record, and not the marker of a transaction's end.
    pub(super) ends_in_record: bool,
}

/// Whether this server appends nothing.
pub(super) fn is_read_only(app: &App) -> bool {
    matches!(app.projector.home().role(), Role::Mirror | Role::Contested | Role::Uncommitted)
}

impl View {
    /// Reads the indices. Blocking.
    pub(super) fn read(app: &App, partitions: &[PartitionHealth]) -> Result<Self, Error> {
        let state = app.projector.home();
        let caught_up = partitions.iter().filter_map(|health| caught_up(app, health).transpose());
        Ok(Self {
            journal: app.projector.journal().journal_id.clone(),
            own: app.projector.log().id().cloned(),
            role: state.role(),
            known: state.known(),
            reads_committed: app.projector.log().reads_committed(),
            caught_up: caught_up.collect::<Result<_, _>>()?,
            runs_in_doubt: runs_in_doubt(app)?,
        })
    }

    /// Makes the findings. `settings` are absent if they could not be read.
    pub(super) fn findings(&self, settings: Option<&LogSettings>) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &self.known {
            None => findings.extend(self.without_home(settings)),
            Some(home) => {
                findings.extend(self.of_role(home));
                findings.extend(self.unread_as_mirror(home));
                findings.extend(self.without_marker());
                findings.extend(self.without_record(home));
                findings.extend(self.in_doubt(home));
            }
        }
        findings
    }

    /// Reports a journal without a home: a server on a mirror of it accepts claims.
    fn without_home(&self, settings: Option<&LogSettings>) -> Option<Finding> {
        let journal = &self.journal;
        let Some(own) = &self.own else {
            // Only a topic's number of partitions can change.
            settings?.partitions?;
            let what = "these brokers give no topic ids, so a server cannot tell a mirror from the home".to_owned();
            return Some(warning(
                what,
                "run servers on the home only, not on a mirror: see `Homes and mirrors` in docs/operate.md",
            ));
        };
        if !own.as_str().starts_with(KAFKA) {
            return None;
        }
        let what =
            format!("journal {journal} has no home, so a server on a copy of the topic would accept claims, too");
        let fix = if settings.and_then(|settings| settings.create_time) != Some(false) {
            // The command is left out: it must not be copied on a mirror.
            "this topic may be of MirrorMaker: its producers choose the timestamps, or its settings cannot be read. If it is a \
             mirror, stop this server. Set the home by `runlog home init` at a server where agents write"
                .to_owned()
        } else {
            format!("where agents write, not on a mirror: `{}`", init(own.as_str()))
        };
        Some(warning(what, &fix))
    }

    /// Reports that this server is on a mirror, or that it cannot know which log is the home.
    fn of_role(&self, home: &HomeRow) -> Option<Finding> {
        let (journal, HomeRow { log, rival, .. }) = (&self.journal, home);
        match (self.role, &self.own) {
            // `unread_as_mirror` reports the last one.
            (Role::Home | Role::Unknown | Role::Uncommitted, _) => None,
            (Role::Contested, _) => Some(Finding {
                severity: Severity::Error.into(),
                what: format!(
                    "journal {journal} has home records of two logs, {log} and {rival}: this server refuses appends and reads at \
                     latest"
                ),
                fix: "use the server of the cluster where agents write. If this mirror was given a home: let MirrorMaker fill a new topic, \
                      and start its server with a new folder. If two clusters are mirrored to each other: stop the wrong direction"
                    .into(),
            }),
            (Role::Mirror, Some(own)) => Some(warning(
                format!("this server reads a mirror of journal {journal}: log {own}, home {log}"),
                "ask a server of the home to write, and to read at latest. In MirrorMaker's properties set \
                 ALIAS.exactly.once.source.support=enabled with the alias of this cluster; without an alias the setting is ignored. If \
                 the home is lost for good: see `The home is lost` in docs/operate.md",
            )),
            (Role::Mirror, None) => Some(warning(
                format!(
                    "these brokers give no topic id, so this server cannot prove that it reads the home {log} of journal {journal}: \
                     it refuses appends and reads at latest"
                ),
                "use the brokers that the home was set with, or ask a server of the home",
            )),
        }
    }

    /// Reports a server that began to read before it knew that its log began as a mirror.
    fn unread_as_mirror(&self, home: &HomeRow) -> Option<Finding> {
        let own = self.own.as_ref().map_or(home.log.as_str(), LogId::as_str);
        let began_as_mirror = self.own.as_ref().is_none_or(|own| own.as_str() != home.origin);
        let (what, severity) = match self.role {
            Role::Uncommitted => {
                (format!("{READ_UNCOMMITTED}: it refuses appends and reads at latest"), Severity::Error)
            }
            _ => (READ_UNCOMMITTED.to_owned(), Severity::Warning),
        };
        let fix = "restart it: it builds its indices again".into();
        let is_unread = began_as_mirror && own.starts_with(KAFKA) && !self.reads_committed;
        is_unread.then(|| Finding { severity: severity.into(), what, fix })
    }

    /// Reports the partitions of a mirror in which a copied record is no part of a transaction.
    fn without_marker(&self) -> Option<Finding> {
        if self.role != Role::Mirror || !self.reads_committed {
            return None;
        }
        let what = format!(
            "the last record of {} has no transaction marker behind it: MirrorMaker seems to write without exactly once, so records \
             may be here twice",
            list(self.caught_up.iter().filter(|partition| partition.ends_in_record))?
        );
        let fix =
            "set ALIAS.exactly.once.source.support=enabled in MirrorMaker's properties, then let it fill a new topic";
        Some(warning(what, fix))
    }

    /// Reports the open runs that wait for an operator after a home was lost.
    fn in_doubt(&self, home: &HomeRow) -> Option<Finding> {
        let count = Some(self.runs_in_doubt).filter(|count| *count > 0)?;
        let what = format!(
            "the home {} was lost, and {} may have done more than this journal knows: agents cannot continue them",
            home.from,
            many(count, "open run")
        );
        let fix = if self.role == Role::Home {
            "`runlog runs --in-doubt` lists them. Check the effects of each run at their receivers, then `runlog home accept RUN --who NAME \
             --why TEXT`"
        } else {
            "an operator accepts them at the journal's home"
        };
        Some(warning(what, fix))
    }

    /// Reports the partitions of the home that do not name it.
    fn without_record(&self, home: &HomeRow) -> Option<Finding> {
        if self.role != Role::Home {
            return None;
        }
        let missing = list(self.caught_up.iter().filter(|partition| partition.epoch < home.epoch))?;
        let fix = if home.from.is_empty() {
            format!("repeat `{}`", init(&home.log))
        } else {
            let take = shell::flag("--take-home", &home.from);
            format!("if the lag of the partition does not end, start a server again with {take} --who NAME --why TEXT")
        };
        Some(warning(format!("the record of the home {} is missing in {missing}", home.log), &fix))
    }
}

/// Counts the open runs in doubt.
fn runs_in_doubt(app: &App) -> Result<u64, Error> {
    let Some(home) = app.projector.home().takeover() else { return Ok(0) };
    let in_doubt = Filter { in_doubt_since: Some(home), ..Filter::default() };
    let (limit, now, mut count) = (usize::try_from(COUNT_MAX).unwrap_or(usize::MAX), app.projector.log_now(), 0);
    for partition in app.projector.held_partitions() {
        let store = app.projector.store(partition)?;
        let runs = query::runs::list(&store.view(), app.topic_partition(partition), &in_doubt, None, limit, now)?;
        count += runs.len() as u64;
    }
    Ok(count)
}

/// Returns the finding of a weak setting. A mirror's settings are copies, and its timestamps are the source's.
pub(super) fn of_weakness(weakness: Weakness, read_only: bool) -> Option<Finding> {
    if read_only && !weakness.can_lose {
        return None;
    }
    let fix = if read_only {
        "MirrorMaker copies the setting: correct it in the source's topic"
    } else {
        "change the topic's configuration; a journal must not lose acknowledged records"
    };
    Some(Finding { severity: Severity::Error.into(), what: weakness.what, fix: fix.into() })
}

/// Reads a partition, if it runs and has applied the whole log.
fn caught_up(app: &App, health: &PartitionHealth) -> Result<Option<CaughtUp>, Error> {
    let PartitionHealth { partition, applied, end, ref state, .. } = *health;
    let (true, Some(end)) = (*state == PartitionState::Running, end) else { return Ok(None) };
    if applied != end {
        return Ok(None);
    }
    let store = app.projector.store(partition)?;
    let view = store.view();
    let progress: Progress = view.get(&meta::progress())?.unwrap_or_default();
    let home: Option<HomeRow> = view.get(&meta::home())?;
    let ends_in_record = progress.last.is_some_and(|last| last.offset.saturating_add(1) == end);
    Ok(Some(CaughtUp { partition, epoch: home.map_or(0, |home| home.epoch), ends_in_record }))
}

/// Names partitions; `None` if there are none.
fn list<'a>(partitions: impl Iterator<Item = &'a CaughtUp>) -> Option<String> {
    let partitions: Vec<String> = partitions.map(|at| at.partition.to_string()).collect();
    match &partitions[..] {
        [] => None,
        [one] => Some(format!("partition {one}")),
        several => Some(format!("partitions {}", several.join(", "))),
    }
}

#[cfg(test)]
mod tests;
