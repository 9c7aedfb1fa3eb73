//! The home of a journal: the log to which the journal's servers append. A mirror of that log has the same records, but another
//! log id.
//!
//! ```text
//!   genesis record ─▶ header runlog-home ─▶ carried ─▶ advance ─▶ HomeRow ─▶ HomeState ─▶ role
//! ```
//!
//! A home is a header of a genesis record, because a mirror copies records with their headers. The home in force is a function of
//! a partition's records, in log order: the home of the highest epoch.

use super::{error::Error, store::meta::HomeRow};
use runlog_schemas::id::{LogId, Offset, PartitionId, RunId};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::watch;

mod unread;

use unread::Unread;

/// The greatest epoch of a home. A header with a greater one has no effect.
pub const EPOCH_MAX: u32 = 1_000_000;
/// The greatest size of a header, bytes: it is copied into rows and errors. A larger one has no effect.
pub(crate) const BYTES_MAX: usize = 16 << 10;

/// What is wrong with a server that has the role [`Role::Uncommitted`].
pub const READ_UNCOMMITTED: &str = "this server began to read before it knew that its log began as a mirror, so it may have applied \
                                    records of aborted transactions";

/// The name of the header.
pub const HEADER: &str = "runlog-home";

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The journal has a home.
    Home(Home),
    /// An operator has checked a run after the loss of a home.
    Accept(Accept),
}

/// A home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The number of the home within the journal, from 1.
    pub epoch: u32,
    /// The log.
    pub log: LogId,
    /// The home before it, if this home took over from one.
    #[serde(default)]
    pub from: Option<LogId>,
    /// The author of the decision; empty for the home of a new journal.
    #[serde(default)]
    pub who: String,
    /// The reason.
    #[serde(default)]
    pub why: String,
}

/// An operator's statement that a run may continue although its home was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// The epoch of the home that it follows. For another home it has no effect: it may be a late copy.
    pub epoch: u32,
    /// The run; `None` for all runs that this log does not know.
    #[serde(default)]
    pub run: Option<RunId>,
    /// The author.
    #[serde(default)]
    pub who: String,
    /// The reason.
    #[serde(default)]
    pub why: String,
}

/// A header that this version cannot use. It has no effect.
#[derive(Debug, thiserror::Error)]
#[error("the header {HEADER} is ignored, because {why}")]
pub struct Malformed {
    why: String,
}

