//! The ids of logs.

use std::sync::Arc;

use runlog_log::Log;

/// Claims of each adapter. `open` opens the same log each time it is called, and `other` is another log.
pub fn a_log_keeps_its_id_when_it_is_opened_again(open: impl Fn() -> Arc<dyn Log>, other: &Arc<dyn Log>) {
    let id = |log: &Arc<dyn Log>| log.id().expect("the log has an id").clone();
    let first = id(&open());
    assert_eq!(id(&open()), first);
    assert_ne!(id(other), first);
}
