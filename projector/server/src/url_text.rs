//! Refuses URLs that clients and servers read differently, and decodes percent escapes.

use super::problem::problem;
use axum::{extract::Request, middleware, response::Response};
use runlog_projector::index::error::Error;
use runlog_schemas::{answer::ErrorKind, id};

/// Refuses a query that is not UTF-8: with replacement characters it would be another query. Refuses a path with
/// `.` or `..` segments too, since most clients remove them before they send the request.
pub(super) async fn check(request: Request, next: middleware::Next) -> Response {
    let dots = |segment: &str| String::from_utf8(decode_percent(segment)).ok().and_then(|text| id::dots(&text));
    if let Some(dots) = request.uri().path().split('/').find_map(dots) {
        let message = format!("the path must not have the segment {dots:?}, since most clients remove it from a URL");
        return problem(&Error::new(ErrorKind::Usage, message));
    }
    match std::str::from_utf8(&decode_percent(request.uri().query().unwrap_or_default())) {
        Ok(_) => next.run(request).await,
        Err(error) => problem(&Error::new(ErrorKind::Usage, "the query is not UTF-8").because(error)),
    }
}

/// Decodes the percent escapes of a part of a URL.
pub(super) fn decode_percent(text: &str) -> Vec<u8> {
    // Without the check of the digits, the parser would accept a sign.
    let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digit = |at: usize| text.get(at..at + 2).filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        let escaped = if *byte == b'%' { digit(at + 1) } else { None };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    bytes
}
