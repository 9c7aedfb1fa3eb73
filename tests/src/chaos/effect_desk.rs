//! The ledger of effects: a file with a line for each effect. It is independent of the journal, so tests read there which
//! effects happened.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;
use runlog_producer::Call;
use serde_json::{Value, json};

/// The ledger of a deployment.
#[derive(Clone, Debug)]
pub struct EffectDesk {
    ledger: PathBuf,
}

/// Appends a document on a line of its own. Linux ends the write of a killed process at a page boundary, so the start of a
/// line may be left: the next document begins with a line break, and [`lines`] ignores the rest.
pub fn append_line(mut file: &File, line: &Value) -> io::Result<()> {
    file.write_all(format!("\n{line}\n").as_bytes())
}

impl EffectDesk {
    /// With its ledger in this file.
    pub fn new(ledger: PathBuf) -> Self {
        Self { ledger }
    }

    /// With the ledger that all agents of a folder share.
    pub fn in_folder(folder: &Path) -> Self {
        Self::new(folder.join("ledger"))
    }

    /// An effect: a booking with a new number, or the earlier number if the key is known.
    pub fn book(&self, run: &str, tool: &str, args: &Value, call: &Call) -> anyhow::Result<Value> {
        let key = call.idempotency_key.as_deref();
        let booked = if key.is_some() && call.attempt > 1 { self.booked(call.id.as_str())? } else { None };
        let result = booked.unwrap_or_else(|| json!({ "booking": uuid::Uuid::new_v4().to_string() }));
        let line = json!({
            "run": run, "tool": tool, "args": args, "key": key, "call": call.id, "attempt": call.attempt,
            "process": process::id(), "result": result,
        });
        append_line(&File::options().create(true).append(true).open(&self.ledger)?, &line)?;
        Ok(result)
    }

    /// The booking of a call.
    pub fn booked(&self, call: &str) -> anyhow::Result<Option<Value>> {
        // Parses few lines: the ledger is long.
        let named = lines_with(&self.ledger, call)?;
        Ok(named.into_iter().find(|line| line["call"] == call).map(|line| line["result"].clone()))
    }

    /// All effects, in order.
    pub fn effects(&self) -> anyhow::Result<Vec<Value>> {
        lines(&self.ledger)
    }
}

/// The documents that [`append_line`] wrote to a file, in order. A missing file has none. Ignores lines that their writers
/// did not finish.
pub fn lines(path: &Path) -> anyhow::Result<Vec<Value>> {
    lines_with(path, "")
}

/// The documents of [`lines`] whose line contains `text`.
fn lines_with(path: &Path, text: &str) -> anyhow::Result<Vec<Value>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut documents = Vec::new();
    for line in fs::read_to_string(path)?.lines().filter(|line| !line.is_empty() && line.contains(text)) {
        match serde_json::from_str(line) {
            Ok(document) => documents.push(document),
            Err(unfinished) if unfinished.is_eof() => {}
            Err(error) => return Err(error).with_context(|| line.to_owned()),
        }
    }
    Ok(documents)
}
