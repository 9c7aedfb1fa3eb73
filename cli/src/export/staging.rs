//! A folder that appears when all of it is written: files are made in a hidden folder beside it, which is then renamed.

use crate::Error;
use runlog_schemas::answer::ErrorKind;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A folder in the making. Dropped, it is removed.
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
                let what = format!("folder {} is not empty; name a new one", target.display());
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

    /// A new file in it.
    pub(crate) fn create(&self, name: &str) -> Result<File, Error> {
        let path = self.folder.path().join(name);
        File::create_new(&path).map_err(|error| failed(&path, error))
    }

    /// Renames the folder into place. Its files must be on disk.
    ///
    /// Errors: as for `begin`, for a folder that somebody has filled meanwhile.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let open = |path: &Path| -> io::Result<()> {
            // A temporary folder is its owner's alone; the export is as readable as any file that its user makes.
            #[cfg(unix)]
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            File::open(path)?.sync_all()
        };
        open(self.folder.path()).map_err(|error| failed(&self.target, error))?;
        // An empty folder of that name is replaced.
        fs::rename(self.folder.path(), &self.target).map_err(|error| failed(&self.target, error))?;
        // Nothing is left to remove.
        let _ = self.folder.keep();
        Ok(())
    }
}

/// Writes a file to disk, after all of it was written.
pub(crate) fn sync(file: &File, name: &str) -> Result<(), Error> {
    file.sync_all().map_err(|error| failed(Path::new(name), error))
}

/// What could not be written.
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
        let begun = Staging::begin(&target).unwrap();
        begun.create("a.json").unwrap().write_all(b"{}").unwrap();
        assert!(!target.exists());
        drop(begun);
        assert_eq!(names(parent.path()), Vec::<String>::new());
        // An empty folder is taken.
        fs::create_dir(&target).unwrap();
        let begun = Staging::begin(&target).unwrap();
        begun.create("a.json").unwrap().write_all(b"{}").unwrap();
        begun.finish().unwrap();
        assert_eq!((names(parent.path()), names(&target)), (vec!["out".to_owned()], vec!["a.json".to_owned()]));
        assert_eq!(Staging::begin(&target).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
