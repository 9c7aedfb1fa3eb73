//! Refuses requests that this server's log cannot answer: calls that append, on a mirror of the journal's home; and positions and
//! cursors of another log, whose offsets name other records here.
//!
//! ```text
//!   request ─▶ may it be answered here? ─▶ of which log are its positions and cursors? ─▶ handler
//! ```
//!
//! The index refuses the same appends again, since programs also append without a server. This check answers before the body is
//! read and before content is stored. Handlers cut off the log of a position or cursor, which was compared here.

use super::problem::problem;
use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, request::Parts},
    middleware::Next,
    response::Response,
};
use runlog_projector::index::{error::Error, home::HomeState, projector::Projector};
use runlog_schemas::{id::split_log, subject::Subject};
use std::sync::Arc;

/// The cursor that a browser sends when it reconnects to a stream.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Runs a request that this server's log can answer. `at_home` is the name of a call that only the home can answer.
pub(super) async fn check(
    projector: Arc<Projector>,
    at_home: Option<&'static str>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    match refusal(projector.home(), at_home, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(error) => {
            let topic = Some(projector.log().topic().to_owned());
            problem(&error.about(Subject { topic, ..Subject::default() }))
        }
    }
}

fn refusal(home: &HomeState, at_home: Option<&str>, parts: &Parts) -> Result<(), Error> {
    if let Some(what) = at_home {
        home.check_home(what)?;
    }
    let query = parts.uri.query().unwrap_or_default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        check_parameter(home, &name, &value)?;
    }
    check_last_event(home, &parts.headers)
}

/// Compares the log of each position or cursor in a query parameter. Other parameters and values have none.
fn check_parameter(home: &HomeState, name: &str, value: &str) -> Result<(), Error> {
    match name {
        "also" => value.split(',').try_for_each(|position| check_log(home, name, position)),
        "as_of" | "position" => check_log(home, name, value),
        "consistency" => value.strip_prefix("at-least=").map_or(Ok(()), |position| check_log(home, name, position)),
        "cursor" => check_log(home, name, value),
        "from" if !matches!(value, "beginning" | "end") => check_log(home, name, value),
        _ => Ok(()),
    }
}

fn check_last_event(home: &HomeState, headers: &HeaderMap) -> Result<(), Error> {
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    last.map_or(Ok(()), |cursor| check_log(home, "Last-Event-ID", cursor))
}

