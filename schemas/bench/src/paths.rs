//! The ways that records take, by what does it.

use crate::mirror;
use apache_avro::{Schema, reader::datum::GenericDatumReader, types::Value, writer::datum::GenericDatumWriter};
use runlog_schemas::{
    codec::{self, Envelope},
    record::JournalRecord,
    schema,
};
use serde_avro_fast::ser::SerializerConfig;
use std::{
    cell::RefCell,
    sync::{LazyLock, OnceLock},
};

/// What is done with a record. The first path of each is the one that the product takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    Encode,
    Decode,
    Envelope,
    EnvelopeAndPayload,
}

impl Job {
    pub const ALL: [Self; 4] = [Self::Encode, Self::Decode, Self::Envelope, Self::EnvelopeAndPayload];

    pub fn title(self) -> &'static str {
        match self {
            Self::Encode => "encode a record",
            Self::Decode => "decode a record whole",
            Self::Envelope => "read its envelope",
            Self::EnvelopeAndPayload => "read its envelope and its payload",
        }
    }
}

/// One way to do a job.
pub struct Path {
    pub job: Job,
    pub name: &'static str,
    pub by: &'static str,
    /// Does it with the record of an index; what comes back keeps the compiler from leaving it out.
    pub take: fn(&Records, usize) -> usize,
}

/// Records in all the forms that the paths begin with.
pub struct Records {
    framed: Vec<Vec<u8>>,
    own: Vec<JournalRecord>,
    theirs: OnceLock<Theirs>,
}

/// Made when they are asked for: not for counting the product's own instructions.
struct Theirs {
    mirrors: Vec<mirror::JournalRecord<String>>,
    values: Vec<Value>,
}

static TEXT: LazyLock<&str> = LazyLock::new(|| schema::current().text);
/// The schema without its last field, the payload: with it a reader stops there.
static PREFIX: LazyLock<String> = LazyLock::new(|| {
    let mut schema: serde_json::Value = serde_json::from_str(&TEXT).expect("the schema is JSON");
    let fields = schema["fields"].as_array_mut().expect("a record's fields");
    let last = fields.pop().expect("a last field");
    assert_eq!(last["name"], "payload");
    schema.to_string()
});
static AVRO: LazyLock<Schema> = LazyLock::new(|| Schema::parse_str(&TEXT).expect("a schema"));
static AVRO_PREFIX: LazyLock<Schema> = LazyLock::new(|| Schema::parse_str(&PREFIX).expect("a schema"));
static READER: LazyLock<GenericDatumReader<'static>> = LazyLock::new(|| reader(&AVRO));
static PREFIX_READER: LazyLock<GenericDatumReader<'static>> = LazyLock::new(|| reader(&AVRO_PREFIX));
static WRITER: LazyLock<GenericDatumWriter<'static>> =
    LazyLock::new(|| GenericDatumWriter::builder(&AVRO).build().expect("a writer"));
static FAST: LazyLock<serde_avro_fast::Schema> = LazyLock::new(|| TEXT.parse().expect("a schema"));
static FAST_PREFIX: LazyLock<serde_avro_fast::Schema> = LazyLock::new(|| PREFIX.parse().expect("a schema"));

thread_local! {
    /// Kept between records, as its documentation says.
    static FAST_WRITER: RefCell<SerializerConfig<'static>> = RefCell::new(SerializerConfig::new(&FAST));
}

fn reader(schema: &'static Schema) -> GenericDatumReader<'static> {
    GenericDatumReader::builder(schema).build().expect("a reader")
}

impl Records {
    pub fn new(own: Vec<JournalRecord>) -> Result<Self, String> {
        if own.is_empty() {
            return Err("no records".to_owned());
        }
        Ok(Self { framed: own.iter().map(codec::encode).collect(), own, theirs: OnceLock::new() })
    }

    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// What is on the wire.
    pub fn framed(&self, at: usize) -> &[u8] {
        &self.framed[at]
    }

    pub fn payload_type(&self, at: usize) -> &'static str {
        self.own[at].payload.payload_type()
    }

    fn datum(&self, at: usize) -> &[u8] {
        codec::unframe(&self.framed[at]).expect("a framed record").datum
    }

    fn theirs(&self) -> &Theirs {
        self.theirs.get_or_init(|| {
            let all = || (0..self.len()).map(|at| self.datum(at));
            Theirs { mirrors: all().map(fast_owned).collect(), values: all().map(avro_value).collect() }
        })
    }
}

fn fast_owned(datum: &[u8]) -> mirror::JournalRecord<String> {
    serde_avro_fast::from_datum_slice(datum, &FAST).expect("a record")
}

fn fast_borrowed(datum: &[u8]) -> mirror::JournalRecord<&str> {
    serde_avro_fast::from_datum_slice(datum, &FAST).expect("a record")
}

fn fast_envelope(datum: &[u8]) -> mirror::Envelope<&str> {
    serde_avro_fast::from_datum_slice(datum, &FAST).expect("a record")
}

fn fast_envelope_of_prefix(datum: &[u8]) -> mirror::Envelope<&str> {
    serde_avro_fast::from_datum_slice(datum, &FAST_PREFIX).expect("a record")
}

fn fast_both(datum: &[u8]) -> mirror::EnvelopeAndPayload<&str> {
    serde_avro_fast::from_datum_slice(datum, &FAST).expect("a record")
}

