//! The audit log: what operators did, and which content was read unmasked. A line is durable before what it tells of happens,
//! and where it cannot be written nothing happens.
//!
//! ```json
//! {"time":"2026-11-25T10:00:00.000Z","principal":"desk@acme","action":"resolve","run_id":"acme/1","detail":{"effect":"call-1",…}}
//! ```
//!
//! A line says that something was asked for and allowed. Whether it came about, the journal says.

use super::App;
use crate::index::{Clock, Error, query::time};
use runlog_schemas::{answer::ErrorKind, id::RunId, symbols};
use serde::Serialize;
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// A file is put aside before it is longer than this, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

symbols! {
    /// What is audited.
    Action {
        Resolve = "resolve", Append = "append", Skip = "skip", Retention = "retention", Verify = "verify",
        ReadContent = "read_content",
    }
}

/// A log of what was done, in one file. Longer ones are put aside as `FILE.1`, `FILE.2` and so on, and never removed.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    clock: Clock,
    file: Mutex<File>,
    bytes_max: u64,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    principal: Option<&'a str>,
    action: Action,
    run_id: Option<&'a RunId>,
    detail: Value,
}

impl Audit {
    /// Opens or creates the file, which only its owner can use. Blocking.
    pub fn open(path: &Path, clock: Clock) -> io::Result<Arc<Self>> {
        let file = Mutex::new(opened(path)?);
        Ok(Arc::new(Self { path: path.to_owned(), clock, file, bytes_max: FILE_BYTES_MAX }))
    }

    /// Appends a line, and returns when the disk has it. Blocking.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut end = file.seek(SeekFrom::End(0))?;
        if end > 0 && end + line.len() as u64 > self.bytes_max {
            *file = self.put_aside()?;
            end = 0;
        }
        let written = file.write_all(line).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line would spoil the next one.
            file.set_len(end).ok();
        }
        written
    }

    fn put_aside(&self) -> io::Result<File> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let free = (1..u32::MAX).map(numbered).find(|path| !path.exists());
        fs::rename(&self.path, free.ok_or_else(|| io::Error::other("no free name to put the audit log aside"))?)?;
        opened(&self.path)
    }
}

/// The file, at a line's beginning.
fn opened(path: &Path) -> io::Result<File> {
    let mut file = fs::OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    if end > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(end - 1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(file)
}

impl App {
    /// Writes down what the caller is about to do, if there is an audit log.
    ///
    /// Errors: `Unavailable` where it cannot be written: then it must not be done.
    pub(super) async fn audit(&self, action: Action, run_id: Option<RunId<&str>>, detail: Value) -> Result<(), Error> {
        let Some(audit) = self.5.audit.clone() else { return Ok(()) };
        let run_id = run_id.map(|run_id| run_id.to_owned());
        self.blocking(move |app| {
            let time = time((audit.clock)());
            let line = Line { time, principal: app.caller().principal(), action, run_id: run_id.as_ref(), detail };
            let mut bytes = serde_json::to_vec(&line).map_err(|error| {
                Error::new(ErrorKind::Internal, "a line of the audit log is no JSON").because(error)
            })?;
            bytes.push(b'\n');
            audit.write(&bytes).map_err(|error| {
                tracing::error!(file = %audit.path.display(), "the audit log cannot be written: {error}");
                Error::new(
                    ErrorKind::Unavailable,
                    "the audit log cannot be written, so this was not done; nothing happened",
                )
            })
        })
        .await
    }

    /// The same for content that is read by whoever does not write the run: an agent's reads of its own runs are no news.
    pub(super) async fn audit_content(&self, run_id: RunId<&str>) -> Result<(), Error> {
        if self.caller().has(super::Scope::Append) {
            return Ok(());
        }
        self.audit(Action::ReadContent, Some(run_id), serde_json::json!({ "what": "answers" })).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_that_is_full_is_put_aside_and_a_torn_line_ends_where_it_was_torn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, b"{\"torn\":").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let mut audit = Arc::into_inner(Audit::open(&path, || 0).unwrap()).unwrap();
        audit.bytes_max = 30;
        for line in [&b"{\"one\":1}\n"[..], b"{\"two\":2}\n", b"{\"three\":3}\n"] {
            audit.write(line).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("audit.jsonl.1"), "{\"torn\":\n{\"one\":1}\n{\"two\":2}\n");
        assert_eq!(read("audit.jsonl"), "{\"three\":3}\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
