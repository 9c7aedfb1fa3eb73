//! Writes the canonical form from tokens. Sorts each object when it closes, and writes the tree at the end.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{
    error::Problem,
    scan::{Token, unescape},
};

enum Node<'a> {
    /// A number or word in its final spelling.
    Plain(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>),
}

struct Member<'a> {
    key: Cow<'a, str>,
    value: Node<'a>,
}

/// An open array or object. An object has the key of its next value.
enum Open<'a> {
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>, Cow<'a, str>),
}

/// Collects the tokens of one text, in order.
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
            Token::String(raw) => self.add_node(Node::String(unescape(raw)?)),
            Token::Number(raw) => self.add_node(Node::Plain(number(raw)?)),
            Token::Word(raw) => self.add_node(Node::Plain(raw.into())),
            Token::CloseObject | Token::CloseArray => match self.open.pop() {
                Some(Open::Object(members, _)) => self.add_node(Node::Object(sorted(members)?)),
                Some(Open::Array(elements)) => self.add_node(Node::Array(elements)),
                None => {}
            },
        }
        Ok(())
    }

    fn add_node(&mut self, node: Node<'a>) {
        match self.open.last_mut() {
            Some(Open::Array(elements)) => elements.push(node),
            Some(Open::Object(members, key)) => members.push(Member { key: std::mem::take(key), value: node }),
            None => self.root = Some(node),
        }
    }

    /// Returns the canonical text, whose length is about `capacity`.
    pub(super) fn finish(self, capacity: usize) -> String {
        let mut out = String::with_capacity(capacity);
        if let Some(root) = &self.root {
            write(root, &mut out);
        }
        out
    }
}

/// Sorts members by UTF-16 code units (RFC 8785 §3.2.3). Beyond the basic plane this is not the order of UTF-8 bytes.
fn sorted(mut members: Vec<Member<'_>>) -> Result<Vec<Member<'_>>, Problem> {
    members.sort_by(|a, b| a.key.encode_utf16().cmp(b.key.encode_utf16()));
    match members.windows(2).find(|pair| pair[0].key == pair[1].key) {
        Some(pair) => Err(Problem::DuplicateKey(pair[0].key.clone().into_owned())),
        None => Ok(members),
    }
}

/// Writes a number by RFC 8785 §3.2.2.3. An integer literal keeps its digits.
fn number(raw: &str) -> Result<Cow<'_, str>, Problem> {
    if !raw.contains(['.', 'e', 'E']) {
        return Ok(if raw == "-0" { "0" } else { raw }.into());
    }
    Ok(ryu_js::Buffer::new().format_finite(double(raw)?).to_owned().into())
}

/// Rust parses every JSON number, and rounds by IEEE 754.
fn double(raw: &str) -> Result<f64, Problem> {
    raw.parse::<f64>().ok().filter(|double| double.is_finite()).ok_or(Problem::NotFinite)
}

/// Refuses a number beyond the range of a double. One without an exponent needs more than 308 digits for that.
pub(super) fn check_range(raw: &str) -> Result<(), Problem> {
    if raw.len() > 308 || raw.contains(['e', 'E']) { double(raw).map(drop) } else { Ok(()) }
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

/// Writes a string by RFC 8785 §3.2.2.2: escapes only the required characters, with the short escape if there is one, otherwise
/// with lower-case hex.
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
