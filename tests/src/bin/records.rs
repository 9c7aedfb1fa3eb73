//! Writes the records of a local journal to a file, each behind its length (4 bytes, big-endian): what codecs are
//! measured on (`schemas/bench`).

use anyhow::{Context, ensure};
use runlog_log::{
    Log,
    local::{LocalConfig, LocalLog},
};
use std::{io::Write, path::Path, time::Duration};

const WAIT: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, file] = arguments.as_slice() else { anyhow::bail!("usage: records DATA FILE") };
    let log = LocalLog::open(LocalConfig::new(Path::new(data).join("log")))?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).with_context(|| file.clone())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for partition in 0..log.partitions() {
        let bounds = runtime.block_on(log.bounds(partition, WAIT))?;
        let mut reader = log.reader(&[(partition, bounds.start)])?;
        while reader.position(partition).is_some_and(|position| position < bounds.end) {
            let records = reader.poll(1000, WAIT)?;
            ensure!(!records.is_empty(), "partition {partition} gave nothing in time");
            for record in records {
                out.write_all(&u32::try_from(record.value.len())?.to_be_bytes())?;
                out.write_all(&record.value)?;
            }
        }
    }
    Ok(out.flush()?)
}
