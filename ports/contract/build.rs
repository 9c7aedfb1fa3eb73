//! Makes modules of the SDK's published tests. They are read from its sources in Cargo's registry. Three things are rewritten: the
//! paths of their files, that they run only on request, and where the journals that they define keep records.

use std::{env, error::Error, fs, path::Path, process::Command};

/// The SDK's test files that use a journal, a checkpoint store or their records, with the number of tests in each.
const FILES: [(&str, usize); 16] = [
    ("records/journal_contract.rs", 6),
    ("replay_recovery/mod.rs", 7),
    ("feature_layers/tool_execution_contract.rs", 20),
    ("feature_layers/output_delivery_contract.rs", 13),
    ("feature_layers/approval_contract.rs", 11),
    ("feature_layers/hook_lifecycle_contract.rs", 19),
    ("feature_layers/isolation_contract.rs", 8),
    ("feature_layers/agent_pool_contract.rs", 17),
    ("feature_layers/subagent_contract.rs", 7),
    ("feature_layers/stream_realtime_contract.rs", 9),
    ("feature_layers/extension_contract.rs", 10),
    ("feature_layers/p1_typed_output.rs", 8),
    ("p0/p0_text_run.rs", 17),
    ("runtime/run_handle_contract.rs", 13),
    ("runtime/runtime_contract.rs", 6),
    ("domain/public_api.rs", 7),
];

/// The files that also run over `http:` and on Kafka: appends, results that fail, replay, checkpoints, and whole runs.
const REDUCED: [&str; 4] =
    ["records/journal_contract.rs", "replay_recovery/mod.rs", "runtime/runtime_contract.rs", "p0/p0_text_run.rs"];

/// The journals that the SDK's tests define, and their files.
const DOUBLES: [(&str, &str); 5] = [
    ("feature_layers/tool_execution_contract.rs", "SequencedJournal"),
    ("feature_layers/output_delivery_contract.rs", "FailOutputResultJournal"),
    ("feature_layers/approval_contract.rs", "FailOnAppendJournal"),
    ("feature_layers/isolation_contract.rs", "FailResultJournal"),
    ("feature_layers/hook_lifecycle_contract.rs", "FailHookResultJournal"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let root = sources()?;
    // The tests read fixtures from there.
    println!("cargo:rustc-env=AGENT_SDK_CORE_SOURCES={root}");
    let out = env::var("OUT_DIR")?;
    let (mut modules, mut reduced, mut total, mut of_reduced) = (String::new(), String::new(), 0, 0);
    for (file, tests) in FILES {
        let text = fs::read_to_string(Path::new(&root).join("tests").join(file))?;
        let count = text.matches("#[test]\n").count();
        if count != tests {
            return Err(format!("{file} of {root} has {count} tests, not {tests}: the SDK changed").into());
        }
        total += tests;
        let name = file.replace("/mod.rs", "").replace(".rs", "").replace('/', "_");
        let path = format!("{out}/{name}.rs");
        fs::write(&path, rewrite(file, &text, &root)?)?;
        let module = format!("#[path = {path:?}]\nmod {name};\n");
        if REDUCED.contains(&file) {
            of_reduced += tests;
            reduced.push_str(&module);
        }
        modules.push_str(&module);
    }
    let counts = format!("pub(crate) const TESTS: usize = {total};\npub(crate) const REDUCED: usize = {of_reduced};\n");
    fs::write(format!("{out}/theirs.rs"), modules + &counts)?;
    fs::write(format!("{out}/reduced.rs"), reduced + &counts)?;
    Ok(())
}

/// The folder with the sources of the SDK that is compiled.
fn sources() -> Result<String, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    // Only for this platform: a new machine has fetched no crates of others.
    cargo.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    cargo.args(["--filter-platform", &env::var("TARGET")?]);
    let output = cargo.output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    let sdk = packages.iter().find(|package| package["name"] == "agent-sdk-core").ok_or("no agent-sdk-core")?;
    let manifest = sdk["manifest_path"].as_str().ok_or("no manifest")?;
    Ok(manifest.trim_end_matches("/Cargo.toml").to_owned())
}

fn rewrite(file: &str, text: &str, root: &str) -> Result<String, Box<dyn Error>> {
    let mut text = text
        .replace("#[test]\n", "#[test]\n#[ignore = \"asked for by the tests of this crate\"]\n")
        .replace("env!(\"CARGO_MANIFEST_DIR\")", &format!("{root:?}"))
        .replace("\"../../", &format!("\"{root}/"))
        .replace("\"tests/fixtures/", &format!("\"{root}/tests/fixtures/"));
    for (_, double) in DOUBLES.iter().filter(|(path, _)| *path == file) {
        let from = text.find(&format!("struct {double} {{")).ok_or("no double")?;
        let to = from + text[from..].find(&format!("RunJournal for {double}")).ok_or("no double's journal")?;
        let changed = text[from..to]
            .replace("Mutex<Vec<JournalRecord>>", "Mutex<agent_sdk_core::contract::Records>")
            .replace("Mutex::new(Vec::new())", "Mutex::default()");
        if changed == text[from..to] {
            return Err(format!("{double} does not keep its records where expected: the SDK changed").into());
        }
        text.replace_range(from..to, &changed);
    }
    Ok(text)
}
