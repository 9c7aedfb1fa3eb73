//! The airline desk: a separate program that sells flights and rooms and does not use Runlog.
//!
//! ```text
//!   agent ──a line of JSON──▶ server ─▶ ledger (append-only file, fsynced) ─▶ answer
//! ```
//!
//! A booking with a known idempotency key is answered with the existing booking. On request, the desk holds back one
//! customer's next booking, so that the demo can kill an agent at exactly that point.

use crate::{Error, args, exit::Answer, output};
use runlog_schemas::answer::ErrorKind;
use tokio::net::TcpListener;

mod client;
mod hold;
mod ledger;
mod protocol;
mod server;
mod stock;

pub(super) use client::Desk;
pub(super) use ledger::read;
pub(super) use protocol::{Booking, Line, Moment, Reply, Request};

/// Runs the desk until stdin closes. Its first line on stdout contains its address.
pub(crate) fn run(args: &args::DemoDesk) -> Result<Answer, Error> {
    super::process::end_with_parent();
    let failed = |what: &str, error: std::io::Error| Error::new(ErrorKind::Internal, what.to_owned()).because(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("cannot start the desk's async runtime", error))?;
    let ledger =
        ledger::Ledger::create(&args.ledger).map_err(|error| failed("the desk cannot create its ledger", error))?;
    runtime.block_on(async {
        let listener =
            TcpListener::bind("127.0.0.1:0").await.map_err(|error| failed("the desk cannot listen", error))?;
        let address = listener.local_addr().map_err(|error| failed("the desk cannot listen", error))?;
        output::document(&serde_json::json!({ "listening": address }))?;
        server::serve(listener, ledger).await.map_err(|error| failed("the desk cannot listen any more", error))?;
        Ok(Answer::Yes)
    })
}
