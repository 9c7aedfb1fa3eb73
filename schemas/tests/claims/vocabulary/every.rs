//! Payloads with each combination of variants that a type has, and each symbol, made from the schema alone.
//!
//! ```text
//!   bare    no optional value, every list empty, the largest numbers: repeated until each symbol was used
//!   full    every optional value and one item in each list: each combination of variants, nested ones too
//! ```

use super::sample;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The number of uses of each enum's symbols.
pub(crate) type Used = HashMap<String, usize>;

/// The encodings of a payload type, each with its union branch. Symbols that another type used are not repeated.
pub(crate) fn encodings(index: usize, used: &mut Used) -> Vec<Vec<u8>> {
    let mut encodings = Vec::new();
    for is_full in [false, true] {
        let mut choices = Vec::new();
        loop {
            let mut every = Every { is_full, choices, next: 0, used, has_new_symbol: false, number: 0 };
            encodings.push(sample::payload(index, &mut every));
            choices = every.choices;
            if !every.has_new_symbol && !advance(&mut choices) {
                break;
            }
        }
    }
    encodings
}

/// Advances to the next combination. Returns false after the last one.
fn advance(choices: &mut Vec<(usize, usize)>) -> bool {
    while let Some((chosen, count)) = choices.pop() {
        if chosen + 1 < count {
            choices.push((chosen + 1, count));
            return true;
        }
    }
    false
}

struct Every<'a> {
    is_full: bool,
    /// The chosen variants in the order of the schema, each with the number of variants.
    choices: Vec<(usize, usize)>,
    next: usize,
    used: &'a mut Used,
    /// Whether this encoding uses a symbol for the first time.
    has_new_symbol: bool,
    number: i64,
}

impl sample::Choose for Every<'_> {
    fn symbol(&mut self, name: &str, count: usize) -> usize {
        let used = self.used.entry(name.to_owned()).or_default();
        *used += 1;
        self.has_new_symbol |= *used <= count;
        (*used - 1) % count
    }
    fn variant(&mut self, _: &str, count: usize) -> usize {
        if self.next == self.choices.len() {
            self.choices.push((0, count));
        }
        self.next += 1;
        self.choices[self.next - 1].0
    }
    fn is_present(&mut self) -> bool {
        self.is_full
    }
    fn items(&mut self) -> usize {
        self.is_full.into()
    }
    fn text(&mut self, name: &str) -> String {
        let is_id = matches!(name, "from_run_id" | "request_record_id" | "writer_id");
        if self.is_full || is_id { name.to_owned() } else { "é\n\"\u{1f980}".to_owned() }
    }
    fn long(&mut self) -> i64 {
        self.number += 1;
        if self.is_full { self.number } else { i64::MAX }
    }
    fn json(&mut self, name: &str) -> Value {
        if self.is_full { json!({ name: [1, null] }) } else { Value::Null }
    }
}
