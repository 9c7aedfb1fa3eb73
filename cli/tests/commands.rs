//! Every command against a real `runlog serve --local`, by what scripts rely on: exit codes, and the JSON on stdout.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod commands {
    mod asking;
    mod deciding;
    mod exporting;
    mod following;
    mod foreign_exports;
    mod harness;
    mod importing;
    mod observing;
    mod older_server;
    mod publishing;
    mod registry;
    mod schemas;
    mod secrets;
    mod serving;
    #[path = "../../../registry/tests/stub/mod.rs"]
    #[allow(unreachable_pub, dead_code, reason = "the registry's own tests use all of it")]
    mod stub;
    mod tokens;
    mod unreadable;
}
