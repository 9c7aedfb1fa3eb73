//! The store of objects, each under the hash of its content.

use crate::{
    config::{Config, Location},
    error::{Error, Kind},
    s3,
};
use bytes::Bytes;
use object_store::{
    Error as Failure, ObjectStore, ObjectStoreExt, PutMode, PutPayload, local::LocalFileSystem,
    path::Path as ObjectPath,
};
use runlog_schemas::{
    datum::Sha256,
    payload::{Payload, StoredPayload},
    record::JournalRecord,
};
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// The longest content, bytes. Writers and readers hold a whole content in memory.
pub const CONTENT_BYTES_MAX: usize = 64 << 20;
/// Concurrent transfers of all callers together. With [`CONTENT_BYTES_MAX`] this bounds their memory.
const TRANSFERS_MAX: usize = 4;
/// Concurrent existence checks of all callers together.
const QUESTIONS_MAX: usize = 32;

/// The reference to an object: its content's hash and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// SHA-256 of the content.
    pub sha256: Sha256,
    /// Its length, bytes.
    pub bytes: u64,
}

impl Reference {
    /// Computes the reference to `content`.
    pub fn compute(content: &[u8]) -> Self {
        Self { sha256: Sha256::of(content), bytes: content.len() as u64 }
    }
}

impl From<&StoredPayload> for Reference {
    fn from(stored: &StoredPayload) -> Self {
        Self { sha256: stored.sha256, bytes: stored.bytes }
    }
}

/// A content store. Cheap to clone; clones share its limits.
#[derive(Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    url: Arc<str>,
    inline_bytes_max: usize,
    deadline: Duration,
    transfers: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

