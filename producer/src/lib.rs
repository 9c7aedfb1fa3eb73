#![doc = include_str!("../README.md")]
//! ## How it works
//!
//! ```text
//!   Runlog::connect ─▶ open(run) ─▶ claim ─▶ recover after the claim ─▶ Run
//!                                                                       │
//!   run.tool(name, args).once(effect):  intent ─▶ acknowledged ─▶ read back as applied ─▶ effect ─▶ result
//! ```
//!
//! An acknowledged append is in the log. Whether it was *applied* is decided by the projector. The gate ([`Tool::once`])
//! therefore reads its intent back before the effect runs, together with the run's current writer: a process that lost the
//! run while it was paused learns it there, even though its intent was applied. A pause between that read-back and the
//! effect itself cannot be fenced by a journal; receivers that accept an idempotency key close that gap.
//!
//! A failed, unknown or cancelled append stops the handle until [`Run::reopen`]. Results of effects that ended in the meantime
//! are held, and are appended before anything else: as the calls' results, or, if another process has the run, as evidence.
//!
//! Modules, from the top; each uses only those below it:
//!
//! ```text
//!   connection                      Runlog: opens and reads runs
//!   run   tool_call   writer  read  the agent's interface: Run, Tool (the gate), Writer (records of another protocol)
//!   session                         one operation at a time
//!     open  reopen  state             claim a run, continue after a failed append, settle what earlier operations left
//!     appender  intents  checkpoint   number and send, several intents together, build on the last checkpoint
//!     in_flight  shared  client       calls in flight, the state that they share with operations, outcomes
//!     claim  numbering  outcome       the run's writer, the next numbers, the outcomes of records
//!     outbox  unjudged  replay        results to be recorded or judged, which recorded call answers a call
//!   transport                       http, kafka, local
//!   config  redact  metrics  security  client_cert  http_sender  error
//! ```

#![deny(missing_docs)]

mod answer_body;
mod client_cert;
mod config;
mod connection;
mod error;
mod http_sender;
mod metrics;
mod read;
mod redact;
mod run;
mod security;
mod session;
mod token;
mod tool_call;
mod transport;
pub mod values;
mod writer;

pub use answer_body::{BodyError, read_body};
pub use config::{Config, Journal, KafkaProperties, failpoint};
pub use connection::Runlog;
pub use error::{Action, ActiveWriter, Error, SideEffect};
#[doc(hidden)]
pub use http_sender::{HttpSender, NoResponse, Sending};
pub use metrics::{Meter, metric};
pub use read::{Page, Read};
pub use redact::{REDACTED, Redaction};
pub use run::{Outcome, Run};
pub use runlog_content as content;
pub use runlog_schemas::{
    answer, draft, id, json, json::Json, original, payload, record, record::JournalRecord, refs, scalar,
    subject::Subject,
};
pub use security::{Security, Tls, tls_failure};
pub use session::{
    checkpoint::LoopState,
    open::{OnDivergence, OpenOptions},
    reopen::Reopened,
};
pub use token::Token;
pub use tool_call::{Answer, Call, Ended, Failure, Tool};
pub use transport::request::RecordFilter;
pub use writer::{RecordMetadata, Writer};
