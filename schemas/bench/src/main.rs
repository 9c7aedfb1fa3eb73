//! What records cost, by `apache-avro`, by `serde_avro_fast` and by the crate's own codec.
//!
//! ```text
//! codec table [FILE...]        a table: time and allocations per record, and how they compare
//! codec check [FILE...]        whether all of them still read and write the same
//! codec work PATH COUNT        takes the records of run.json one way COUNT times, for instructions to be counted
//! ```
//! A FILE is a recorded run of tau-bench, `run.json` beside this crate's manifest where none is given. Its records are
//! those of `runlog import`, made by its own sources.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

#[path = "../../tests/memory/counting.rs"]
mod counting;

mod import;
mod mirror;
mod paths;
mod table;

use paths::{PATHS, Records};
use std::{hint::black_box, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["table", files @ ..] => imported(files).and_then(|records| {
            paths::check(&records)?;
            table::print(&records);
            Ok(())
        }),
        ["check", files @ ..] => imported(files).and_then(|records| {
            paths::check(&records)?;
            println!("{} records are the same to all codecs", records.len());
            Ok(())
        }),
        ["work", path, count] => work(path, count),
        _ => Err("usage: codec table [FILE...] | codec check [FILE...] | codec work PATH COUNT".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("codec: {error}");
            ExitCode::FAILURE
        }
    }
}

fn imported(files: &[&str]) -> Result<Records, String> {
    let own: &[&str] = &[concat!(env!("CARGO_MANIFEST_DIR"), "/run.json")];
    let mut all = Vec::new();
    for file in if files.is_empty() { own } else { files } {
        all.append(&mut import::records(file)?);
    }
    Records::new(all)
}

fn work(name: &str, count: &str) -> Result<(), String> {
    let path = PATHS.iter().find(|path| path.name == name).ok_or_else(|| format!("no path {name}"))?;
    let count: usize = count.parse().map_err(|_| format!("no count: {count}"))?;
    let records = imported(&[])?;
    println!("took {} records", count * records.len());
    for _ in 0..count {
        for at in 0..records.len() {
            black_box((path.take)(&records, at));
        }
    }
    Ok(())
}
