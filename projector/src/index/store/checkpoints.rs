//! `checkpoints`: checkpoints by their covered number and by id, and their message lists. The latest checkpoint is one seek
//! from the end; each invalid one adds a step.
//!
//! ```text
//!   rank ──▶ checkpoint ──▶ list: pages, then a tail of ranges
//!                                   │ page: ranges           │
//!                                   └──────────┬─────────────┘
//!                                    array: every checkpoint's own messages, in log order
//! ```
//!
//! A list consists of ranges of the run's array. It shares the unchanged pages of its base, so its rows are small however
//! long the list is and however often it was edited. Reading a list needs no other checkpoint's rows.

use super::{
    index::{Index, KeyPart, OFFSET, RECORD_INDEX, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    id::{JournalSeq, Offset, RunId},
    json::Json,
};

/// The index.
pub const INDEX: Index = Index::new(
    4,
    "checkpoints",
    &[
        RowFamily::new::<RankRow>(
            0,
            "ranks",
            &[
                RUN,
                KeyPart::U64("covers_journal_seq"),
                KeyPart::U64("checkpoint_seq"),
                KeyPart::U64("created_at_millis"),
                OFFSET,
                RECORD_INDEX,
            ],
        ),
        RowFamily::new::<CheckpointRow>(1, "checkpoints", &[RUN, KeyPart::Text("checkpoint_id")]),
        RowFamily::new::<ArrayRow>(2, "arrays", &[RUN]),
        RowFamily::new::<MessageRow>(3, "messages", &[RUN, KeyPart::U64("number")]).as_bodies(),
        RowFamily::new::<Vec<Range>>(4, "pages", &[RUN, KeyPart::U64("number")]),
    ],
);

/// A checkpoint that is not pruned, by its rank: covered `journal_seq`, number, time, then position.
pub fn key(run_id: RunId<&str>, row: &CheckpointRow) -> Key {
    prefix(run_id)
        .u64(row.covers_journal_seq.get())
        .u64(row.checkpoint_seq)
        .u64(row.created_at_millis)
        .offset(row.offset)
        .u32(row.index)
}

/// A run's checkpoints that are not pruned.
pub fn prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// A checkpoint by id, pruned or not.
pub fn by_id(run_id: RunId<&str>, checkpoint_id: &str) -> Key {
    Key::new(INDEX, 1).text(run_id).text(checkpoint_id)
}

/// The length of a run's array.
pub fn array(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 2).text(run_id)
}

/// A message of a run's array.
pub fn message(run_id: RunId<&str>, number: u64) -> Key {
    message_prefix(run_id).u64(number)
}

/// A run's array.
pub fn message_prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 3).text(run_id)
}

/// A page of ranges (`Vec<Range>`).
pub fn page(run_id: RunId<&str>, number: u64) -> Key {
    Key::new(INDEX, 4).text(run_id).u64(number)
}

/// The row of a checkpoint by its rank.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RankRow {
    /// Its id.
    pub checkpoint_id: String,
    /// Whether it was made after the run's end.
    pub terminal: bool,
}
datum!(RankRow { checkpoint_id, terminal });

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CheckpointRow {
    /// Its id.
    pub checkpoint_id: String,
    /// The last `journal_seq` covered, inclusive.
    pub covers_journal_seq: JournalSeq,
    /// Its number within the run.
    pub checkpoint_seq: u64,
    /// When it was made, milliseconds since the Unix epoch.
    pub created_at_millis: u64,
    /// Its offset.
    pub offset: Offset,
    /// Its index.
    pub index: u32,
    /// The log's timestamp of its record, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// Records of the run applied up to and including it.
    pub records: u64,
    /// Whether a prune hides it.
    pub pruned: bool,
    /// The array number of the first of its own messages.
    pub own_from: u64,
    /// Its message list.
    pub list: List,
}
datum!(CheckpointRow {
    checkpoint_id,
    covers_journal_seq,
    checkpoint_seq,
    created_at_millis,
    offset,
    index,
    logged_at_millis,
    records,
    pruned,
    own_from,
    list,
});

/// A message list: the ranges of its pages, then the ranges of its tail.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct List {
    /// Its length.
    pub messages: u64,
    /// Bytes of its messages.
    pub bytes: u64,
    /// Its first ranges, by page.
    pub pages: Vec<PageRef>,
    /// Its last ranges.
    pub tail: Vec<Range>,
}
datum!(List { messages, bytes, pages, tail });

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PageRef {
    /// The page's number within the run.
    pub page: u64,
    /// Number of messages in its ranges.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
}
datum!(PageRef { page, messages, bytes });

/// Consecutive messages of a run's array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Range {
    /// Number of the first message.
    pub from: u64,
    /// Number of messages.
    pub count: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}
datum!(Range { from, count, bytes });

/// The length of a run's array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ArrayRow {
    /// Number of the next message.
    pub messages: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Number of the next page.
    pub pages: u64,
}
datum!(ArrayRow { messages, bytes, pages });

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MessageRow {
    /// Bytes of the messages before it in the array.
    pub bytes_before: u64,
    /// Its text; `None` if it is in the content store, or if the record's text does not match its facts.
    #[serde(skip)]
    pub text: Option<Json>,
    /// Set if the record's payload, and so this text, is in the content store.
    pub held: Option<HeldAt>,
    /// The offset of its record.
    pub offset: Offset,
    /// The log's timestamp of that record, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
}
datum!(MessageRow { bytes_before, text, held, offset, logged_at_millis });

/// A message of a record whose payload is in the content store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HeldAt {
    /// The record's offset.
    pub offset: Offset,
    /// Its index.
    pub index: u32,
    /// Its number among the record's own messages, from 0.
    pub nth: u64,
}
datum!(HeldAt { offset, index, nth });
