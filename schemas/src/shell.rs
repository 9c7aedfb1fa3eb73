//! Commands in messages, for a person to copy into a POSIX shell.
//!
//! Ids come from any client: they may contain spaces, quotes and `$`, and begin with `-`. Every message that prints a command with an
//! id, a path or an address writes it with these functions.

use std::borrow::Cow;

/// Returns the text as one word for the shell, in single quotes if a character could have a meaning for the shell. zsh replaces a word
/// that begins with `=`.
pub fn quote(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !text.is_empty() && !text.starts_with('=') && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Returns a command with these operands and options. `options` is shell text, such as `--who NAME`, and may be empty. An operand that
/// begins with `-` would be read as a flag, so the operands then follow `--`.
pub fn command(name: &str, operands: &[&str], options: &str) -> String {
    let words: Vec<Cow<'_, str>> = operands.iter().map(|operand| quote(operand)).collect();
    let words = words.join(" ");
    let is_flag = |operand: &&str| operand.starts_with('-') && *operand != "-";
    let parts = if operands.iter().any(is_flag) { [name, options, "--", &words] } else { [name, &words, options, ""] };
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns a flag with this value, such as `--against ID`.
pub fn flag(name: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{separator}{}", quote(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Texts that mean something to a shell or to a parser of flags.
    const HOSTILE: [&str; 15] = [
        "run-42",
        "",
        "a b",
        "it's",
        "'",
        "\"quoted\"",
        "$HOME",
        "`id`",
        "$(id)",
        "-rf",
        "--yes",
        "a;id",
        "=ls",
        "zwölf\nlines",
        "*?[a]~\\!#&|<>",
    ];

    /// The words that a shell reads in `text`.
    fn words(text: &str) -> Vec<String> {
        let script = format!("set -- {text}\nfor word; do printf '%s\\0' \"$word\"; done");
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert!(output.status.success(), "{text}: {output:?}");
        let all = String::from_utf8(output.stdout).expect("text");
        all.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn a_shell_reads_the_words_that_were_quoted() {
        for text in HOSTILE {
            assert_eq!(words(&quote(text)), [text]);
            let name = ["runlog", "show"];
            let command = command("runlog show", &[text, "plain"], "--json");
            if text.starts_with('-') {
                assert_eq!(words(&command), [&name[..], &["--json", "--", text, "plain"]].concat(), "{command}");
            } else {
                assert_eq!(words(&command), [&name[..], &[text, "plain", "--json"]].concat(), "{command}");
            }
            let flag = words(&flag("--against", text)).join("=");
            assert_eq!(flag, format!("--against={text}"));
        }
    }

    #[test]
    fn a_plain_id_is_printed_as_it_is() {
        assert_eq!(command("runlog effects resolve", &["run-42", "a/b:1"], ""), "runlog effects resolve run-42 a/b:1");
        assert_eq!(quote("=ls").into_owned() + " " + &quote("a=b"), "'=ls' a=b");
        assert_eq!(
            quote("kafka:MkU3OEVBNTcwNTJENDM2Qk:XvNFJqY8S9-aPtxsJ-VgvA"),
            "kafka:MkU3OEVBNTcwNTJENDM2Qk:XvNFJqY8S9-aPtxsJ-VgvA"
        );
    }
}
