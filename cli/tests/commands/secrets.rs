//! Secrets of a server and of its clients are in their files and variables, and nowhere else.

use super::harness::{CommandResult, Server, command, file, run};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
};

/// A part of each secret that this test makes up.
const CANARY: &str = "canary-7f3a";

/// The answer to a GET, with its head.
fn get(url: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
    write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn secrets_are_neither_in_logs_nor_in_answers_nor_on_command_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (data, tokens, log) =
        (folder.path().join("data"), folder.path().join("tokens.json"), folder.path().join("log"));
    let tokens_path = tokens.to_str().unwrap();
    let scopes = "append,read_meta,read_content,resolve,operate,audit";
    let create =
        ["token", "create", "--tokens", tokens_path, "--principal", "a", "--scope", scopes, "--runs", "*", "--json"];
    let token = run(&create).is(0)["token"].as_str().unwrap().to_owned();
    let key = serde_json::from_slice::<Value>(&std::fs::read(&tokens).unwrap()).unwrap()["receipt_key"].clone();
    let secret = |what: &str| format!("{CANARY}-{what}");
    // An existing journal can be served without a registry.
    assert_eq!(Server::start(&data, &[]).signal("TERM"), 0);
    // Neither the store nor the registry exists, so that errors about both are logged.
    let config = json!({
        "content": { "url": "s3://bucket/prefix", "inline_bytes_max": 1024, "deadline": "1s", "options": {
            "endpoint": "http://127.0.0.1:1", "region": "r", "access_key_id": "id", "secret_access_key": secret("s3"),
            "session_token": secret("session") } },
        "registry": { "url": "http://127.0.0.1:1", "user": "u", "password": secret("registry") },
        "kafka": { "sasl.password": secret("kafka") },
    });
    let config = file(folder.path(), "config.json", &config.to_string());
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600)).unwrap();
    let flags = ["--tokens", tokens_path, "--config", config.to_str().unwrap(), "-vv"];
    let server = Server::start_logged(&data, &flags, &log);
    let client = |arguments: &[&str], token: &str| {
        let mut command = server.command(arguments);
        format!(
            "{:?}",
            CommandResult::new(command.args(["-vv", "--json"]).env("RUNLOG_TOKEN", token).output().unwrap())
        )
    };
    let turn = |content: &str| {
        let payload = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": content });
        let record = json!({ "run_id": "r", "record_id": "m", "payload": payload });
        file(folder.path(), "turn.json", &record.to_string()).to_str().unwrap().to_owned()
    };
    let mut outputs = vec![server.command_line()];
    for content in ["short".to_owned(), "long".repeat(1000)] {
        outputs.push(client(&["publish", &turn(&content), "--deadline", "2s"], &token));
    }
    assert!(
        outputs[1].contains("unavailable") && outputs[2].contains("unavailable"),
        "the registry, the store: {outputs:?}"
    );
    for arguments in [&["doctor"][..], &["runs"], &["show", "r"], &["effects"], &["dead-letter", "list"]] {
        outputs.push(client(arguments, &token));
    }
    outputs.push(client(&["runs"], &secret("token")));
    for path in ["/metrics", "/v1/journal", "/readyz", "/openapi.json", "/v1/no"] {
        outputs.push(get(&server.url, path, &token));
        outputs.push(get(&server.url, path, &secret("token")));
    }
    assert_eq!(server.signal("TERM"), 0);
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.contains("DEBUG") && logged.contains("/v1/journal"), "{logged}");
    outputs.push(logged);
    for audited in ["audit.jsonl", "audit-reads.jsonl"] {
        outputs.push(std::fs::read_to_string(data.join(audited)).unwrap());
    }
    for output in &outputs {
        for secret in [CANARY, &token, key.as_str().unwrap()] {
            assert!(!output.contains(secret), "{secret} is in {output}");
        }
    }
}

#[test]
fn help_and_errors_do_not_print_the_value_of_a_variable() {
    let url = format!("http://me:{CANARY}@127.0.0.1:1");
    let run_with_canary = |arguments: &[&str]| {
        let mut command = command();
        for name in ["RUNLOG_TOKEN", "RUNLOG_REGISTRY_TOKEN"] {
            command.env(name, CANARY);
        }
        command.env("RUNLOG_REGISTRY_AUTH", format!("me:{CANARY}"));
        command.env("RUNLOG_REGISTRY", &url).env("RUNLOG_SERVER", &url).args(arguments);
        CommandResult::new(command.output().unwrap())
    };
    for arguments in [&["--help"][..], &["serve", "--help"], &["import", "--help"], &["runs", "--help"]] {
        let result = run_with_canary(arguments);
        assert!(result.code == 0 && !format!("{result:?}").contains(CANARY), "{result:?}");
    }
    let refused = [&["runs"][..], &["runs", "-vv"], &["runs", "--server", &url.replace("http", "ftp"), "--json"]];
    for arguments in refused {
        let result = run_with_canary(arguments);
        assert!(result.code == 2 && !format!("{result:?}").contains(CANARY), "{result:?}");
    }
}
