//! Only a caller who sees a run learns that it is in doubt.

use super::{Needs, Site, entries, question, table, token_of};
use runlog_log::{Entry, Log, LogId, PartitionId};
use runlog_projector::index::home::{Carried, Home, header};
use serde_json::json;
use std::time::Duration;

/// Appends the record by which the log takes over from a lost home, and waits until it is applied.
async fn take_over(site: &Site, token: &str) {
    let mut reader = site.log.reader(&[(PartitionId::ZERO, 0_u32.into())]).unwrap();
    let genesis = reader.poll(1, Duration::ZERO).unwrap().remove(0);
    let home = Home {
        epoch: 2,
        log: LogId::memory("matrix").unwrap(),
        from: LogId::memory("lost"),
        who: "ann".into(),
        why: "flood".into(),
    };
    let entry = Entry { key: genesis.key, value: genesis.value, headers: vec![header(&Carried::Home(home))] };
    site.log.append(PartitionId::ZERO, vec![entry]).await.unwrap();
    assert_eq!(site.ask("get", "/v1/runs?consistency=latest", Some(token), None).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_others_is_absent_also_while_it_is_in_doubt() {
    let site = Site::start(&entries()).await;
    let ((_, desk), (_, everything)) = (token_of(6), token_of(9));
    for run in ["acme/1", "globex/1"] {
        site.fill(run, &everything).await;
    }
    take_over(&site, &everything).await;
    let own = site.ask("get", "/v1/runs/acme%2F1/outcome?record_id=acme%2F1-a", Some(&desk), None).await;
    assert_eq!((own.status, &own.json()["reason"]), (409, &json!("doubt")), "{own:?}");
    for (method, path, _, query) in table().iter().filter(|(_, _, needs, _)| matches!(needs, Needs::Run(_))) {
        let ask = async |run: &str| {
            let (url, body) = question(method, path, query, run);
            site.ask(method, &url, Some(&desk), body.as_ref()).await.about(run)
        };
        let (foreign, absent) = (ask("globex/1").await, ask("absent/1").await);
        assert!(foreign == absent && foreign.status != 409, "{method} {path}: {foreign:?}, not {absent:?}");
    }
    let at = site.end().await - 1;
    let read_back = format!("/v1/runs/globex%2F1/outcome?position=0:{at}@memory:matrix");
    assert_eq!(site.ask("get", &read_back, Some(&desk), None).await.status, 404);
}
