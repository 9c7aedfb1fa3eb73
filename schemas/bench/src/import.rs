//! The records of a recorded run, as `runlog import tau-bench` makes them: by its own sources, without the command, which
//! brings RocksDB.

#[allow(dead_code, reason = "parts are for the command, and for the other format")]
#[path = "../../../cli/src/import/json.rs"]
mod json;
#[allow(dead_code, reason = "likewise")]
#[path = "../../../cli/src/import/plan.rs"]
mod plan;
#[path = "../../../cli/src/import/tau_bench.rs"]
mod tau_bench;
#[path = "../../../cli/src/import/records.rs"]
mod written;

use runlog_schemas::{canonical, record::JournalRecord};

/// All records of all runs in a file, in the order in which they would be appended.
pub fn records(file: &str) -> Result<Vec<JournalRecord>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let text = canonical::compact(&text).map_err(|error| format!("{file}: {error}"))?;
    let runs = tau_bench::plan(&json::Value::whole(&text));
    let runs = runs.map_err(|malformed| format!("{file}: {}: {}", malformed.path, malformed.what))?;
    Ok(runs.iter().flat_map(written::records).collect())
}
