//! A delivery that a skip voids. The live loop, a bulk build and the feed of changes read it here, so they cannot differ.
//!
//! A delivery is unknown only if that is certain: until the registry has resolved a schema id, it is not read at all.
//! Otherwise two servers could keep different rows for one log.

use super::{record_context, reframe};
use crate::index::{
    project::{self, Changes, RecordContext, RunRecord, Standing},
    store::{self, Rows},
};
use runlog_log::Delivery;
use runlog_schemas::{
    codec::{self, Envelope, Schemas, Unreadable},
    id::{Offset, RunId},
};
use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A delivery that a skip voids, as this build reads it.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, on the stack")]
pub(crate) enum Voided<'f> {
    /// It can be read.
    Record(Envelope<'f>),
    /// It stops a partition, or reading it panics. Another build may read it. Contains its run, if known.
    Unknown(Option<RunId>),
    /// No build reads it.
    DeadLetter,
}

impl Voided<'_> {
    /// A delivery that this build cannot read, of the run that its message key names.
    pub(crate) fn unknown(key: &[u8], at: RecordContext<'_>, partitions: u32) -> Self {
        Self::Unknown(project::run_of_key(key, at, partitions))
    }

    /// The run whose rows it can change.
    pub(crate) fn run_id(&self) -> Option<RunId<&str>> {
        match self {
            Self::Record(record) => record.run_id,
            Self::Unknown(run_id) => run_id.as_ref().map(|run_id| run_id.borrow()),
            Self::DeadLetter => None,
        }
    }

    /// Projects it: the skip at `by` voids it. `partitions` is the journal's number of partitions.
    pub(crate) fn project<R: Rows>(
        &self,
        at: RecordContext<'_>,
        by: Offset,
        partitions: u32,
        changes: &mut Changes<'_, R>,
    ) -> Result<(), store::Error> {
        let record = match self {
            Self::Record(record) => RunRecord::new(record),
            Self::Unknown(_) | Self::DeadLetter => None,
        };
        match (record, self.run_id()) {
            (Some(record), _) => {
                project::delivery(record, at, Standing::Voided { by }, partitions, changes).map(|_| ())
            }
            (None, Some(run_id)) => project::unread_voided(run_id, at.offset, by, changes),
            (None, None) => Ok(()),
        }
    }
}

/// Reads a delivery that a skip voids, in a journal of `partitions`, and passes it on. It may have been skipped because
/// reading it panics.
///
/// Errors: only `Unresolved`; read the delivery again later.
pub(crate) fn read_voided<T>(
    delivery: &Delivery,
    schemas: &dyn Schemas,
    partitions: u32,
    pass: impl FnOnce(Voided<'_>, RecordContext<'_>) -> T,
) -> Result<T, Unreadable> {
    let (framed, reframed) = match catch_unwind(AssertUnwindSafe(|| reframe(&delivery.value, schemas))) {
        Ok((framed, reframed)) => (framed, Some(reframed)),
        Err(_) => (Cow::Borrowed(delivery.value.as_slice()), None),
    };
    let read = reframed.map(|reframed| catch_unwind(AssertUnwindSafe(|| reframed.and_then(|()| codec::read(&framed)))));
    let at = record_context(delivery, &framed);
    let voided = match read {
        Some(Ok(Ok(record))) => Voided::Record(record),
        Some(Ok(Err(why @ Unreadable::Unresolved { .. }))) => return Err(why),
        Some(Ok(Err(why))) if !why.stops() => Voided::DeadLetter,
        Some(Ok(Err(_)) | Err(_)) | None => Voided::unknown(&delivery.key, at, partitions),
    };
    Ok(pass(voided, at))
}
