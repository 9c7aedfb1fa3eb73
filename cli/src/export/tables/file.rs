//! Writes a Parquet file of a table with flat columns, row group by row group.
//!
//! The same rows always result in the same bytes, independent of the clock and of this machine.

use crate::{error::Error, value};
use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use runlog_schemas::{answer::ErrorKind, id::JournalSeq};
use std::{fmt::Write as _, fs::File, sync::Arc};

/// Largest number of rows of a row group.
const ROWS_MAX: usize = 1 << 16;
/// Bytes of a row group's texts at which the row group ends.
const BYTES_MAX: usize = 32 << 20;
/// The `created_by` of the files. It has no version, so that the same position results in the same bytes.
const CREATED_BY: &str = "runlog";

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Flag,
    /// Milliseconds since the Unix epoch, UTC.
    Time,
}

/// A value of a row; `None` is null.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(Option<String>),
    Whole(Option<i64>),
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    /// Converts a number of a journal, which is below 2⁶³.
    fn from(number: u64) -> Self {
        Self::Whole(Some(number.cast_signed()))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        Self::Whole(number.map(u64::cast_signed))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// The values of a column that are not written yet.
#[derive(Debug)]
struct Column {
    /// 1 for a value, 0 for null.
    levels: Vec<i16>,
    texts: Vec<ByteArray>,
    numbers: Vec<i64>,
    flags: Vec<bool>,
}

/// A file of a table.
pub(super) struct Table {
    name: &'static str,
    kinds: Vec<Kind>,
    columns: Vec<Column>,
    writer: SerializedFileWriter<File>,
    rows: usize,
    bytes: usize,
    /// Number of all rows.
    pub(super) written: u64,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Table {
    /// Creates the file. Every column may be null.
    pub(super) fn create(file: File, name: &'static str, columns: &[(&str, Kind)]) -> Result<Self, Error> {
        let mut text = format!("message {name} {{");
        for (column, kind) in columns {
            let (physical, logical) = match kind {
                Kind::Text => ("BYTE_ARRAY", " (UTF8)"),
                Kind::Whole => ("INT64", ""),
                Kind::Flag => ("BOOLEAN", ""),
                Kind::Time => ("INT64", " (TIMESTAMP(MILLIS,true))"),
            };
            // Writing to a String cannot fail.
            let _ = write!(text, "OPTIONAL {physical} {column}{logical};");
        }
        text.push('}');
        let schema = parse_message_type(&text).map_err(|error| table_error(name, error))?;
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(Compression::UNCOMPRESSED)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        let kinds: Vec<Kind> = columns.iter().map(|(_, kind)| *kind).collect();
        Ok(Self {
            name,
            columns: kinds.iter().map(|_| Column::new()).collect(),
            kinds,
            writer: writer.map_err(|error| table_error(name, error))?,
            rows: 0,
            bytes: 0,
            written: 0,
        })
    }

    /// Adds a row with a value for each column, of the column's kind.
    pub(super) fn row<const N: usize>(&mut self, values: [Value; N]) -> Result<(), Error> {
        debug_assert_eq!(N, self.columns.len(), "{}", self.name);
        for (column, value) in self.columns.iter_mut().zip(values) {
            self.bytes += column.push(value);
        }
        self.rows += 1;
        self.written += 1;
        if self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let name = self.name;
        self.write_group().map_err(|error| table_error(name, error))?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (column, kind) in self.columns.iter_mut().zip(&self.kinds) {
            let Some(mut out) = group.next_column()? else { break };
            let Column { levels, texts, numbers, flags } = std::mem::replace(column, Column::new());
            let levels = Some(levels.as_slice());
            match kind {
                Kind::Text => out.typed::<ByteArrayType>().write_batch(&texts, levels, None)?,
                Kind::Whole | Kind::Time => out.typed::<Int64Type>().write_batch(&numbers, levels, None)?,
                Kind::Flag => out.typed::<BoolType>().write_batch(&flags, levels, None)?,
            };
            out.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the remaining rows, and syncs the file to disk. A table without rows also gets a file. Returns the number
    /// of rows.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        if self.rows > 0 {
            self.flush()?;
        }
        let file = self.writer.into_inner().map_err(|error| table_error(self.name, error))?;
        super::super::staging::sync(&file, self.name)?;
        Ok(self.written)
    }
}

impl Column {
    fn new() -> Self {
        Self { levels: Vec::new(), texts: Vec::new(), numbers: Vec::new(), flags: Vec::new() }
    }

    /// Adds a value. Returns its size in bytes.
    fn push(&mut self, value: Value) -> usize {
        let is_some = !matches!(value, Value::Text(None) | Value::Whole(None));
        self.levels.push(i16::from(is_some));
        match value {
            Value::Text(Some(text)) => {
                let bytes = text.len();
                self.texts.push(ByteArray::from(text.into_bytes()));
                bytes
            }
            Value::Whole(Some(number)) => {
                self.numbers.push(number);
                size_of::<i64>()
            }
            Value::Flag(flag) => {
                self.flags.push(flag);
                1
            }
            Value::Text(None) | Value::Whole(None) => 0,
        }
    }
}

fn table_error(name: &str, error: ParquetError) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot write the table {name}")).because(error)
}

/// Converts a `journal_seq`. It is null for kinds without one.
pub(super) fn number(seq: JournalSeq) -> Value {
    Some(seq.get()).filter(|seq| *seq > 0).into()
}

/// Converts an RFC 3339 time to milliseconds. Another text becomes null.
pub(super) fn time(text: Option<&str>) -> Value {
    text.and_then(value::millis).into()
}
