//! A small disk that can be filled: a tmpfs mounted over a folder, which needs root. Also simulates the effect of SIGKILL
//! and of a power cut on a database's folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context, ensure};

/// The file that fills the disk.
const BALLAST: &str = "ballast";
/// The sizes of its writes, bytes: the smallest fills the disk completely.
const PIECES: [usize; 3] = [1 << 20, 4096, 1];

/// Copies of a folder at most.
const COPIES_MAX: usize = 1000;
/// A length that cuts a manifest's first record after its header, bytes.
const HALF_AN_EDIT: usize = 16;

/// Copies a folder as SIGKILL would leave it: as it is at one moment. Repeats the copy while threads of the database change
/// the folder.
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
    anyhow::bail!("{} changed during each of {COPIES_MAX} copies", from.display())
}

/// The files below a folder with their lengths, bytes; without files that are removed meanwhile.
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

/// Changes a database's folder as a power cut during a flush would: adds a truncated table, and half of its entry in the
/// manifest.
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
    /// Mounts a disk of `bytes` at `dir`, and creates `dir` if it is missing.
    pub fn mount(dir: &Path, bytes: u64) -> anyhow::Result<Self> {
        fs::create_dir_all(dir)?;
        // scripts/test.sh finds the disks of dead test processes by this name, and unmounts them.
        let owner = process::id();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), &format!("runlog-test-{owner}")]).arg(dir);
        let ran = mount.output().context("mount does not run")?;
        let complaints = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "no disk can be mounted at {}, which needs root: {complaints}", dir.display());
        Ok(Self { dir: dir.to_owned() })
    }

    /// Fills the disk completely.
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

    /// Frees the space that [`Disk::fill`] took.
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
