#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use runlog_projector::index::store::meta::Journal;
use serde_json::{Value, json};

fn entry(name: &str, url: &str) -> Value {
    json!({ "name": name, "url": url })
}

fn three() -> Value {
    json!([entry("a", "https://a:1"), entry("b", "https://b:1"), entry("c", "https://c:1")])
}

fn parsed(instances: Value, own: &str, copies: Option<usize>) -> Result<Instances, Invalid> {
    Instances::parse(&json!({ "instances": instances }).to_string(), own, copies)
}

#[test]
fn a_list_that_cannot_be_used_is_refused_with_the_reason() {
    let many: Vec<Value> = (0..65).map(|n| entry(&format!("n{n}"), &format!("https://n{n}"))).collect();
    for (instances, why) in [
        (json!([entry("a", "https://a"), entry("a", "https://b")]), "two instances have the name a"),
        (json!([entry("a", "https://A:443/"), entry("b", "https://a")]), "two instances have the URL https://a"),
        (json!([entry("b", "https://b")]), "no instance named \"a\", only b"),
        (json!([entry("", "https://a")]), "the name \"\""),
        (json!([entry("a b", "https://a")]), "the name \"a b\""),
        (json!([entry("a", "https://a/x")]), "more than scheme, host and port"),
        (json!([entry("a", "https://a?x=1")]), "more than scheme, host and port"),
        (json!([entry("a", "https://a/#x")]), "more than scheme, host and port"),
        (json!([entry("a", "https://me:secret@a")]), "has a user"),
        (json!([entry("a", "ftp://a")]), "is not http:// or https://"),
        (json!([entry("a", "a:7070")]), "is not http:// or https://"),
        (json!([entry("a", "nonsense")]), "is not a URL"),
        (json!([{ "name": "a", "url": "https://a", "zones": "z" }]), "unknown field `zones`"),
        (json!([{ "name": "a", "url": "https://a", "zone": "z" }, entry("b", "https://b")]), "b has no zone"),
        (json!([{ "name": "a", "url": "https://a", "zone": "z z" }]), "the zone \"z z\""),
        (json!(many), "65 instances, more than 64"),
        (json!([]), "it has no instances"),
    ] {
        let refused = parsed(instances.clone(), "a", None).unwrap_err().to_string();
        assert!(refused.contains(why), "{instances}: {refused}");
    }
    assert!(parsed(three(), "a", Some(0)).unwrap_err().to_string().contains("copies is 0"));
    let unknown = Instances::parse(r#"{"instances": [], "replicas": 2}"#, "a", None).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `replicas`"), "{unknown}");
}

#[test]
fn without_copies_each_instance_holds_all_partitions_and_a_flag_wins_over_the_file() {
    let list = |copies: Value, flag| {
        let text = json!({ "copies": copies, "instances": three() }).to_string();
        Instances::parse(&text, "b", flag).unwrap()
    };
    for (copies, flag, expected) in [
        (Value::Null, None, (3, true)),
        (json!(2), None, (2, false)),
        (json!(2), Some(1), (1, false)),
        (json!(1), Some(9), (3, true)),
    ] {
        let list = list(copies, flag);
        assert_eq!((list.copies(), list.hold_all()), expected);
        assert_eq!((list.own().name.as_str(), list.own_host().as_deref()), ("b", Some("b")));
        assert_eq!(list.peers().map(|(_, peer)| peer.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    }
}

#[test]
fn connections_with_another_machine_must_be_encrypted() {
    let peer = |url: &str| {
        let list = parsed(json!([entry("own", "http://own"), entry("peer", url)]), "own", None).unwrap();
        list.unencrypted_peer().map(|peer| peer.name.clone())
    };
    for here in ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://far"] {
        assert_eq!(peer(here), None, "{here}");
    }
    for far in ["http://far", "http://10.0.0.1:1", "http://localhost.evil"] {
        assert_eq!(peer(far).as_deref(), Some("peer"), "{far}");
    }
}

#[test]
fn the_digest_depends_on_each_member_of_the_list_and_not_on_the_order() {
    let digest = |instances: Value, own, copies| parsed(instances, own, copies).unwrap().digest();
    let own = digest(three(), "a", Some(2));
    let mut turned = three();
    turned.as_array_mut().unwrap().reverse();
    assert_eq!(own, digest(turned, "c", Some(2)));
    assert_ne!(own, digest(three(), "a", Some(1)), "copies");
    for (pointer, value) in [("/0/name", "d"), ("/1/url", "https://d"), ("/0/zone", "z")] {
        let mut zones = three();
        for member in zones.as_array_mut().unwrap() {
            member["zone"] = json!("y");
        }
        let before = digest(zones.clone(), "c", Some(2));
        *zones.pointer_mut(pointer).unwrap() = json!(value);
        assert_ne!(before, digest(zones, "c", Some(2)), "{pointer}");
    }
}

/// The partitions that an instance holds, with indices of `indexed` in its folder, when so many placed instances serve each of them.
fn chosen(own: &str, copies: usize, indexed: &[u16], serving: usize) -> BTreeSet<PartitionId> {
    let list = Arc::new(parsed(three(), own, Some(copies)).unwrap());
    let indexed: BTreeSet<PartitionId> = indexed.iter().map(|number| PartitionId::from(*number)).collect();
    let journal = Journal { journal_id: "j".to_owned(), partitions: 8 };
    let choose = list.choose(move |found, _| found.indexed.iter().map(|partition| (*partition, serving)).collect());
    choose.partitions(&Found { journal: &journal, log: None, indexed: &indexed })
}

#[test]
fn a_server_keeps_a_partition_that_is_left_over_until_all_its_copies_serve() {
    let all: Vec<u16> = (0..8).collect();
    let placed = chosen("a", 2, &[], 0);
    assert!(!placed.is_empty() && placed.len() < 8, "{placed:?}");
    assert_eq!(chosen("a", 2, &all, 1).len(), 8, "one of two copies serves");
    assert_eq!(chosen("a", 2, &all, 2), placed, "both copies serve");
    let other = (0..8).find(|number| !placed.contains(&PartitionId::from(*number))).unwrap();
    let mut with_other = placed.clone();
    with_other.insert(other.into());
    assert_eq!(chosen("a", 2, &[other], 0), with_other, "only indices with records are left over");
    assert_eq!(chosen("a", 3, &[], 0).len(), 8, "a full replica");
}

#[test]
fn each_partition_is_on_as_many_instances_as_it_has_copies_and_the_others_name_them() {
    for copies in [1, 2] {
        let names = ["a", "b", "c"];
        let holders: Vec<_> = names.iter().map(|own| chosen(own, copies, &[], 0)).collect();
        for partition in PartitionId::all(8) {
            let holding = holders.iter().filter(|held| held.contains(&partition)).count();
            assert_eq!(holding, copies, "{partition}");
            for (own, held) in names.iter().zip(&holders).filter(|(_, held)| !held.contains(&partition)) {
                let urls = Arc::new(parsed(three(), own, Some(copies)).unwrap()).placement(8).urls(partition);
                let is_holder = |url: &String| {
                    let named = names.iter().zip(&holders).find(|(name, _)| url == &format!("https://{name}:1"));
                    named.is_some_and(|(_, held)| held.contains(&partition))
                };
                assert!(urls.len() == copies && urls.iter().all(is_holder), "{own} {held:?} {urls:?}");
            }
        }
    }
}
