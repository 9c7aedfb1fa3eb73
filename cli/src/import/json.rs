//! Reads JSON whose shape may be wrong: each value knows its path, and each error names it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use runlog_schemas::canonical;
use runlog_schemas::json::{Json, members, value};
use serde_json::value::RawValue;

/// What is wrong with a file, and the JSON path to where.
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
            // An object's key that looks like an index reads like one, too: the pointer does not tell them apart.
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

/// A value as it is spelled, without white space between its tokens.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    text: &'a str,
    path: String,
}

impl<'a> Value<'a> {
    /// `text` is a whole file, already found to be JSON and compact.
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, path: "$".to_owned() }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The value as records carry it. A number beyond a double's range is none.
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
                // Which value counts would depend on the reader.
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

    /// The string's value. One with a lone surrogate has none that could be recorded.
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

    /// A number as it is spelled.
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
    /// The member, which may be null but must be there.
    pub(super) fn required(&self, key: &str) -> Result<Value<'a>, Malformed> {
        let text = self
            .fields
            .get(key)
            .copied()
            .ok_or_else(|| Malformed { path: self.path.clone(), what: format!("the member {key:?} is missing") })?;
        Ok(Value { text, path: member_path(&self.path, key) })
    }

    /// The member, unless it is absent or null.
    pub(super) fn optional(&self, key: &str) -> Option<Value<'a>> {
        Some(self.or_null(key)).filter(|value| value.text != "null")
    }

    /// The member, or null where it is absent.
    pub(super) fn or_null(&self, key: &str) -> Value<'a> {
        self.required(key).unwrap_or_else(|_| Value { text: "null", path: member_path(&self.path, key) })
    }

    /// The elements of the member; none where it is absent or null.
    pub(super) fn elements(&self, key: &str) -> Result<Vec<Value<'a>>, Malformed> {
        self.optional(key).map_or_else(|| Ok(Vec::new()), |value| value.array())
    }
}
