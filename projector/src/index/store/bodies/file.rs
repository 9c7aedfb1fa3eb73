//! The file of bodies.

use super::{
    Stored,
    blocks::{Blocks, Ended, LENGTHS_BYTES},
    cache::{Bodies, BodyMemory},
    encode, is_body, slice,
};
use crate::index::store::{error::Error, meta::BodiesRow};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

const MAGIC: &[u8; 12] = b"runlog-body\n";
/// Magic, and the identity of the database, which RocksDB makes of 36 characters.
const HEADER_BYTES: usize = 48;
/// The number of the file that commits began, and of the file that a bulk build wrote.
const COMMITTED: u32 = 0;
const BUILT: u32 = 1;
const NAME: &str = "bodies-";
/// A read of a block first reads this much: most blocks are shorter.
const READ_BYTES: usize = 8 << 10;
/// The maximum of a block's bodies, bytes. A row is little longer than a record, which has at most 1 MiB.
const BLOCK_BYTES_MAX: usize = 64 << 20;
/// Bytes after which a sync begins in the background, so that the sync before a flush has little to do.
const SYNC_BYTES: u64 = 4 << 20;
/// A bulk build writes this much at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The bodies of an open database.
pub(in super::super) struct BodyFile {
    dir: PathBuf,
    header: [u8; HEADER_BYTES],
    memory: Arc<BodyMemory>,
    /// `None` until the first body.
    open: RwLock<Option<Arc<OpenFile>>>,
    /// The end of the committed blocks. The lock is held during commits.
    end: Mutex<u64>,
}

/// An open file.
#[derive(Debug)]
struct OpenFile {
    /// Its number in this folder, and in this process.
    number: u32,
    id: u64,
    path: PathBuf,
    file: File,
    /// Bytes that were written since it was opened, and the part of them that is on disk.
    written: AtomicU64,
    synced: AtomicU64,
    is_syncing: AtomicBool,
    /// A sync has failed: the system may have dropped what was written.
    has_failed: AtomicBool,
}

impl OpenFile {
    fn new(memory: &BodyMemory, number: u32, path: PathBuf, file: File, unsynced: u64) -> Arc<Self> {
        let (id, is_syncing, has_failed) = (memory.file_number(), AtomicBool::default(), AtomicBool::default());
        let (written, synced) = (AtomicU64::new(unsynced), AtomicU64::default());
        Arc::new(Self { number, id, path, file, written, synced, is_syncing, has_failed })
    }

