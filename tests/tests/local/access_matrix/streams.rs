//! Streams end with the token that opened them, and one principal's streams leave capacity for others.

use super::{ALL, NOW, Reply, Site, WAIT, entries, token_of, write};
use runlog_server::auth::{
    limits::Limit,
    token_file::{Entry, Scope, TokenFile},
};
use std::{sync::atomic::Ordering, time::Duration};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_revoked_is_refused_and_its_streams_end() {
    let site = Site::start(&entries()).await;
    let ((_, agent), (_, everything)) = (token_of(5), token_of(9));
    site.fill("acme/1", &everything).await;
    let tail = async |path: &str| {
        let response = site.request("get", path, Some(&agent), None).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response
    };
    let streams = [tail("/v1/runs/acme%2F1/tail").await, tail("/v1/tail?from=end").await];
    // An invalid token file changes nothing.
    let good = std::fs::read(site.tokens()).unwrap();
    std::fs::write(site.tokens(), "{\"tokens\": [{}]}").unwrap();
    site.authentication.reload();
    assert_eq!(site.ask("get", "/v1/journal", Some(&agent), None).await.status, 200);
    let doctor = site.ask("post", "/v1/verify", Some(&everything), None).await;
    assert_eq!(doctor.status, 200);
    let doctor = site.ask("get", "/v1/doctor", Some(&everything), None).await.json();
    assert!(doctor["healthy"] == false && doctor["findings"].to_string().contains("tokens.json"), "{doctor}");
    let metrics = site.ask("get", "/metrics", Some(&everything), None).await.body;
    assert!(metrics.contains("runlog_tokens_unusable 1"), "{metrics}");
    std::fs::write(site.tokens(), good).unwrap();
    let without: Vec<_> = entries().into_iter().filter(|(number, ..)| *number != 5).collect();
    write(&site.tokens(), &without);
    // The server reads the file again by itself.
    for stream in streams {
        let rest = tokio::time::timeout(WAIT, stream.text()).await.expect("the stream ends").unwrap();
        assert!(rest.contains("event: error") && rest.contains("\"kind\":\"unauthenticated\""), "{rest}");
    }
    assert_eq!(site.ask("get", "/v1/journal", Some(&agent), None).await.status, 401);
    assert_eq!(site.ask("get", "/v1/journal", Some(&everything), None).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_has_expired_is_refused_and_its_streams_end() {
    let site = Site::start(&entries()).await;
    let (_, everything) = token_of(9);
    site.fill("acme/1", &everything).await;
    let (entry, guest) = Entry::new("guest".into(), [Scope::ReadMeta].into(), vec![ALL.into()], &[11; 32]);
    let entry = Entry { expires: Some("1970-01-01T00:00:02Z".into()), ..entry };
    TokenFile { tokens: vec![entry], ..TokenFile::default() }.write(&site.tokens()).unwrap();
    site.authentication.reload();
    let stream = site.request("get", "/v1/tail?from=end", Some(&guest), None).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    NOW.store(2_000, Ordering::Relaxed);
    let rest = tokio::time::timeout(WAIT, stream.text()).await.expect("the stream ends").unwrap();
    assert!(rest.contains("\"kind\":\"unauthenticated\""), "{rest}");
    assert_eq!(site.ask("get", "/v1/runs", Some(&guest), None).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_principals_streams_leave_capacity_for_others() {
    let site = Site::start(&entries()).await;
    let ((_, agent), (_, desk)) = (token_of(5), token_of(6));
    let overloaded = |reply: &Reply| reply.status == 429 && reply.json()["kind"] == "overloaded";
    let mut streams = Vec::new();
    for _ in 0..Limit::Streams.default_value() {
        let stream = site.request("get", "/v1/runs/acme%2F1/tail", Some(&agent), None).send().await.unwrap();
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    // A refusal is read to its end; an accepted stream stays open.
    let one_more = async |token: &str| {
        let response = site.request("get", "/v1/runs/acme%2F1/tail", Some(token), None).send().await.unwrap();
        let retry = response.headers().contains_key("retry-after");
        (response.status().as_u16(), retry)
    };
    assert_eq!(one_more(&agent).await, (429, true));
    assert_eq!(one_more(&desk).await, (200, false));
    streams.clear();
    let freed = async {
        while one_more(&agent).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, freed).await.expect("a stream that ended frees its slot");

    let (mut all, everything) = (Vec::new(), token_of(9).1);
    for token in [&agent, &everything] {
        for _ in 0..Limit::StreamsOfAllRuns.default_value() {
            let stream = site.request("get", "/v1/tail?from=end", Some(token), None).send().await.unwrap();
            assert_eq!(stream.status(), 200);
            all.push(stream);
        }
        assert_eq!(site.ask("get", "/v1/tail?until_end=true", Some(token), None).await.status, 429);
    }
    drop(all);

    let waiting = "/v1/runs/acme%2F1?consistency=at-least=0:1000000&deadline_ms=30000";
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..Limit::RequestsInProgress.default_value() {
        requests.spawn(site.request("get", waiting, Some(&agent), None).send());
    }
    let filled = async {
        while !overloaded(&site.ask("get", "/v1/journal", Some(&agent), None).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, filled).await.expect("the principal has no free slot");
    assert_eq!(site.ask("get", "/v1/journal", Some(&desk), None).await.status, 200, "another has");
}
