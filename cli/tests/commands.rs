//! Every command against a real `runlog serve --local`, by what scripts rely on: exit codes, and the JSON on stdout.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod commands {
    mod asking;
    mod harness;
    mod importing;
    mod publishing;
    mod schemas;
    mod serving;
    mod unreadable;
}
