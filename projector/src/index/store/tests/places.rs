//! A store on disk stores most rows under other keys than queries use. These tests compare it with a store in memory.

use super::super::{
    Budget, Commit as _, Key, Memory, Rows, Store, View, effects, events, evolving, index_of, meta, records, runs,
    tool_calls,
};
use runlog_schemas::{
    datum::Datum as _,
    id::{Offset, RecordId, RunId},
    judge::lifecycle::EffectKind,
};
use std::ops::ControlFlow;

const RUNS: [&str; 6] = ["r", "r\0", "r\0\u{1}", "a", "z/long-id-of-a-run", "\u{ff}"];
const LISTS: [&str; 4] = ["k", "k\0", "other", "z"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % end as u64).expect("below `end`")
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn run(&mut self) -> RunId<&'static str> {
        RunId::new(self.pick(&RUNS)).expect("an id")
    }

    /// In three buckets, and at the ends of one.
    fn offset(&mut self) -> Offset {
        let start = self.pick(&[0_u32, 7, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]);
        Offset::from(start + u32::try_from(self.below(3)).expect("small"))
    }

    /// A list of each kind.
    fn list(&mut self) -> Key {
        let (run, name) = (self.run(), self.pick(&LISTS));
        match self.below(9) {
            0 => records::prefix(run),
            1 => tool_calls::order_prefix(run),
            2 => events::of_kind(name, self.pick(&LISTS)),
            3 => events::of_tag(name),
            4 => effects::pending_of(run),
            5 => evolving::ended_of(evolving::WAKES, run),
            6 => evolving::open_of(evolving::WAKES, run),
            7 => runs::prefix(name),
            _ => evolving::facts_of(evolving::WAKES, run, name),
        }
    }

    fn key(&mut self) -> Key {
        let (run, id) = (self.run(), RecordId::new(self.pick(&LISTS)).expect("an id"));
        match self.below(9) {
            0 => records::key(run, self.offset(), 0),
            1 => records::by_id(run, id),
            2 => events::key(events::of_kind(self.pick(&LISTS), self.pick(&LISTS)), self.offset(), 1),
            3 => events::key(events::of_tag(self.pick(&LISTS)), self.offset(), 0),
            4 => effects::pending(run, EffectKind::ToolCall, id),
            5 => effects::ended(run, EffectKind::ToolCall, id),
            6 => evolving::ended(evolving::WAKES, run, self.pick(&LISTS)),
            7 => runs::key(run),
            _ => evolving::fact(evolving::WAKES, run, self.pick(&LISTS), self.offset(), 0),
        }
    }
}

type KeyRows = Vec<(Vec<u8>, Vec<u8>)>;

/// The first `count` rows that a scan visits.
fn scanned<R: Rows>(rows: &R, prefix: &[u8], start: &[u8], backwards: bool, count: usize) -> KeyRows {
    let direction = if backwards { rocksdb::Direction::Reverse } else { rocksdb::Direction::Forward };
    let mut rows_read = KeyRows::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        rows_read.push((key.to_vec(), row.to_vec()));
        Ok(if rows_read.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    rows.scan(prefix, start, direction, &mut visit).expect("it can be read");
    rows_read
}

/// Asserts that both have the same row under a random key, and the same rows of random lists from a random position on.
fn agree(random: &mut Random, disk: &View<'_>, memory: &View<'_>) {
    let key = random.key();
    assert_eq!(disk.row(key.bytes()).expect("read"), memory.row(key.bytes()).expect("read"), "{key:?}");
    let (list, count) = (random.list(), random.pick(&[1, 2, 5, 1000]));
    let prefix = list.bytes();
    let starts = [prefix.to_vec(), random.key().into_bytes(), [prefix, &[0, 0, 4][..random.below(4)]].concat()];
    let keys: Vec<_> = scanned(memory, prefix, prefix, false, 1000).into_iter().map(|(key, _)| key).collect();
    let stored_start =
        keys.get(random.below(keys.len() + 1)).map(|key| [key.as_slice(), &[0; 1][..random.below(2)]].concat());
    for start in starts.into_iter().chain(stored_start).filter(|start| start.as_slice() >= prefix) {
        assert_eq!(
            scanned(disk, prefix, &start, false, count),
            scanned(memory, prefix, &start, false, count),
            "{prefix:?} from {start:?}"
        );
    }
    let last = list.clone().last();
    for end in [last.bytes(), keys.get(random.below(keys.len() + 1)).map_or(last.bytes(), Vec::as_slice)] {
        assert_eq!(
            scanned(disk, prefix, end, true, count),
            scanned(memory, prefix, end, true, count),
            "{prefix:?} down from {end:?}"
        );
    }
    // Across runs, and across lists.
    for prefix in [&[5, 0][..], &[5, 1], &[10, 1], &[17, 0], events::of_family(random.pick(&LISTS)).bytes()] {
        let from = scanned(memory, prefix, prefix, false, 1000);
        let from = from.get(random.below(from.len() + 1)).map_or_else(|| prefix.to_vec(), |(key, _)| key.clone());
        assert_eq!(
            scanned(disk, prefix, &from, false, count),
            scanned(memory, prefix, &from, false, count),
            "{prefix:?} from {from:?}"
        );
    }
}

/// All rows of indices, in the order of their keys.
fn all<R: Rows>(rows: &R) -> KeyRows {
    let mut all_rows = scanned(rows, &[], &[], false, usize::MAX);
    all_rows.retain(|(key, _)| index_of(key).is_some());
    all_rows.sort();
    all_rows
}

#[test]
fn a_store_on_disk_answers_as_one_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Store::open(folder.path(), &Budget::new(2 << 20)).expect("the disk has space");
    let (mut disk, memory, mut random) = (open(), Memory::default(), Random(17));
    // Without progress, a store has no rows.
    let progress = meta::Progress::default().to_bytes();
    disk.commit(std::iter::once((meta::progress().bytes(), Some(progress.as_slice())))).expect("the disk has space");
    for step in 0..400 {
        let (before, held) = (disk.view(), View::Memory(memory.snapshot()));
        let mut changed: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for _ in 0..random.below(6) {
            // Short rows, and bodies of which one or many fit into a block.
            let row = (random.below(3) > 0).then(|| format!("{step}").repeat(random.pick(&[1, 99, 9999])).into_bytes());
            let key = random.key().into_bytes();
            changed.retain(|(known, _)| *known != key);
            changed.push((key, row));
        }
        let rows = || changed.iter().map(|(key, row)| (key.as_slice(), row.as_deref()));
        disk.commit(rows()).expect("the disk has space");
        memory.commit(rows()).expect("it is in memory");
        agree(&mut random, &before, &held);
        agree(&mut random, &disk.view(), &View::Memory(memory.snapshot()));
        drop(before);
        if step % 60 == 59 {
            assert_eq!(all(&disk), all(&memory));
            drop(disk);
            disk = open();
            disk.flush().expect("the disk has space");
            assert_eq!(all(&disk.view()), all(&memory));
        }
    }
    assert!(all(&memory).len() > 100);
}
