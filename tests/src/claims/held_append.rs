//! A failpoint that holds one append after its number is assigned and before it is sent, so that the send buffer stays full.
//!
//! A failpoint is a function and its state is static: tests that use it take [`exclusive`] first.

use std::sync::{Condvar, Mutex, MutexGuard};

use runlog_producer::failpoint;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// The next append will be held.
    Armed,
    Held,
}

static EXCLUSIVE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
static STATE: Mutex<State> = Mutex::new(State::Idle);
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().expect("not poisoned")
}

fn set(state: State) {
    *self::state() = state;
    CHANGED.notify_all();
}

/// The failpoint, for a producer's configuration.
pub(super) fn hold_if_armed(point: &'static str) {
    let mut now = state();
    if point == failpoint::RECORD_NUMBERED && *now == State::Armed {
        *now = State::Held;
        CHANGED.notify_all();
        drop(CHANGED.wait_while(now, |state| *state == State::Held).expect("not poisoned"));
    }
}

/// Lets one test use the failpoint at a time.
pub(super) async fn exclusive() -> tokio::sync::MutexGuard<'static, ()> {
    EXCLUSIVE.lock().await
}

/// Holds the next append.
pub(super) fn arm() {
    set(State::Armed);
}

/// Returns when an append is held. Needs a multi-threaded runtime.
pub(super) fn wait_until_held() {
    let is_held = || CHANGED.wait_while(state(), |state| *state == State::Armed);
    drop(tokio::task::block_in_place(is_held).expect("not poisoned"));
}

/// Sends the held append.
pub(super) fn release() {
    set(State::Idle);
}
