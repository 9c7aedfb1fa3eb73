//! The command finds RocksDB's shared library beside itself, wherever its folder is copied to.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,-rpath,$ORIGIN");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
