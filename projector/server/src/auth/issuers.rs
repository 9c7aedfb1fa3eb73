//! Reads issuers' public keys from a file every 2 s, or fetches them from an `https://` URL.
//!
//! ```text
//!   every 5 min ──┐
//!   unknown kid ──┴──▶ one fetch at a time, 10 s apart ──▶ KeySet ──▶ JWTs that wait for it
//! ```
//!
//! Only [`KeySource::fetch_periodically`] fetches: a request that needs a key notifies it and waits. So a client that sends unknown
//! key ids, or disconnects while it waits, neither adds fetches nor stops one. If keys cannot be read or fetched, the
//! old keys stay in use.

use super::{
    fetch::Remote,
    identities::{Algorithm, Issuer},
    jwks::{Key, KeySet},
    key_error::{Error, SET_BYTES_MAX},
};
use crate::watched_file::{Reload, WatchedFile};
use runlog_log::private_file::replaceable;
use runlog_projector::index::executor::Executor;
use runlog_schemas::datum::Sha256;
use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Mode bits of a file that users other than its owner may change.
const OTHERS_WRITE: u32 = 0o022;

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct KeySource {
    /// The issuer's name, for messages.
    issuer: String,
    location: Location,
    keys: WatchedFile<KeySet>,
}

#[derive(Debug)]
enum Location {
    File(PathBuf),
    Url(Remote),
}

impl KeySource {
    /// Makes the source that an entry of the token file names. It has no keys yet.
    pub(super) fn new(token_file: &Path, issuer: &Issuer) -> Self {
        let resolved = |path: &PathBuf| token_file.parent().unwrap_or(Path::new("")).join(path);
        let location = match (&issuer.jwks_file, &issuer.jwks_url) {
            (Some(file), _) => Location::File(resolved(file)),
            (None, url) => {
                Location::Url(Remote::new(url.clone().unwrap_or_default(), issuer.jwks_ca.as_ref().map(resolved)))
            }
        };
        Self { issuer: issuer.issuer.clone(), location, keys: WatchedFile::new([0; 32], KeySet::default()) }
    }

    /// Reads the keys again if they are in a file. Blocking.
    pub(super) fn reload(&self) {
        if let Location::File(path) = &self.location {
            self.update(read(path));
        }
    }

    /// Fetches the keys whenever a fetch is due, if they are at a URL. Never resolves.
    pub(super) async fn fetch_periodically(&self, executor: &Executor) {
        let Location::Url(remote) = &self.location else { return std::future::pending().await };
        loop {
            remote.due(self.failure().is_some()).await;
            self.update(remote.fetch(executor).await);
            remote.notify_ended();
        }
    }

    fn update(&self, read: Result<String, Error>) {
        let location = self.location.to_string();
        let read = read.map(|text| (Sha256::of(text.as_bytes()).0, text));
        let parse = |text: String, _: &KeySet| {
            KeySet::parse(&text).map_err(|source| Error::Malformed { location: location.clone(), source })
        };
        let issuer = &self.issuer;
        match self.keys.update(read, parse) {
            Reload::Same => {}
            Reload::Restored | Reload::Replaced => {
                tracing::info!(
                    issuer,
                    keys = self.keys.current().len(),
                    from = location,
                    "the keys of an issuer were read again"
                );
            }
            Reload::Unusable(why) => tracing::error!(issuer, "the old keys of an issuer stay in use: {why}"),
        }
    }

    /// Why the keys are older than their file or URL has; `None` if they are current.
    pub(super) fn failure(&self) -> Option<String> {
        self.keys.failure()
    }

    /// Returns the key with this id for an algorithm. May wait for a fetch.
    pub(super) async fn key(&self, kid: &str, algorithm: Algorithm) -> Option<Arc<Key>> {
        let key = self.keys.current().get(kid, algorithm);
        match &self.location {
            Location::Url(remote) if key.is_none() && remote.next_fetch().await => {
                self.keys.current().get(kid, algorithm)
            }
            _ => key,
        }
    }

    /// Whether the set still contains a key.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.keys.current().contains(key)
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(remote) => f.write_str(&remote.url),
        }
    }
}

/// Reads a key set. Refuses a file that other users may change: they could impersonate any subject.
fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(Error::Exposed { path: path.to_owned(), mode });
    }
    if let Some(folder) = replaceable(path).map_err(failed)? {
        return Err(Error::Replaceable { path: path.to_owned(), folder });
    }
    let mut text = String::new();
    file.take(SET_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > SET_BYTES_MAX { Err(Error::TooLarge { location: path.display().to_string() }) } else { Ok(text) }
}
