//! The limits of this process: on open files and connections, and on core dumps.

#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Prevents core dumps of this process, which would contain its tokens, keys and content.
///
/// On Linux the limit alone does not stop a dump that goes to a program (`kernel.core_pattern`), so the process is marked as not
/// dumpable, too. Then only root can attach a debugger.
pub(crate) fn forbid_core_dumps() {
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    let limited = limited.and(set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = limited {
        tracing::warn!("core dumps of this process, which contain its secrets, cannot be prevented: {error}");
    }
}

/// Raises the limit on open files to its hard limit, and returns it.
///
/// The usual limit of 1,024 exists for programs that call `select`; this process does not. A database's tables and a few
/// hundred agents' connections need more.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_err() {
        tracing::warn!(open_files = limit.current, "the limit on open files cannot be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_forbids_core_dumps_has_none() {
        forbid_core_dumps();
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        assert!(matches!(rustix::process::dumpable_behavior(), Ok(DumpableBehavior::NotDumpable)));
    }

    #[test]
    fn the_limit_is_raised_to_its_maximum_once() {
        let raised = raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), raised);
        assert_eq!(raise_open_files(), raised);
    }
}
