//! Reads the summary for event streams in place, for the index of events.

use crate::{
    datum::{self, Datum, Input, Malformed},
    refs::{DestinationRef, EntityKind, EntityRef, PrivacyClass, SourceRef},
};

/// The indexed fields of an [`EventIndexProjection`](crate::record::EventIndexProjection).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The event's family.
    pub family: &'a str,
    /// The event's kind within its family.
    pub kind: &'a str,
    /// The event's subject.
    pub subject: Entity<'a>,
    /// Other related entities.
    pub related: Vec<Entity<'a>>,
    /// Correlation entries: key and value.
    pub correlation: Vec<(&'a str, &'a str)>,
    /// Tags.
    pub tags: Vec<&'a str>,
}

/// Kind and id of an [`EntityRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entity<'a> {
    /// Its kind.
    pub kind: EntityKind,
    /// Its id.
    pub id: &'a str,
}

impl<'a> Event<'a> {
    pub(super) fn read(at: &mut Input<'a>) -> Result<Self, Malformed> {
        String::skip(at)?; // run_id
        Option::<String>::skip(at)?; // session_id
        String::skip(at)?; // agent_id
        Option::<String>::skip(at)?; // turn_id
        let (family, kind) = (at.str()?, at.str()?);
        SourceRef::skip(at)?;
        Option::<DestinationRef>::skip(at)?;
        let subject = Entity::read(at)?;
        let mut event = Self { family, kind, subject, related: Vec::new(), correlation: Vec::new(), tags: Vec::new() };
        datum::blocks(at, |at| Entity::read(at).map(|entity| event.related.push(entity)))?;
        datum::blocks(at, |at| {
            event.correlation.push((at.str()?, at.str()?));
            Ok(())
        })?;
        datum::blocks(at, |at| at.str().map(|tag| event.tags.push(tag)))?;
        Ok(event)
    }
}

impl<'a> Entity<'a> {
    /// The fields of an [`EntityRef`], in the schema's order.
    fn read(at: &mut Input<'a>) -> Result<Self, Malformed> {
        let kind = EntityKind::take(at)?;
        let id = at.str()?;
        Option::<SourceRef>::skip(at)?;
        PrivacyClass::skip(at)?;
        Option::<String>::skip(at)?; // redacted_summary
        Ok(Self { kind, id })
    }
}

/// Fails to compile when `EntityRef` gets a field that is not read above.
const _: fn(EntityRef) = |EntityRef { kind: _, id: _, source: _, privacy: _, redacted_summary: _ }| {};