fn fast_encoded(record: &mirror::JournalRecord<String>) -> Vec<u8> {
    FAST_WRITER
        .with_borrow_mut(|config| serde_avro_fast::to_datum(record, Vec::with_capacity(1024), config))
        .expect("a record")
}

fn avro_value(mut datum: &[u8]) -> Value {
    READER.read_value(&mut datum).expect("a record")
}

fn avro_owned(mut datum: &[u8]) -> mirror::JournalRecord<String> {
    READER.read_deser(&mut datum).expect("a record")
}

fn avro_envelope_value(mut datum: &[u8]) -> Value {
    PREFIX_READER.read_value(&mut datum).expect("a record")
}

fn avro_envelope(mut datum: &[u8]) -> mirror::WithoutPayload<String> {
    PREFIX_READER.read_deser(&mut datum).expect("a record")
}

fn avro_encoded(record: &mirror::JournalRecord<String>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    WRITER.write_ser(&mut out, record).expect("a record");
    out
}

fn avro_value_encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    WRITER.write_value_ref(&mut out, value).expect("a record");
    out
}

fn envelope(datum: &[u8]) -> Envelope<'_> {
    Envelope::read(datum).expect("a record")
}

macro_rules! path {
    ($job:ident $name:literal $by:literal |$records:ident, $at:ident| $run:expr) => {
        Path {
            job: Job::$job,
            name: $name,
            by: $by,
            // What was made is dropped: giving its memory back is part of the cost.
            take: |$records, $at| size_of_val(&std::hint::black_box($run)),
        }
    };
}

pub const PATHS: &[Path] = &[
    path!(Encode "encode" "own codec" |records, at| codec::encode(&records.own[at])),
    path!(Encode "encode-fast" "serde_avro_fast, from a struct"
        |records, at| fast_encoded(&records.theirs().mirrors[at])),
    path!(Encode "encode-avro" "apache-avro, from a struct"
        |records, at| avro_encoded(&records.theirs().mirrors[at])),
    path!(Encode "encode-avro-value" "apache-avro, from a `Value`"
        |records, at| avro_value_encoded(&records.theirs().values[at])),
    path!(Decode "decode" "own codec" |records, at| codec::decode(records.datum(at)).expect("a record")),
    path!(Decode "decode-fast" "serde_avro_fast, to a struct" |records, at| fast_owned(records.datum(at))),
    path!(Decode "decode-fast-borrowed" "serde_avro_fast, to one that borrows"
        |records, at| fast_borrowed(records.datum(at))),
    path!(Decode "decode-avro" "apache-avro, to a struct" |records, at| avro_owned(records.datum(at))),
    path!(Decode "decode-avro-value" "apache-avro, to a `Value`" |records, at| avro_value(records.datum(at))),
    path!(Envelope "envelope" "own codec" |records, at| envelope(records.datum(at))),
    path!(Envelope "envelope-fast" "serde_avro_fast, to a struct that borrows"
        |records, at| fast_envelope(records.datum(at))),
    path!(Envelope "envelope-fast-prefix" "the same, by the schema without `payload`"
        |records, at| fast_envelope_of_prefix(records.datum(at))),
    path!(Envelope "envelope-avro" "apache-avro, to a struct, without `payload`"
        |records, at| avro_envelope(records.datum(at))),
    path!(Envelope "envelope-avro-value" "apache-avro, to a `Value`, without `payload`"
        |records, at| avro_envelope_value(records.datum(at))),
    path!(EnvelopeAndPayload "both" "own codec" |records, at| {
        let envelope = envelope(records.datum(at));
        let payload = envelope.payload().expect("a payload");
        (envelope, payload)
    }),
    path!(EnvelopeAndPayload "checked" "own codec, the payload checked and not kept"
        |records, at| codec::read(&records.framed[at]).expect("a record")),
    path!(EnvelopeAndPayload "both-fast" "serde_avro_fast, to a struct that borrows"
        |records, at| fast_both(records.datum(at))),
];

/// All write the same bytes and read the same: what differs is what it costs.
pub fn check(records: &Records) -> Result<(), String> {
    for at in 0..records.len() {
        let (datum, theirs) = (records.datum(at), records.theirs());
        let mirrors = [&theirs.mirrors[at], &avro_owned(datum)];
        let mut written: Vec<Vec<u8>> =
            mirrors.iter().flat_map(|record| [fast_encoded(record), avro_encoded(record)]).collect();
        written.push(avro_value_encoded(&theirs.values[at]));
        if written.iter().any(|bytes| bytes != datum) {
            return Err(format!("record {at} is written in more than one way"));
        }
        let own = envelope(datum);
        let same = |id: &str, run: &str, answers: Option<&str>| {
            let (own_run, own_answers) = (own.run_id.as_ref(), own.facts.answers.as_ref());
            id == own.record_id.as_str()
                && run == own_run.map_or("", |run| run.as_str())
                && answers == own_answers.map(|answers| answers.as_str())
        };
        let (avro, both) = (avro_envelope(datum), fast_both(datum));
        let all = [fast_envelope(datum), fast_envelope_of_prefix(datum)]
            .iter()
            .all(|fast| same(fast.record_id, fast.run_id, fast.facts.answers))
            && same(&avro.record_id, &avro.run_id, avro.facts.answers.as_deref())
            && same(both.record_id, both.run_id, both.facts.answers);
        if !all {
            return Err(format!("the envelope of record {at} is read in more than one way"));
        }
    }
    Ok(())
}
