//! Fetches and verifies payloads from the content store for one query, and reports missing ones.
//!
//! Queries hold a view of one position and are not asynchronous, so these calls block. With a content store, queries must run
//! where blocking is allowed. All of a query's calls share one deadline, all queries the store's own bounds.

use crate::index::{Error, query::TopicPartition};
use futures_util::future::join_all;
use runlog_content::{Kind, Reference, Store};
use runlog_schemas::{
    answer::{ContentLoss, ErrorKind, MissingContent},
    id::{Offset, RecordId},
    payload::{Payload, StoredPayload},
};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Where a query's content comes from.
#[derive(Debug)]
pub struct Contents {
    store: Option<Store>,
    until: Instant,
}

/// Content that could not be had.
#[derive(Debug)]
pub struct Lost {
    /// What it is, and why it could not be had.
    pub missing: MissingContent,
    /// The same as an error, for answers that are nothing without it.
    pub error: Error,
}

impl Lost {
    /// Whether the store may have it all the same: nothing can be concluded.
    pub fn unknown(&self) -> bool {
        self.error.kind() == ErrorKind::Unavailable
    }
}

/// A record that names content.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// The record.
    pub record_id: RecordId<&'a str>,
    /// Where it stands: offset and index.
    pub at: (Offset, u32),
    /// What it names.
    pub stored: &'a StoredPayload,
}

impl Contents {
    /// Content of `store`, which is asked no longer than `wait` from now, all calls together.
    pub fn new(store: Option<Store>, wait: Duration) -> Self {
        Self { store, until: Instant::now() + wait }
    }

    /// For journals whose payloads are all in their records.
    pub fn none() -> Self {
        Self::new(None, Duration::ZERO)
    }

    /// The payload, brought back where it is a claim check. Blocking then.
    pub fn open(
        &self,
        place: TopicPartition<'_>,
        record_id: RecordId<&str>,
        at: (Offset, u32),
        payload: Payload,
    ) -> Result<Payload, Box<Lost>> {
        let Payload::StoredPayload(stored) = payload else { return Ok(payload) };
        let named = Named { record_id, at, stored: &stored };
        let (store, handle) = self.ready().map_err(|error| lost(place, &named, ContentLoss::Unavailable, error))?;
        handle.block_on(store.resolve(&stored)).map_err(|error| failed(place, &named, &error))
    }

    /// Those whose content is not there, in their order; content itself is not read. Blocking.
    ///
    /// Errors: `Unavailable` where the store does not say of one of them.
    pub fn missing(&self, place: TopicPartition<'_>, named: &[Named<'_>]) -> Result<Vec<MissingContent>, Error> {
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let (store, handle) = self.ready()?;
        let references: Vec<Reference> = named.iter().map(|named| named.stored.into()).collect();
        let answers = handle.block_on(join_all(references.iter().map(|reference| store.has(reference))));
        let mut missing = Vec::new();
        for (named, answer) in named.iter().zip(answers) {
            match answer {
                Ok(true) => {}
                Ok(false) => missing.push(told(place, named, ContentLoss::Missing)),
                Err(error) => {
                    let lost = failed(place, named, &error);
                    if lost.unknown() {
                        return Err(lost.error);
                    }
                    missing.push(lost.missing);
                }
            }
        }
        Ok(missing)
    }

    fn ready(&self) -> Result<(Store, Handle), Error> {
        let Some(store) = &self.store else {
            let message =
                "a record's content is in a content store, and none is configured: start the server with --content";
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        let handle = Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Internal, "a query of content runs outside of a runtime").because(error)
        })?;
        Ok((store.within(self.until.saturating_duration_since(Instant::now())), handle))
    }
}

fn failed(place: TopicPartition<'_>, named: &Named<'_>, error: &runlog_content::Error) -> Box<Lost> {
    let reason = match error.kind() {
        Kind::Missing => ContentLoss::Missing,
        // Longer than anything that was ever stored: no record of ours names it.
        Kind::Corrupt | Kind::TooLarge => ContentLoss::Corrupt,
        Kind::Unavailable | Kind::Invalid => ContentLoss::Unavailable,
    };
    let kind = if reason == ContentLoss::Unavailable { ErrorKind::Unavailable } else { ErrorKind::MissingContent };
    lost(place, named, reason, Error::new(kind, error.chain()))
}

fn lost(place: TopicPartition<'_>, named: &Named<'_>, reason: ContentLoss, error: Error) -> Box<Lost> {
    let missing = told(place, named, reason);
    let error = error.at(&missing.position).about_record(named.record_id);
    Box::new(Lost { missing, error })
}

fn told(place: TopicPartition<'_>, named: &Named<'_>, reason: ContentLoss) -> MissingContent {
    MissingContent {
        record_id: named.record_id.to_owned(),
        payload_type: named.stored.payload_type.clone(),
        sha256: named.stored.sha256.to_string(),
        bytes: named.stored.bytes,
        reason: reason.into(),
        position: place.position(named.at.0, named.at.1),
    }
}
