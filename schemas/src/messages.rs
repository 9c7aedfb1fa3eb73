//! Message lists of checkpoints, and the form in which a checkpoint records a list relative to an earlier one.
//!
//! ```text
//!   base    a b c d e f          (an applied checkpoint's list)
//!   own     X Y                  (this record's messages)
//!   spans   base 0..2, own 0..1, base 3..6, own 1..2
//!   list    a b X d e f Y        (c became X, Y was added)
//! ```
//!
//! The first checkpoint with a message contains it, and later checkpoints refer to it. So a run's checkpoints have the size of its
//! messages plus a few bytes per span.

use crate::{datum, datum::Sha256, json::Json};
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::Range};

/// Largest number of messages of one list.
pub const MESSAGES_MAX: u64 = 1 << 16;
/// Largest size of one list's messages, bytes.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// A part of a message list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSpan {
    /// Whether the span refers to the base's list. Otherwise it refers to the record's own messages.
    pub from_base: bool,
    /// The index of the first message, from 0.
    #[serde(default)]
    pub from: u64,
    /// The number of messages; at least 1.
    pub count: u64,
}
datum!(MessageSpan { from_base, from, count });

impl MessageSpan {
    /// Returns the part of `list` that this span refers to, or an empty slice if it exceeds the list.
    pub fn slice<'a, T>(&self, list: &'a [T]) -> &'a [T] {
        let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        list.get(index(self.from)..index(self.from.saturating_add(self.count))).unwrap_or_default()
    }
}

/// Returns the SHA-256 of a message's text.
pub fn hash(message: &Json) -> Sha256 {
    Sha256::of(message.as_str().as_bytes())
}

/// Returns the spans of a list, for a base with `base` messages (0 without a base) and a record with `own` messages. `None` if a
/// span is empty or exceeds its list, or if the list is longer than [`MESSAGES_MAX`].
pub fn resolve(base: u64, own: u64, spans: &[MessageSpan]) -> Option<Vec<MessageSpan>> {
    let spans = if spans.is_empty() {
        let whole = [(true, base), (false, own)];
        let parts = whole.into_iter().filter(|(_, count)| *count > 0);
        parts.map(|(from_base, count)| MessageSpan { from_base, from: 0, count }).collect()
    } else {
        spans.to_vec()
    };
    let mut total = 0u64;
    for span in &spans {
        let available = if span.from_base { base } else { own };
        if span.count == 0 || span.from.checked_add(span.count)? > available {
            return None;
        }
        total = total.checked_add(span.count).filter(|total| *total <= MESSAGES_MAX)?;
    }
    Some(spans)
}

/// A message list and the hash of each message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageList {
    messages: Vec<Json>,
    hashes: Vec<Sha256>,
}

/// The parts of a list that a checkpoint record contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whether it builds on the previous list. If not, `messages` is the whole list.
    pub on_base: bool,
    /// `LoopCheckpoint::messages`.
    pub messages: Vec<Json>,
    /// `LoopCheckpoint::spans`.
    pub spans: Vec<MessageSpan>,
    /// The list itself, as the base of the next list.
    pub list: MessageList,
}

/// Largest size of a span in payload and facts together, for lists of the greatest length, bytes.
const SPAN_BYTES: usize = 16;
/// Size of the reference to a base, bytes.
const BASE_BYTES: usize = 80;

impl MessageList {
    /// Creates a list and hashes all messages.
    pub fn new(messages: Vec<Json>) -> Self {
        let hashes = messages.iter().map(hash).collect();
        Self { messages, hashes }
    }

    /// The messages.
    pub fn messages(&self) -> &[Json] {
        &self.messages
    }

