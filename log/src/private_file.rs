//! Checks the permissions of files with secrets: keys, tokens, passwords.

use std::fs::Metadata;

/// Whether only a file's owner has access to it. A group may also read a file that root owns.
///
/// Kubernetes mounts a Secret for a pod with `fsGroup` in this way (owner root, mode 440), and PostgreSQL accepts it. Only
/// root can then change the file.
#[cfg(unix)]
pub fn is_private(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    metadata.mode() & others == 0
}

/// Permissions are not looked at where they are not Unix's.
#[cfg(not(unix))]
pub fn is_private(_: &Metadata) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    #[test]
    fn a_group_may_read_what_root_owns_and_nobody_else_anything() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let taken = |mode| {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            is_private(&fs::metadata(file.path()).unwrap())
        };
        let is_root = fs::metadata(file.path()).unwrap().uid() == 0;
        assert!(taken(0o600) && taken(0o400));
        assert_eq!((taken(0o440), taken(0o640)), (is_root, is_root));
        for mode in [0o644, 0o604, 0o460, 0o620, 0o610, 0o602] {
            assert!(!taken(mode), "{mode:o}");
        }
    }
}
