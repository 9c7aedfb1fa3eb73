//! Appends bytes to the local log of a server that does not run, as a foreign client. Prints their offset.
//!
//! ```text
//!   test_process local-appender DIR PARTITION HEX        17
//! ```

use super::topic_appender::bytes;
use anyhow::{Context, anyhow};
use runlog_log::{Entry, PartitionId};
use runlog_tests::foreign::append_local;

#[allow(clippy::print_stdout, reason = "its answer")]
pub(crate) fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let [dir, partition, hex] = <[String; 3]>::try_from(arguments.collect::<Vec<_>>())
        .map_err(|arguments| anyhow!("{arguments:?} are not DIR PARTITION HEX"))?;
    let entry = Entry { value: bytes(&hex)?, ..Entry::default() };
    let offsets = append_local(dir.as_ref(), &[(PartitionId::new(partition.parse()?)?, entry)])?;
    println!("{}", offsets.first().context("an offset")?.get());
    Ok(())
}
