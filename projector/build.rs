//! Hands RocksDB's shared library, where `scripts/rocksdb.sh` fetched one, to what cargo runs: `cargo test` and `cargo run`
//! search the folders of build scripts within the target folder for shared libraries.

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    println!("cargo::rerun-if-env-changed=RUNLOG_ROCKSDB_VERSION");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    // A crate of its own, as packaged, has no workspace whose lock says which library belongs to it.
    if !Path::new("../Cargo.lock").exists() {
        return Ok(());
    }
    let Some(fetched) = std::env::var_os("RUNLOG_ROCKSDB_VERSION") else { return Ok(()) };
    let Some(folder) = std::env::var_os("ROCKSDB_LIB_DIR").map(PathBuf::from) else { return Ok(()) };
    let fetched = fetched.to_string_lossy();

    let lock = std::fs::read_to_string("../Cargo.lock")?;
    let locked = lock.split("name = \"librocksdb-sys\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    if !locked.is_some_and(|locked| locked.ends_with(&format!("+{fetched}"))) {
        println!(
            "cargo::error=RocksDB {fetched} was fetched, but Cargo.lock has librocksdb-sys {}: run scripts/rocksdb.sh",
            locked.unwrap_or("in no version")
        );
        return Ok(());
    }
    let name = format!("librocksdb.so.{fetched}");
    let library = folder.join(&name);
    // The user's own ROCKSDB_LIB_DIR takes precedence: the loader finds that library like any other library of the system.
    if !library.exists() {
        return Ok(());
    }
    println!("cargo::rerun-if-changed={}", library.display());
    let out = std::env::var("OUT_DIR")?;
    std::fs::copy(&library, Path::new(&out).join(&name))?;
    println!("cargo::rustc-link-search=native={out}");
    Ok(())
}
