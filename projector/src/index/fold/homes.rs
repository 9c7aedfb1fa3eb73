//! The effects of genesis records: homes and accepts, in their headers. The live fold and a bulk build derive them here, so they
//! cannot differ.
//!
//! A skip names an offset of the log that was the home at its place. In a mirror another record has that offset, so a foreign skip
//! stops the partition, and a stopped partition continues only after a skip of its own log.

use super::{Fold, Step, Stop, StopKind, genesis};
use crate::index::{
    home::{self, Accept, Carried, HomeState},
    project::Changes,
    store::{
        self, Commit,
        meta::{self, AcceptRow, HomeRow},
    },
};
use runlog_log::Delivery;
use runlog_schemas::{
    codec::{self, Envelope, Unreadable},
    id::{Offset, RunId},
    payload::{Payload, Skip},
    record::RecordKind,
};
use std::{collections::BTreeMap, sync::Arc};

/// A genesis record with a header, or of another journal.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// Its offset.
    pub(crate) offset: Offset,
    logged_at_millis: i64,
    /// The id of the journal, if it is another one than the partition's.
    foreign: Option<String>,
    carried: Option<Carried>,
}

/// The effect of a genesis record on its partition.
#[derive(Debug)]
pub(crate) enum Effect {
    /// None.
    None,
    /// This is the partition's home from now on.
    Home(HomeRow),
    /// The run may continue; without a run, all runs that are unknown here.
    Accept(Option<RunId>, AcceptRow),
    /// It is the genesis of another journal in another log, whose records must not be here. Contains the reason for the stop.
    Foreign(String),
}

impl Carrier {
    /// Reads the header of the genesis record in `delivery`, in a partition of `journal`. `None` for a genesis of the
    /// journal without a header that this build can use.
    pub(crate) fn read(record: &Envelope<'_>, delivery: &Delivery, journal: &meta::Journal) -> Option<Self> {
        let Delivery { partition, offset, timestamp_millis, headers, .. } = delivery;
        let named = genesis(record)?;
        let carried = home::carried(headers).unwrap_or_else(|malformed| {
            tracing::warn!(%partition, %offset, "{malformed}");
            None
        });
        let foreign = (named.journal_id != journal.journal_id).then(|| named.journal_id.clone());
        let is_of_journal = foreign.is_some() || named == *journal;
        let (offset, logged_at_millis) = (*offset, *timestamp_millis);
        let has_effect = foreign.is_some() || carried.is_some();
        (is_of_journal && has_effect).then_some(Self { offset, logged_at_millis, foreign, carried })
    }

    /// Whether it is of another journal. It then has no effect but a stop.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Its effect on a partition of `journal` with this home.
    pub(crate) fn effect(&self, journal: &meta::Journal, home: Option<&HomeRow>) -> Effect {
        match (&self.foreign, &self.carried) {
            // Another server created a journal in this log at the same time, and the first genesis decided.
            (Some(_), Some(Carried::Home(new))) if home.is_none_or(|home| home.log == new.log.as_str()) => Effect::None,
            (Some(_), None | Some(Carried::Accept(_))) if home.is_none() => Effect::None,
            (Some(foreign), carried) => {
                let log = match carried {
                    Some(Carried::Home(new)) => format!(" of log {}", new.log),
                    // A server that knows homes names its log, so this record is a copy.
                    _ => String::new(),
                };
                Effect::Foreign(format!(
                    "a genesis of journal {foreign}{log} arrives in the topic of journal {}; stop MirrorMaker, and let it fill a \
                     topic of its own",
                    journal.journal_id
                ))
            }
            (None, None) => Effect::None,
            (None, Some(Carried::Home(new))) => {
                home::advance(home, new, self.offset, self.logged_at_millis).map_or(Effect::None, Effect::Home)
            }
            (None, Some(Carried::Accept(Accept { epoch, .. }))) if home.is_none_or(|home| home.epoch != *epoch) => {
                Effect::None
            }
            (None, Some(Carried::Accept(Accept { epoch, run, who, why }))) => {
                let row = AcceptRow { epoch: *epoch, offset: self.offset, who: who.clone(), why: why.clone() };
                Effect::Accept(run.clone(), row)
            }
        }
    }
}

/// Whether an accept replaces the earlier one: the first accept after a takeover counts, because later records are judged by its
/// offset.
pub(crate) fn replaces(before: Option<&AcceptRow>, new: &AcceptRow) -> bool {
    before.is_none_or(|before| before.epoch < new.epoch)
}