    fn sync(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Acquire);
        if self.has_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier sync failed; restart the server"));
        }
        if self.synced.load(Ordering::Acquire) < written {
            self.file.sync_data().inspect_err(|_| self.has_failed.store(true, Ordering::Release))?;
            self.synced.fetch_max(written, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Begins a sync if much is written since the last one and none is in progress. A failure is reported by the next sync.
    #[allow(clippy::disallowed_methods, reason = "it belongs to the disk, like RocksDB's threads, and ends by itself")]
    fn sync_in_background(self: &Arc<Self>) {
        let unsynced = self.written.load(Ordering::Acquire).saturating_sub(self.synced.load(Ordering::Acquire));
        if unsynced < SYNC_BYTES || self.is_syncing.swap(true, Ordering::AcqRel) {
            return;
        }
        let file = self.clone();
        let sync = move || {
            drop(file.sync());
            file.is_syncing.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("body-sync".into()).spawn(sync).is_err() {
            self.is_syncing.store(false, Ordering::Release);
        }
    }
}

impl BodyFile {
    /// Opens the file that this row names, and cuts it to its end. Removes other files of bodies.
    ///
    /// Errors: `TornBodies` if the file lacks bodies that rows name.
    pub(in super::super) fn open(
        dir: &Path,
        identity: &[u8],
        memory: Arc<BodyMemory>,
        row: Option<BodiesRow>,
    ) -> Result<Self, Error> {
        let mut header = [0; HEADER_BYTES];
        MAGIC.iter().chain(identity).zip(&mut header).for_each(|(byte, at)| *at = *byte);
        let (open, end) = match row {
            Some(BodiesRow { file, end }) => (Some(open_file(dir, &header, &memory, (file, end))?), end),
            None => (None, HEADER_BYTES as u64),
        };
        let used = open.as_ref().map(|open| open.path.clone());
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let unused = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME));
        for entry in unused.filter(|entry| Some(entry.path()) != used) {
            // It costs only disk space.
            drop(fs::remove_file(entry.path()));
        }
        Ok(Self { dir: dir.to_owned(), header, memory, open: RwLock::new(open), end: Mutex::new(end) })
    }

    /// Begins to append bodies, for one commit.
    pub(in super::super) fn append(&self) -> Appending<'_> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = Blocks::new(self.memory.clone(), *end, true);
        Appending { file: self, end, blocks, ended: Vec::new() }
    }

    /// Syncs all committed bodies.
    pub(in super::super) fn sync(&self) -> Result<(), Error> {
        let Some(open) = self.current() else { return Ok(()) };
        open.sync().map_err(|source| self.failed(&open.path, source))
    }

    /// Takes the file of a bulk build, durably. The database must have no references.
    pub(in super::super) fn install(&self, built: &Path, row: BodiesRow) -> Result<(), Error> {
        let mut at = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path_of(&self.dir, row.file);
        let install = || {
            let file = OpenOptions::new().read(true).write(true).open(built)?;
            file.write_all_at(&self.header, 0)?;
            file.sync_all()?;
            fs::rename(built, &path)?;
            File::open(&self.dir)?.sync_all()?;
            Ok(file)
        };
        let file = install().map_err(|source| self.failed(&path, source))?;
        let open = OpenFile::new(&self.memory, row.file, path, file, 0);
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open);
        *at = row.end;
        Ok(())
    }

    /// The row of this key, given the database's row. If `cached_only`, fails with `NotCached` instead of reading the file.
    pub(in super::super) fn row(&self, key: &[u8], row: Vec<u8>, cached_only: bool) -> Result<Vec<u8>, Error> {
        if !is_body(key) {
            return Ok(row);
        }
        match Stored::decode(key, &row)? {
            Stored::Short(row) => Ok(row.to_vec()),
            Stored::Reference(at) => Ok(slice(key, &self.block(at.block, cached_only)?, at)?.to_vec()),
        }
    }

    /// The bodies of a block. If `cached_only`, fails with `NotCached` instead of reading the file.
    pub(super) fn block(&self, position: u64, cached_only: bool) -> Result<Bodies, Error> {
        let open = self.current();
        let open = open.ok_or_else(|| torn(&self.dir, &path_of(&self.dir, COMMITTED), "it is missing"))?;
        if let Some(bodies) = self.memory.cached((open.id, position)) {
            return Ok(bodies);
        }
        if cached_only {
            return Err(Error::NotCached);
        }
        let bodies = self.read_block(&open, position)?;
        self.memory.cache((open.id, position), bodies.clone());
        Ok(bodies)
    }

    fn read_block(&self, open: &OpenFile, position: u64) -> Result<Bodies, Error> {
        let failed = |source| self.failed(&open.path, source);
        let damaged = |what: &str| torn(&self.dir, &open.path, &format!("the block at byte {position} {what}"));
        let mut bytes = vec![0; READ_BYTES];
        let read = read_at_most(&open.file, &mut bytes, position).map_err(failed)?;
        let Some((lengths, _)) = bytes[..read].split_first_chunk::<LENGTHS_BYTES>() else {
            return Err(damaged("is after the end of the file"));
        };
        let [frame, bodies] = [0, 4].map(|at| {
            let length = lengths[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            usize::try_from(length).unwrap_or(usize::MAX)
        });
        if frame.max(bodies) > BLOCK_BYTES_MAX {
            return Err(damaged("has an impossible length"));
        }
        let end = LENGTHS_BYTES + frame;
        if end > read {
            bytes.resize(end, 0);
            let rest = read_at_most(&open.file, &mut bytes[read..], position + read as u64).map_err(failed)?;
            if read + rest < end {
                return Err(damaged("ends after the file"));
            }
        }
        let bodies = self.memory.decompress(&bytes[LENGTHS_BYTES..end], bodies);
        bodies.map_err(|source| damaged(&format!("cannot be decompressed: {source}")))
    }

    fn current(&self) -> Option<Arc<OpenFile>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current file, which is created if there is none.
    fn current_or_new(&self) -> io::Result<Arc<OpenFile>> {
        if let Some(open) = self.current() {
            return Ok(open);
        }
        let path = path_of(&self.dir, COMMITTED);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(&self.header, 0)?;
        // A flush syncs the file's bytes, and not its name.
        File::open(&self.dir)?.sync_all()?;
        let open = OpenFile::new(&self.memory, COMMITTED, path, file, HEADER_BYTES as u64);
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
        Ok(open)
    }

    fn failed(&self, path: &Path, source: io::Error) -> Error {
        Error::from_body_file(&self.dir, path, source)
    }
}

/// Bodies of a commit. If it is dropped before [`Appending::keep`], the next commit overwrites them.
pub(in super::super) struct Appending<'f> {
    file: &'f BodyFile,
    end: MutexGuard<'f, u64>,
    blocks: Blocks,
    ended: Vec<(u64, Bodies)>,
}