/// The JSON of a header, with exactly one of its members.
#[derive(Deserialize)]
struct Value {
    home: Option<Home>,
    accept: Option<Accept>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ValueRef<'a> {
    Home(&'a Home),
    Accept(&'a Accept),
}

/// Encodes a header.
pub fn header(carried: &Carried) -> (String, Vec<u8>) {
    let value = match carried {
        Carried::Home(home) => ValueRef::Home(home),
        Carried::Accept(accept) => ValueRef::Accept(accept),
    };
    (HEADER.to_owned(), serde_json::to_vec(&value).expect("texts and numbers are JSON"))
}

/// Decodes the first header with the name [`HEADER`]. Returns `None` if there is none.
pub fn carried(headers: &[(String, Vec<u8>)]) -> Result<Option<Carried>, Malformed> {
    let Some((_, bytes)) = headers.iter().find(|(name, _)| name == HEADER) else { return Ok(None) };
    let malformed = |why: String| Malformed { why };
    // The error of serde_json may contain the text, which a foreign producer chose.
    let not_json = |error: serde_json::Error| malformed(format!("its JSON does not decode at byte {}", error.column()));
    if bytes.len() > BYTES_MAX {
        return Err(malformed(format!("it has {} bytes, more than {BYTES_MAX}", bytes.len())));
    }
    match serde_json::from_slice(bytes).map_err(not_json)? {
        Value { home: Some(home), accept: None } if !(1..=EPOCH_MAX).contains(&home.epoch) => {
            Err(malformed(format!("the epoch of log {} is {}, not in 1..={EPOCH_MAX}", home.log, home.epoch)))
        }
        Value { home: Some(home), accept: None } => Ok(Some(Carried::Home(home))),
        Value { home: None, accept: Some(accept) } => Ok(Some(Carried::Accept(accept))),
        Value { home: None, accept: None } => Err(malformed("it has neither a home nor an accept".to_owned())),
        Value { home: Some(_), accept: Some(_) } => Err(malformed("it has both a home and an accept".to_owned())),
    }
}

/// Applies the home in the record at `offset`, which the log stamped `millis`, to a partition's row. Returns the new row, or `None`
/// if the row stays as it is.
pub fn advance(row: Option<&HomeRow>, home: &Home, offset: Offset, millis: i64) -> Option<HomeRow> {
    let new_row = |origin: &str| HomeRow {
        epoch: home.epoch,
        log: home.log.to_string(),
        origin: origin.to_owned(),
        rival: String::new(),
        from: home.from.as_ref().map_or_else(String::new, LogId::to_string),
        offset,
        logged_at_millis: millis,
        who: home.who.clone(),
        why: home.why.clone(),
    };
    match row {
        // The earlier records belong to the earlier home, if this home took over from one.
        None => Some(new_row(home.from.as_ref().unwrap_or(&home.log).as_str())),
        Some(row) if home.epoch > row.epoch => Some(new_row(&row.origin)),
        Some(row) => with_rival(row, home.epoch, home.log.as_str()),
    }
}

/// The row with `log` as its rival. `None` if the log is no rival, or the row has one already.
fn with_rival(row: &HomeRow, epoch: u32, log: &str) -> Option<HomeRow> {
    let is_rival = epoch == row.epoch && !log.is_empty() && log != row.log && row.rival.is_empty();
    is_rival.then(|| HomeRow { rival: log.to_owned(), ..row.clone() })
}

impl HomeRow {
    /// The home, to repeat it in another partition. `None` if the row names no log.
    pub fn home(&self) -> Option<Home> {
        let Self { epoch, log, from, who, why, .. } = self;
        let from = LogId::parse(from).ok();
        Some(Home { epoch: *epoch, log: LogId::parse(log).ok()?, from, who: who.clone(), why: why.clone() })
    }
}

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The journal has no home.
    Unknown,
    /// The server reads the home.
    Home,
    /// The server reads a mirror, or cannot prove that it reads the home.
    Mirror,
    /// Two logs were made the home in one epoch. One of them is a mirror.
    Contested,
    /// The server reads the home, which began as a mirror, and read it uncommitted, because it did not know that at its start. It may have
    /// applied records of aborted transactions, until a restart.
    Uncommitted,
}

impl Role {
    fn new(own: Option<&LogId>, known: Option<&HomeRow>) -> Self {
        match known {
            None => Self::Unknown,
            Some(row) if !row.rival.is_empty() => Self::Contested,
            Some(row) if own.is_some_and(|own| own.as_str() == row.log) => Self::Home,
            Some(_) => Self::Mirror,
        }
    }
}

/// The home of a server's journal, as far as its partitions know it, and the id of the server's own log.
#[derive(Debug)]
pub struct HomeState {
    own: Option<LogId>,
    known: watch::Sender<Option<HomeRow>>,
    /// Whether the server also reads records of open and aborted transactions.
    uncommitted: AtomicBool,
    /// Whether the server holds only some partitions of the journal.
    partial: AtomicBool,
    unread: Unread,
}

impl HomeState {
    /// The state of a server with this log and this home, if they are known.
    pub fn new(own: Option<LogId>, known: Option<HomeRow>) -> Arc<Self> {
        Arc::new(Self {
            own,
            known: watch::Sender::new(known),
            uncommitted: AtomicBool::new(false),
            partial: AtomicBool::new(false),
            unread: Unread::default(),
        })
    }

    /// The role of the server.
    pub fn role(&self) -> Role {
        self.role_of(self.row().as_ref())
    }