/// Does not print the bucket's client, which contains keys.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store; creates a missing folder. Sends no request to S3 yet.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let (objects, prefix): (Arc<dyn ObjectStore>, _) = match config.location()? {
            Location::Folder(dir) => {
                let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
                    let message = format!("the content store's folder {} cannot be used", dir.display());
                    Error::new(Kind::Unavailable, message).because(source)
                };
                std::fs::create_dir_all(&dir).map_err(|error| failed(error.into()))?;
                let folder = LocalFileSystem::new_with_prefix(&dir).map_err(|error| failed(error.into()))?;
                // An acknowledged record is durable, so the object that it names must be durable before.
                (Arc::new(folder.with_fsync(true)), String::new())
            }
            Location::S3 { bucket, prefix } => (s3::open(&bucket, config)?, prefix),
        };
        Ok(Self {
            objects,
            prefix,
            url: config.url.as_str().into(),
            inline_bytes_max: config.inline_bytes_max,
            deadline: config.deadline,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        })
    }

    /// Returns the folder of the store, or `None` for S3.
    pub fn folder(&self) -> Option<PathBuf> {
        match Config::new(&*self.url).location() {
            Ok(Location::Folder(dir)) => Some(dir),
            Ok(Location::S3 { .. }) | Err(_) => None,
        }
    }

    /// The longest payload that stays in its record, bytes.
    pub fn inline_bytes_max(&self) -> usize {
        self.inline_bytes_max
    }

    /// Returns this store with a shorter deadline for its calls. A longer one has no effect.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Self {
        Self { deadline: self.deadline.min(deadline), ..self.clone() }
    }

    /// Stores content; succeeds if it is already stored. Reads and hashes an existing object, and replaces it if its content
    /// does not match its name.
    ///
    /// Errors: `TooLarge` over [`CONTENT_BYTES_MAX`]; `Unavailable` otherwise. If cancelled, it may have stored the
    /// object.
    pub async fn put(&self, content: impl Into<Bytes>) -> Result<Reference, Error> {
        let content = content.into();
        if content.len() > CONTENT_BYTES_MAX {
            let message = format!("content of {} bytes is over the limit of {CONTENT_BYTES_MAX}", content.len());
            return Err(Error::new(Kind::TooLarge, message));
        }
        let reference = Reference::compute(&content);
        self.bounded(&reference, &self.transfers, self.upload(&reference, content)).await?;
        Ok(reference)
    }

    async fn upload(&self, reference: &Reference, content: Bytes) -> Result<(), Failure> {
        let path = self.path(reference)?;
        let mut mode = match self.length(&path).await? {
            Some(length) if length == reference.bytes && self.is_intact(&path, reference).await? => return Ok(()),
            Some(_) => PutMode::Overwrite,
            None => PutMode::Create,
        };
        loop {
            let create = mode == PutMode::Create;
            match self.objects.put_opts(&path, PutPayload::from(content.clone()), mode.into()).await {
                Ok(_) => return Ok(()),
                // Another writer was faster, or the answer to an earlier attempt of this call was lost.
                Err(Failure::AlreadyExists { .. } | Failure::Precondition { .. }) if create => {
                    if self.is_intact(&path, reference).await? {
                        return Ok(());
                    }
                }
                // Not every store supports conditional writes; writing the same content again does no harm.
                Err(Failure::NotImplemented { .. } | Failure::NotSupported { .. }) if create => {}
                Err(failure) => return Err(failure),
            }
            mode = PutMode::Overwrite;
        }
    }

    /// Whether an object's content matches its name.
    async fn is_intact(&self, path: &ObjectPath, reference: &Reference) -> Result<bool, Failure> {
        let object = match self.objects.get(path).await {
            Ok(object) if object.meta.size == reference.bytes => object.bytes().await,
            Ok(_) | Err(Failure::NotFound { .. }) => return Ok(false),
            Err(failure) => return Err(failure),
        };
        Ok(Reference::compute(&object?) == *reference)
    }

    /// Reads the content and verifies length and hash. Reads no more bytes than the reference contains.
    ///
    /// Errors: `Missing`, `Corrupt` (another length or hash), `TooLarge`, `Unavailable`.
    pub async fn get(&self, reference: &Reference) -> Result<Bytes, Error> {
        let content = self.download(reference).await?;
        let actual = Reference::compute(&content);
        if actual == *reference {
            return Ok(content);
        }
        let why = format!("its {} bytes hash to {}", actual.bytes, actual.sha256);
        Err(self.error(Kind::Corrupt, reference, "differs from the stored content").because(why))
    }

    /// Reads the object. Checks its length, not its hash.
    async fn download(&self, reference: &Reference) -> Result<Bytes, Error> {
        if reference.bytes > CONTENT_BYTES_MAX as u64 {
            return Err(self.error(Kind::TooLarge, reference, "is over the limit"));
        }
        let download = async {
            let object = self.objects.get(&self.path(reference)?).await?;
            if object.meta.size != reference.bytes {
                return Ok(Err(object.meta.size));
            }
            object.bytes().await.map(Ok)
        };
        self.bounded(reference, &self.transfers, download).await?.map_err(|length| self.other_length(reference, length))
    }

    /// Returns whether the object exists. Checks only its length; `get` finds other damage.
    ///
    /// Errors: `Corrupt` if it has another length, `Unavailable`.
    pub async fn has(&self, reference: &Reference) -> Result<bool, Error> {
        let length = async { self.length(&self.path(reference)?).await };
        match self.bounded(reference, &self.questions, length).await? {
            Some(length) if length != reference.bytes => Err(self.other_length(reference, length)),
            length => Ok(length.is_some()),
        }
    }

    /// Uploads a payload that is too long for its record and replaces it by a claim check. Kind, facts and content hash
    /// stay the same. A record whose payload is short, or must stay inline, is returned unchanged.
    ///
    /// Errors: as in [`Store::put`]. The journal is unchanged; the object may be stored.
    pub async fn stow(&self, mut record: JournalRecord) -> Result<JournalRecord, Error> {
        if let Some(content) = record.detach(self.inline_bytes_max) {
            self.put(content).await?;
        }
        Ok(record)
    }

    /// Reads the payload of a claim check and verifies length, hash and type.
    ///
    /// Errors: as in [`Store::get`]; also `Corrupt` if the content is no payload of that type.
    pub async fn resolve(&self, stored: &StoredPayload) -> Result<Payload, Error> {
        let reference = Reference::from(stored);
        let content = self.download(&reference).await?;
        stored
            .open(&content)
            .map_err(|error| self.error(Kind::Corrupt, &reference, "differs from the stored content").because(error))
    }

    /// `sha256/ab/abcd…`: the first two digits name a folder, so that no folder holds all objects.
    fn path(&self, reference: &Reference) -> Result<ObjectPath, Failure> {
        let name = reference.sha256.to_string();
        Ok(ObjectPath::parse(format!("{}/sha256/{}/{name}", self.prefix, &name[..2]).trim_start_matches('/'))?)
    }

    async fn length(&self, path: &ObjectPath) -> Result<Option<u64>, Failure> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Failure::NotFound { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Waits for a permit, then for the answer, both within the deadline.
    async fn bounded<T>(
        &self,
        reference: &Reference,
        turns: &Semaphore,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Error> {
        let answered = tokio::time::timeout(self.deadline, async {
            let _turn = turns.acquire().await;
            call.await
        });
        match answered.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure @ Failure::NotFound { .. })) => {
                Err(self.error(Kind::Missing, reference, "does not exist").because(failure))
            }
            Ok(Err(failure)) => {
                Err(self.error(Kind::Unavailable, reference, "cannot be read or written").because(failure))
            }
            Err(_) => {
                let what = format!("did not arrive within {} s", self.deadline.as_secs_f32());
                Err(self.error(Kind::Unavailable, reference, &what))
            }
        }
    }

    fn other_length(&self, reference: &Reference, length: u64) -> Error {
        self.error(Kind::Corrupt, reference, "differs from the stored content")
            .because(format!("it has {length} bytes"))
    }

    fn error(&self, kind: Kind, reference: &Reference, what: &str) -> Error {
        let Reference { sha256, bytes } = reference;
        Error::new(kind, format!("content {sha256} of {bytes} bytes {what}, content store {}", self.url))
    }
}

#[cfg(test)]
mod tests;
