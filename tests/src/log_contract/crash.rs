//! Acknowledged records survive SIGKILL of the process that appended them.
//!
//! The appending process is this test binary, started again to run one ignored test that calls [`append_until_killed`].
//! It prints acknowledgements to stdout, and is killed at a random moment.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use runlog_log::{Log, Offset, PartitionId};

use super::{bounds, entry, read_up_to, reader, wait};

/// A record that was acknowledged to the killed process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Its partition.
    pub partition: PartitionId,
    /// Its offset.
    pub offset: Offset,
    /// Its value.
    pub value: String,
}

const PREFIX: &str = "acked ";

/// Appends in flight, so that the kill finds appends in every state.
const IN_FLIGHT: usize = 32;

/// Appends to all partitions and prints the acknowledgements, until the process is killed.
pub fn append_until_killed(log: &Arc<dyn Log>) {
    thread::scope(|scope| {
        for partition in PartitionId::all(log.partitions()) {
            scope.spawn(move || append_and_say(log, partition));
        }
    });
}

fn append_and_say(log: &Arc<dyn Log>, partition: PartitionId) {
    for round in 0_u64.. {
        let value = |number| format!("{} {round} {number}", std::process::id());
        let acks: Vec<_> = (0..IN_FLIGHT).map(|number| log.append(partition, vec![entry(value(number))])).collect();
        for (number, ack) in acks.into_iter().enumerate() {
            let Ok(offsets) = wait(ack) else { continue };
            let line = format!("{PREFIX}{partition} {} {}\n", offsets[0], value(number));
            std::io::stdout().lock().write_all(line.as_bytes()).expect("the parent reads");
        }
    }
}

/// Runs the ignored test `name` of this binary in a separate process. Sends SIGKILL once it has printed `count`
/// acknowledgements, and returns all printed acknowledgements.
pub fn kill_after(name: &str, environment: &[(&str, &str)], count: usize) -> Vec<Acked> {
    let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("this binary starts again");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut acked = Vec::new();
    let mut line = String::new();
    while acked.len() < count && lines.read_line(&mut line).expect("the child writes text") > 0 {
        acked.extend(parse(&line));
        line.clear();
    }
    child.kill().expect("the child is ours");
    child.wait().expect("the child is ours");
    // The lines printed until the kill count as well, except an incomplete last line.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("the child writes text");
    acked.extend(rest.split_inclusive('\n').filter_map(parse));
    assert!(acked.len() >= count, "the child ended after {} acknowledgements", acked.len());
    acked
}

fn parse(line: &str) -> Option<Acked> {
    let mut words = line.strip_suffix('\n')?.strip_prefix(PREFIX)?.splitn(3, ' ');
    let mut next = || words.next();
    Some(Acked { partition: next()?.parse().ok()?, offset: next()?.parse().ok()?, value: next()?.into() })
}

/// Asserts that the log has each of these records at its offset, and delivers no record twice.
pub fn assert_holds(log: &Arc<dyn Log>, acked: &[Acked]) {
    let mut values = HashMap::new();
    for partition in PartitionId::all(log.partitions()) {
        let end = bounds(log, partition).end;
        let mut reader = reader(log, &[(partition, 0)]);
        for record in read_up_to(&mut reader, partition, end) {
            let value = String::from_utf8(record.value).expect("values are text");
            assert_eq!(values.insert((partition, record.offset), value), None, "delivered twice");
        }
    }
    for Acked { partition, offset, value } in acked {
        assert_eq!(values.get(&(*partition, *offset)), Some(value), "at {partition}:{offset}");
    }
}

/// A random number from `low` up to twice `low`.
pub fn about(low: usize) -> usize {
    low + (uuid::Uuid::new_v4().as_u128() % low as u128) as usize
}