impl Appending<'_> {
    /// Encodes a row of a family of bodies for the database.
    pub(in super::super) fn encode(&mut self, row: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        encode(row, &mut self.blocks, out).map_err(|source| self.failed(source))
    }

    /// Ends the last block and writes all. Returns the row that the commit must contain; `None` if it has no bodies.
    pub(in super::super) fn write(&mut self) -> Result<Option<BodiesRow>, Error> {
        self.blocks.end_block().map_err(|source| self.failed(source))?;
        let Ended { start, bytes, bodies } = self.blocks.take();
        if bytes.is_empty() {
            return Ok(None);
        }
        let open = self.file.current_or_new().map_err(|source| self.failed(source))?;
        open.written.fetch_add(bytes.len() as u64, Ordering::AcqRel);
        open.file.write_all_at(&bytes, start).map_err(|source| self.failed(source))?;
        self.ended = bodies;
        let end = start + bytes.len() as u64;
        Ok(Some(BodiesRow { file: open.number, end }))
    }

    /// Keeps the bodies of a commit that succeeded.
    pub(in super::super) fn keep(mut self, row: BodiesRow) {
        *self.end = row.end;
        let Some(open) = self.file.current() else { return };
        for (position, bodies) in self.ended {
            self.file.memory.cache((open.id, position), bodies);
        }
        open.sync_in_background();
    }

    fn failed(&self, source: io::Error) -> Error {
        self.file.failed(&path_of(&self.file.dir, COMMITTED), source)
    }
}

/// The bodies of a bulk build.
pub(in super::super) struct BodyTable {
    path: PathBuf,
    file: Option<File>,
    blocks: Blocks,
}

impl BodyTable {
    /// Creates no file until there is a body.
    pub(in super::super) fn new(folder: &Path, memory: Arc<BodyMemory>) -> Self {
        let blocks = Blocks::new(memory, HEADER_BYTES as u64, false);
        Self { path: folder.join("bodies"), file: None, blocks }
    }

    /// Encodes a row of a family of bodies for a table.
    pub(in super::super) fn encode(&mut self, row: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let mut add = || {
            encode(row, &mut self.blocks, out)?;
            if self.blocks.bytes() < WRITE_BYTES {
                Ok(())
            } else {
                write_blocks(&self.path, &mut self.file, &mut self.blocks)
            }
        };
        add().map_err(|source| Error::Temporary { path: self.path.clone(), source })
    }

    /// Syncs the file. Returns its path, and its row for the database; `None` if there is no body.
    pub(in super::super) fn finish(self) -> Result<Option<(PathBuf, BodiesRow)>, Error> {
        let Self { path, mut file, mut blocks } = self;
        let mut finish = || {
            blocks.end_block()?;
            if blocks.bytes() > 0 {
                write_blocks(&path, &mut file, &mut blocks)?;
            }
            let Some(file) = &file else { return Ok(None) };
            file.sync_data()?;
            Ok(Some(file.metadata()?.len()))
        };
        let end = finish().map_err(|source| Error::Temporary { path: path.clone(), source })?;
        Ok(end.map(|end| (path, BodiesRow { file: BUILT, end })))
    }
}

fn write_blocks(path: &Path, file: &mut Option<File>, blocks: &mut Blocks) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        none => {
            let mut new = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
            // The database that takes the file writes its header.
            new.write_all(&[0; HEADER_BYTES])?;
            none.insert(new)
        }
    };
    let Ended { start, bytes, .. } = blocks.take();
    file.write_all_at(&bytes, start)
}

fn path_of(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{NAME}{number}"))
}

fn torn(dir: &Path, path: &Path, why: &str) -> Error {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Error::TornBodies { dir: dir.to_owned(), file, why: why.to_owned() }
}

fn open_file(
    dir: &Path,
    header: &[u8; HEADER_BYTES],
    memory: &BodyMemory,
    (number, end): (u32, u64),
) -> Result<Arc<OpenFile>, Error> {
    let path = path_of(dir, number);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => torn(dir, &path, "it is missing"),
        io::ErrorKind::UnexpectedEof => torn(dir, &path, "it has no header"),
        _ => Error::from_body_file(dir, &path, source),
    };
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    let mut in_file = [0; HEADER_BYTES];
    file.read_exact_at(&mut in_file, 0).map_err(failed)?;
    if in_file != *header {
        return Err(torn(dir, &path, "it belongs to another index"));
    }
    let length = file.metadata().map_err(failed)?.len();
    if length < end {
        return Err(torn(dir, &path, &format!("it has {length} bytes, and the index needs {end}")));
    }
    if length > end {
        file.set_len(end).map_err(failed)?;
    }
    Ok(OpenFile::new(memory, number, path, file, 0))
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn read_at_most(file: &File, bytes: &mut [u8], position: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], position + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
