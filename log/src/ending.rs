//! Bounds the wait for closings that may hang.

use std::{sync::mpsc, thread, time::Duration};

/// Runs `work` on a new thread and waits for it at most `wait`. Returns whether it finished. After the wait, `work` continues
/// on its thread. If the thread cannot be started, the result is false.
pub(crate) fn within(wait: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (done, finished) = mpsc::channel();
    let thread = thread::Builder::new().name("closing".into()).spawn(move || {
        work();
        // After the wait the receiver is gone.
        let _ = done.send(());
    });
    thread.is_ok() && finished.recv_timeout(wait).is_ok()
}