    /// The hashes, in the list's order.
    pub fn hashes(&self) -> &[Sha256] {
        &self.hashes
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of the messages' texts.
    pub fn bytes(&self) -> usize {
        size(&self.messages)
    }

    /// Expresses `next` relative to this list: first the unchanged messages at both ends, then messages between them that are found
    /// by content, in one pass. Linear in both lengths. Reads a message's text only if `next` does not share it with this list, and
    /// hashes it only if it is new or moved.
    pub fn change(&self, next: &[Json]) -> Change {
        let prefix = self.messages.iter().zip(next).take_while(|(old, new)| old == new).count();
        let most = self.len().min(next.len()) - prefix;
        let ends = self.messages.iter().rev().zip(next.iter().rev()).take(most);
        let suffix = ends.take_while(|(old, new)| old == new).count();
        let mut draft = Draft::new(self, next.len());
        draft.keep(0..prefix);
        let middle = Middle::new(self, prefix..self.len() - suffix);
        let mut next_index = prefix;
        for message in &next[prefix..next.len() - suffix] {
            match middle.find(message, next_index) {
                Ok(at) => {
                    draft.keep(at..at + 1);
                    next_index = at + 1;
                }
                Err(hash) => draft.bring(message, hash),
            }
        }
        draft.keep(self.len() - suffix..self.len());
        draft.finish()
    }
}

fn size(messages: &[Json]) -> usize {
    messages.iter().map(|message| message.as_str().len()).sum()
}

/// The part of a list in which messages are searched, by the address of their text and by hash.
struct Middle<'a> {
    list: &'a MessageList,
    range: Range<usize>,
    by_text: HashMap<*const u8, usize>,
    by_hash: HashMap<Sha256, usize>,
}

impl<'a> Middle<'a> {
    fn new(list: &'a MessageList, range: Range<usize>) -> Self {
        let (mut by_text, mut by_hash) = (HashMap::new(), HashMap::new());
        for at in range.clone() {
            // The texts live as long as the list: equal addresses mean equal texts.
            by_text.entry(list.messages[at].as_str().as_ptr()).or_insert(at);
            by_hash.entry(list.hashes[at]).or_insert(at);
        }
        Self { list, range, by_text, by_hash }
    }

    /// Finds the index of a message. Prefers `next_index` if the message matches there, which keeps repeated messages in order.
    /// Otherwise returns the hash.
    fn find(&self, message: &Json, next_index: usize) -> Result<usize, Sha256> {
        if self.range.contains(&next_index) && self.list.messages[next_index] == *message {
            return Ok(next_index);
        }
        if let Some(at) = self.by_text.get(&message.as_str().as_ptr()) {
            return Ok(*at);
        }
        let hash = hash(message);
        self.by_hash.get(&hash).copied().ok_or(hash)
    }
}

/// The change of a list during its computation.
struct Draft<'a> {
    base: &'a MessageList,
    messages: Vec<Json>,
    spans: Vec<MessageSpan>,
    list: MessageList,
}

impl<'a> Draft<'a> {
    fn new(base: &'a MessageList, length: usize) -> Self {
        let list = MessageList { messages: Vec::with_capacity(length), hashes: Vec::with_capacity(length) };
        Self { base, messages: Vec::new(), spans: Vec::new(), list }
    }

    fn keep(&mut self, range: Range<usize>) {
        self.list.messages.extend_from_slice(&self.base.messages[range.clone()]);
        self.list.hashes.extend_from_slice(&self.base.hashes[range.clone()]);
        self.span(true, range.start, range.len());
    }

    fn bring(&mut self, message: &Json, hash: Sha256) {
        self.span(false, self.messages.len(), 1);
        self.messages.push(message.clone());
        self.list.messages.push(message.clone());
        self.list.hashes.push(hash);
    }

    fn span(&mut self, from_base: bool, from: usize, count: usize) {
        let (from, count) = (from as u64, count as u64);
        match self.spans.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.from_base == from_base && last.from + last.count == from => last.count += count,
            _ => self.spans.push(MessageSpan { from_base, from, count }),
        }
    }

    fn finish(self) -> Change {
        let Self { base, messages, mut spans, list } = self;
        if resolve(base.len() as u64, messages.len() as u64, &[]).as_ref() == Some(&spans) {
            spans.clear();
        }
        let saved = list.bytes().saturating_sub(size(&messages));
        if saved > BASE_BYTES + SPAN_BYTES * spans.len() {
            return Change { on_base: true, messages, spans, list };
        }
        Change { on_base: false, messages: list.messages.clone(), spans: Vec::new(), list }
    }
}

#[cfg(test)]
mod tests;
