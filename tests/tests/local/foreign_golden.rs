//! Readers in other languages decode our bytes with the schema file and their own Avro library.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, ensure};
use runlog_schemas::codec;
use runlog_tests::programs::{here, output, python};
use serde_json::Value;

/// The golden files of schema version 1, one or more per payload type.
fn golden() -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(here("../schemas/golden/v1"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "avro"));
    files.sort();
    Ok(files)
}

#[test]
fn python_and_java_read_the_golden_bytes_as_the_json_that_was_written() -> anyhow::Result<()> {
    let (schema, files) = (here("../schemas/avsc/v1/JournalRecord.avsc"), golden()?);
    let python_json = output(Command::new(python()?).arg(here("python/golden.py")).arg(&schema).args(&files))?;
    let jars = output(&mut Command::new(here("java/jars.sh")))?;
    let java = ["-cp".into(), format!("{jars}/*")];
    let java_json = output(Command::new("java").args(java).arg(here("java/Golden.java")).arg(&schema).args(&files))?;
    let (python_json, java_json): (Vec<_>, Vec<_>) = (python_json.lines().collect(), java_json.lines().collect());
    ensure!(python_json.len() == files.len() && java_json.len() == files.len(), "a line for each file");
    for ((file, python), java) in files.iter().zip(python_json).zip(java_json) {
        ensure!(python == java, "{}:\n{python}\n{java}", file.display());
        let read: Value = serde_json::from_str(python)?;
        let ours = codec::decode(codec::unframe(&std::fs::read(file)?)?)?;
        let name = read["payload"][""].as_str().context("the payload's name")?.replace("runlog.journal.v1.", "");
        let tag = ours.payload.payload_type().as_str().replace('_', "");
        ensure!(name.to_lowercase() == tag, "{}: {name} is not {tag}", file.display());
        for (field, ours) in [("run_id", ours.body.run_id.as_str()), ("record_id", ours.body.record_id.as_str())] {
            ensure!(read[field] == *ours, "{}: {field} is {} and not {ours}", file.display(), read[field]);
        }
    }
    Ok(())
}
