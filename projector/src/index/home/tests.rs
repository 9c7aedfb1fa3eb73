#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;
use runlog_schemas::{
    answer::{ErrorKind, ProblemReason},
    datum::Datum,
};

fn log(name: &str) -> LogId {
    LogId::memory(name).unwrap()
}

fn home(epoch: u32, name: &str) -> Home {
    Home { epoch, log: log(name), from: None, who: "ann".into(), why: "new site".into() }
}

/// Applies homes in order, from offset 0.
fn folded(homes: &[Home]) -> Option<HomeRow> {
    let mut row = None;
    for (offset, home) in homes.iter().enumerate() {
        row = advance(row.as_ref(), home, (offset as u32).into(), 1000).or(row);
    }
    row
}

#[test]
fn the_first_home_is_also_the_origin() {
    let row = folded(&[home(1, "a")]).unwrap();
    let expected = HomeRow {
        epoch: 1,
        log: "memory:a".into(),
        origin: "memory:a".into(),
        rival: String::new(),
        from: String::new(),
        offset: Offset::ZERO,
        logged_at_millis: 1000,
        who: "ann".into(),
        why: "new site".into(),
    };
    assert_eq!(row, expected);
    assert_eq!(HomeRow::from_bytes(&row.to_bytes()).unwrap(), row);
}

#[test]
fn a_higher_epoch_replaces_the_home_and_keeps_the_origin() {
    let row = folded(&[home(1, "a"), Home { from: Some(log("a")), ..home(2, "b") }]).unwrap();
    assert_eq!((row.epoch, row.log.as_str(), row.origin.as_str()), (2, "memory:b", "memory:a"));
    assert_eq!((row.from.as_str(), row.offset), ("memory:a", 1.into()));
}

#[test]
fn a_takeover_in_a_partition_without_a_home_has_the_earlier_log_as_origin() {
    let row = folded(&[Home { from: Some(log("a")), ..home(2, "b") }]).unwrap();
    assert_eq!((row.log.as_str(), row.origin.as_str()), ("memory:b", "memory:a"));
}

#[test]
fn a_lower_epoch_and_a_repeated_home_have_no_effect() {
    let row = folded(&[home(1, "a"), home(2, "b")]);
    assert_eq!(folded(&[home(1, "a"), home(2, "b"), home(1, "a"), home(1, "c"), home(2, "b")]), row);
}

#[test]
fn two_logs_of_one_epoch_contest_the_home_until_a_higher_epoch() {
    let contested = folded(&[home(1, "a"), home(1, "b"), home(1, "c"), home(1, "a")]).unwrap();
    assert_eq!((contested.log.as_str(), contested.rival.as_str()), ("memory:a", "memory:b"));
    let decided = folded(&[home(1, "a"), home(1, "b"), home(2, "b")]).unwrap();
    assert_eq!((decided.log.as_str(), decided.rival.as_str()), ("memory:b", ""));
}

#[test]
fn the_role_follows_from_the_home_and_the_own_log() {
    let row = folded(&[home(1, "a")]);
    let contested = folded(&[home(1, "a"), home(1, "b")]);
    for (known, of_home, of_another_log, of_a_log_without_id) in [
        (None, Role::Unknown, Role::Unknown, Role::Unknown),
        (row, Role::Home, Role::Mirror, Role::Mirror),
        (contested, Role::Contested, Role::Contested, Role::Contested),
    ] {
        let role = |own| HomeState::new(own, known.clone()).role();
        assert_eq!(role(Some(log("a"))), of_home);
        assert_eq!(role(Some(log("x"))), of_another_log);
        assert_eq!(role(None), of_a_log_without_id);
    }
}

#[test]
fn a_state_learns_the_highest_epoch_and_a_rival_of_another_partition() {
    let state = HomeState::new(Some(log("b")), None);
    assert_eq!((state.role(), state.tag(), state.known()), (Role::Unknown, None, None));
    let [first, second] = [1, 2].map(|epoch| folded(&[home(epoch, if epoch == 1 { "a" } else { "b" })]).unwrap());
    state.learn(&first);
    assert_eq!((state.role(), state.tag()), (Role::Mirror, Some(&log("b"))));
    state.learn(&second);
    assert_eq!(state.role(), Role::Home);
    state.learn(&first);
    assert_eq!((state.role(), state.known()), (Role::Home, Some(second)), "a partition that lags");
    state.learn(&folded(&[home(2, "c")]).unwrap());
    assert_eq!((state.role(), state.known().unwrap().rival.as_str()), (Role::Contested, "memory:c"));
    state.learn(&folded(&[home(3, "b")]).unwrap());
    assert_eq!(state.role(), Role::Home);
    state.learn(&folded(&[home(3, "b"), home(3, "c")]).unwrap());
    assert_eq!(state.role(), Role::Contested, "a rival that one partition knows");
}

