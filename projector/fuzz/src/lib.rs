//! Claims about all bytes that a server reads from its clients and from its files of credentials. Checked by the fuzz
//! targets.

mod server;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use runlog_projector::{
    Consistency,
    index::{
        changes::cursor::Cursor as ChangesCursor,
        follow::Cursor as FollowCursor,
        query::{self, visible::RunPattern},
        store::tool_calls,
    },
};
use runlog_server::fuzzing;

pub use server::request;

/// The time of the checks, milliseconds since the Unix epoch.
const NOW_MILLIS: u64 = 1_000_000_000_000;

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A token file.
pub fn token_file(bytes: &[u8]) {
    text(bytes).into_iter().for_each(fuzzing::token_file);
}

/// A JWT and its issuer's keys: header, claims, keys and issuer in a line each. Without four lines, a bearer token as it is sent,
/// and a key set.
pub fn jwt(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let mut lines = text.lines();
    let [header, claims, keys, issuer] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    fuzzing::jwt(&format!("{}.{}.AA", part(header), part(claims)), keys, issuer, NOW_MILLIS);
    fuzzing::jwt(header, keys, issuer, NOW_MILLIS);
    fuzzing::key_set(keys);
}

/// A client's certificate, in DER.
pub fn certificate(bytes: &[u8]) {
    fuzzing::certificate(bytes);
}

/// Cursors, receipts, times, positions and patterns. The printed form of an accepted text is accepted again.
pub fn cursor(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    fuzzing::receipt(text, NOW_MILLIS);
    for partitions in [1, 3] {
        if let Ok(cursor) = FollowCursor::parse(text, partitions) {
            assert_eq!(FollowCursor::parse(&cursor.to_string(), partitions).ok(), Some(cursor));
        }
        if let Ok(cursor) = ChangesCursor::parse(text, tool_calls::INDEX, partitions) {
            assert_eq!(ChangesCursor::parse(&cursor.to_string(), tool_calls::INDEX, partitions).ok(), Some(cursor));
        }
    }
    if let Ok(Some(cursor)) = query::parse_cursor(Some(text)) {
        assert_eq!(cursor.len() * 2, text.len());
    }
    let _ = query::parse_partition_cursor(Some(text));
    if let Ok(millis) = query::parse_time(text) {
        let printed = query::time(millis.cast_unsigned());
        // A time of the year 10000 in UTC is printed as the last moment before it.
        assert!(query::parse_time(&printed).is_ok_and(|again| again == millis || printed.starts_with("9999-12-31")));
    }
    let _ = (Consistency::parse(text), text.parse::<RunPattern>());
}
