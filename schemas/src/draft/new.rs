//! Parses records that are to be appended. Records in the log may have what is refused here: they stay readable.

use super::{Draft, Invalid, invalid};
use crate::canonical;

impl Draft {
    /// Like [`Self::parse`], for a record that is to be appended.
    ///
    /// Errors: also an object with two members of one name, since readers differ in which of them counts.
    pub fn parse_new(text: &str) -> Result<Self, Invalid> {
        match canonical::repeated_member(text) {
            Some(pointer) => Err(invalid("two members of one object have this name", &pointer)),
            None => Self::parse(text),
        }
    }
}
