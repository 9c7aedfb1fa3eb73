//! The errors of an import.

use runlog_schemas::{draft, id::RunId, payload::PayloadType};
use std::path::PathBuf;

/// Largest depth of nested folders.
pub(super) const FOLDERS_DEEP_MAX: usize = 16;

/// The reason why the import was refused. In every case the input is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("folder {} has no file of this format (.json; .traj; of OTLP .jsonl)", folder.display())]
    Empty { folder: PathBuf },
    #[error("{} nests folders more than {} levels deep", folder.display(), FOLDERS_DEEP_MAX)]
    TooDeep { folder: PathBuf },
    /// `path` is a JSON path: `$[0].traj[5].content`.
    #[error("{} is malformed at {path}: {what}", file.display())]
    Malformed { file: PathBuf, path: String, what: String },
    /// The journal would refuse one of the two as a conflict, after a part of it was imported.
    #[error(
        "two runs named {run_id} have different content, at {first} and at {second}: import the files separately, with --run-prefix"
    )]
    Collision { run_id: RunId, first: String, second: String },
    /// The journal would refuse the record.
    #[error("the {payload_type} for event {event} of run {run_id}, at {origin}, is not a valid record: {why}")]
    NoRecord { run_id: RunId, origin: String, event: usize, payload_type: PayloadType, why: draft::Invalid },
    /// The journal would refuse one of the records.
    #[error(
        "the {payload_type} for event {event} of run {run_id}, at {origin}, takes {bytes} bytes, more than {most}: \
         start the server with --content, which stores payloads up to 64 MiB"
    )]
    TooLarge { run_id: RunId, origin: String, event: usize, payload_type: PayloadType, bytes: u64, most: u64 },
}
