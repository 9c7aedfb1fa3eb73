//! Why the keys of an issuer are not used.

use super::jwks::Malformed;
use crate::tls;
use runlog_schemas::shell;
use std::{io, path::PathBuf};

/// The longest key set, bytes.
pub(super) const SET_BYTES_MAX: usize = 1 << 20;

/// Why keys are not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("other users may change {} (mode {mode:o}); remove this permission with chmod go-w", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("other users may replace {}; remove this permission with {}", path.display(), shell::command("chmod o-w", &[&folder.to_string_lossy()], ""))]
    Replaceable { path: PathBuf, folder: PathBuf },
    #[error("cannot fetch {url}: {why}")]
    Fetch { url: String, why: String },
    #[error(transparent)]
    Authorities(tls::Error),
    #[error("{location} is longer than {SET_BYTES_MAX} bytes")]
    TooLarge { location: String },
    #[error("{location} cannot be used")]
    Malformed { location: String, source: Malformed },
}
