//! Tests of a store in a folder. `tests/` has the tests of S3.

use super::*;
use runlog_schemas::{
    datum::Datum,
    id::RunId,
    json::Json,
    payload::{PayloadType, RunClaim, ToolCallCompleted},
};
use std::{fs, path::PathBuf};

fn folder() -> (Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = Config::new(format!("file:{}", dir.path().join("content").display()));
    (Store::open(&config).expect("a store"), dir)
}

fn object(dir: &tempfile::TempDir, reference: &Reference) -> PathBuf {
    let name = reference.sha256.to_string();
    dir.path().join("content/sha256").join(&name[..2]).join(&name)
}

fn completed(length: usize) -> JournalRecord {
    let result = Some(Json::parse(&format!("\"{}\"", "x".repeat(length))).expect("JSON"));
    JournalRecord::new(
        RunId::new("r").unwrap(),
        "1".parse().unwrap(),
        "agent",
        ToolCallCompleted { request_record_id: "q".parse().unwrap(), result, latency_ms: None }.into(),
    )
}

#[tokio::test]
async fn stored_content_is_read_back_and_storing_it_again_changes_nothing() {
    let (store, dir) = folder();
    for content in [vec![], b"content".to_vec(), vec![7; 3 << 20]] {
        let reference = store.put(content.clone()).await.expect("put");
        assert_eq!(reference, Reference::compute(&content));
        let before = fs::metadata(object(&dir, &reference)).expect("an object").modified().expect("a time");
        assert_eq!(store.put(content.clone()).await.expect("put again"), reference);
        assert_eq!(fs::metadata(object(&dir, &reference)).expect("an object").modified().expect("a time"), before);
        assert_eq!(store.get(&reference).await.expect("get"), content);
        assert!(store.has(&reference).await.expect("has"));
    }
}

#[tokio::test]
async fn concurrent_callers_that_store_the_same_content_all_succeed() {
    let (store, _dir) = folder();
    let puts: Vec<_> = (0..50)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.put(vec![1; 1 << 20]).await.map_err(|error| error.chain()) })
        })
        .collect();
    for put in puts {
        assert_eq!(put.await.expect("no panic"), Ok(Reference::compute(&vec![1; 1 << 20])));
    }
}

#[tokio::test]
async fn missing_truncated_and_changed_content_differ_and_a_put_repairs_each() {
    let (store, dir) = folder();
    let content = vec![3; 4096];
    let reference = Reference::compute(&content);
    let got = async |store: &Store| store.get(&reference).await.map_err(|error| error.kind());
    assert!(!store.has(&reference).await.expect("has"));
    assert_eq!(got(&store).await, Err(Kind::Missing));
    store.put(content.clone()).await.expect("put");
    let path = object(&dir, &reference);
    fs::write(&path, &content[1..]).expect("cut");
    assert_eq!(store.has(&reference).await.map_err(|error| error.kind()), Err(Kind::Corrupt));
    assert_eq!(got(&store).await, Err(Kind::Corrupt));
    store.put(content.clone()).await.expect("put");
    assert_eq!(got(&store).await, Ok(content.clone().into()));
    let mut changed = content.clone();
    changed[4095] ^= 1;
    fs::write(&path, changed).expect("changed");
    assert!(store.has(&reference).await.expect("its length is right"));
    assert_eq!(got(&store).await, Err(Kind::Corrupt));
    store.put(content.clone()).await.expect("put");
    assert_eq!(got(&store).await, Ok(content.into()), "it was hashed before it was accepted");
}

#[tokio::test]
async fn a_record_is_stowed_and_resolved_and_a_short_one_stays_whole() {
    let (store, dir) = folder();
    let short = completed(100);
    assert_eq!(store.stow(short.clone()).await.expect("stow"), short);
    let claim = RunClaim { writer_id: "w".parse().unwrap(), epoch: 1.into(), claimed_by: "x".repeat(300 << 10) };
    let claim = JournalRecord::new(RunId::new("r").unwrap(), "2".parse().unwrap(), "agent", claim.into());
    assert_eq!(store.stow(claim.clone()).await.expect("stow"), claim, "the projection reads it");
    let long = completed(300 << 10);
    let stowed = store.stow(long.clone()).await.expect("stow");
    let Payload::StoredPayload(stored) = &stowed.payload else { panic!("stored") };
    assert_eq!(fs::read(object(&dir, &stored.into())).expect("an object"), long.payload.to_bytes());
    assert_eq!(store.resolve(stored).await.expect("resolve"), long.payload);
    let other = StoredPayload { payload_type: PayloadType::ToolCallFailed.into(), ..stored.clone() };
    assert_eq!(store.resolve(&other).await.expect_err("another type").kind(), Kind::Corrupt);
}

#[tokio::test]
async fn content_over_the_limit_is_refused_before_a_write() {
    let (store, dir) = folder();
    let error = store.put(vec![0; CONTENT_BYTES_MAX + 1]).await.expect_err("too large");
    assert_eq!(error.kind(), Kind::TooLarge);
    assert!(fs::read_dir(dir.path().join("content")).expect("the folder").next().is_none());
    let lie = Reference { bytes: u64::MAX, ..Reference::compute(b"") };
    assert_eq!(store.get(&lie).await.expect_err("a lie").kind(), Kind::TooLarge);
}

#[tokio::test]
async fn a_store_without_permission_is_unavailable_and_not_missing() {
    let (store, dir) = folder();
    let reference = Reference::compute(b"content");
    // A file where the folder of the object should be.
    fs::create_dir_all(dir.path().join("content/sha256")).expect("a folder");
    let folder = object(&dir, &reference);
    fs::write(folder.parent().expect("a folder"), b"").expect("a file");
    assert_eq!(store.put(&b"content"[..]).await.expect_err("no room").kind(), Kind::Unavailable);
}

#[test]
fn a_limit_over_the_size_of_a_record_and_an_unknown_option_are_refused() {
    for inline_bytes_max in [0, 1 << 20] {
        let config = Config { inline_bytes_max, ..Config::new("file:/tmp/never-made") };
        assert_eq!(Store::open(&config).expect_err("refused").kind(), Kind::Invalid);
    }
    let options = [("no_such".to_owned(), "1".to_owned())].into();
    let error = Store::open(&Config { options, ..Config::new("s3://b") }).expect_err("refused");
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("no_such"), "{error}");
}