#[test]
fn only_a_mirror_refuses_calls_of_the_home_and_names_the_home() {
    let row = folded(&[home(1, "a")]);
    for own in [None, Some(log("a"))] {
        assert!(HomeState::new(own, None).check_home("an append").is_ok(), "a journal without a home");
    }
    assert!(HomeState::new(Some(log("a")), row.clone()).check_home("an append").is_ok());
    let contested = folded(&[home(1, "a"), home(1, "b")]);
    for (own, known, parts) in [
        (Some(log("x")), row.clone(), ["memory:x", "memory:a", "ask a server of the home"]),
        (None, row, ["no topic id", "memory:a", "ask a server of the home"]),
        (Some(log("a")), contested, ["memory:a", "memory:b", "where agents write"]),
    ] {
        let refused = HomeState::new(own, known).check_home("an append").unwrap_err();
        assert_eq!((refused.kind(), refused.reason()), (ErrorKind::Unavailable, Some(ProblemReason::Mirror)));
        assert_eq!(refused.home(), Some(&log("a")));
        for part in parts.into_iter().chain(["an append", "had no effect"]) {
            assert!(refused.to_string().contains(part), "{part}: {refused}");
        }
        assert_eq!(refused.problem().reason.unwrap().as_str(), "mirror");
    }
}

#[test]
fn an_append_that_the_log_refused_as_no_home_is_not_overloaded() {
    let source = runlog_log::Error::new(runlog_log::Kind::NotHome, "t", "the log is a mirror");
    let refused = Error::of_append(source);
    assert_eq!((refused.kind(), refused.reason()), (ErrorKind::Unavailable, Some(ProblemReason::Mirror)));
}

#[test]
fn a_position_of_another_log_is_refused_by_name() {
    let row = folded(&[home(1, "a")]);
    let state = HomeState::new(Some(log("a")), row);
    state.check_log("cursor", Some("memory:a")).unwrap();
    let refused = state.check_log("cursor", Some("memory:x")).unwrap_err();
    assert_eq!((refused.kind(), refused.reason()), (ErrorKind::Conflict, Some(ProblemReason::ForeignLog)));
    for part in ["cursor", "memory:x", "memory:a"] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert_eq!(state.check_log("cursor", Some("a b")).unwrap_err().kind(), ErrorKind::Invalid);
    let refused = HomeState::new(None, None).check_log("cursor", Some("memory:a")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "nothing to compare it with");
}

#[test]
fn a_position_without_a_log_is_accepted_while_the_journal_has_been_in_one_log() {
    let accepts =
        |own: &str, homes: &[Home]| HomeState::new(Some(log(own)), folded(homes)).check_log("cursor", None).is_ok();
    assert!(accepts("a", &[]));
    assert!(accepts("a", &[home(1, "a")]));
    assert!(!accepts("x", &[home(1, "a")]), "a mirror");
    assert!(!accepts("b", &[home(1, "a"), home(2, "b")]), "a mirror that took over");
    assert!(!accepts("a", &[home(1, "a"), home(1, "b")]), "contested");
}

