use super::harness::run;
use serde_json::json;

#[test]
fn the_schemas_are_listed_and_shown_without_a_server() {
    let listed = run(&["schema", "list", "--json"]).is(0);
    let written: Vec<_> = listed["schemas"].as_array().unwrap().iter().filter(|one| one["current"] == true).collect();
    assert_eq!((written.len(), &written[0]["name"]), (1, &json!("JournalRecord")));
    let shown = run(&["schema", "show", "--json", "JournalRecord/v1"]).is(0);
    assert_eq!(shown["schema"]["name"], "JournalRecord");
    let text = run(&["schema", "show", "v1"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text.stdout).unwrap(), shown["schema"]);
    assert_eq!(run(&["schema", "show", "--json", "v99"]).error(1), "not_found");
}

#[test]
fn a_check_says_what_is_wrong_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let old = file("old.avsc", r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}"#);
    let new = file("new.avsc", r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}"#);
    let none = file("none.avsc", "{");
    let checked = run(&["schema", "check", "--json", &old, &new]).is(1);
    assert_eq!((&checked["compatible"], &checked["incompatibilities"][0]["path"]), (&json!(false), &json!("R.a")));
    assert_eq!(checked["incompatibilities"][0]["rule"], "avro");
    assert_eq!(run(&["schema", "check", "--json", &new, &old]).is(0)["compatible"], true);
    let refused = run(&["schema", "check", "--json", &old, &none]);
    assert_eq!((refused.error(3).as_str(), &refused.json()["error"]["file"]), ("invalid", &json!(none)));
    assert_eq!(run(&["schema", "check", "--json", &old, "/nowhere.avsc"]).error(3), "invalid");
    assert_eq!(run(&["schema", "check", "--json", &old]).error(2), "usage");
}
