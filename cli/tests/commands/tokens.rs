//! Tokens from their making to their end, as an operator and a client see them.

use super::harness::{CommandResult, Server, command, file, run, run_line};
use serde_json::{Value, json};
use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

/// How long a revoked token may still be accepted.
const REVOKED_WAIT: Duration = Duration::from_secs(5);

fn create(tokens: &str, principal: &str, scopes: &str, runs: &str) -> Value {
    let flags = ["--principal", principal, "--scope", scopes, "--runs", runs, "--expires-in", "90d"];
    run(&[&["token", "create", "--tokens", tokens, "--json"], &flags[..]].concat()).is(0)
}

fn ask(server: &Server, token: &Value, arguments: &[&str]) -> CommandResult {
    let mut command = server.command(arguments);
    CommandResult::new(command.arg("--json").env("RUNLOG_TOKEN", token["token"].as_str().unwrap()).output().unwrap())
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_token_has_its_permissions_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let (tokens, data) = (folder.path().join("tokens.json"), folder.path().join("data"));
    let tokens_path = tokens.to_str().unwrap();
    let agent = create(tokens_path, "travel-agent", "append,read_meta,read_content", "acme/*");
    let desk = create(tokens_path, "desk@acme", "read_meta,read_content,resolve", "acme/*");
    let listed = run(&["token", "list", "--tokens", tokens_path, "--json"]).is(0);
    assert_eq!(listed["tokens"][0]["id"], agent["id"], "{listed}");
    assert!(!listed.to_string().contains(agent["token"].as_str().unwrap()), "{listed}");

    let server = Server::start(&data, &["--tokens", tokens_path]);
    assert_eq!(server.ask(&["runs"]).error(2), "unauthenticated");
    let call = json!({ "run_id": "acme/1", "record_id": "call", "payload": { "type": "tool_call_requested",
        "request_id": "q", "call_id": "c", "tool_name": "book", "arguments": {} } });
    let record = file(folder.path(), "call.json", &call.to_string());
    let publish = ["publish", record.to_str().unwrap()];
    assert_eq!(ask(&server, &desk, &publish).error(2), "forbidden");
    assert_eq!(ask(&server, &agent, &publish).is(0)["outcome"], "applied");
    assert_eq!(
        ask(&server, &agent, &["lookup", "acme/1", "--tool", "book", "--args", "{}"]).is(6)["status"],
        "pending"
    );
    let resolve = ["effects", "resolve", "acme/1", "call", "--give-up", "--who", "jo", "--why", "a test", "--yes"];
    assert_eq!(ask(&server, &agent, &resolve).error(2), "forbidden");
    ask(&server, &desk, &resolve).is(0);
    let audited = std::fs::read_to_string(data.join("audit.jsonl")).unwrap();
    let last: Value = serde_json::from_str(audited.lines().last().unwrap()).unwrap();
    assert_eq!((&last["principal"], &last["action"]), (&json!("desk@acme"), &json!("resolve")), "{audited}");

    // Without a terminal, a revocation needs --yes.
    let revoke = ["token", "revoke", "--tokens", tokens_path, agent["id"].as_str().unwrap(), "--json"];
    assert_eq!(run(&revoke).error(2), "usage");
    assert_eq!(run(&[&revoke[..], &["--yes"]].concat()).is(0)["revoked"], json!([agent["id"]]));
    let start = Instant::now();
    while ask(&server, &agent, &["runs"]).code == 0 {
        assert!(start.elapsed() < REVOKED_WAIT, "it is still taken");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(ask(&server, &agent, &["runs"]).error(2), "unauthenticated");
    ask(&server, &desk, &["runs"]).is(0);
    // Only the server's user may read its files and the tokens.
    for (path, expected) in [
        (&tokens, 0o600),
        (&data, 0o700),
        (&data.join("index"), 0o700),
        (&data.join("audit.jsonl"), 0o600),
        (&data.join("audit-reads.jsonl"), 0o600),
    ] {
        assert_eq!(mode(path), expected, "{}", path.display());
    }
}

#[test]
fn identities_are_listed_kept_by_what_changes_tokens_and_revoked_with_their_principal() {
    let folder = tempfile::tempdir().unwrap();
    let jwt = json!({ "principal": "agent", "scopes": ["append"], "runs": ["acme/*"],
        "jwt": { "issuer": "https://idp.example", "subject": "0oa4" } });
    let certificate = json!({ "principal": "worker", "scopes": ["append", "read_meta"], "runs": ["acme/*"],
        "certificate": { "uri": "spiffe://acme.example/worker" } });
    let issuer = json!({ "issuer": "https://idp.example", "audience": "runlog", "algorithms": ["ES256"], "jwks_file": "jwks.json" });
    let content = json!({ "tokens": [], "issuers": [issuer], "identities": [jwt, certificate] });
    let tokens = file(folder.path(), "tokens.json", &content.to_string());
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tokens_path = tokens.to_str().unwrap();
    create(tokens_path, "agent", "append", "acme/*");
    let list = ["token", "list", "--tokens", tokens_path];
    assert_eq!(run(&[&list[..], &["--json"]].concat()).is(0)["identities"], json!([jwt, certificate]));
    let shown = run(&list).stdout;
    for text in ["jwt:0oa4 of https://idp.example", "uri:spiffe://acme.example/worker", "worker", "append read_meta"] {
        assert!(shown.contains(text), "{shown}");
    }
    let revoked = run(&["token", "revoke", "--tokens", tokens_path, "--principal", "agent", "--yes", "--json"]).is(0);
    assert!(
        revoked["revoked"].as_array().unwrap().len() == 1 && revoked["revoked_identities"] == json!([jwt]),
        "{revoked}"
    );
    let token_file: Value = serde_json::from_str(&std::fs::read_to_string(&tokens).unwrap()).unwrap();
    assert_eq!((&token_file["issuers"], &token_file["identities"]), (&content["issuers"], &json!([certificate])));
}

#[test]
fn files_of_secrets_that_others_can_read_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.json");
    let tokens_path = tokens.to_str().unwrap();
    create(tokens_path, "agent", "append", "acme/*");
    let token = file(folder.path(), "token", "runlog_x");
    for path in [&tokens, &token] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let data = folder.path().join("data");
    let serve = format!("serve --local --listen 127.0.0.1:0 --data {} --tokens {tokens_path} --json", data.display());
    let refused = run_line(&serve);
    assert!(
        refused.code == 3 && refused.stdout.contains("tokens.json") && refused.stdout.contains("chmod 600"),
        "{refused:?}"
    );
    let refused = run_line(&format!("runs --token-file {} --json", token.display()));
    assert!(refused.code == 2 && refused.stdout.contains("chmod 600"), "{refused:?}");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let wrong = format!("token create --tokens {tokens_path} --principal a --scope append --runs acme* --json");
    let refused = run_line(&wrong);
    assert!(refused.code == 2 && refused.stdout.contains("separator"), "{refused:?}");
}

