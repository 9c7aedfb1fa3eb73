//! What a power cut may lose.

use super::{Budget, Commit, Mode, database::Database, options};
use rocksdb::statistics::Ticker;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A store that counts its write-ahead logs and syncs.
struct Counted {
    options: rocksdb::Options,
    store: Database,
    dir: PathBuf,
    /// Its write-ahead logs so far.
    logs: BTreeSet<String>,
    /// How many times one was synced.
    synced: u64,
}

impl Counted {
    fn open(dir: &Path, budget: &Budget) -> Self {
        let mut options = options::of(budget);
        options.enable_statistics();
        let store = Database::open(&options, dir, budget, Mode::Live).expect("a new database");
        let logs = logs(dir);
        let synced = options.get_ticker_count(Ticker::WalFileSynced);
        Self { options, store, dir: dir.to_owned(), logs, synced }
    }

    fn commit(&mut self, row: u32, bytes: usize) {
        let (key, value) = (row.to_be_bytes(), vec![7; bytes]);
        self.store.commit(std::iter::once((&key[..], Some(&value[..])))).expect("there is room");
        self.look();
    }

    /// Each log created since the last check has one before it that was synced.
    fn look(&mut self) {
        let before = self.logs.len();
        self.logs.append(&mut logs(&self.dir));
        let (begun, synced) = (self.logs.len() - before, self.options.get_ticker_count(Ticker::WalFileSynced));
        assert!(begun as u64 <= synced - self.synced, "{begun} begun, {} synced before", synced - self.synced);
        self.synced = synced;
    }
}

/// The write-ahead logs in a folder.
fn logs(dir: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("a file").file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".log")).collect()
}

#[test]
fn no_write_ahead_log_begins_before_the_last_one_is_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let wide = Budget::new(1 << 30);
    let mut alone = Counted::open(&folder.path().join("alone"), &wide);
    // Its own memtable is full: by many commits, and by each of some commits that exceed it.
    (0..80).for_each(|row| alone.commit(row, 512 << 10));
    (0..3).for_each(|row| alone.commit(row, 20 << 20));
    assert!(alone.logs.len() > 4, "{:?}", alone.logs);
    alone.store.flush().expect("there is room");
    alone.look();

    // All memtables together exceed their share.
    let narrow = Budget::new(16 << 20);
    let mut several: Vec<_> =
        (0..3).map(|number| Counted::open(&folder.path().join(number.to_string()), &narrow)).collect();
    for row in 0..60 {
        several.iter_mut().for_each(|store| store.commit(row, 256 << 10));
    }
    for store in several {
        assert!(store.logs.len() > 3, "{:?}", store.logs);
    }
}
