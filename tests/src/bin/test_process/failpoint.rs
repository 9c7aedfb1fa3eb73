//! The failpoint at which this process stops, as its parent orders.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    thread,
};

use serde_json::{Value, json};

static STOP_AT: Mutex<Option<String>> = Mutex::new(None);

/// Prints a line. If the parent has ended, the next read of stdin ends this process.
pub(crate) fn say(what: &Value) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{what}").and_then(|()| stdout.flush());
}

/// Arms a failpoint.
pub(crate) fn arm(name: &str) {
    *STOP_AT.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
}

/// Arms a failpoint and reports it. Reports under the lock, so that the process cannot stop at the failpoint before.
pub(crate) fn arm_and_report(name: &str) {
    let mut stop_at = STOP_AT.lock().unwrap_or_else(PoisonError::into_inner);
    say(&json!({ "armed": name }));
    *stop_at = Some(name.to_owned());
}

/// Disarms the failpoint; returns whether it was armed.
pub(crate) fn disarm(name: &str) -> bool {
    STOP_AT.lock().unwrap_or_else(PoisonError::into_inner).take_if(|armed| armed == name).is_some()
}

/// Stops this thread for good.
pub(crate) fn park() -> ! {
    loop {
        thread::park();
    }
}