#[test]
fn commands_that_change_the_token_file_wait_for_each_other_and_other_users_cannot_lock_it() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.json");
    let (tokens_path, lock) = (tokens.to_str().unwrap(), folder.path().join("tokens.lock"));
    // An earlier version left it readable, so that every user could hold the lock.
    std::fs::write(&lock, "").unwrap();
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o644)).unwrap();
    let lock_file = std::fs::File::open(&lock).unwrap();
    lock_file.lock().unwrap();
    let flags = ["--principal", "agent", "--scope", "append", "--runs", "*", "--json"];
    let mut waiting = command();
    waiting.args([&["token", "create", "--tokens", tokens_path], &flags[..]].concat());
    let waiting = waiting.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while mode(&lock) != 0o600 {
        assert!(Instant::now() < until, "the command did not open the lock file");
        std::thread::yield_now();
    }
    assert!(!tokens.exists(), "the command waits");
    lock_file.unlock().unwrap();
    CommandResult::new(waiting.wait_with_output().unwrap()).is(0);
    let children: Vec<_> = (0..8)
        .map(|_| command().args([&["token", "create", "--tokens", tokens_path], &flags[..]].concat()).spawn().unwrap())
        .collect();
    for child in children {
        CommandResult::new(child.wait_with_output().unwrap()).is(0);
    }
    assert_eq!(run(&["token", "list", "--tokens", tokens_path, "--json"]).is(0)["tokens"].as_array().unwrap().len(), 9);
}
