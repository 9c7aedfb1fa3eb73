//! Reads JSON with checks of its structure. Each value knows its path, and each error contains the path.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use runlog_schemas::canonical;
use runlog_schemas::json::{Json, members, value};
use serde_json::value::RawValue;

/// The defect of a file, and its JSON path.
#[derive(Debug)]
pub(super) struct Malformed {
    pub(super) path: String,
    pub(super) what: String,
}

impl Malformed {
    pub(super) fn at_top(what: impl fmt::Display) -> Self {
        Self { path: "$".to_owned(), what: what.to_string() }
    }

    pub(super) fn from_scan(error: &canonical::Error) -> Self {
        let path = error.pointer.split('/').skip(1).fold("$".to_owned(), |path, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            // A pointer does not distinguish an array index from an object key of digits. Both are written as an index.
            match step.parse::<usize>() {
                Ok(index) => format!("{path}[{index}]"),
                Err(_) => member_path(&path, &step),
            }
        });
        Self { path, what: error.problem.to_string() }
    }
}

fn member_path(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    if plain { format!("{path}.{key}") } else { format!("{path}[{key:?}]") }
}

/// A value in the file's spelling, without white space between its tokens.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    text: &'a str,
    path: String,
}

impl<'a> Value<'a> {
    /// Creates the top-level value. `text` is a whole file, already checked and compact JSON.
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, path: "$".to_owned() }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Converts the value to the JSON of records. Fails for a number beyond a double's range.
    pub(super) fn json(&self) -> Result<Json, Malformed> {
        value(self.text).map_err(|error| self.malformed(error))?;
        Json::parse(self.text).map_err(|error| self.malformed(error))
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn malformed(&self, what: impl fmt::Display) -> Malformed {
        Malformed { path: self.path.clone(), what: what.to_string() }
    }

    pub(super) fn is_string(&self) -> bool {
        self.text.starts_with('"')
    }

    pub(super) fn is_object(&self) -> bool {
        self.text.starts_with('{')
    }

    pub(super) fn object(&self) -> Result<Object<'a>, Malformed> {
        if !self.is_object() {
            return Err(self.malformed("expected an object"));
        }
        let mut fields = BTreeMap::new();
        for (key, text) in members(self.text).map_err(|error| self.malformed(error))? {
            match fields.entry(key) {
                Entry::Vacant(vacant) => vacant.insert(text),
                // With a duplicate key the value would depend on the reader.
                Entry::Occupied(there) => return Err(self.malformed(format!("duplicate key {:?}", there.key()))),
            };
        }
        Ok(Object { fields, path: self.path.clone() })
    }

    pub(super) fn array(&self) -> Result<Vec<Value<'a>>, Malformed> {
        if !self.text.starts_with('[') {
            return Err(self.malformed("expected an array"));
        }
        let elements: Vec<&RawValue> = serde_json::from_str(self.text).map_err(|error| self.malformed(error))?;
        let value =
            |(index, raw): (usize, &'a RawValue)| Value { text: raw.get(), path: format!("{}[{index}]", self.path) };
        Ok(elements.into_iter().enumerate().map(value).collect())
    }

    /// Returns the string's value. Fails for a lone surrogate, which cannot be recorded.
    pub(super) fn string(&self) -> Result<String, Malformed> {
        if !self.is_string() {
            return Err(self.malformed("expected a string"));
        }
        serde_json::from_str(self.text).map_err(|_| self.malformed("a lone surrogate in a string"))
    }

    pub(super) fn boolean(&self) -> Result<bool, Malformed> {
        match self.text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.malformed("expected true or false")),
        }
    }

    /// Returns a number in the file's spelling.
    pub(super) fn number(&self) -> Result<&'a str, Malformed> {
        let number = self.text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        if number { Ok(self.text) } else { Err(self.malformed("expected a number")) }
    }
}

/// The members of an object.
#[derive(Debug)]
pub(super) struct Object<'a> {
    fields: BTreeMap<String, &'a str>,
    path: String,
}

impl<'a> Object<'a> {
    /// Returns the member, which may be null but must exist.
    pub(super) fn required(&self, key: &str) -> Result<Value<'a>, Malformed> {
        let text = self
            .fields
            .get(key)
            .copied()
            .ok_or_else(|| Malformed { path: self.path.clone(), what: format!("the member {key:?} is missing") })?;
        Ok(Value { text, path: member_path(&self.path, key) })
    }

    /// Returns the member, or `None` if it is absent or null.
    pub(super) fn optional(&self, key: &str) -> Option<Value<'a>> {
        Some(self.or_null(key)).filter(|value| value.text != "null")
    }

    /// Returns the member, or null if it is absent.
    pub(super) fn or_null(&self, key: &str) -> Value<'a> {
        self.required(key).unwrap_or_else(|_| Value { text: "null", path: member_path(&self.path, key) })
    }

    /// Returns the elements of the member, or no elements if it is absent or null.
    pub(super) fn elements(&self, key: &str) -> Result<Vec<Value<'a>>, Malformed> {
        self.optional(key).map_or_else(|| Ok(Vec::new()), |value| value.array())
    }
}
