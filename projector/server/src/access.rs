//! Refuses requests that a web page of another site makes a browser send.
//!
//! A browser on a machine that can reach the server sends requests for any page that it shows. It names the page's site
//! in `Origin` and `Sec-Fetch-Site`. It cannot send a body as JSON without asking the server first. With DNS rebinding,
//! a page's own name resolves to this server's address; then `Host` has that name.

use super::problem::respond;
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::Response,
};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::{ErrorKind, Problem};
use std::{net::IpAddr, sync::Arc};

/// The site that sends a request: <https://www.w3.org/TR/fetch-metadata/>.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How the browser fetches: `navigate` if it shows the answer.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// The destination of the browser's request: `document` is a tab or window, not a frame.
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Names of this server besides IP addresses and `localhost`, in lower case, without ports.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Arc<[String]>);

impl AllowedHosts {
    /// Takes the names in any case.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a host names this server. Ports do not matter.
    fn contains(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        host.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|allowed| host.eq_ignore_ascii_case(allowed))
    }
}

/// Refuses a request that a page of another site may have sent.
pub(super) async fn guard(State(hosts): State<AllowedHosts>, request: Request, next: Next) -> Response {
    answer(refusal(&hosts, &request), request, next).await
}

/// Refuses as [`guard`] does, but follows links of other sites' pages: the browser then shows the page to its user, and
/// the other site cannot read it.
pub(super) async fn guard_page(State(hosts): State<AllowedHosts>, mut request: Request, next: Next) -> Response {
    if is_link(&request) {
        request.headers_mut().remove(FETCH_SITE);
    }
    answer(refusal(&hosts, &request), request, next).await
}

/// Whether a browser shows the answer in a tab or window, not in a frame.
fn is_link(request: &Request) -> bool {
    let is = |name, value: &str| request.headers().get(name).is_some_and(|sent| sent == value);
    request.method() == Method::GET && is(FETCH_MODE, "navigate") && is(FETCH_DEST, "document")
}

async fn answer(refused: Option<(StatusCode, ErrorKind, String)>, request: Request, next: Next) -> Response {
    match refused {
        None => next.run(request).await,
        Some((status, kind, message)) => {
            let problem = Error::new(kind, message).problem();
            respond(Problem { status: status.as_u16(), ..problem })
        }
    }
}

fn refusal(hosts: &AllowedHosts, request: &Request) -> Option<(StatusCode, ErrorKind, String)> {
    let headers = request.headers();
    let host = requested_host(request.uri(), headers);
    // Every browser names a host; HTTP/1.0 need not.
    let foreign = match &host {
        Ok(host) => host.as_ref().filter(|host| !hosts.contains(host)).map(ToString::to_string),
        Err(illegal) => Some(illegal.clone()),
    };
    if let Some(foreign) = foreign {
        let message = format!(
            "host {foreign:?} is not this server: use its IP address, localhost, or a name that serve was given with \
             --allow-host"
        );
        return Some((StatusCode::MISDIRECTED_REQUEST, ErrorKind::Usage, message));
    }
    let origins = headers.get_all(header::ORIGIN);
    if let Some(origin) =
        origins.iter().find(|origin| !same_origin(origin, host.as_ref().ok().and_then(Option::as_ref)))
    {
        let message = format!("requests of pages of {:?} are refused", String::from_utf8_lossy(origin.as_bytes()));
        return Some((StatusCode::FORBIDDEN, ErrorKind::Forbidden, message));
    }
    if headers.get_all(FETCH_SITE).iter().any(|site| site == "cross-site") {
        let message = "requests of pages of other sites are refused".to_owned();
        return Some((StatusCode::FORBIDDEN, ErrorKind::Forbidden, message));
    }
    // Older producers send bodies without a content type. For such a body, a browser sends its page's `Origin`.
    if !headers.get_all(header::CONTENT_TYPE).iter().all(is_json) {
        let message = "the body has to be JSON: send it with Content-Type: application/json".to_owned();
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorKind::Usage, message));
    }
    None
}

/// Returns the host of the request: from its target, otherwise from its only `Host` header. The error is the malformed
/// host.
fn requested_host(target: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, String> {
    if let Some(authority) = target.authority() {
        return Ok(Some(authority.clone()));
    }
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let [host] = hosts[..] else {
        return if hosts.is_empty() { Ok(None) } else { Err("several".to_owned()) };
    };
    let authority = Authority::try_from(host.as_bytes()).ok().filter(|host| !host.as_str().contains('@'));
    authority.map(Some).ok_or_else(|| String::from_utf8_lossy(host.as_bytes()).into_owned())
}

/// Whether an origin is this server: the same host and port. The scheme does not matter, since a proxy may have
/// terminated TLS.
fn same_origin(origin: &HeaderValue, host: Option<&Authority>) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    origin.as_ref().and_then(Uri::authority).is_some_and(|origin| Some(origin) == host)
}

fn is_json(content_type: &HeaderValue) -> bool {
    let text = content_type.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
