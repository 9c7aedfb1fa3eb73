//! The limit on open files and connections of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open files to its hard limit, and returns it.
///
/// The usual 1,024 are there for programs that call `select`, which nothing here does; a database's tables and a few
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

    #[test]
    fn the_limit_is_as_high_as_it_goes_and_stays_there() {
        let raised = raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), raised);
        assert_eq!(raise_open_files(), raised);
    }
}
