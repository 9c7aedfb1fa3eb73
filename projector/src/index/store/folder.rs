//! The folders of stores: on disk, or in memory.

use super::memory::Memory;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The storage of stores.
#[derive(Clone, Debug, Default)]
pub enum Storage {
    /// On disk: a store is a RocksDB database.
    #[default]
    Disk,
    /// In memory: a store is an ordered map. For simulations, because opening and closing databases would take most of
    /// their time. A store remains when its projector is dropped, until the last clone of this value is dropped.
    Memory(MemoryFolders),
}

/// Folders in memory. Clones are the same folders.
#[derive(Clone, Debug, Default)]
pub struct MemoryFolders(Arc<Mutex<BTreeMap<PathBuf, Arc<Memory>>>>);

impl MemoryFolders {
    fn stores(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Memory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store in a folder, which is empty at first.
    pub(super) fn open(&self, dir: &Path) -> Arc<Memory> {
        self.stores().entry(dir.to_owned()).or_default().clone()
    }
}

/// A folder of a store, or of other folders.
#[derive(Clone, Debug)]
pub struct Folder {
    storage: Storage,
    path: PathBuf,
}

/// On disk.
impl<P: AsRef<Path> + ?Sized> From<&P> for Folder {
    fn from(path: &P) -> Self {
        Self::new(Storage::Disk, path)
    }
}

impl Folder {
    /// The folder at `path`.
    pub fn new(storage: Storage, path: impl AsRef<Path>) -> Self {
        Self { storage, path: path.as_ref().to_owned() }
    }

    /// A folder in this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        Self { storage: self.storage.clone(), path: self.path.join(name) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Whether it exists.
    pub(crate) fn exists(&self) -> bool {
        match &self.storage {
            Storage::Disk => self.path.is_dir(),
            Storage::Memory(folders) => folders.stores().keys().any(|path| path.starts_with(&self.path)),
        }
    }

    /// The names of its entries, in no order. Empty if it cannot be read.
    pub(crate) fn names(&self) -> Vec<String> {
        match &self.storage {
            Storage::Disk => {
                let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Storage::Memory(folders) => {
                let stores = folders.stores();
                let within = stores.keys().filter_map(|path| path.strip_prefix(&self.path).ok()?.iter().next());
                let names: BTreeSet<&str> = within.filter_map(|name| name.to_str()).collect();
                names.into_iter().map(str::to_owned).collect()
            }
        }
    }

    /// Removes it with its contents. Ignores failures.
    pub(crate) fn remove(&self) {
        match &self.storage {
            Storage::Disk => drop(std::fs::remove_dir_all(&self.path)),
            Storage::Memory(folders) => folders.stores().retain(|path, _| !path.starts_with(&self.path)),
        }
    }
}
