//! The folder of `--data`: created, checked, and claimed for one server.

use crate::error::Error;
use runlog_log::private_file::replaceable;
use runlog_schemas::answer::ErrorKind;
use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
};

/// The entries of a server's folder.
const OURS: [&str; 7] = ["content", "index", "log", "lock", "new-topic.json", "registry", AUDIT_LOG];
/// The audit log, if no other file is named.
pub(super) const AUDIT_LOG: &str = "audit.jsonl";
/// Entries that a file system or an editor may have created.
const HARMLESS: [&str; 1] = ["lost+found"];

/// Claims the folder. The claim lasts as long as the returned file is open, and ends with the process.
///
/// Errors: `Invalid` for a folder that cannot be written, for a local journal without `local`, and for indices without a log if
/// `local` is set. `Unavailable` if another server uses the folder.
pub(super) fn claim(folder: &Path, local: bool) -> Result<File, Error> {
    let path = folder.display();
    let unusable = |error: io::Error| {
        let what = format!("cannot use data folder {path}; choose a folder that you may write to with --data");
        Error::new(ErrorKind::Invalid, what).because(error)
    };
    std::fs::create_dir_all(folder).map_err(unusable)?;
    if let Some(open) = replaceable(&folder.join("lock")).map_err(unusable)? {
        // No error: the process may not be able to change it, such as an `emptyDir` of Kubernetes.
        let what = "all users may write this folder and can replace the journal";
        tracing::warn!(folder = %open.display(), "{what}; remove this permission with chmod o-w");
    }
    let names = names_in(folder).map_err(unusable)?;
    let ours = names.iter().any(|name| OURS.contains(&name.as_str()));
    let foreign = names.iter().find(|name| is_used(name));
    if let Some(foreign) = foreign.filter(|_| !ours) {
        // No error: a supervisor may redirect the server's own output there.
        tracing::warn!(folder = %path, file = foreign, "the data folder is not empty and holds no journal");
    }
    if !local && names.iter().any(|name| name == "log") {
        let what = format!("data folder {path} holds a local journal; choose another folder for a journal on Kafka");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    // An empty index folder may be the mount point of a disk for the indices.
    let indices = names.iter().any(|name| name == "index")
        && names_in(&folder.join("index")).map_err(unusable)?.iter().any(|name| is_used(name));
    if local && indices && !names.iter().any(|name| name == "log") {
        let what = format!(
            "data folder {path} has indices, but its log {path}/log is missing; restore the log, or, to begin a new \
             journal, choose another folder with --data"
        );
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let lock = File::options().create(true).truncate(false).write(true).open(folder.join("lock")).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let what = format!("another server uses data folder {path}; stop it, or choose another folder with --data");
            Err(Error::new(ErrorKind::Unavailable, what))
        }
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Returns whether a file of this name is neither hidden nor harmless.
fn is_used(name: &str) -> bool {
    !name.starts_with('.') && !HARMLESS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_serves_one_server_and_one_kind_of_log() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("new/data");
        let first = claim(&folder, true).unwrap();
        let taken = claim(&folder, true).unwrap_err();
        assert!(taken.kind() == ErrorKind::Unavailable && taken.to_string().contains("another server uses"), "{taken}");
        drop(first);
        std::fs::create_dir(folder.join("log")).unwrap();
        std::fs::create_dir(folder.join("index")).unwrap();
        assert!(claim(&folder, true).is_ok());
        let local = claim(&folder, false).unwrap_err();
        assert!(local.kind() == ErrorKind::Invalid && local.to_string().contains("holds a local journal"), "{local}");
        std::fs::remove_dir(folder.join("log")).unwrap();
        std::fs::create_dir(folder.join("index/lost+found")).unwrap();
        assert!(claim(&folder, true).is_ok(), "a disk for the indices");
        std::fs::create_dir(folder.join("index/1")).unwrap();
        assert_eq!(claim(&folder, true).unwrap_err().kind(), ErrorKind::Invalid, "no new log beside old indices");
        assert!(claim(&folder, false).is_ok());
        let file = root.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(claim(&file, true).unwrap_err().kind().exit_code(), 3);
    }
}