/// Compares the log of a position or cursor. With an empty log it belongs to this server's log, whichever that is: the page, which
/// this server sends to browsers, shows positions without logs.
fn check_log(home: &HomeState, what: &str, text: &str) -> Result<(), Error> {
    match split_log(text).1 {
        Some("") => Ok(()),
        // Without an id of the log, cursors of this server name none.
        None if home.own().is_none() && matches!(what, "cursor" | "from" | "Last-Event-ID") => Ok(()),
        named => home.check_log(what, named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_projector::index::{home::Role, store::meta::HomeRow};
    use runlog_schemas::{
        answer::{ErrorKind, ProblemReason},
        id::LogId,
    };

    /// A server of the log `memory:own` whose journal has this home.
    fn state(epoch: u32, log: &str, origin: &str) -> Arc<HomeState> {
        let home = HomeRow { epoch, log: log.into(), origin: origin.into(), ..HomeRow::default() };
        HomeState::new(LogId::memory("own"), Some(home))
    }

    fn parts(query: &str, last_event: Option<&str>) -> Parts {
        let request = axum::http::Request::get(format!("/v1/x?{query}"));
        let request = last_event.into_iter().fold(request, |request, id| request.header(LAST_EVENT_ID, id));
        request.body(()).unwrap().into_parts().0
    }

    /// The reason of the refusal, or the kind if it has no reason.
    fn refused(home: &HomeState, query: &str, last_event: Option<&str>) -> String {
        match refusal(home, None, &parts(query, last_event)) {
            Ok(()) => String::new(),
            Err(error) => error.reason().map_or(error.kind().as_str(), ProblemReason::as_str).to_owned(),
        }
    }

    /// Queries with a position or cursor; `@` is replaced by its log.
    const QUERIES: [&str; 11] = [
        "consistency=at-least%3D0:1@",
        "consistency=at-least=0:1@&deadline_ms=5",
        "as_of=0:1@",
        "position=0:1@",
        "position=0:1:2@",
        "position=0:1@memory:own&also=0:2@memory:own,0:3@",
        "cursor=0a0b@",
        "cursor=1:0a0b@",
        "from=at:1,2@",
        "from=effects:19003:1.0.0@",
        "limit=3&cursor=1:@",
    ];

    #[test]
    fn a_position_or_cursor_of_another_log_is_refused_in_every_parameter() {
        let homes = [
            state(1, "memory:own", "memory:own"),
            state(2, "memory:own", "memory:a"),
            state(1, "memory:a", "memory:a"),
        ];
        assert_eq!(homes.each_ref().map(|home| home.role()), [Role::Home, Role::Home, Role::Mirror]);
        for (home, query) in homes.iter().flat_map(|home| QUERIES.map(|query| (home, query))) {
            let with = |log: &str| {
                let (before, after) = query.rsplit_once('@').unwrap();
                format!("{before}{log}{after}")
            };
            assert_eq!(refused(home, &with("@memory:own"), None), "", "{query}");
            assert_eq!(refused(home, &with("@memory:a"), None), "foreign_log", "{query}");
            assert_eq!(refused(home, &with("%40memory:a"), None), "foreign_log", "{query}");
            assert_eq!(refused(home, &with("@a/b"), None), "invalid", "{query}");
            let only_log = home.role() == Role::Home && home.known().unwrap().epoch == 1;
            assert_eq!(refused(home, &with(""), None), if only_log { "" } else { "foreign_log" }, "{query}");
        }
    }

    #[test]
    fn before_a_journal_has_a_home_positions_need_no_log_and_a_named_one_is_compared() {
        let home = HomeState::new(LogId::memory("own"), None);
        for query in QUERIES {
            let (before, after) = query.rsplit_once('@').unwrap();
            assert_eq!(refused(&home, &format!("{before}{after}"), None), "", "{query}");
            assert_eq!(refused(&home, &format!("{before}@memory:a{after}"), None), "foreign_log", "{query}");
        }
    }

    #[test]
    fn the_last_event_of_a_stream_is_compared_like_its_start() {
        let mirror = state(1, "memory:a", "memory:a");
        assert_eq!(refused(&mirror, "", Some("0a@memory:own")), "");
        assert_eq!(refused(&mirror, "", Some("0a@memory:a")), "foreign_log");
        assert_eq!(refused(&mirror, "", Some("0a")), "foreign_log");
        assert_eq!(refused(&mirror, "", Some("")), "", "a browser's first request");
    }

    #[test]
    fn values_without_a_position_are_not_compared() {
        let mirror = state(1, "memory:a", "memory:a");
        for query in [
            "",
            "consistency=latest",
            "consistency=eventual",
            "from=beginning",
            "from=end",
            "at=2100-01-01T00:00:00Z",
            "prefix=a@b",
            "run=cursor@memory:a",
            "as_of=0:1@",
            "correlation=a%3Db@c",
        ] {
            assert_eq!(refused(&mirror, query, None), "", "{query}");
        }
    }

    #[test]
    fn a_call_at_the_home_is_refused_on_a_mirror_before_its_positions_are_compared() {
        let mirror = state(1, "memory:a", "memory:a");
        let error = refusal(&mirror, Some("a claim"), &parts("cursor=0a", None)).unwrap_err();
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Unavailable, Some(ProblemReason::Mirror)));
        assert_eq!(error.home(), LogId::memory("a").as_ref());
    }
}
