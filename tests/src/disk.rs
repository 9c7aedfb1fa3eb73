//! A small disk that can be filled: a file system in memory, mounted over a folder, which needs root. And what a power cut
//! leaves of a database.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context, ensure};

/// The file that takes all the room.
const BALLAST: &str = "ballast";
/// It is written in pieces of these sizes, so that nothing is left.
const PIECES: [usize; 3] = [1 << 20, 4096, 1];

/// How often a folder is copied anew.
const COPIES_MAX: usize = 1000;
/// Bytes of a manifest's first record that are its header and no more than the beginning of the rest.
const HALF_AN_EDIT: usize = 16;

/// What `kill -9` leaves of a folder: a copy of it as it is at one moment. Made again, for as long as a database's own threads
/// changed it meanwhile.
pub fn killed(from: &Path, to: &Path) -> anyhow::Result<()> {
    for _ in 0..COPIES_MAX {
        let before = files(from)?;
        let copied = before.keys().try_for_each(|path| -> io::Result<()> {
            let to = to.join(path.strip_prefix(from).unwrap_or(path));
            to.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::copy(path, to).map(drop)
        });
        if files(from)? == before {
            return copied.context("copying an index");
        }
        fs::remove_dir_all(to)?;
    }
    anyhow::bail!("{} never stands still", from.display())
}

/// The files below a folder and how long they are; nothing of what is removed meanwhile.
pub fn files(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, u64>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => folders.push(entry.path()),
                Ok(data) => drop(found.insert(entry.path(), data.len())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(found)
}

/// Leaves a database's folder as a power cut in the middle of a flush does: with a table that lacks its end, and half of what
/// the manifest was to say of it.
pub fn cut_flush(dir: &Path) -> anyhow::Result<()> {
    let current = fs::read_to_string(dir.join("CURRENT"))?;
    let manifest = dir.join(current.trim());
    let bytes = fs::read(&manifest)?;
    ensure!(bytes.len() > HALF_AN_EDIT, "{} is empty", manifest.display());
    File::options().append(true).open(&manifest)?.write_all(&bytes[..HALF_AN_EDIT])?;
    Ok(fs::write(dir.join("999999.sst"), &bytes[..HALF_AN_EDIT])?)
}

/// A mounted disk. Dropping it unmounts it.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// Mounts one of so many bytes at `dir`, which is made where it is missing.
    pub fn mount(dir: &Path, bytes: u64) -> anyhow::Result<Self> {
        fs::create_dir_all(dir)?;
        // By this name scripts/test.sh unmounts the disks of test processes that are gone.
        let owner = process::id();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), &format!("runlog-test-{owner}")]).arg(dir);
        let ran = mount.output().context("mount does not run")?;
        let complaints = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "no disk can be mounted at {}, which takes root: {complaints}", dir.display());
        Ok(Self { dir: dir.to_owned() })
    }

    /// Leaves no room at all.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = File::options().create(true).append(true).open(self.dir.join(BALLAST))?;
        for piece in PIECES {
            loop {
                match ballast.write_all(&vec![0; piece]) {
                    Ok(()) => {}
                    Err(full) if full.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Gives back what [`Disk::fill`] took.
    pub fn make_room(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.dir.join(BALLAST))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that is being killed may still have a file open.
        Command::new("umount").arg("-l").arg(&self.dir).status().ok();
    }
}
