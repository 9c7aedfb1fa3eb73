//! Scans JSON (RFC 8259) in one pass. Tokens are slices of the text, without a copy or a conversion.
//!
//! The visitor interprets tokens (escapes, ranges, repetitions). It may refuse a token; the scanner adds the position.

use super::error::{DEPTH_MAX, Error, Problem, escape};

/// A token of the text. Insignificant white space is left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'a> {
    OpenObject,
    /// The raw string, with its quotes. The value follows.
    Key(&'a str),
    Colon,
    CloseObject,
    OpenArray,
    CloseArray,
    Comma,
    /// The raw string, with its quotes.
    String(&'a str),
    Number(&'a str),
    /// `null`, `true`, `false`.
    Word(&'a str),
}

impl<'a> Token<'a> {
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::OpenObject => "{",
            Self::CloseObject => "}",
            Self::OpenArray => "[",
            Self::CloseArray => "]",
            Self::Colon => ":",
            Self::Comma => ",",
            Self::Key(text) | Self::String(text) | Self::Number(text) | Self::Word(text) => text,
        }
    }
}

pub(super) fn scan<'a>(json: &'a str, take: impl FnMut(Token<'a>) -> Result<(), Problem>) -> Result<(), Error> {
    let mut scanner = Scanner { json, at: 0, path: Vec::new(), take };
    let done = scanner.value().and_then(|()| {
        scanner.skip_space();
        if scanner.at == json.len() { Ok(()) } else { Err(scanner.expected("the end of the text")) }
    });
    done.map_err(|problem| Error { pointer: pointer(&scanner.path), problem })
}

/// A step of the path to the current value. After a failed scan, the path leads to the error.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

fn pointer(path: &[Step<'_>]) -> String {
    path.iter().fold(String::new(), |out, step| match step {
        Step::Index(index) => format!("{out}/{index}"),
        Step::Key(raw) => {
            // For a key with a lone surrogate, the pointer has the escaped spelling.
            let key = unescape(raw).unwrap_or_else(|_| raw[1..raw.len() - 1].into());
            format!("{out}/{}", escape(&key))
        }
    })
}

/// Returns the value of a raw string token. The grammar is already checked, so only a lone surrogate is an error.
pub(super) fn unescape(raw: &str) -> Result<std::borrow::Cow<'_, str>, Problem> {
    if raw.contains('\\') {
        serde_json::from_str(raw).map(std::borrow::Cow::Owned).map_err(|_| Problem::LoneSurrogate)
    } else {
        Ok(raw[1..raw.len() - 1].into())
    }
}

struct Scanner<'a, F> {
    json: &'a str,
    at: usize,
    path: Vec<Step<'a>>,
    take: F,
}

impl<'a, F: FnMut(Token<'a>) -> Result<(), Problem>> Scanner<'a, F> {
    fn value(&mut self) -> Result<(), Problem> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => {
                let raw = self.string()?;
                (self.take)(Token::String(raw))
            }
            Some(b'-' | b'0'..=b'9') => {
                let raw = self.number()?;
                (self.take)(Token::Number(raw))
            }
            _ => {
                let raw = self.literal()?;
                (self.take)(Token::Word(raw))
            }
        }
    }

    fn object(&mut self) -> Result<(), Problem> {
        self.open(Token::OpenObject)?;
        if !self.next_is(b'}') {
            loop {
                self.skip_space();
                if self.peek() != Some(b'"') {
                    return Err(self.expected("a key"));
                }
                let key = self.string()?;
                self.path.push(Step::Key(key));
                (self.take)(Token::Key(key))?;
                if !self.next_is(b':') {
                    return Err(self.expected("a colon"));
                }
                (self.take)(Token::Colon)?;
                self.value()?;
                self.path.pop();
                if self.next_is(b'}') {
                    break;
                }
                self.comma("a comma or the object's end")?;
            }
        }
        (self.take)(Token::CloseObject)
    }

    fn array(&mut self) -> Result<(), Problem> {
        self.open(Token::OpenArray)?;
        if !self.next_is(b']') {
            for index in 0.. {
                self.path.push(Step::Index(index));
                self.value()?;
                self.path.pop();
                if self.next_is(b']') {
                    break;
                }
                self.comma("a comma or the array's end")?;
            }
        }
        (self.take)(Token::CloseArray)
    }

    fn open(&mut self, token: Token<'a>) -> Result<(), Problem> {
        // Each element of the path is one open array or object.
        if self.path.len() == DEPTH_MAX {
            return Err(Problem::TooDeep);
        }
        self.at += 1;
        (self.take)(token)
    }

    fn comma(&mut self, expected: &'static str) -> Result<(), Problem> {
        if self.next_is(b',') { (self.take)(Token::Comma) } else { Err(self.expected(expected)) }
    }

    fn string(&mut self) -> Result<&'a str, Problem> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(0x20..) => self.at += 1,
                Some(_) => return Err(self.expected("no control character in a string")),
                None => return Err(self.expected("the string's end")),
            }
        }
        self.at += 1;
        Ok(&self.json[start..self.at])
    }

    fn escape(&mut self) -> Result<(), Problem> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.expected("four hexadecimal digits"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.expected("an escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str, Problem> {
        let start = self.at;
        self.skip(b'-');
        // A leading zero must be the only digit: in `01` the 1 is unexpected.
        if !self.skip(b'0') {
            self.digits()?;
        }
        if self.skip(b'.') {
            self.digits()?;
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _sign = self.skip(b'+') || self.skip(b'-');
            self.digits()?;
        }
        Ok(&self.json[start..self.at])
    }

    fn digits(&mut self) -> Result<(), Problem> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.expected("a digit")) }
    }

    fn literal(&mut self) -> Result<&'a str, Problem> {
        let rest = &self.json[self.at..];
        let word = ["null", "true", "false"].into_iter().find(|word| rest.starts_with(word));
        let word = word.ok_or_else(|| self.expected("a value"))?;
        self.at += word.len();
        Ok(word)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.skip_space();
        self.skip(byte)
    }

    fn skip(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> Problem {
        Problem::Syntax { expected, offset: self.at }
    }
}
