//! Data folders and answers of older versions, under `tests/fixtures`.

use crate::programs::here;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The data folder of a version; tests must copy it.
pub fn data(version: &str) -> PathBuf {
    here("fixtures").join(version).join("data")
}

/// The answers of that version on its data folder, by path.
pub fn answers(version: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    Ok(serde_json::from_slice(&std::fs::read(here("fixtures").join(version).join("answers.json"))?)?)
}

/// Copies a folder recursively.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Whether `new` contains all of `old`; it may contain more.
pub fn says(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            old.iter().all(|(name, old)| new.get(name).is_some_and(|new| says(new, old)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| says(new, old))
        }
        _ => new == old,
    }
}
