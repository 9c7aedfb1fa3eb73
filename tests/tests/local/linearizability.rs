//! The checker accepts explainable histories and rejects the others.

use runlog_tests::linearizability::{
    Event,
    Operation::{self, Claim, Intent, Lookup, Result},
    Status::{Completed, Pending, Unknown},
    Verdict, check,
};

fn certain(operation: Operation, invoked: u64, returned: u64) -> Event {
    Event { operation, invoked, returned: Some(returned), certain: true }
}

fn intent(epoch: u64) -> Operation {
    Intent { epoch, call: 7 }
}

fn result(epoch: u64) -> Operation {
    Result { epoch, call: 7 }
}

fn lookup(found: runlog_tests::linearizability::Status) -> Operation {
    Lookup { call: 7, found }
}

#[test]
fn overlapping_operations_may_have_happened_in_either_order() {
    let prefix = [certain(Claim(Some(1)), 0, 1), certain(intent(1), 2, 9), certain(lookup(Unknown), 3, 4)];
    assert_eq!(check(&[&prefix[..], &[certain(lookup(Pending), 5, 6)]].concat()), Verdict::Linearizable);
    // The later of two overlapping claims.
    let claims = [certain(Claim(Some(2)), 0, 5), certain(Claim(Some(1)), 1, 6)];
    assert_eq!(check(&claims), Verdict::Linearizable);
}

#[test]
fn an_acknowledged_intent_that_a_later_lookup_does_not_know_is_a_violation() {
    let history = [certain(Claim(Some(1)), 0, 1), certain(intent(1), 2, 3), certain(lookup(Unknown), 4, 5)];
    assert_eq!(check(&history), Verdict::Violated(vec![2]));
}

#[test]
fn a_completed_call_is_never_pending_or_unknown_again() {
    let done = [certain(Claim(Some(1)), 0, 1), certain(intent(1), 2, 3), certain(result(1), 4, 5)];
    assert_eq!(check(&[&done[..], &[certain(lookup(Completed), 6, 7)]].concat()), Verdict::Linearizable);
    for older in [Pending, Unknown] {
        let history = [&done[..], &[certain(lookup(Completed), 6, 7), certain(lookup(older), 8, 9)]].concat();
        assert!(matches!(check(&history), Verdict::Violated(_)), "{older:?}");
    }
}

#[test]
fn an_epoch_has_one_claim_and_its_records_end_with_it() {
    let twice = [certain(Claim(Some(1)), 0, 1), certain(Claim(Some(1)), 2, 3)];
    assert!(matches!(check(&twice), Verdict::Violated(_)));
    let fenced = [certain(Claim(Some(1)), 0, 1), certain(Claim(Some(2)), 2, 3), certain(intent(1), 4, 5)];
    assert!(matches!(check(&fenced), Verdict::Violated(_)));
    // A result after another claim is in the log and has no effect.
    let late = [
        certain(Claim(Some(1)), 0, 1),
        certain(intent(1), 2, 3),
        certain(Claim(Some(2)), 4, 5),
        certain(result(1), 6, 7),
        certain(lookup(Pending), 8, 9),
    ];
    assert_eq!(check(&late), Verdict::Linearizable);
}

#[test]
fn an_append_of_unknown_outcome_may_take_effect_late_or_never_and_once() {
    let unknown = Event { operation: intent(1), invoked: 2, returned: None, certain: false };
    let prefix = [certain(Claim(Some(1)), 0, 1), unknown];
    let later = |found: &[_]| {
        let lookups = found.iter().zip(5..).map(|(found, at)| certain(lookup(*found), 10 * at, 10 * at + 1));
        check(&prefix.iter().copied().chain(lookups).collect::<Vec<_>>())
    };
    assert_eq!(later(&[Unknown, Unknown]), Verdict::Linearizable);
    assert_eq!(later(&[Unknown, Pending]), Verdict::Linearizable);
    assert!(matches!(later(&[Pending, Unknown]), Verdict::Violated(_)));
    // An operation of unknown outcome that had returned took effect before its return or never.
    let ended = Event { returned: Some(3), ..unknown };
    for found in [Unknown, Pending] {
        assert_eq!(check(&[prefix[0], ended, certain(lookup(found), 4, 5)]), Verdict::Linearizable, "{found:?}");
    }
    let history = [prefix[0], ended, certain(lookup(Unknown), 4, 5), certain(lookup(Pending), 6, 7)];
    assert!(matches!(check(&history), Verdict::Violated(_)));
}
