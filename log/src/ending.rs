//! Ends things that may hang, without hanging.

use std::{sync::mpsc, thread, time::Duration};

/// Does `work` on a thread of its own and waits for it no longer than `wait`. False where it was not done by then: it
/// is left to its thread.
pub(crate) fn within(wait: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (done, finished) = mpsc::channel();
    let thread = thread::Builder::new().name("closing".into()).spawn(move || {
        work();
        // Nobody listens past the wait.
        let _ = done.send(());
    });
    thread.is_ok() && finished.recv_timeout(wait).is_ok()
}
