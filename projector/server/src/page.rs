//! `GET /ui`: the web page, whose files are part of the command. They contain no data and need no token: the page reads
//! everything through `/v1`, with the token that its user enters.
//!
//! Each view has a path of its own, and all of them are answered with `index.html`. Our own scripts and styles are served
//! without comments, indentation and most ends of lines.

use super::{access, access::AllowedHosts, app::App, fallbacks, problem::respond};
use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use ring::digest::{SHA256, digest};
use runlog_projector::index::error::Error;
use runlog_schemas::{
    answer::{ErrorKind, Problem},
    datum::hex,
};
use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

macro_rules! files {
    ($($name:literal)*) => { &[$(($name, include_bytes!(concat!("../ui/", $name)).as_slice())),*] };
}

/// The files by name. A test compares the list with the folder.
const FILES: &[(&str, &[u8])] = files! {
    "index.html" "app.css" "icon.svg"
    "app.js" "api.js" "audit.js" "decide.js" "decisions.js" "exact.js" "fold.js" "live.js" "partitions.js" "parts.js" "refused.js"
    "route.js" "run.js" "runs.js" "session.js" "signals.js" "sse.js" "tail.js" "waterfall.js" "words.js"
    "vendor/hooks.js" "vendor/htm.js" "vendor/preact.js"
};

/// The file that answers for every view.
const INDEX: &str = "index.html";

/// The page about concepts.
const CONCEPTS: &str = "concepts.html";

/// No script, style or request except from this server, no markup made from text, and no frame around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The headers of every answer under `/ui`.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // A browser asks each time whether its copy is current, so that a new version of the server has its own page.
    (header::CACHE_CONTROL, "no-cache"),
];

/// Code whose blanks have no meaning, and the code without them, in the order of their removal. No text of the page contains such
/// code: a test checks it.
type Blanks = &'static [(&'static str, &'static str)];

const OF_SCRIPTS: Blanks = &[
    (" => ", "=>"),
    (" = ", "="),
    (" === ", "==="),
    (" !== ", "!=="),
    (" && ", "&&"),
    (" || ", "||"),
    (" ?? ", "??"),
    (" + ", "+"),
    (" * ", "*"),
    (" >= ", ">="),
    (" <= ", "<="),
    (" < ", "<"),
    (" > ", ">"),
    (" ? ", "?"),
    (" : ", ":"),
    ("({ ", "({"),
    (" })", "})"),
    (") {", "){"),
    ("; }", "}"),
    ("{ ", "{"),
    (" }", "}"),
    ("if (", "if("),
    ("for (", "for("),
    (";\n}", "}"),
    ("\n}", "}"),
    ("{\n", "{"),
    ("(\n", "("),
    (",\n", ","),
    (";\n", ";"),
    ("\n<", "<"),
    (">\n", ">"),
];

const OF_STYLES: Blanks = &[
    ("\n", ""),
    (": ", ":"),
    (" { ", "{"),
    (" {", "{"),
    ("; ", ";"),
    (", ", ","),
    (" }", "}"),
    (";}", "}"),
    (" > ", ">"),
];

/// Removes comments that are lines, empty lines, leading blanks, types (`/** @type {T} */`) and `blanks`, and shortens the ends of elements to
/// `<//>`, which ends any element in htm. All template literals are markup, whose blanks at the ends of a line have no meaning.
fn compact(source: &str, blanks: Blanks) -> String {
    let mut in_comment = false;
    let mut compacted = String::with_capacity(source.len());
    for line in source.lines().map(str::trim_start) {
        // Code after the comment keeps the line as it is.
        let begins = line.starts_with("/*") && line.find("*/").is_none_or(|at| at + 2 == line.len());
        if !in_comment && !begins && !line.starts_with("//") && !line.is_empty() {
            compacted += &replace_spans(&replace_spans(line, "/** @", "*/ ", ""), "</", ">", "<//>");
            compacted.push('\n');
        }
        in_comment = (in_comment || begins) && !line.ends_with("*/");
    }
    blanks.iter().fold(compacted, |text, (from, to)| text.replace(from, to))
}

/// Replaces each span of a line from `begin` up to the next `end`.
fn replace_spans(line: &str, begin: &str, end: &str, by: &str) -> String {
    let mut replaced = String::new();
    let mut rest = line;
    while let Some((before, span)) = rest.split_once(begin) {
        let Some((_, after)) = span.split_once(end) else { break };
        replaced.extend([before, by]);
        rest = after;
    }
    replaced + rest
}

/// The files with their content types and entity tags.
static SERVED: LazyLock<BTreeMap<&str, Served>> = LazyLock::new(|| {
    let served = |(name, bytes): &(&'static str, &'static [u8])| (*name, Served::new(name, bytes));
    let concepts = (CONCEPTS, Served::of(CONCEPTS, Cow::Owned(concepts::page().into_bytes())));
    FILES.iter().map(served).chain([concepts]).collect()
});

struct Served {
    bytes: Cow<'static, [u8]>,
    content_type: &'static str,
    /// The content's hash.
    etag: String,
}

impl Served {
    /// Compacts our own scripts and styles.
    fn new(name: &str, bytes: &'static [u8]) -> Self {
        let blanks = match name.rsplit_once('.') {
            Some((_, "js")) if !name.starts_with("vendor/") => Some(OF_SCRIPTS),
            Some((_, "css")) => Some(OF_STYLES),
            _ => None,
        };
        let text = blanks.and_then(|blanks| Some(compact(std::str::from_utf8(bytes).ok()?, blanks)));
        Self::of(name, text.map_or(Cow::Borrowed(bytes), |text| Cow::Owned(text.into_bytes())))
    }

    fn of(name: &str, bytes: Cow<'static, [u8]>) -> Self {
        let content_type = match name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        };
        let etag = format!("\"{}\"", hex(&digest(&SHA256, &bytes).as_ref()[..16]));
        Self { bytes, content_type, etag }
    }

    /// Answers with the file, or without a body if the browser already has it.
    fn answer(&'static self, request: &HeaderMap) -> Response {
        let known = request.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        let is_known = known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == self.etag));
        let etag = [(header::ETAG, self.etag.as_str())];
        if is_known {
            return (StatusCode::NOT_MODIFIED, etag).into_response();
        }
        (etag, [(header::CONTENT_TYPE, self.content_type)], &*self.bytes).into_response()
    }
}

/// Returns the name of the file that answers for a path below `/ui/`.
fn file_of(path: &str) -> &str {
    match path {
        "" | "audit" | "decisions" | "live" | "partitions" | "refused" | "runs" => INDEX,
        "concepts" => CONCEPTS,
        path if path.starts_with("runs/") => INDEX,
        path => path,
    }
}

async fn view(headers: HeaderMap) -> Response {
    answer(INDEX, &headers)
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    answer(file_of(&path), &headers)
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    if let Some(file) = SERVED.get(name) {
        return file.answer(headers);
    }
    let problem = Error::new(ErrorKind::Usage, format!("the page has no file {name:?}")).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

async fn secure(mut response: Response) -> Response {
    let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

/// Mounts the page for the hosts that the server answers for.
pub(super) fn routes(hosts: AllowedHosts) -> Router<App> {
    Router::new()
        .route("/ui", get(view))
        .route("/ui/", get(view))
        .route("/ui/{*path}", get(file))
        .method_not_allowed_fallback(fallbacks::refuse_method)
        .layer(middleware::from_fn_with_state(hosts, access::guard_page))
        .layer(middleware::map_response(secure))
}

mod concepts;

#[cfg(test)]
mod tests;
