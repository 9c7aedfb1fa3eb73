//! A bob agent that is killed and restarted: a tool call that is in the journal is not made again.
//!
//! ```text
//!   bob_core JOURNAL SERVER LEDGER     local:DIR with an empty SERVER, http://HOST:PORT twice, or kafka:BROKERS and a server
//! ```
//!
//! It charges ten orders and prints a line for each: `done` if the charge was made now, `recorded` if the journal had it. Kill it at
//! any line and start it again. The ledger holds the charges that really happened. bob's journal records a call after it
//! happened, so a charge can be in the ledger and not in the journal. If your receiver cannot tell you that, use Runlog's own
//! gate, which records the intent first.

use bob_core::journal::{JournalEntry, ToolJournalPort};
use runlog_ports::{
    bob_core::ToolJournal,
    producer::{Config, Journal, Runlog},
};
use serde_json::{Value, json};
use std::{
    error::Error,
    fs::{File, read_to_string},
    io::{BufRead, Write, stdin, stdout},
};

const ORDERS: u64 = 10;
const SESSION: &str = "bob-example";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [journal, server, ledger] = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
        .map_err(|_| "usage: bob_core JOURNAL SERVER LEDGER")?;
    let config = Config::new(Journal::parse(&journal, Some(&server)).ok_or("no journal's URL")?, "bob-example");
    let clock = config.clock;
    // The only line that depends on Runlog.
    let journal: Box<dyn ToolJournalPort> = Box::new(ToolJournal::new(Runlog::connect(config).await?));
    let session = SESSION.to_owned();
    for order in 0..ORDERS {
        let (tool, arguments) = ("charge", json!({ "order": order, "amount": 19.99 }));
        let fingerprint = JournalEntry::fingerprint(tool, &arguments);
        let how = if journal.lookup(&session, &fingerprint).await?.is_some() {
            "recorded"
        } else {
            let result = charge(&ledger, order)?;
            let entry = JournalEntry {
                session_id: session.clone(),
                call_fingerprint: fingerprint,
                tool_name: tool.to_owned(),
                arguments,
                result,
                is_error: false,
                timestamp_ms: clock(),
            };
            journal.append(entry).await?;
            "done"
        };
        writeln!(stdout(), "{}", json!({ "order": order, "how": how }))?;
        // Waits for a line on standard input.
        stdin().lock().read_line(&mut String::new())?;
    }
    writeln!(stdout(), "{}", json!({ "entries": journal.entries(&session).await?.len() }))?;
    Ok(())
}

/// Charges an order once: the bank recognises its number.
fn charge(ledger: &str, order: u64) -> Result<Value, Box<dyn Error>> {
    let receipt = json!({ "receipt": format!("r-{order}") });
    let charged = read_to_string(ledger).unwrap_or_default();
    if !charged.lines().any(|line| line == order.to_string()) {
        writeln!(File::options().create(true).append(true).open(ledger)?, "{order}")?;
    }
    Ok(receipt)
}
