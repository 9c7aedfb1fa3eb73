//! The ledger of effects: a file per run, with a line for each effect. It is independent of the journal, so tests read
//! there which effects happened.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    process,
};

use anyhow::Context;
use runlog_producer::Call;
use serde_json::{Value, json};

use crate::deployment::lines;

/// A folder of ledgers.
#[derive(Clone, Debug)]
pub struct EffectDesk {
    folder: PathBuf,
}

/// Appends a line in one write, so that a killed process leaves the whole line or no part of it.
pub fn append_line(mut file: &File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

impl EffectDesk {
    /// The ledgers in `folder`, which is created.
    pub fn new(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, run: &str) -> PathBuf {
        self.folder.join(run)
    }

    /// An effect: a booking with a new number, or the earlier number if the key is known.
    pub fn book(&self, run: &str, tool: &str, args: &Value, call: &Call) -> anyhow::Result<Value> {
        let key = call.idempotency_key.as_deref();
        let booked = if key.is_some() && call.attempt > 1 { self.booked(run, call.id.as_str())? } else { None };
        let result = booked.unwrap_or_else(|| json!({ "booking": uuid::Uuid::new_v4().to_string() }));
        let line = json!({
            "run": run, "tool": tool, "args": args, "key": key, "call": call.id, "attempt": call.attempt,
            "process": process::id(), "result": result,
        });
        append_line(&File::options().create(true).append(true).open(self.path(run))?, &line)?;
        Ok(result)
    }

    /// The booking of a call.
    pub fn booked(&self, run: &str, call: &str) -> anyhow::Result<Option<Value>> {
        let booking = lines(&self.path(run))?.into_iter().find(|line| line["call"] == call);
        Ok(booking.map(|line| line["result"].clone()))
    }

    /// All effects, by run, in order.
    pub fn effects(&self) -> anyhow::Result<BTreeMap<String, Vec<Value>>> {
        let ledger = |entry: io::Result<fs::DirEntry>| {
            let name = entry?.file_name().into_string().ok().context("a run's name")?;
            let effects = lines(&self.path(&name))?;
            Ok((name, effects))
        };
        fs::read_dir(&self.folder)?.map(ledger).collect()
    }
}
