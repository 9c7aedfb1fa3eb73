//! A small disk that can be filled: a file system in memory, mounted over a folder. Needs root.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context, ensure};

/// The file that takes all the room.
const BALLAST: &str = "ballast";
/// It is written in pieces of these sizes, so that nothing is left.
const PIECES: [usize; 3] = [1 << 20, 4096, 1];

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
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "no disk can be mounted at {}, which takes root: {said}", dir.display());
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
