//! The folder of a demo.

use crate::{Error, args};
use runlog_schemas::answer::ErrorKind;
use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
};

/// A folder that was empty at the start. The drop deletes it, unless it must stay.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    stays: Cell<bool>,
}

impl Folder {
    /// Creates the requested folder, which stays, or a temporary folder.
    pub(super) fn new(args: &args::Demo) -> Result<Self, Error> {
        let path = args.data.clone().unwrap_or_else(|| {
            let id = crate::random_id();
            std::env::temp_dir().join(format!("runlog-demo-{}", id.get(..8).unwrap_or(&id)))
        });
        let unusable = |error: io::Error| {
            Error::new(ErrorKind::Invalid, format!("cannot use folder {}; choose another with --data", path.display()))
                .because(error)
        };
        std::fs::create_dir_all(&path).map_err(unusable)?;
        if std::fs::read_dir(&path).map_err(unusable)?.next().is_some() {
            let what = format!("folder {} is not empty; choose an empty or new one with --data", path.display());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self { path, stays: Cell::new(args.keep || args.data.is_some()) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn stays(&self) -> bool {
        self.stays.get()
    }

    /// Keeps the folder for inspection.
    pub(super) fn keep(&self) {
        self.stays.set(true);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays.get() {
            // Ignores an error: the system deletes temporary folders.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo(data: Option<PathBuf>, keep: bool) -> args::Demo {
        args::Demo { agents: None, data, keep, serve: false, listen: None, seed: None }
    }

    #[test]
    fn only_a_folder_of_its_own_is_removed_and_none_that_holds_something_is_taken() {
        let temporary = Folder::new(&demo(None, false)).unwrap();
        let path = temporary.path().to_owned();
        std::fs::write(path.join("x"), "x").unwrap();
        drop(temporary);
        assert!(!path.exists());

        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        drop(Folder::new(&demo(Some(folder.clone()), false)).unwrap());
        assert!(folder.exists());
        std::fs::write(folder.join("x"), "x").unwrap();
        assert_eq!(Folder::new(&demo(Some(folder), false)).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