    fn role_of(&self, known: Option<&HomeRow>) -> Role {
        let role = Role::new(self.own.as_ref(), known);
        let is_uncommitted = role == Role::Home
            && self.uncommitted.load(Ordering::Relaxed)
            && known.is_some_and(|known| known.origin != known.log);
        if is_uncommitted { Role::Uncommitted } else { role }
    }

    /// The server also reads records of open and aborted transactions. Call it before the server answers.
    pub(crate) fn reads_uncommitted(&self) {
        self.uncommitted.store(true, Ordering::Relaxed);
    }

    /// The server holds only some partitions of the journal. Call it before the server answers.
    pub(crate) fn holds_a_part(&self) {
        self.partial.store(true, Ordering::Relaxed);
    }

    /// Whether the server holds only some partitions of the journal.
    pub(crate) fn lacks_partitions(&self) -> bool {
        self.partial.load(Ordering::Relaxed)
    }

    /// Whether the log can be a mirror although the server knows no home: records that were in the log at the start are not applied
    /// yet, and may name a home of `partition`; or the home may be in a partition that the server does not hold.
    pub fn can_be_mirror(&self, partition: PartitionId) -> bool {
        let is_unread = || self.partial.load(Ordering::Relaxed) || self.unread.concerns(partition);
        self.role() == Role::Unknown && is_unread()
    }

    /// The reason why the server cannot know whether its log is a mirror.
    pub(crate) fn why_unknown(&self) -> &'static str {
        if self.partial.load(Ordering::Relaxed) {
            "this server does not hold all partitions and knows no home of the journal, so its log may be a mirror; `runlog home init` \
             at a server of all partitions gives the journal a home"
        } else {
            "this server has not read its log yet, and cannot know whether it is a mirror"
        }
    }

    /// Expects a partition's records below `end`, which are in the log at the start.
    pub(crate) fn expect(&self, partition: PartitionId, end: Offset) {
        self.unread.add(partition, end);
    }

    /// Updates the offset (exclusive) up to which a partition is applied, and whether it is stopped until a skip.
    pub(crate) fn report(&self, partition: PartitionId, applied: Offset, waits_for_skip: bool) {
        self.unread.report(partition, applied, waits_for_skip);
    }

    /// The home in force.
    pub fn known(&self) -> Option<HomeRow> {
        self.row().clone()
    }

