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

use clap::ValueEnum as _;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use runlog_schemas::codec::encode;
use runlog_schemas::draft::{self, Draft};
use runlog_schemas::{canonical, id::RunId, payload::PayloadType};

#[cfg(test)]
use plan::Event;
pub(crate) use plan::ImportedRun;
pub(crate) use records::records;

mod files;
mod json;
mod otlp;
mod plan;
mod records;
mod swe_agent;
mod tau_bench;
#[cfg(test)]
mod tests;

/// The first bytes of a gzip file (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The format of the files.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// tau-bench's results
    TauBench,
    /// SWE-agent's trajectories
    SweAgent,
    /// OTLP/JSON of GenAI spans, as the OpenTelemetry collector's file exporter writes it
    Otlp,
}

/// The reason why the import was refused. In every case the input is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("folder {} has no file of this format (.json; .traj; of OTLP .jsonl)", folder.display())]
    Empty { folder: PathBuf },
    #[error("{} nests folders more than {} levels deep", folder.display(), files::FOLDERS_DEEP_MAX)]
    TooDeep { folder: PathBuf },
    /// `path` is a JSON path: `$[0].traj[5].content`.
    #[error("{} is malformed at {path}: {what}", file.display())]
    Malformed { file: PathBuf, path: String, what: String },
    /// The journal would refuse one of the two as a conflict, after a part of it was imported.
    #[error(
        "two runs named {run_id} have different content, at {first} and at {second}: import the files separately, with --run-prefix"
    )]
    Collision { run_id: RunId, first: String, second: String },
    /// The journal would refuse the record.
    #[error("the {payload_type} for event {event} of run {run_id}, at {origin}, is not a valid record: {why}")]
    NoRecord { run_id: RunId, origin: String, event: usize, payload_type: PayloadType, why: draft::Invalid },
    /// The journal would refuse one of the records.
    #[error(
        "the {payload_type} for event {event} of run {run_id}, at {origin}, takes {bytes} bytes, more than {most}: \
         start the server with --content, which stores payloads up to 64 MiB"
    )]
    TooLarge { run_id: RunId, origin: String, event: usize, payload_type: PayloadType, bytes: u64, most: u64 },
}

/// Reads and validates all files before it returns any run. Runs are in the order of the files, then in the file's.
///
/// `run_prefix` is put before every run id as it is, without a separator.
///
/// A run that occurs twice with the same content is returned twice. The records of the second one are repeats.
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
    let text = read_text(file, format)?;
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
                let what = "swe-agent takes the run id from the file's name, and stdin has none: name a file";
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

/// Reads a file as text, without a byte order mark.
fn read_text(file: &Path, format: Format) -> Result<String, Error> {
    let bytes = files::read(file).map_err(|source| Error::Unreadable { file: file.to_owned(), source })?;
    let malformed = |what: String| Error::Malformed { file: file.to_owned(), path: "$".to_owned(), what };
    if bytes.starts_with(&GZIP) {
        let name = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        return Err(malformed(format!(
            "the file is compressed with gzip: unpack it first, or pipe it: zcat FILE | runlog import {name} -"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| malformed(error.utf8_error().to_string()))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
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
