//! Converts recorded runs of other frameworks to the records that an agent would have written live.
//!
//! This module does not access the log. It converts either all files or none to [`ImportedRun`]s, and a run to records. The same
//! run always gives the same records, so that importing it again repeats existing records.
//!
//! ```text
//!  file ──compact──▶ JSON text ──tau_bench | swe_agent──▶ ImportedRun ──records──▶ journal records
//!         (validates all of it)      (pairs calls, results)
//!  files ──spans──▶ all spans ──otlp──▶ ImportedRuns
//! ```
//!
//! Contents are slices of the file's text, so that numbers, escapes and the order of keys do not change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use runlog_schemas::codec::encode;
use runlog_schemas::{canonical, draft::Draft, id::RunId};

pub(crate) use error::Error;
pub(crate) use files::Format;
#[cfg(test)]
use plan::Event;
pub(crate) use plan::ImportedRun;
pub(crate) use records::records;

mod error;
mod files;
mod json;
mod otlp;
mod plan;
mod records;
mod swe_agent;
mod tau_bench;
#[cfg(test)]
mod tests;

/// Reads and validates all files before it returns any run. Runs are in the order of the files, then in the file's.
///
/// `run_prefix` is put before every run id unchanged, without a separator.
///
/// A run that occurs twice with the same content is returned twice. The records of the second copy are repeats.
pub(crate) fn plan_files(
    format: Format,
    files: &[PathBuf],
    run_prefix: Option<&str>,
) -> Result<Vec<ImportedRun>, Error> {
    let files = files::expand(files, format)?;
    let mut runs = Vec::new();
    if format == Format::Otlp {
        // A run's spans may be in several files.
        runs = otlp::plan_files(&files, run_prefix.unwrap_or(""))?;
    }
    for file in files.iter().filter(|_| format != Format::Otlp) {
        runs.append(&mut plan_file(format, file, run_prefix.unwrap_or(""))?);
    }
    let mut seen: HashMap<&str, &ImportedRun> = HashMap::new();
    for run in &runs {
        match seen.insert(run.run_id.as_str(), run) {
            Some(first) if !first.same_content(run) => {
                return Err(Error::Collision {
                    run_id: run.run_id.clone(),
                    first: first.origin.clone(),
                    second: run.origin.clone(),
                });
            }
            _ => {}
        }
    }
    Ok(runs)
}

fn plan_file(format: Format, file: &Path, run_prefix: &str) -> Result<Vec<ImportedRun>, Error> {
    let text = files::read_text(file, format)?;
    let malformed = |malformed: json::Malformed| Error::Malformed {
        file: file.to_owned(),
        path: malformed.path,
        what: malformed.what,
    };
    let text = canonical::compact(&text).map_err(|error| malformed(json::Malformed::from_scan(&error)))?;
    let top = json::Value::whole(&text);
    let mut runs = match format {
        // `otlp::plan_files` plans all of its files together.
        Format::Otlp => Vec::new(),
        Format::TauBench => tau_bench::plan(&top).map_err(malformed)?,
        Format::SweAgent => {
            if files::is_stdin(file) {
                let what = "the run id of swe-agent is the file's name, and stdin has none: name a file";
                return Err(malformed(json::Malformed::at_top(what)));
            }
            let stem = file.file_stem().and_then(|stem| stem.to_str());
            let stem = stem.ok_or_else(|| malformed(json::Malformed::at_top("the file's name is not UTF-8")))?;
            vec![swe_agent::plan(stem, &top).map_err(malformed)?]
        }
    };
    for run in &mut runs {
        run.run_id = RunId::new(format!("{run_prefix}{}", run.run_id)).map_err(|illegal| Error::Malformed {
            file: file.to_owned(),
            path: run.origin.clone(),
            what: illegal.to_string(),
        })?;
        run.origin = format!("{} {}", file.display(), run.origin);
    }
    Ok(runs)
}

/// Builds every record of all runs once, before the first write. Checks that each has at most `most` bytes in
/// single-object form and that its JSON is accepted as a new record.
pub(crate) fn check(runs: &[ImportedRun], most: u64) -> Result<(), Error> {
    for run in runs {
        for (event, record) in records(run).enumerate() {
            let (run_id, origin, payload_type) =
                (run.run_id.clone(), run.origin.clone(), record.payload.payload_type());
            let bytes = encode(&record).len() as u64;
            if bytes > most {
                return Err(Error::TooLarge { run_id, origin, event, payload_type, bytes, most });
            }
            let text = serde_json::to_string(&record).unwrap_or_default();
            if let Err(why) = Draft::parse_new(&text) {
                return Err(Error::NoRecord { run_id, origin, event, payload_type, why });
            }
        }
    }
    Ok(())
}