    fn row(&self) -> watch::Ref<'_, Option<HomeRow>> {
        self.known.borrow()
    }

    /// Waits until the server has this role.
    pub async fn await_role(&self, role: Role) {
        // The sender is in `self`, so the channel stays open.
        drop(self.known.subscribe().wait_for(|known| self.role_of(known.as_ref()) == role).await);
    }

    /// Waits until the server knows a home.
    pub(crate) async fn await_known(&self) {
        // The sender is in `self`, so the channel stays open.
        drop(self.known.subscribe().wait_for(Option::is_some).await);
    }

    /// The home in force, if it took over from a lost one.
    pub fn takeover(&self) -> Option<HomeRow> {
        self.row().as_ref().filter(|row| row.epoch > 1).cloned()
    }

    /// The id of the server's own log.
    pub fn own(&self) -> Option<&LogId> {
        self.own.as_ref()
    }

    /// Updates the known home from the committed row of a partition. The higher epoch wins. Two partitions whose homes differ in one
    /// epoch make the home contested.
    pub fn learn(&self, row: &HomeRow) {
        self.known.send_if_modified(|known| {
            let new_row = match known {
                None => Some(row.clone()),
                Some(known) if row.epoch > known.epoch => Some(row.clone()),
                Some(known) => {
                    with_rival(known, row.epoch, &row.log).or_else(|| with_rival(known, row.epoch, &row.rival))
                }
            };
            let is_new = new_row.is_some();
            *known = new_row.or_else(|| known.take());
            is_new
        });
    }

    /// The id of the own log, if answers must name it: if the journal has a home.
    pub fn tag(&self) -> Option<&LogId> {
        self.own.as_ref().filter(|_| self.role() != Role::Unknown)
    }

    /// Whether a skip in a partition with this home names an offset of the server's own log. Another log has other offsets. Without
    /// a home in the partition, its records are of the log where the journal began.
    pub fn is_own_skip(&self, row: Option<&HomeRow>) -> bool {
        let own = self.own.as_ref().map(LogId::as_str);
        match row {
            Some(row) => row.rival.is_empty() && own == Some(row.log.as_str()),
            None => self.known().is_none_or(|known| own == Some(known.origin.as_str())),
        }
    }

    /// Whether the log holds records that a mirror copied, as far as this server knows. Its own log is then to be read committed: the
    /// mirror's transactions may have been aborted.
    pub fn began_as_mirror(&self) -> bool {
        let own = self.own.as_ref().map(LogId::as_str);
        self.known().is_some_and(|known| own != Some(known.origin.as_str()))
    }

    /// Refuses a call that only the home can answer. `what` is the call, such as "an append".
    ///
    /// Errors: `Unavailable` with the reason `mirror` on a mirror and while two logs are homes.
    pub fn check_home(&self, what: &str) -> Result<(), Error> {
        if matches!(self.role(), Role::Unknown | Role::Home) {
            return Ok(());
        }
        let Some(row) = self.known() else { return Ok(()) };
        let role = self.role_of(Some(&row));
        let HomeRow { log: home, rival, .. } = row;
        let message = match (&self.own, role) {
            // Another thread has learned a later home.
            (_, Role::Unknown | Role::Home) => return Ok(()),
            (_, Role::Contested) => format!(
                "this journal has home records of two logs, {home} and {rival}, because a mirror was initialised or two clusters are \
                 mirrored to each other: {what} is refused and had no effect; use the server of the cluster where agents write"
            ),
            (_, Role::Uncommitted) => format!(
                "{READ_UNCOMMITTED}: {what} is refused and had no effect; restart the server, which builds its index again"
            ),
            (Some(own), _) => format!(
                "this server reads log {own}, a mirror of the home {home}: {what} is possible at the home only and had no effect; \
                 ask a server of the home, or read at eventual"
            ),
            (None, _) => format!(
                "these brokers give no topic id, so this server cannot prove that it reads the home {home}: {what} is refused and \
                 had no effect; ask a server of the home, or read at eventual"
            ),
        };
        Err(Error::not_home(message, LogId::parse(&home).ok()))
    }

    /// Refuses a position or a cursor of another log. `what` is its parameter, and `named` the log that it names.
    ///
    /// A position or cursor without a log is accepted while the journal has been in one log only.
    ///
    /// Errors: `Conflict` with the reason `foreign_log`; `Invalid` if `named` is no id of a log.
    pub fn check_log(&self, what: &str, named: Option<&str>) -> Result<(), Error> {
        let Some(named) = named else {
            return if self.has_one_log() {
                Ok(())
            } else {
                Err(Error::foreign_log(format!(
                    "{what} names no log, and this journal is in several logs; repeat the query that returned it, or write a \
                     position as P:O@LOG"
                )))
            };
        };
        let named = LogId::parse(named)?;
        match &self.own {
            Some(own) if *own == named => Ok(()),
            Some(own) => Err(Error::foreign_log(format!(
                "{what} belongs to log {named}, and this server reads log {own}; repeat the query that returned it"
            ))),
            None => Err(Error::foreign_log(format!(
                "{what} belongs to log {named}, and these brokers give no topic id to compare it with; repeat the query that \
                 returned it"
            ))),
        }
    }

    /// Whether the journal's records have been in one log only, as far as this server knows.
    fn has_one_log(&self) -> bool {
        match self.role() {
            Role::Unknown => true,
            Role::Home => self.known().is_some_and(|row| row.epoch == 1 && row.origin == row.log),
            Role::Mirror | Role::Contested | Role::Uncommitted => false,
        }
    }
}

#[cfg(test)]
mod tests;
