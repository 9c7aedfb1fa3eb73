//! The files of the page, and the headers of its answers.

use super::*;
use std::{
    collections::BTreeSet,
    path::{Path as FilePath, PathBuf},
};

fn folder() -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

fn names(folder: &FilePath, below: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let name_of = |entry: std::fs::DirEntry| {
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            names(&entry.path(), &format!("{name}/"))
        } else {
            BTreeSet::from([name])
        }
    };
    entries.flat_map(name_of).collect()
}

#[test]
fn every_file_of_the_folder_is_served_and_every_import_exists() {
    let all = names(&folder(), "");
    let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let others = BTreeSet::from(["vendor/SHA256SUMS".to_owned()]);
    assert_eq!(all.difference(&others).cloned().collect::<BTreeSet<_>>(), served);
    for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
        let text = std::str::from_utf8(bytes).unwrap();
        let base = FilePath::new(name).parent().unwrap();
        for import in text.split("from").skip(1).filter_map(|rest| rest.trim_start().split(['\'', '"']).nth(1)) {
            if let Some(file) = import.strip_prefix("./") {
                assert!(served.contains(base.join(file).to_str().unwrap()), "{name} imports {import}");
            }
        }
    }
}

#[test]
fn the_vendored_files_are_the_pinned_ones() {
    let sums = std::fs::read_to_string(folder().join("vendor/SHA256SUMS")).unwrap();
    let pinned: BTreeSet<_> = sums.lines().filter_map(|line| line.split_once("  ")).collect();
    let hashes = FILES
        .iter()
        .filter_map(|(name, bytes)| Some((name.strip_prefix("vendor/")?, hex(digest(&SHA256, bytes).as_ref()))));
    let hashes: Vec<_> = hashes.collect();
    assert_eq!(hashes.iter().map(|(name, hash)| (hash.as_str(), *name)).collect::<BTreeSet<_>>(), pinned);
}

#[test]
fn compact_files_keep_all_code() {
    let source = "// a\n  let b = '//'; // c\n/** d */\n\t/* e\n   f */\n  /** g */ h();\n/* i */ j(); /* k */\n  l\n  m(/** @type {any} */ (n), /** @type {o} */ (p)); // q\n<b>r</b><//> /** s\n";
    assert_eq!(
        compact(source, &[]),
        "let b = '//'; // c\n/** g */ h();\n/* i */ j(); /* k */\nl\nm((n), (p)); // q\n<b>r<//><//> /** s\n"
    );
    assert_eq!(compact("if (a === b) { c = d ? e : f; }\n", OF_SCRIPTS), "if(a===b){c=d?e:f}\n");
    assert_eq!(compact("a(\n  b,\n);\n\nc => {\n  d;\n}\n", OF_SCRIPTS), "a(b,);c=>{d}\n");
    assert_eq!(compact("a b > c { d: e, f; g: h; }\n", OF_STYLES), "a b>c{d:e,f;g:h}");
    let own = FILES.iter().filter(|(name, _)| !name.starts_with("vendor/") && !name.ends_with("html"));
    for (name, bytes) in own {
        let source = std::str::from_utf8(bytes).unwrap();
        let served = compact(source, &[]);
        // A comment after code would hide the lines that are joined to it.
        assert!(!served.lines().any(|line| line.contains(" // ")), "{name} has a comment after code");
        assert_eq!(served.matches("/*").count(), served.matches("*/").count(), "{name} has half a comment");
        let has_blanks = |text: &str| OF_SCRIPTS.iter().any(|(code, _)| text.contains(code));
        // Every second part of a line is between quotes. A part of markup or with an escape is not only a text.
        let is_plain =
            |line: &&str| !line.contains(['`', '\\', '’', '"']) && !line.trim_start().starts_with(['/', '*']);
        for line in source.lines().filter(|line| name.ends_with("js") && is_plain(line)) {
            let mut texts = line.split('\'').skip(1).step_by(2);
            assert!(!texts.any(has_blanks), "{name} has a text with the blanks of code: {line}");
        }
        // Leading blanks of another template literal would be lost. So would lines of markup that look like comments.
        assert!(!source.contains("'</") && !source.contains("\"</"), "{name} has the end of an element in a text");
        assert_eq!(
            served.matches('`').count(),
            2 * served.matches("html`").count(),
            "{name} has a template that is no markup"
        );
    }
}

#[test]
fn no_file_has_an_inline_script_or_style_or_asks_another_server() {
    for (name, bytes) in FILES.iter().filter(|(name, _)| !name.starts_with("vendor/")) {
        let text = std::str::from_utf8(bytes).unwrap();
        for forbidden in ["<style", " style=\"", "innerHTML", "eval(", "document.write"] {
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
        let addresses = text.matches("://").count() - text.matches("http://www.w3.org/").count();
        assert_eq!(addresses, 0, "{name} names another server");
    }
}
