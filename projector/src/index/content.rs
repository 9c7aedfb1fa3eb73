//! Fetches and verifies payloads from the content store for one query, and reports missing content.
//!
//! Queries read a view of one position and are not asynchronous, so these calls block. With a content store, queries must
//! run on a thread that may block. All calls of a query share one deadline; all queries share the store's own limits.

use super::{error::Error, query::TopicPartition};
use futures_util::future::join_all;
use runlog_content::{Kind, Reference, Store};
use runlog_schemas::{
    answer::{ContentLoss, ErrorKind, MissingContent},
    id::{Offset, RecordId},
    payload::{Payload, StoredPayload},
};
use std::time::Duration;
use tokio::{runtime::Handle, time::Instant};

/// The content store of one query, with its deadline.
#[derive(Debug)]
pub struct Contents {
    store: Option<Store>,
    until: Instant,
}

/// Content that a query could not get.
#[derive(Debug)]
pub struct Lost {
    /// The content and the reason, for an answer that lists missing content.
    pub missing: MissingContent,
    /// The same as an error, for an answer that needs the content.
    pub error: Error,
}

impl Lost {
    /// Whether the store could not be read: the content may still exist.
    pub fn unknown(&self) -> bool {
        self.error.kind() == ErrorKind::Unavailable
    }
}

/// A record whose payload is in the content store.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// The record.
    pub record_id: RecordId<&'a str>,
    /// The record's offset and index.
    pub at: (Offset, u32),
    /// The record's claim check.
    pub stored: &'a StoredPayload,
}

impl Contents {
    /// Content of `store`. All calls together wait at most `wait` from now.
    pub fn new(store: Option<Store>, wait: Duration) -> Self {
        Self { store, until: Instant::now() + wait }
    }

    /// No content store: for journals whose payloads are all in their records.
    pub fn none() -> Self {
        Self::new(None, Duration::ZERO)
    }

    /// Returns the payload. Replaces a claim check by the payload from the content store, and blocks meanwhile.
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

    /// Lists the records whose content is missing or corrupt, in the order of `named`. Does not read content. Blocking.
    ///
    /// Errors: `Unavailable` if the store cannot report on one of them.
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
                Ok(false) => missing.push(missing_content(place, named, ContentLoss::Missing)),
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
            Error::new(ErrorKind::Internal, "content was queried outside of an async runtime").because(error)
        })?;
        Ok((store.within(self.until.saturating_duration_since(Instant::now())), handle))
    }
}

fn failed(place: TopicPartition<'_>, named: &Named<'_>, error: &runlog_content::Error) -> Box<Lost> {
    let reason = match error.kind() {
        Kind::Missing => ContentLoss::Missing,
        // Too large: no writer stores content of this size, so the object is not the named content.
        Kind::Corrupt | Kind::TooLarge => ContentLoss::Corrupt,
        Kind::Unavailable | Kind::Invalid => ContentLoss::Unavailable,
    };
    let kind = if reason == ContentLoss::Unavailable { ErrorKind::Unavailable } else { ErrorKind::MissingContent };
    lost(place, named, reason, Error::new(kind, error.chain()))
}

fn lost(place: TopicPartition<'_>, named: &Named<'_>, reason: ContentLoss, error: Error) -> Box<Lost> {
    let missing = missing_content(place, named, reason);
    let error = error.at(&missing.position).about_record(named.record_id);
    Box::new(Lost { missing, error })
}

fn missing_content(place: TopicPartition<'_>, named: &Named<'_>, reason: ContentLoss) -> MissingContent {
    MissingContent {
        record_id: named.record_id.to_owned(),
        payload_type: named.stored.payload_type.clone(),
        sha256: named.stored.sha256.to_string(),
        bytes: named.stored.bytes,
        reason: reason.into(),
        position: place.position(named.at.0, named.at.1),
    }
}