#[test]
fn the_header_of_a_home_and_of_an_accept_is_json_that_later_versions_may_extend() {
    let encoded = |carried: &Carried| String::from_utf8(header(carried).1).unwrap();
    let text = r#"{"home":{"epoch":1,"log":"memory:a","from":null,"who":"ann","why":"new site"}}"#;
    assert_eq!(encoded(&Carried::Home(home(1, "a"))), text);
    let accept = Accept { epoch: 2, run: Some("r".parse().unwrap()), who: "ann".into(), why: "checked".into() };
    assert_eq!(encoded(&Carried::Accept(accept)), r#"{"accept":{"epoch":2,"run":"r","who":"ann","why":"checked"}}"#);
    let decoded = |text: &str| carried(&[(HEADER.to_owned(), text.into())]);
    let later = r#"{"home":{"epoch":1,"log":"memory:a","later":{}},"later":1}"#;
    let expected = Home { who: String::new(), why: String::new(), ..home(1, "a") };
    assert_eq!(decoded(later).unwrap(), Some(Carried::Home(expected)));
    let all = Accept { epoch: 2, run: None, who: String::new(), why: String::new() };
    assert_eq!(decoded(r#"{"accept":{"epoch":2}}"#).unwrap(), Some(Carried::Accept(all)));
}

#[test]
fn a_malformed_header_is_an_error_that_does_not_repeat_it() {
    assert_eq!(carried(&[("other".to_owned(), b"x".to_vec())]).unwrap(), None);
    for text in [
        "",
        "null",
        "[]",
        "{}",
        "{\"secret\":1}",
        "{\"secret",
        r#"{"home":{"log":"memory:a"}}"#,
        r#"{"home":{"epoch":0,"log":"memory:a"}}"#,
        r#"{"home":{"epoch":-1,"log":"memory:a"}}"#,
        r#"{"home":{"epoch":4294967296,"log":"memory:a"}}"#,
        r#"{"home":{"epoch":1000001,"log":"memory:a"}}"#,
        &format!(r#"{{"accept":{{"epoch":2,"run":"a","why":"{}"}}}}"#, "x".repeat(BYTES_MAX)),
        r#"{"home":{"epoch":1,"log":"secret a"}}"#,
        r#"{"home":{"epoch":1,"log":"memory:a","from":"secret a"}}"#,
        r#"{"accept":{}}"#,
        r#"{"accept":{"epoch":2,"run":""}}"#,
        r#"{"home":{"epoch":1,"log":"memory:a"},"accept":{"epoch":2}}"#,
    ] {
        let error = carried(&[(HEADER.to_owned(), text.into())]).unwrap_err().to_string();
        assert!(error.contains(HEADER) && !error.contains("secret"), "{text}: {error}");
    }
}

fn any_log() -> impl Strategy<Value = LogId> {
    "[a-d]".prop_map(|name| log(&name))
}

fn any_home() -> impl Strategy<Value = Home> {
    let who = ".{0,8}";
    (1..5_u32, any_log(), proptest::option::of(any_log()), who, who).prop_map(|(epoch, log, from, who, why)| Home {
        epoch,
        log,
        from,
        who,
        why,
    })
}

proptest! {
    #[test]
    fn a_header_decodes_to_what_was_encoded(home in any_home(), epoch in 1..=EPOCH_MAX, run in proptest::option::of(".{1,8}")) {
        let (who, why) = (home.who.clone(), home.why.clone());
        let accept = Accept { epoch, run: run.map(|run| run.parse().unwrap()), who, why };
        for sent in [Carried::Home(Home { epoch, ..home }), Carried::Accept(accept)] {
            prop_assert_eq!(carried(&[header(&sent)]).unwrap(), Some(sent));
        }
    }

    #[test]
    fn hostile_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..90_usize, byte: u8) {
        let _ = carried(&[(HEADER.to_owned(), bytes)]);
        let (name, mut value) = header(&Carried::Home(home(1, "a")));
        let at = at % value.len();
        value[at] = byte;
        let _ = carried(&[(name.clone(), value.clone())]);
        value.truncate(at);
        prop_assert!(carried(&[(name, value)]).is_err(), "a cut header");
    }

    /// Records that are read again after a crash, or copied late by a mirror, change no row.
    #[test]
    fn homes_that_were_applied_have_no_effect_again(homes in proptest::collection::vec(any_home(), 1..12), from in 0..12_usize) {
        let row = folded(&homes);
        let from = from.min(homes.len());
        let again: Vec<Home> = homes.iter().chain(&homes[from..]).cloned().collect();
        prop_assert_eq!(&folded(&again), &row);
        let row = row.unwrap();
        prop_assert_eq!(row.epoch, homes.iter().map(|home| home.epoch).max().unwrap());
        let of_epoch: Vec<&LogId> = homes.iter().filter(|home| home.epoch == row.epoch).map(|home| &home.log).collect();
        prop_assert_eq!(row.log.as_str(), of_epoch[0].as_str());
        prop_assert_eq!(row.rival.is_empty(), of_epoch.iter().all(|log| log.as_str() == row.log));
    }

    /// The order in which partitions commit changes neither the epoch nor the role.
    #[test]
    fn a_state_does_not_depend_on_the_order_of_partitions(
        rows in proptest::collection::vec(proptest::collection::vec(any_home(), 1..4), 1..5),
        own in any_log(),
    ) {
        let rows: Vec<HomeRow> = rows.iter().map(|homes| folded(homes).unwrap()).collect();
        let learned = |rows: &mut dyn Iterator<Item = &HomeRow>| {
            let state = HomeState::new(Some(own.clone()), None);
            rows.for_each(|row| state.learn(row));
            (state.role(), state.known().unwrap().epoch)
        };
        prop_assert_eq!(learned(&mut rows.iter()), learned(&mut rows.iter().rev()));
    }
}
