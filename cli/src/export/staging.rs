//! A folder that appears when it is complete. Its files are written to a hidden folder beside it, which is then renamed.

use crate::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// An incomplete folder. Dropping it deletes the folder.
#[derive(Debug)]
pub(crate) struct Staging {
    folder: TempDir,
    target: PathBuf,
}

impl Staging {
    /// Refuses a folder that is not empty: it may contain an older export.
    pub(crate) fn begin(target: &Path) -> Result<Self, Error> {
        match fs::read_dir(target).map(|mut entries| entries.next().is_some()) {
            Ok(false) => {}
            Ok(true) => {
                let what = format!("folder {} is not empty; name a new folder", target.display());
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(target, error)),
        }
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        let folder = tempfile::Builder::new().prefix(".runlog-export-").tempdir_in(parent);
        Ok(Self { folder: folder.map_err(|error| failed(parent, error))?, target: target.to_owned() })
    }

    /// Creates a file in the folder.
    pub(crate) fn create(&self, name: &str) -> Result<File, Error> {
        let path = self.folder.path().join(name);
        File::create_new(&path).map_err(|error| failed(&path, error))
    }

    /// Renames the folder to its final name. Its files must be on disk.
    ///
    /// Errors: as for `begin`, if the target is no longer empty.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let open = |path: &Path| -> io::Result<()> {
            // Only the owner may read a temporary folder. Gives the export the permissions of an ordinary new folder.
            #[cfg(unix)]
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            File::open(path)?.sync_all()
        };
        open(self.folder.path()).map_err(|error| failed(&self.target, error))?;
        // An empty folder of that name is replaced.
        fs::rename(self.folder.path(), &self.target).map_err(|error| failed(&self.target, error))?;
        // The renamed folder must not be deleted.
        let _ = self.folder.keep();
        Ok(())
    }
}

/// Syncs a complete file to disk.
pub(crate) fn sync(file: &File, name: &str) -> Result<(), Error> {
    file.sync_all().map_err(|error| failed(Path::new(name), error))
}

/// Returns the error for a path that could not be written.
pub(crate) fn failed(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot write {}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("out");
        let staging = Staging::begin(&target).unwrap();
        staging.create("a.json").unwrap().write_all(b"{}").unwrap();
        assert!(!target.exists());
        drop(staging);
        assert_eq!(names(parent.path()), Vec::<String>::new());
        // An empty folder is accepted.
        fs::create_dir(&target).unwrap();
        let staging = Staging::begin(&target).unwrap();
        staging.create("a.json").unwrap().write_all(b"{}").unwrap();
        staging.finish().unwrap();
        assert_eq!((names(parent.path()), names(&target)), (vec!["out".to_owned()], vec!["a.json".to_owned()]));
        assert_eq!(Staging::begin(&target).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
