//! The rule for files that contain secrets: keys, tokens, passwords. The Python client has the same rule, in
//! `_private_file.py`.

use runlog_schemas::shell;
use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
};

/// The reason why a file must not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Other users may read or write the file, which has these permission bits.
    Mode(u32),
    /// Other users may replace the file, because all users may write this folder.
    Folder(PathBuf),
}

impl Exposure {
    /// Returns a message with the remedy. `what` names the file's purpose.
    pub fn message(&self, what: &str, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Mode(mode) => {
                format!("other users may use the {what} {path} (mode {mode:o}); remove this permission with chmod 600")
            }
            Self::Folder(folder) => {
                let folder = folder.to_string_lossy();
                let chmod = shell::command("chmod o-w", &[&folder], "");
                format!("other users may replace the {what} {path}; remove this permission with {chmod}")
            }
        }
    }
}

/// Returns why the open file must not hold secrets; `None` if it may. Blocking.
///
/// Other users must not read or write the file. Neither may its group, except that it may read a file of root. Kubernetes mounts
/// a Secret in this way for a pod with `fsGroup` (mode 440), and PostgreSQL accepts it: only root can change the file then. Other
/// users must not be able to replace the file either: see [`replaceable`]. Outside of Unix, permissions are not checked.
///
/// Errors: the system's error, if the file or its folders cannot be examined.
pub fn exposure(file: &File, path: &Path) -> io::Result<Option<Exposure>> {
    let metadata = file.metadata()?;
    if let Some(mode) = open_mode(&metadata) {
        return Ok(Some(Exposure::Mode(mode)));
    }
    // A pipe, as of a shell's `<(…)`, is in no folder.
    if metadata.is_file() { Ok(replaceable(path)?.map(Exposure::Folder)) } else { Ok(None) }
}

/// Returns the folder in which every user could replace the file: a folder on its path, or on the path of the file that a link
/// names. `None` without such a folder. Blocking.
///
/// A folder with the sticky bit, such as `/tmp`, is no such folder. The group of a folder is trusted: with umask 002 each user
/// has a group, and a pod's volume belongs to the pod's group. Outside of Unix, permissions are not checked.
///
/// Errors: the system's error, if a folder cannot be examined.
pub fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    let absolute = std::path::absolute(path)?;
    for start in [absolute.parent().unwrap_or(&absolute), absolute.as_path()] {
        let canonical = match fs::canonicalize(start) {
            // An unlinked file cannot be replaced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            canonical => canonical?,
        };
        for folder in canonical.ancestors() {
            let metadata = fs::metadata(folder)?;
            if metadata.is_dir() && all_may_write(&metadata) {
                return Ok(Some(folder.to_owned()));
            }
        }
    }
    Ok(None)
}

#[cfg(unix)]
fn open_mode(metadata: &Metadata) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    (metadata.mode() & others != 0).then_some(metadata.mode() & 0o777)
}

#[cfg(unix)]
fn all_may_write(folder: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    folder.mode() & 0o1002 == 0o0002
}

#[cfg(not(unix))]
fn open_mode(_: &Metadata) -> Option<u32> {
    None
}

#[cfg(not(unix))]
fn all_may_write(_: &Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode of a file of ours");
    }

    fn examined(path: &Path) -> Option<Exposure> {
        exposure(&File::open(path).expect("a file"), path).expect("its permissions")
    }

    #[test]
    fn a_group_may_read_a_file_of_root_and_other_users_no_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let accepted = |mode| {
            chmod(file.path(), mode);
            examined(file.path()).is_none()
        };
        let is_root = fs::metadata(file.path()).unwrap().uid() == 0;
        assert!(accepted(0o600) && accepted(0o400));
        assert_eq!((accepted(0o440), accepted(0o640)), (is_root, is_root));
        for mode in [0o644, 0o604, 0o460, 0o620, 0o610, 0o602] {
            assert!(!accepted(mode), "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_every_user_could_replace_is_exposed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("open/inner")).unwrap();
        fs::write(at("open/inner/token"), "t").unwrap();
        chmod(&at("open/inner/token"), 0o600);
        symlink(at("open/inner/token"), at("link")).unwrap();
        for mode in [0o755, 0o775, 0o1777] {
            chmod(&at("open"), mode);
            assert_eq!((examined(&at("open/inner/token")), examined(&at("link"))), (None, None), "{mode:o}");
        }
        chmod(&at("open"), 0o777);
        let open = Some(Exposure::Folder(at("open")));
        assert_eq!((examined(&at("open/inner/token")), examined(&at("link"))), (open.clone(), open.clone()));
        fs::write(at("token"), "t").unwrap();
        chmod(&at("token"), 0o600);
        symlink(at("token"), at("open/link")).unwrap();
        assert_eq!((examined(&at("token")), examined(&at("open/link"))), (None, open));
    }
}
