//! The home of a journal of an older version, which has none at first; two logs that were made the home; and records that are in a
//! mirror only, or name offsets of the home.

use super::{
    mirrors::{await_copied, await_ready, log_id},
    take_home::{await_home, role, taking},
    upgrade::replay,
};
use anyhow::ensure;
use runlog_log::kafka::KafkaConfig;
use runlog_tests::{
    kafka::Broker,
    mirror::{Mirror, Style, ends},
    older_version,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// The topic of a journal of version 696bf14, which has no home.
fn old_journal(timestamps: &str) -> anyhow::Result<KafkaConfig> {
    let (config, log) = (Broker::shared().unique_topic(), tempdir()?);
    older_version::copy(&older_version::data("696bf14").join("log"), log.path())?;
    replay(log.path(), &config, timestamps)?;
    Ok(config)
}

fn serve(config: &KafkaConfig) -> anyhow::Result<(TempDir, Server)> {
    let folder = tempdir()?;
    let server = Launch::kafka(folder.path(), config).start()?;
    await_ready(&server)?;
    Ok((folder, server))
}

/// The status of a claim, and the reason of its refusal.
fn claim(server: &Server) -> anyhow::Result<(u16, Value)> {
    let (status, answer) = server.post("/v1/runs/of-the-test/claims", &json!({}))?;
    Ok((status, answer["reason"].clone()))
}

fn init<'a>(log: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["home", "init", log, "--who", "jo", "--why", "agents write here", "--yes"], more].concat()
}

#[test]
fn a_journal_of_an_older_version_works_as_before_until_it_gets_its_home() -> anyhow::Result<()> {
    let config = old_journal("LogAppendTime")?;
    let mut topic = Mirror::start(&config, Style::EXACTLY_ONCE)?;
    let ((folder, home), (_mirror_folder, mirror)) = (serve(&config)?, serve(&topic.config)?);
    let id = log_id(&config)?;
    ensure!(role(&home)? == "unknown" && role(&mirror)? == "unknown");
    ensure!(claim(&home)?.0 == 200, "the server works as before");
    let doctor = home.runlog().json(&["doctor"])?.json()?;
    ensure!(doctor.to_string().contains(&format!("runlog home init {id}")), "the doctor advises it: {doctor}");
    let before = ends(&config)?;
    let another = home.runlog().json(&init("kafka:another:log", &[]))?.exits(3)?;
    ensure!(another.stdout.contains(&id), "the refusal names the server's log: {}", another.stdout);
    let plan = home.runlog().answer(&init(&id, &["--dry-run"]))?;
    ensure!(plan["home"]["log"] == id.as_str() && ends(&config)? == before, "a dry run appends nothing: {plan}");
    let set = home.runlog().answer(&init(&id, &[]))?;
    ensure!(set["outcome"] == "applied" && set["home"] == json!({ "log": id, "epoch": 1 }), "{set}");
    let after = ends(&config)?;
    ensure!(home.runlog().answer(&init(&id, &[]))?["outcome"] == "repeat" && ends(&config)? == after);
    ensure!(role(&home)? == "home" && claim(&home)?.0 == 200);

    topic.copy()?;
    await_copied(&mirror, &topic.config)?;
    ensure!(
        role(&mirror)? == "mirror" && claim(&mirror)? == (503, json!("mirror")),
        "the mirror learns it while it runs"
    );
    home.runlog().verified()?;
    home.terminate()?;
    let again = Launch::kafka(folder.path(), &config).start()?;
    ensure!(role(&again)? == "home" && claim(&again)?.0 == 200, "a restarted server knows it");
    Ok(())
}

#[test]
fn a_topic_with_the_timestamps_of_a_mirror_becomes_the_home_only_by_force() -> anyhow::Result<()> {
    let config = old_journal("CreateTime")?;
    let (_folder, server) = serve(&config)?;
    let (id, before) = (log_id(&config)?, ends(&config)?);
    let refused = server.runlog().json(&init(&id, &[]))?.exits(3)?;
    ensure!(refused.stdout.contains("CreateTime") && refused.stdout.contains("force"), "{}", refused.stdout);
    ensure!(ends(&config)? == before && role(&server)? == "unknown", "it had no effect");
    server.runlog().json(&init(&id, &["--force"]))?.exits(0)?;
    ensure!(role(&server)? == "home");
    Ok(())
}

#[test]
fn a_mirror_that_was_made_the_home_is_read_only_when_the_true_home_is_copied_and_the_home_continues()
-> anyhow::Result<()> {
    let config = old_journal("LogAppendTime")?;
    let mut topic = Mirror::start(&config, Style::EXACTLY_ONCE)?;
    let ((_home_folder, home), (folder, mirror)) = (serve(&config)?, serve(&topic.config)?);
    mirror.runlog().json(&init(&log_id(&topic.config)?, &["--force"]))?.exits(0)?;
    ensure!(role(&mirror)? == "home", "the mistake");
    home.runlog().json(&init(&log_id(&config)?, &[]))?.exits(0)?;
    topic.copy()?;
    await_copied(&mirror, &topic.config)?;
    ensure!(role(&mirror)? == "contested" && claim(&mirror)? == (503, json!("mirror")));
    let refused = mirror.runlog().json(&init(&log_id(&topic.config)?, &["--force"]))?;
    ensure!(refused.code == Some(4), "{}", refused.stdout);
    mirror.terminate()?;
    let again = Launch::kafka(folder.path(), &topic.config).start()?;
    await_ready(&again)?;
    ensure!(role(&again)? == "contested" && claim(&again)? == (503, json!("mirror")), "a restarted server knows it");
    ensure!(role(&home)? == "home" && claim(&home)?.0 == 200, "the home never sees the mistake");
    Ok(())
}

#[test]
fn a_server_that_read_its_mirror_uncommitted_ends_with_4_after_a_takeover_and_its_restart_is_the_home()
-> anyhow::Result<()> {
    let config = old_journal("LogAppendTime")?;
    // The uncommitted reader applies the records of the aborted transaction, too.
    let mut topic = Mirror::start(&config, Style { aborted_first: true, ..Style::EXACTLY_ONCE })?;
    let ((_home_folder, home), (folder, server)) = (serve(&config)?, serve(&topic.config)?);
    ensure!(role(&server)? == "unknown");
    let home_id = log_id(&config)?;
    home.runlog().json(&init(&home_id, &[]))?.exits(0)?;
    topic.copy()?;
    await_copied(&server, &topic.config)?;
    ensure!(role(&server)? == "mirror", "it reads a mirror, and appends nothing");

    let (other_folder, other) = serve(&topic.config)?;
    ensure!(role(&other)? == "mirror");
    other.terminate()?;
    let other = taking(Launch::kafka(other_folder.path(), &topic.config), &home_id).start()?;
    await_home(&other)?;
    // A supervisor would start it again.
    let (code, stderr) = server.await_end()?;
    ensure!(code == Some(4), "{code:?}: {stderr}");
    let server = Launch::kafka(folder.path(), &topic.config).start()?;
    await_ready(&server)?;
    ensure!(role(&server)? == "home" && role(&other)? == "home");
    server.runlog().verified()
}