/// Why a partition stops at the skip at `at`, which names the offset `voids` of another log.
pub(crate) fn foreign_skip(at: Offset, voids: Offset, home: Option<&HomeRow>, state: &HomeState) -> String {
    let of = home.map(|row| row.log.clone()).or_else(|| Some(state.known()?.origin)).unwrap_or_default();
    format!("the skip at offset {at} names offset {voids} of log {of}; this log has other offsets")
}

/// What a fold adopts after the commit of a batch.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    /// Dead letters that a skip voids without a rebuild, each with the skip's own offset.
    pub(super) voided: BTreeMap<Offset, Offset>,
    /// The partition's home, if it changed.
    pub(super) home: Option<HomeRow>,
}

impl<S: Commit> Fold<S> {
    /// Sets the server's knowledge of the home, which learns the home of this partition.
    #[must_use]
    pub fn with_home(self, home: Arc<HomeState>) -> Self {
        self.known_home.iter().for_each(|row| home.learn(row));
        Self { home, ..self }
    }

    /// The home at the next record of a batch.
    pub(super) fn home_in<'h>(&'h self, uncommitted: &'h Uncommitted) -> Option<&'h HomeRow> {
        uncommitted.home.as_ref().or(self.known_home.as_ref())
    }

    /// Applies a genesis record of the journal, the first one or a later one.
    pub(super) fn apply_genesis(
        &self,
        record: &Envelope<'_>,
        delivery: &Delivery,
        changes: &mut Changes<'_, S>,
        uncommitted: &mut Uncommitted,
    ) -> Result<Step, store::Error> {
        let Some(carrier) = Carrier::read(record, delivery, &self.journal) else { return Ok(Step::Applied) };
        match carrier.effect(&self.journal, self.home_in(uncommitted)) {
            Effect::None => {}
            Effect::Home(row) => {
                changes.put(meta::home(), &row);
                uncommitted.home = Some(row);
            }
            Effect::Accept(run_id, row) => {
                let key = meta::accepted(run_id.as_ref().map(RunId::borrow));
                if replaces(changes.get(&key)?.as_ref(), &row) {
                    changes.put(key, &row);
                }
            }
            Effect::Foreign(error) => {
                return Ok(Step::Stopped(Stop { offset: delivery.offset, kind: StopKind::NotAJournal, error }));
            }
        }
        Ok(Step::Applied)
    }

    /// Finds the first skip in a batch that voids the record at `stopped`. Learns the homes in the batch, and notes them for the
    /// batches after it: a skip of another log does not count.
    ///
    /// Errors: `Unresolved` if a record before it has an unresolved schema: that record may be the first skip.
    pub fn skip_for(&mut self, stopped: Offset, batch: &[Delivery]) -> Result<Option<meta::SkipRow>, Unreadable> {
        for delivery in batch.iter().filter(|delivery| delivery.offset > stopped) {
            let framed = match codec::reframe(&delivery.value, &*self.schemas) {
                Ok(framed) => framed,
                Err(why @ Unreadable::Unresolved { .. }) => return Err(why),
                Err(_) => continue,
            };
            let Ok(record) = codec::read(&framed) else { continue };
            // The batch may have been read before, so later homes may be known.
            let later = self.later_homes.range(stopped..delivery.offset).next_back();
            let home = later.map(|(_, row)| row).or(self.known_home.as_ref());
            if record.kind == RecordKind::Skip
                && let Ok(Payload::Skip(Skip { offset, who, why })) = record.payload()
                && offset == stopped
                && self.home.is_own_skip(home)
            {
                return Ok(Some(meta::SkipRow { at: delivery.offset, who, why }));
            }
            if record.kind == RecordKind::Genesis
                && let Some(carrier) = Carrier::read(&record, delivery, &self.journal)
                && let Effect::Home(row) = carrier.effect(&self.journal, home)
            {
                // The skip that ends this stop may be possible at this home only.
                self.home.learn(&row);
                self.later_homes.insert(delivery.offset, row);
            }
        }
        Ok(None)
    }

    /// Adopts a committed batch.
    pub(super) fn adopt(&mut self, uncommitted: Uncommitted) {
        self.skips.extend(uncommitted.voided);
        if let Some(row) = uncommitted.home {
            self.home.learn(&row);
            self.known_home = Some(row);
        }
    }
}
