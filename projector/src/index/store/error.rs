//! The errors of a store.

use runlog_schemas::datum::Malformed;
use std::path::{Path, PathBuf};

/// The reason why the indices could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full. Committed rows remain. RocksDB resumes by itself some seconds after the disk has space for a
    /// memtable.
    #[error("the disk under the index store in {dir} is full; free space, more than 24 MiB, and it resumes by itself")]
    Full {
        /// The database's folder.
        dir: PathBuf,
        /// The message of RocksDB or of the system.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The files have changed since they were written.
    #[error(
        "the index store in {dir} is damaged; stop the server, delete this folder, and start again: it is built from the log"
    )]
    Torn {
        /// The database's folder.
        dir: PathBuf,
        /// RocksDB's message.
        #[source]
        source: rocksdb::Error,
    },
    /// The file of bodies lacks bodies that rows name, or belongs to another index.
    #[error(
        "the index store in {dir} is damaged: {file}: {why}; stop the server, delete this folder, and start again: it is built \
         from the log"
    )]
    TornBodies {
        /// The database's folder.
        dir: PathBuf,
        /// The file's name.
        file: String,
        /// The damage.
        why: String,
    },
    /// The file of bodies could not be read or written.
    #[error("body file {path}")]
    BodyFile {
        /// The file.
        path: PathBuf,
        /// The system's message.
        #[source]
        source: std::io::Error,
    },
    /// RocksDB failed otherwise: another process in the folder, a disk that fails.
    #[error("index store in {dir}")]
    Rocks {
        /// The database's folder.
        dir: PathBuf,
        /// RocksDB's message.
        #[source]
        source: rocksdb::Error,
    },
    /// A temporary file could not be written or read. A repetition of the work writes it again.
    #[error("temporary file {path}")]
    Temporary {
        /// The file.
        path: PathBuf,
        /// The system's message.
        #[source]
        source: std::io::Error,
    },
    /// A cached view ([`Store::cached_view`](super::Store::cached_view)) cannot return a row: its block is not in the block
    /// cache, the row is too long, or the view has read too many rows.
    #[error("a row is not in the block cache or is too long, or too many rows were read")]
    NotCached,
    /// A row does not decode: the index is damaged. Delete the index folder; it is rebuilt from the log.
    #[error("index {index} has a damaged row under key {key}; delete the index folder to rebuild it from the log")]
    Damaged {
        /// The index.
        index: &'static str,
        /// The key, hexadecimal.
        key: String,
        /// The decoding error.
        #[source]
        source: Malformed,
    },
    /// The index was written by a newer version of Runlog.
    #[error(
        "the index in {dir} has layout {found}, this version writes {expected}; start the newer version again, or delete the \
         index folder, which is then built from the log"
    )]
    Layout {
        /// The database's folder.
        dir: PathBuf,
        /// The layout found there.
        found: u32,
        /// The layout that this version writes.
        expected: u32,
    },
    /// The index has an older layout and cannot be rebuilt here. It is left unchanged.
    #[error(
        "the index in {dir} has the older layout {found}, this version writes {expected}, and {why}; nothing was changed: start \
         the version that wrote it"
    )]
    Outgrown {
        /// The database's folder.
        dir: PathBuf,
        /// The layout found there.
        found: u32,
        /// The layout that this version writes.
        expected: u32,
        /// Why it cannot be rebuilt.
        why: String,
    },
}

/// The system's message for a full disk: RocksDB's own kind for it is lost in the C API.
const NO_SPACE: &str = "No space left on device";

impl Error {
    pub(super) fn from_rocksdb(dir: &Path, source: rocksdb::Error) -> Self {
        let dir = dir.to_owned();
        match source.kind() {
            rocksdb::ErrorKind::Corruption => Self::Torn { dir, source },
            _ if source.as_ref().contains(NO_SPACE) => Self::Full { dir, source: source.into() },
            _ => Self::Rocks { dir, source },
        }
    }

    pub(super) fn from_body_file(dir: &Path, path: &Path, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::StorageFull => Self::Full { dir: dir.to_owned(), source: source.into() },
            _ => Self::BodyFile { path: path.to_owned(), source },
        }
    }

    /// Whether only a rebuild from the log helps.
    pub fn damaged(&self) -> bool {
        matches!(self, Self::Torn { .. } | Self::TornBodies { .. } | Self::Damaged { .. })
    }
}
