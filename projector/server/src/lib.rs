//! The server of a journal: the HTTP interface over the indices of `runlog-projector`.
//!
//! ```text
//!   HTTP ──▶ route ──▶ handler ─┬─▶ query (index) ──▶ answer
//!                              └─▶ append ──▶ Log
//! ```
//!
//! The interface: `/v1` mirrors the commands, errors are RFC 9457 problems, and every wait has a deadline.
//!
//! Handlers only translate: waiting is `Projector::wait`, answers are `query`'s, appends are `append`'s. One function,
//! `problem::problem`, maps errors to responses.
//!
//! Reading order: `routes` (the table), `mount` (the checks around it), `app` (the state of handlers), a handler such as
//! `runs`, then `append`.

#![deny(missing_docs)]

pub mod access;
mod app;
pub mod append;
mod appends;
pub mod audit;
pub mod auth;
mod body;
mod byte_form;
mod changes;
mod checkpoints;
mod client_certificate;
mod connections;
mod contents;
mod copies;
mod event_stream;
mod events;
mod expiry;
mod extracts;
mod facts;
mod fallbacks;
mod fleet;
mod folders;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod health;
mod held;
mod home;
mod horizons;
pub mod instances;
mod journal;
mod large_response;
mod listeners;
mod logs;
mod memory_limits;
mod metrics;
mod mount;
mod multi_query;
mod open_items;
mod openapi;
mod options;
mod overview;
mod page;
mod pages;
mod parameters;
pub mod placement;
mod problem;
mod read_point;
mod requests;
mod response_memory;
mod route;
mod routes;
mod run_list;
mod runs;
mod scrape;
mod shutdown;
mod skips;
mod strict_json;
mod tail;
pub mod tls;
mod unauthenticated_connections;
mod url_text;
mod watched_file;
mod whoami;

pub use listeners::serve;
pub use mount::{router, router_with};
pub use options::Options;
pub use routes::operations;
