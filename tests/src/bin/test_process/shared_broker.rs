//! Starts the broker that the tests of one run share, prints its address, and removes it when stdin ends. Stdin ends when
//! the script that started this process exits or is killed.

use std::io::{Read, Write, stdin, stdout};

use runlog_tests::kafka::Broker;

pub(crate) fn run() -> anyhow::Result<()> {
    let broker = Broker::start()?;
    writeln!(stdout(), "{}", broker.bootstrap())?;
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
