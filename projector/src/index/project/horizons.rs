//! `horizons`: deletes content by omitting it from answers, so that no other row changes.

use super::{changes::Changes, context::RecordContext};
use crate::index::store::{
    self, Rows,
    horizons::{HorizonRow, Horizons, key},
};
use runlog_schemas::{
    codec::Envelope,
    payload::{Payload, lifetime::RetentionHorizon},
};

/// Projects a horizon of the partition.
pub fn project<R: Rows>(
    record: &Envelope<'_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let Ok(Payload::RetentionHorizon(RetentionHorizon { family, until_millis, who, why })) = record.payload() else {
        return Ok(());
    };
    let mut horizons = Horizons::new(changes.get(&key())?);
    horizons.add(HorizonRow { family, offset: at.offset, until_millis, who, why });
    changes.put(key(), horizons.row());
    Ok(())
}
