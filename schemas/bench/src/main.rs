//! What decoding and encoding a record costs, by `apache-avro`, by `serde_avro_fast` and by the hand-shaped codec.
//!
//! ```text
//! codec-bench RECORDS              a table: nanoseconds and allocations per record, the median of 15 rounds
//! codec-bench RECORDS PATH COUNT   takes one path COUNT times over the records, for counting instructions
//! ```
//! RECORDS is a file of framed records, each behind its length (4 bytes, big-endian).

mod any;

use runlog_schemas::{
    codec::{self, Envelope},
    datum::Datum,
    record::JournalRecord,
    schema,
};
use serde::{Deserialize, de::IgnoredAny};
use std::{hint::black_box, time::Instant};

const ROUNDS: usize = 15;

/// The same fields that the hand-shaped envelope keeps, by a derived struct; all others are walked over.
#[derive(Deserialize)]
#[allow(dead_code, reason = "only decoding it is measured")]
struct Fields<'a> {
    writer_id: &'a str,
    writer_epoch: i64,
    writer_seq: i64,
    journal_seq: i64,
    timestamp_millis: i64,
    record_id: &'a str,
    run_id: &'a str,
    idempotency_key: Option<&'a str>,
    dedupe_key: Option<&'a str>,
    facts: IgnoredAny,
}

struct Input {
    datums: Vec<Vec<u8>>,
    records: Vec<JournalRecord>,
    values: Vec<apache_avro::types::Value>,
    avro: apache_avro::Schema,
    fast: serde_avro_fast::Schema,
}

type Step = fn(&Input, usize) -> usize;

const PATHS: [(&str, &str, Step); 8] = [
    ("envelope", "envelope: hand-shaped (used)", |input, n| {
        let envelope = Envelope::read(&input.datums[n]).expect("a record");
        envelope.run_id.len()
    }),
    ("envelope-fast", "envelope: serde_avro_fast, derived, borrowed", |input, n| {
        let fields: Fields<'_> =
            serde_avro_fast::from_datum_slice(&input.datums[n], &input.fast).expect("a record");
        fields.run_id.len()
    }),
    ("envelope-avro", "envelope: apache-avro (whole, it has no part)", |input, n| {
        let mut datum = input.datums[n].as_slice();
        let value = apache_avro::from_avro_datum(&input.avro, &mut datum, None).expect("a record");
        usize::from(matches!(value, apache_avro::types::Value::Record(_)))
    }),
    ("whole", "whole record: hand-shaped (used)", |input, n| {
        JournalRecord::from_bytes(&input.datums[n]).expect("a record").body.run_id.len()
    }),
    ("whole-fast", "whole record: serde_avro_fast, generic", |input, n| {
        let value: any::Any = serde_avro_fast::from_datum_slice(&input.datums[n], &input.fast).expect("a record");
        value.leaves()
    }),
    ("whole-avro", "whole record: apache-avro, generic", |input, n| {
        let mut datum = input.datums[n].as_slice();
        let value = apache_avro::from_avro_datum(&input.avro, &mut datum, None).expect("a record");
        usize::from(matches!(value, apache_avro::types::Value::Record(_)))
    }),
    ("encode", "encode: hand-shaped (used)", |input, n| input.records[n].to_bytes().len()),
    ("encode-avro", "encode: apache-avro, from its value", |input, n| {
        apache_avro::to_avro_datum(&input.avro, input.values[n].clone()).expect("a record").len()
    }),
];

fn read(path: &str) -> Input {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut rest = bytes.as_slice();
    let mut datums = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (framed, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        datums.push(codec::unframe(framed).expect("a framed record").to_vec());
        rest = tail;
    }
    let records: Vec<_> = datums.iter().map(|datum| codec::decode(datum).expect("a record")).collect();
    let avro = apache_avro::Schema::parse_str(schema::JOURNAL_RECORD).expect("our schema");
    let whole = |datum: &Vec<u8>| apache_avro::from_avro_datum(&avro, &mut datum.as_slice(), None).expect("a record");
    let values = datums.iter().map(whole).collect();
    let fast = schema::JOURNAL_RECORD.parse().expect("our schema");
    Input { datums, records, values, avro, fast }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [file] => table(&read(file)),
        [file, path, count] => {
            let (input, count) = (read(file), count.parse::<usize>().expect("COUNT"));
            let (_, _, step) = PATHS.iter().find(|(name, ..)| name == path).expect("PATH");
            for n in 0..count {
                black_box(step(&input, n % input.datums.len()));
            }
        }
        _ => {
            eprintln!("usage: codec-bench RECORDS [PATH COUNT]");
            std::process::exit(2);
        }
    }
}

/// Every path over the records, and over the record of median size alone.
fn table(input: &Input) {
    let mut by_size: Vec<usize> = (0..input.datums.len()).collect();
    by_size.sort_by_key(|n| input.datums[*n].len());
    let median = by_size[by_size.len() / 2];
    println!("{} records, the median has {} bytes", input.datums.len(), input.datums[median].len());
    println!("{:<48} {:>12} {:>12} {:>12}", "path", "ns, all", "ns, median", "allocations");
    for (_, title, step) in PATHS {
        let (mut all, mut one) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            all.push(nanos(input.datums.len(), |n| step(input, n)));
            one.push(nanos(1000, |_| step(input, median)));
        }
        let allocations = allocation_counter::measure(|| {
            black_box(step(input, median));
        });
        println!("{title:<48} {:>12.0} {:>12.0} {:>12}", middle(all), middle(one), allocations.count_total);
    }
}

fn nanos(count: usize, step: impl Fn(usize) -> usize) -> f64 {
    let begun = Instant::now();
    for n in 0..count {
        black_box(step(n));
    }
    begun.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
