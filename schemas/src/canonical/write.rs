//! Writes the canonical form from tokens: objects are sorted as they close, and the tree is written at the end.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::Problem;
use super::scan::{Token, unescape};

enum Node<'a> {
    /// A number or word, as it is written.
    Plain(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>),
}

struct Member<'a> {
    key: Cow<'a, str>,
    value: Node<'a>,
}

/// An array or object that is still open, with the key whose value comes next.
enum Open<'a> {
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>, Cow<'a, str>),
}

/// Takes the tokens of one text, in order.
#[derive(Default)]
pub(super) struct Builder<'a> {
    open: Vec<Open<'a>>,
    root: Option<Node<'a>>,
}

impl<'a> Builder<'a> {
    pub(super) fn take(&mut self, token: Token<'a>) -> Result<(), Problem> {
        match token {
            Token::OpenObject => self.open.push(Open::Object(Vec::new(), Cow::Borrowed(""))),
            Token::OpenArray => self.open.push(Open::Array(Vec::new())),
            Token::Key(raw) => {
                if let Some(Open::Object(_, key)) = self.open.last_mut() {
                    *key = unescape(raw)?;
                }
            }
            Token::Colon | Token::Comma => {}
            Token::String(raw) => self.place(Node::String(unescape(raw)?)),
            Token::Number(raw) => self.place(Node::Plain(number(raw)?)),
            Token::Word(raw) => self.place(Node::Plain(raw.into())),
            Token::CloseObject | Token::CloseArray => match self.open.pop() {
                Some(Open::Object(members, _)) => self.place(Node::Object(sorted(members)?)),
                Some(Open::Array(elements)) => self.place(Node::Array(elements)),
                None => {}
            },
        }
        Ok(())
    }

    fn place(&mut self, node: Node<'a>) {
        match self.open.last_mut() {
            Some(Open::Array(elements)) => elements.push(node),
            Some(Open::Object(members, key)) => members.push(Member { key: std::mem::take(key), value: node }),
            None => self.root = Some(node),
        }
    }

    /// The canonical text; its length is expected to be about `capacity`.
    pub(super) fn finish(self, capacity: usize) -> String {
        let mut out = String::with_capacity(capacity);
        if let Some(root) = &self.root {
            write(root, &mut out);
        }
        out
    }
}

/// RFC 8785 §3.2.3: by UTF-16 code units, which is not the order of UTF-8 bytes beyond the basic plane.
fn sorted(mut members: Vec<Member<'_>>) -> Result<Vec<Member<'_>>, Problem> {
    members.sort_by(|a, b| a.key.encode_utf16().cmp(b.key.encode_utf16()));
    match members.windows(2).find(|pair| pair[0].key == pair[1].key) {
        Some(pair) => Err(Problem::DuplicateKey(pair[0].key.clone().into_owned())),
        None => Ok(members),
    }
}

/// RFC 8785 §3.2.2.3 for what is not an integer literal; an integer keeps its digits.
fn number(raw: &str) -> Result<Cow<'_, str>, Problem> {
    if !raw.contains(['.', 'e', 'E']) {
        return Ok(if raw == "-0" { "0" } else { raw }.into());
    }
    // JSON's numbers are a subset of what Rust parses, and it rounds as IEEE 754 asks.
    match raw.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(ryu_js::Buffer::new().format_finite(double).to_owned().into()),
        _ => Err(Problem::NotFinite),
    }
}

fn write(node: &Node<'_>, out: &mut String) {
    match node {
        Node::Plain(text) => out.push_str(text),
        Node::String(text) => write_string(text, out),
        Node::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(element, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(&member.key, out);
                out.push(':');
                write(&member.value, out);
            }
            out.push('}');
        }
    }
}

/// RFC 8785 §3.2.2.2: only what must be escaped is, the short way where there is one, lower-case hex otherwise.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}
