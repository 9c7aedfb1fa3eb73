//! The examples in the documents work as written: the README's quick starts are run, the protocol page is replayed
//! request by request.

use runlog_tests::{
    command,
    programs::{built, output},
    server::{Launch, Server},
};
use serde_json::Value;
use std::{collections::BTreeMap, net::TcpListener, os::unix::fs::symlink, process::Command};

/// Values that a document names: `$NAME`.
type Values = BTreeMap<String, Value>;

fn document(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The fenced blocks of one language, in order.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let fenced = document.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::trim_end).collect()
}

/// An HTTP message's first line and its body.
fn message(block: &str) -> (&str, &str) {
    let (head, body) = block.split_once("\n\n").unwrap_or((block, ""));
    (head.lines().next().unwrap_or_default(), body)
}

/// `text` with values in place of their names.
fn fill_in(text: &str, values: &Values) -> String {
    // The longest name first: `$FIND` begins `$FIND_RESULT`.
    let mut names: Vec<&String> = values.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.into_iter().fold(text.to_owned(), |text, name| {
        let value = values[name].as_str().map_or_else(|| values[name].to_string(), str::to_owned);
        text.replace(&format!("${name}"), &value)
    })
}

/// Whether `answer` contains every member of `shown`. Returns missing and different members, by JSON pointer. A new
/// `$NAME` is bound to the value.
fn differences(shown: &Value, answer: &Value, at: &str, values: &mut Values) -> Vec<String> {
    match (shown, answer) {
        (Value::String(name), _) if name.starts_with('$') => {
            let bound = values.entry(name[1..].to_owned()).or_insert_with(|| answer.clone());
            if bound == answer { Vec::new() } else { vec![format!("{at}: {name} is {bound}, not {answer}")] }
        }
        (Value::Object(shown), Value::Object(answer)) => shown
            .iter()
            .flat_map(|(name, shown)| match answer.get(name) {
                Some(answer) => differences(shown, answer, &format!("{at}/{name}"), values),
                None => vec![format!("{at}/{name} is missing")],
            })
            .collect(),
        (Value::Array(shown), Value::Array(answer)) if shown.len() == answer.len() => shown
            .iter()
            .zip(answer)
            .enumerate()
            .flat_map(|(index, (shown, answer))| differences(shown, answer, &format!("{at}/{index}"), values))
            .collect(),
        _ if shown == answer => Vec::new(),
        _ => vec![format!("{at}: {shown} is shown, the answer is {answer}")],
    }
}

fn replay(server: &Server, document: &str) -> usize {
    let blocks = blocks(document, "http");
    let mut values = Values::new();
    for exchange in blocks.chunks(2) {
        let [request, shown] = exchange else { panic!("a request without an answer: {exchange:?}") };
        let (line, body) = message(request);
        let line = fill_in(line, &values);
        let [method, path, "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (status, answer) = match method {
            "GET" => server.get(path).unwrap(),
            "POST" => server.post(path, &serde_json::from_str(&fill_in(body, &values)).unwrap()).unwrap(),
            _ => panic!("{line}"),
        };
        let (line_of_answer, shown) = message(shown);
        assert!(line_of_answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {status} {answer}");
        let differs = differences(&serde_json::from_str(shown).unwrap(), &answer, "", &mut values);
        assert!(differs.is_empty(), "{line}\n{}\nthe whole answer: {answer}", differs.join("\n"));
    }
    blocks.len() / 2
}

#[test]
fn the_protocol_pages_answers_equal_a_servers() {
    let dir = tempfile::tempdir().unwrap();
    let server = Launch::local(dir.path()).start().unwrap();
    let exchanges = replay(&server, &document("docs/protocol.md"));
    assert!(exchanges > 20, "the page has {exchanges} exchanges");
}

#[test]
fn the_readmes_quick_start_with_curl_works_as_written() {
    let dir = tempfile::tempdir().unwrap();
    symlink(command::binary().unwrap().canonicalize().unwrap().parent().unwrap(), dir.path().join("bin")).unwrap();
    // Free now; the server of the script binds it next.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let readme = document("README.md");
    let [script] = blocks(&readme, "sh")[..] else { panic!("the README has one block of sh") };
    let mut bash = Command::new("timeout");
    bash.args(["--kill-after=5", "60", "bash", "-euo", "pipefail", "-c"])
        .arg(format!("trap 'kill $(jobs -p)' EXIT\n{script}"))
        .current_dir(&dir)
        .env("RUNLOG_LISTEN", address.to_string())
        .env("RUNLOG_SERVER", format!("http://{address}"))
        .env("NO_PROXY", "127.0.0.1");
    let stdout = output(&mut bash).unwrap();
    for expected in [r#""ready":true"#, r#""outcome":"applied""#, "completed", "B-1009", "HAT136"] {
        assert!(stdout.contains(expected), "{expected} is missing in:\n{stdout}");
    }
    assert_eq!(stdout.matches(r#""outcome":"applied""#).count(), 2, "{stdout}");
}

#[test]
fn the_readmes_quick_start_in_rust_books_once() {
    let readme = document("README.md");
    let [shown] = blocks(&readme, "rust")[..] else { panic!("the README has one block of rust") };
    let example = document("producer/examples/quickstart.rs");
    assert!(example.trim_end().ends_with(shown), "producer/examples/quickstart.rs ends with the README's code");
    assert_eq!(blocks(&document("producer/README.md"), "rust,no_run"), [shown], "the crate's first example");
    let dir = tempfile::tempdir().unwrap();
    let server = Launch::local(dir.path()).start().unwrap();
    let quickstart = built("examples/quickstart").unwrap();
    let run =
        || output(Command::new(&quickstart).env("RUNLOG_SERVER", &server.url).env("NO_PROXY", "127.0.0.1")).unwrap();
    let (first, second) = (run(), run());
    assert!(first.starts_with("booking with the key trip-2-flight\n"), "{first}");
    assert!(first.contains("B-1009") && first.ends_with("from the journal: false"), "{first}");
    assert!(second.contains("B-1009") && second.ends_with("from the journal: true"), "{second}");
    assert!(!second.contains("booking with"), "{second}");
}

#[test]
fn the_operators_configuration_file_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let page = document("docs/operate.md");
    let [config] = blocks(&page, "json")[..] else { panic!("the page has one block of json") };
    let file = dir.path().join("runlog.json");
    // The command reads the token from the file that the page names.
    let (token, shown) = (tempfile::NamedTempFile::new().unwrap(), "/etc/runlog/token\"");
    std::fs::write(&token, "a-token").unwrap();
    assert!(config.contains(shown), "{config}");
    let named = format!("{}\"", token.path().to_str().unwrap());
    std::fs::write(&file, config.replace(shown, &named)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let server = Launch::local(&dir.path().join("data")).start().unwrap();
    server.runlog().plain(&["--config", file.to_str().unwrap(), "runs"]).unwrap().exits(0).unwrap();
}
