//! The audit log: actions of operators, and reads of unmasked content. A line is durable before its action happens; if
//! the line cannot be written, the action does not happen.
//!
//! ```json
//! {"time":"2026-11-25T10:00:00.000Z","principal":"desk@acme","action":"resolve","run_id":"acme/1","detail":{"effect":"call-1",…}}
//! ```
//!
//! A line means that the action was requested and allowed. The journal has its outcome.
//!
//! Reads of content have a file of their own, so that a reader cannot fill the file of decisions. A line covers all reads of
//! a run by a principal within a minute.

use runlog_projector::index::{config::Clock, error::Error, query::time};
use runlog_schemas::{answer::ErrorKind, id::RunId, symbols};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    mem,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// A file is rotated before it exceeds this size, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

symbols! {
    /// The audited actions.
    Action {
        Resolve = "resolve", Append = "append", Skip = "skip", Retention = "retention", Verify = "verify",
        ReadContent = "read_content", Home = "home", Accept = "accept",
    }
}

/// The number of reads of a minute that are remembered. Each further read has a line.
const READS_MAX: usize = 100_000;

/// The audit log: a file of actions, and beside it a file of reads.
#[derive(Debug)]
pub struct Audit {
    clock: Clock,
    actions: Lines,
    reads: Lines,
    /// The reads that have a line.
    read: Mutex<Reads>,
}

/// The reads of one minute.
#[derive(Debug, Default)]
struct Reads {
    minute: u64,
    by: HashSet<Read>,
}

/// The principal, the run, and the detail of the line as JSON.
type Read = (Option<String>, Option<RunId>, String);

impl Reads {
    /// The reads of this minute.
    fn within(&mut self, now_millis: u64) -> &mut HashSet<Read> {
        if mem::replace(&mut self.minute, now_millis / 60_000) != self.minute {
            self.by.clear();
        }
        &mut self.by
    }
}

/// Lines in a file. Full files are renamed to `FILE.1`, `FILE.2` and so on, and never removed.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
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
    /// Opens or creates two files: `audit.jsonl` for actions, `audit-reads.jsonl` for reads. Only their owner can use them.
    /// Blocking.
    pub fn open(path: &Path, clock: Clock) -> io::Result<Arc<Self>> {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push("-reads");
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        let (actions, reads) = (Lines::open(path.to_owned())?, Lines::open(path.with_file_name(name))?);
        Ok(Arc::new(Self { clock, actions, reads, read: Mutex::default() }))
    }

    /// Appends a line. Blocking.
    ///
    /// Errors: `Unavailable` if the line cannot be written; the action must not happen then.
    pub(super) fn record(
        &self,
        principal: Option<&str>,
        action: Action,
        run_id: Option<RunId>,
        detail: Value,
    ) -> Result<(), Error> {
        let now = (self.clock)();
        let what = detail.to_string();
        let line = Line { time: time(now), principal, action, run_id: run_id.as_ref(), detail };
        let mut bytes = serde_json::to_vec(&line)
            .map_err(|error| Error::new(ErrorKind::Internal, "a line of the audit log is no JSON").because(error))?;
        bytes.push(b'\n');
        let file = if action == Action::ReadContent { &self.reads } else { &self.actions };
        file.write(&bytes).map_err(|error| {
            tracing::error!(file = %file.path.display(), "the audit log cannot be written: {error}");
            Error::new(
                ErrorKind::Unavailable,
                "the audit log cannot be written, so this was not done; nothing happened",
            )
        })?;
        if action == Action::ReadContent {
            self.remember_read((principal.map(str::to_owned), run_id, what), now);
        }
        Ok(())
    }

    /// Whether the file of reads has a line for an equal read in this minute.
    pub(super) fn has_read(&self, principal: Option<&str>, run_id: Option<RunId<&str>>, detail: &Value) -> bool {
        let run_id = run_id.map(|run_id| run_id.to_owned());
        self.has_read_at(&(principal.map(str::to_owned), run_id, detail.to_string()), (self.clock)())
    }

    fn has_read_at(&self, read: &Read, now_millis: u64) -> bool {
        let mut reads = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        reads.within(now_millis).contains(read)
    }

    fn remember_read(&self, read: Read, now_millis: u64) {
        let mut reads = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let by = reads.within(now_millis);
        if by.len() < READS_MAX {
            by.insert(read);
        }
    }
}

impl Lines {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = Mutex::new(open_file(&path)?);
        Ok(Self { path, file, bytes_max: FILE_BYTES_MAX })
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
            // A partial line would corrupt the next one.
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
        open_file(&self.path)
    }
}

/// Opens the file at the start of a line.
fn open_file(path: &Path) -> io::Result<File> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_full_file_is_renamed_and_the_next_line_after_a_torn_line_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, b"{\"torn\":").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let mut audit = Lines::open(path.clone()).unwrap();
        audit.bytes_max = 30;
        for line in [&b"{\"one\":1}\n"[..], b"{\"two\":2}\n", b"{\"three\":3}\n"] {
            audit.write(line).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("audit.jsonl.1"), "{\"torn\":\n{\"one\":1}\n{\"two\":2}\n");
        assert_eq!(read("audit.jsonl"), "{\"three\":3}\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    #[test]
    fn one_line_covers_the_equal_reads_of_a_run_by_a_principal_within_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(&folder.path().join("audit.jsonl"), || 0).unwrap();
        let read = |principal: &str, id: &str, what: &str| -> Read {
            (Some(principal.to_owned()), Some(RunId::new(id.to_owned()).unwrap()), what.to_owned())
        };
        audit.remember_read(read("desk", "r", "answers"), 59_999);
        assert!(audit.has_read_at(&read("desk", "r", "answers"), 1));
        let others = [
            (read("desk", "s", "answers"), 1),
            (read("other", "r", "answers"), 1),
            (read("desk", "r", "records"), 1),
            ((None, None, "answers".to_owned()), 1),
            (read("desk", "r", "answers"), 60_000),
        ];
        for (other, now) in others {
            assert!(!audit.has_read_at(&other, now), "{other:?} {now}");
        }
        assert!(folder.path().join("audit-reads.jsonl").exists());
    }
}
