//! The web page: its headers, its paths, and that it needs no token while all data do.

#![allow(clippy::unwrap_used, reason = "tests")]

use reqwest::{Response, StatusCode, header::HeaderMap};
use runlog_log::memory::MemoryLog;
use runlog_server::{
    Options,
    auth::{
        Authentication,
        token_file::{Entry, Scope, TokenFile},
    },
};
use runlog_tests::served::Served;
use std::sync::Arc;

/// Starts a server with tokens, with or without the page.
async fn site(page: bool) -> (Served, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.json");
    let (entry, _) = Entry::new("x".into(), [Scope::ReadMeta].into(), vec!["*".into()], &[7; 32]);
    TokenFile { tokens: vec![entry], ..TokenFile::default() }.write(&path).unwrap();
    let mut options = Options::default();
    options.authentication = Some(Authentication::open(&path, || 1_000).unwrap());
    options.page = page;
    let served = Served::with(Arc::new(MemoryLog::new(1)), || "journal".into(), options).await.unwrap();
    (served, folder)
}

async fn get(site: &Served, path: &str, headers: &[(&'static str, &str)]) -> Response {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    site.http.get(format!("http://{}{path}", site.address)).headers(headers).send().await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_needs_no_token_and_its_headers_confine_it() {
    let (site, _folder) = site(true).await;
    for (path, kind) in [
        ("/ui", "text/html; charset=utf-8"),
        ("/ui/", "text/html; charset=utf-8"),
        ("/ui/decisions?show=safe", "text/html; charset=utf-8"),
        ("/ui/runs", "text/html; charset=utf-8"),
        ("/ui/partitions", "text/html; charset=utf-8"),
        ("/ui/refused?show=unreadable", "text/html; charset=utf-8"),
        ("/ui/concepts", "text/html; charset=utf-8"),
        ("/ui/runs/a%2Fb%20c", "text/html; charset=utf-8"),
        ("/ui/app.js", "text/javascript; charset=utf-8"),
        ("/ui/vendor/preact.js", "text/javascript; charset=utf-8"),
        ("/ui/app.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
    ] {
        let response = get(&site, path, &[]).await;
        assert_eq!((response.status(), header(&response, "content-type")), (StatusCode::OK, kind), "{path}");
        let policy = header(&response, "content-security-policy").to_owned();
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{path}: {policy}");
        for (name, value) in [
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(header(&response, name), value, "{path} {name}");
        }
        let etag = header(&response, "etag").to_owned();
        let again = get(&site, path, &[("if-none-match", &etag)]).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(again.text().await.unwrap(), "", "{path}");
    }
    for path in ["/v1/runs", "/v1/whoami", "/v1/overview", "/openapi.json"] {
        assert_eq!(get(&site, path, &[]).await.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_files_are_not_found_and_only_links_of_other_sites_are_followed() {
    let (site, _folder) = site(true).await;
    for path in ["/ui/none.js", "/ui/vendor", "/ui/vendor/SHA256SUMS", "/ui/decisions/x", "/ui/index"] {
        let response = get(&site, path, &[]).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(header(&response, "content-security-policy").contains("'none'"), "{path}");
    }
    let url = format!("http://{}/ui", site.address);
    let posted = site.http.post(url).header("content-type", "application/json").send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    let cross = ("sec-fetch-site", "cross-site");
    let link = [cross, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    assert_eq!(get(&site, "/ui/runs", &link).await.status(), StatusCode::OK);
    let frame = [cross, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
    assert_eq!(get(&site, "/ui/runs", &frame).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(get(&site, "/ui/app.js", &[cross]).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(get(&site, "/v1/runs", &link).await.status(), StatusCode::FORBIDDEN, "only of the page");
    assert_eq!(get(&site, "/ui", &[("host", "rebound.example")]).await.status(), StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_page_has_no_such_path() {
    let (site, _folder) = site(false).await;
    let without_token = get(&site, "/ui", &[]).await.status();
    assert!([StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND].contains(&without_token), "{without_token}");
}
