//! schemathesis generates valid and invalid requests from the OpenAPI document and checks the server's responses
//! against it.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use runlog_tests::{
    programs::{here, python},
    sample_journal,
    server::Server,
};
use tempfile::tempdir;

/// How long schemathesis may take: some eighty seconds on an idle machine.
const RUN_SECONDS: &str = "600";

/// Runs schemathesis in `folder`, which keeps its state, and returns its report. The document is passed as a
/// file, because schemathesis skips the path of a document that it loads from a server.
fn schemathesis(folder: &Path, server: &Server) -> anyhow::Result<(bool, String)> {
    let (_, document) = server.get("/openapi.json")?;
    let file = folder.join("openapi.json");
    std::fs::write(&file, document.to_string())?;
    let mut command = Command::new("timeout");
    command.arg(RUN_SECONDS).arg(python()?);
    // Found by the path: a hook is a module by name.
    command.args(["-m", "schemathesis.cli", "--config-file"]).arg(here("python/schemathesis.toml"));
    command.args(["run", "--no-color", "--url", &server.url]).arg(file);
    command.env("SCHEMATHESIS_HOOKS", "schemathesis_hooks").env("PYTHONPATH", here("python")).env("NO_PROXY", "*");
    let ran = command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("schemathesis")?;
    let report = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    Ok((ran.status.success(), report))
}

#[test]
fn the_server_conforms_to_its_openapi_document() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(&folder.path().join("data"))?;
    let (well, report) = schemathesis(folder.path(), &server)?;
    ensure!(well, "{report}\nthe server complained of: {}", server.stderr());
    // A run without requests finds no failure.
    let all = runlog_server::operations().count();
    ensure!(report.contains(&format!("Tested: {all}")), "{all} operations: {report}");
    // After all requests, appends and skips the indices match the log.
    server.runlog().verified()?;
    server.terminate()?;
    Ok(())
}
