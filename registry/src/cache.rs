//! The registry's answers on disk, in `DIR/registry/schemas.json`. The file is replaced as a whole, so that a crash leaves the
//! old file or the new one. Damaged entries are dropped one by one, because every answer can be requested again.

use runlog_schemas::datum::Sha256;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The layout of the file.
const FORMAT: u32 = 1;
/// The largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Answers by id, and the ids of schemas that this journal's servers wrote with.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    file: Option<PathBuf>,
    pub(crate) schemas: BTreeMap<u32, String>,
    /// By fingerprint, hexadecimal.
    pub(crate) own: BTreeMap<String, u32>,
}

#[derive(Deserialize, Serialize)]
struct CacheFile {
    format: u32,
    own: BTreeMap<String, u32>,
    schemas: BTreeMap<u32, Entry>,
}

#[derive(Deserialize, Serialize)]
struct Entry {
    sha256: String,
    schema: String,
}

fn digest(id: u32, schema: &str) -> String {
    Sha256::of(format!("{id}\0{schema}").as_bytes()).to_string()
}

impl Cache {
    /// Reads the intact entries of the file in `dir`.
    pub(crate) fn open(dir: Option<&Path>) -> io::Result<Self> {
        let Some(dir) = dir else { return Ok(Self::default()) };
        fs::create_dir_all(dir)?;
        let file = dir.join("schemas.json");
        let mut cache = Self { file: Some(file.clone()), ..Self::default() };
        let bytes = match fs::metadata(&file) {
            Ok(about) if about.len() <= FILE_BYTES_MAX => fs::read(&file)?,
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(cache),
            Err(error) => return Err(error),
        };
        match serde_json::from_slice::<CacheFile>(&bytes) {
            Ok(content) if content.format == FORMAT => {
                for (id, entry) in content.schemas {
                    if digest(id, &entry.schema) == entry.sha256 {
                        cache.schemas.insert(id, entry.schema);
                    } else {
                        tracing::warn!(id, "a cached schema is damaged and is requested from the registry again");
                    }
                }
                cache.own = content.own;
                cache.own.retain(|_, id| cache.schemas.contains_key(id));
            }
            _ => {
                tracing::warn!(file = %file.display(), "the file of cached schemas is damaged; they are requested from the registry again")
            }
        }
        Ok(cache)
    }

    /// Replaces the file. Blocks until it is on disk.
    pub(crate) fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let entry =
            |(id, schema): (&u32, &String)| (*id, Entry { sha256: digest(*id, schema), schema: schema.clone() });
        let content =
            CacheFile { format: FORMAT, own: self.own.clone(), schemas: self.schemas.iter().map(entry).collect() };
        let new = file.with_extension("json.new");
        let mut out = File::create(&new)?;
        out.write_all(&serde_json::to_vec_pretty(&content)?)?;
        out.sync_all()?;
        fs::rename(&new, file)?;
        // Makes the new name durable.
        File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(dir: &Path) -> Cache {
        Cache::open(Some(dir)).unwrap()
    }

    #[test]
    fn a_cached_schema_is_read_again_and_a_damaged_one_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = cache(folder.path());
        first.schemas.extend([(1, "\"int\"".to_owned()), (2, "\"long\"".to_owned())]);
        first.own.extend([("aa".to_owned(), 1), ("bb".to_owned(), 2)]);
        first.write().unwrap();
        assert_eq!(
            (cache(folder.path()).schemas, cache(folder.path()).own),
            (first.schemas.clone(), first.own.clone())
        );
        let file = folder.path().join("schemas.json");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\\\"long\\\"", "\\\"lonk\\\"")).unwrap();
        let damaged = cache(folder.path());
        assert_eq!(damaged.schemas.keys().collect::<Vec<_>>(), [&1]);
        assert_eq!(damaged.own.keys().collect::<Vec<_>>(), ["aa"], "an id without its schema names nothing");
        for text in [&text[..text.len() / 2], "", "{}", &text.replace("\"format\": 1", "\"format\": 9")] {
            fs::write(&file, text).unwrap();
            assert!(cache(folder.path()).schemas.is_empty(), "{text}");
        }
        // An answer under the id of another answer is dropped.
        fs::write(&file, text.replace("\"1\"", "\"3\"")).unwrap();
        assert_eq!(cache(folder.path()).schemas.keys().collect::<Vec<_>>(), [&2]);
    }

    #[test]
    fn an_unfinished_file_does_not_replace_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = cache(folder.path());
        first.schemas.insert(1, "\"int\"".to_owned());
        first.write().unwrap();
        fs::write(folder.path().join("schemas.json.new"), "{\"form").unwrap();
        assert_eq!(cache(folder.path()).schemas.len(), 1);
        cache(folder.path()).write().unwrap();
        assert_eq!(cache(folder.path()).schemas.len(), 1);
    }
}
