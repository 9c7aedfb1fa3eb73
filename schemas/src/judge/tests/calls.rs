//! Tests answers to calls, and decisions on calls.

use crate::{
    datum::Sha256,
    id::{ContentHash, Epoch, OrEmpty, RecordId, Secret, WriterId},
};

use super::{
    super::*, Applied, JournalRecord, NoOp, Payload, Refused, Repeat, Run, attempt, claim, completed, failed, request,
    resolution,
};

#[test]
fn a_call_ends_once_and_for_good() {
    let ends: [(Payload, Payload); 2] =
        [(completed("call", 1).into(), failed("call").into()), (failed("call").into(), completed("call", 1).into())];
    for (first, second) in ends {
        let mut run = Run::claimed("a");
        assert_eq!(run.add("end", first), Applied);
        assert_eq!(run.add("other end", second), Refused(Reason::Transition));
        assert_eq!(run.add("other result", completed("call", 2)), Refused(Reason::Transition));
        for (id, late) in [("attempt", Payload::from(attempt("call"))), ("done", resolution("call", "done").into())] {
            assert_eq!(run.add(id, late), Refused(Reason::Transition), "{id}");
        }
    }
}

#[test]
fn the_same_completion_again_is_no_anomaly() {
    let mut run = Run::claimed("a");
    run.add("end", completed("call", 1));
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(run.add("end again", completed("call", 1)), NoOp);
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq.saturating_add(1)));
}

#[test]
fn an_answer_needs_a_request() {
    let mut run = Run::claimed("a");
    // A turn is not a request.
    for (id, request) in [("x", "nobody"), ("y", "turn")] {
        assert_eq!(run.add(&format!("{id}1"), completed(request, 1)), Refused(Reason::Transition));
        assert_eq!(run.add(&format!("{id}2"), failed(request)), Refused(Reason::Transition));
        assert_eq!(run.add(&format!("{id}3"), attempt(request)), Refused(Reason::Transition));
        assert_eq!(run.add(&format!("{id}4"), resolution(request, "not_done")), Refused(Reason::Transition));
    }
}

#[test]
fn only_an_effect_with_evidence_is_adopted() {
    let mut run = Run::claimed("a");
    assert_eq!(run.add("x", resolution("call", "adopt")), Refused(Reason::Transition));
    run.calls.get_mut("call").unwrap().has_counted_evidence = true;
    assert_eq!(run.add("y", resolution("call", "adopt")), Applied);
}

#[test]
fn a_resolution_is_judged_by_its_id_and_its_content_and_by_nothing_else() {
    let mut run = Run::claimed("a");
    let before = run.next();
    let foreign = |record: &mut JournalRecord| {
        record.place.writer_id = "an operator".parse().unwrap();
        record.place.writer_epoch = 7.into();
    };
    assert_eq!(run.changed("r1", resolution("call", "not_done"), foreign), Applied);
    assert_eq!(run.changed("r1", resolution("call", "not_done"), foreign), Repeat(None));
    assert_eq!(run.changed("r1", resolution("call", "done"), foreign), Refused(Reason::Conflict));
    let numbered = |record: &mut JournalRecord| record.place.journal_seq = before.1;
    assert_eq!(run.changed("r2", resolution("call", "done"), numbered), Refused(Reason::Sequence));
    assert_eq!(run.changed("r3", resolution("call", "done"), foreign), Applied);
    assert_eq!(run.changed("r4", resolution("call", "done"), foreign), Refused(Reason::Transition));
    assert_eq!(run.next(), before, "it takes no number from the writer who has the run");
}

#[test]
fn a_decision_is_refused_as_stale_where_the_effect_has_a_greater_revision_and_only_there() {
    let mut run = Run::claimed("a");
    run.pending.insert(id("call"), pending(3, None));
    let at = |revision| move |record: &mut JournalRecord| record.body.facts.revision = Some(revision);
    assert_eq!(run.changed("r1", resolution("call", "not_done"), at(2)), Refused(Reason::StaleDecision));
    assert_eq!(run.changed("r2", resolution("call", "not_done"), at(3)), Applied);
    // A skip removes records.
    assert_eq!(run.changed("r3", resolution("call", "not_done"), at(4)), Applied);
    assert_eq!(run.add("r4", resolution("call", "not_done")), Applied);
}

#[test]
fn a_decision_names_the_evidence_that_it_adopts_or_decides_against() {
    let mut run = Run::claimed("a");
    run.calls.get_mut("call").unwrap().has_counted_evidence = true;
    run.pending.insert(id("call"), pending(2, Some((id("e"), true))));
    let naming = |evidence: &'static str| {
        move |record: &mut JournalRecord| {
            record.body.facts.revision = Some(2);
            record.body.facts.evidence = (!evidence.is_empty()).then(|| id(evidence));
        }
    };
    for (nth, decision) in ["not_done", "adopt"].into_iter().enumerate() {
        for named in ["", "other"] {
            let word = run.changed(&format!("{nth}{named}"), resolution("call", decision), naming(named));
            assert_eq!(word, Refused(Reason::Transition), "{decision} {named}");
        }
    }
    assert_eq!(run.changed("n", resolution("call", "not_done"), naming("e")), Applied);
    run.pending.insert(id("call"), pending(2, Some((id("e"), false))));
    assert_eq!(run.changed("f", resolution("call", "not_done"), naming("")), Applied);
    assert_eq!(run.changed("a", resolution("call", "adopt"), naming("e")), Applied);
}

#[test]
fn a_writers_own_decision_holds_in_its_epoch_only() {
    let mut run = Run::claimed("a");
    run.pending.insert(id("call"), pending(1, None));
    let (writer_id, epoch) = (run.head.writer_id.clone(), run.head.epoch);
    let of = |writer_id: OrEmpty<WriterId>, written: Epoch, named: Epoch| {
        move |record: &mut JournalRecord| {
            (record.place.writer_id, record.place.writer_epoch) = (writer_id.clone(), written);
            record.body.facts.epoch = Some(named);
        }
    };
    let earlier = Epoch::ZERO;
    for (name, change) in [
        ("r1", of(writer_id.clone(), earlier, earlier)),
        ("r2", of(writer_id.clone(), epoch, earlier)),
        ("r3", of("other".parse().unwrap(), epoch, epoch)),
    ] {
        assert_eq!(run.changed(name, resolution("call", "not_done"), change), Refused(Reason::Fenced), "{name}");
    }
    assert_eq!(run.changed("r4", resolution("call", "not_done"), of(writer_id, epoch, epoch)), Applied);
}

#[test]
fn an_attempt_with_a_basis_needs_permission_the_newest_record_and_the_next_number() {
    let mut run = Run::claimed("a");
    let (newest, older) = (ContentHash(Sha256::of(b"newest")), ContentHash(Sha256::of(b"older")));
    let safe = PendingEffect { newest, class: Class::RetrySafe, ..pending(3, None) };
    let stated = |basis, attempt| {
        move |record: &mut JournalRecord| {
            (record.body.facts.basis, record.body.facts.attempt) = (Some(basis), attempt);
        }
    };
    for (name, effect, basis, number) in [
        ("undecided", PendingEffect { class: Class::ReconcileRequired, ..safe.clone() }, newest, Some(2)),
        ("changed since", safe.clone(), older, Some(2)),
        ("number taken", safe.clone(), newest, Some(1)),
        ("number ahead", safe.clone(), newest, Some(3)),
        ("no number", safe.clone(), newest, None),
    ] {
        run.pending.insert(id("call"), effect);
        let word = run.changed(name, attempt("call"), stated(basis, number));
        assert_eq!(word, Refused(Reason::Transition), "{name}");
    }
    run.pending.insert(id("call"), safe);
    assert_eq!(run.changed("permitted", attempt("call"), stated(newest, Some(2))), Applied);
    run.pending.insert(id("call"), pending(3, None));
    assert_eq!(run.add("without a basis", attempt("call")), Applied);
}

#[test]
fn a_decision_with_a_basis_is_stale_unless_it_names_the_newest_record_and_no_older_revision() {
    let mut run = Run::claimed("a");
    run.calls.get_mut("call").unwrap().has_counted_evidence = true;
    let (newest, older) = (ContentHash(Sha256::of(b"newest")), ContentHash(Sha256::of(b"older")));
    let by_id = Some((id("e"), false));
    let effect = PendingEffect { newest, adoptable: Some((id("e"), true)), ..pending(2, by_id) };
    run.pending.insert(id("call"), effect);
    let stated = |basis, revision, evidence: &'static str| {
        move |record: &mut JournalRecord| {
            let facts = &mut record.body.facts;
            (facts.basis, facts.revision) = (Some(basis), revision);
            facts.evidence = (!evidence.is_empty()).then(|| id(evidence));
        }
    };
    let decided = || resolution("call", "not_done");
    assert_eq!(run.changed("older", decided(), stated(older, Some(2), "e")), Refused(Reason::StaleDecision));
    assert_eq!(run.changed("older revision", decided(), stated(newest, Some(1), "e")), Refused(Reason::StaleDecision));
    // All evidence counts, not only the first of each record id.
    assert_eq!(run.changed("unnamed", decided(), stated(newest, None, "")), Refused(Reason::Transition));
    assert_eq!(run.changed("newest", decided(), stated(newest, None, "e")), Applied);
    assert_eq!(run.changed("with its revision", decided(), stated(newest, Some(2), "e")), Applied);
}

#[test]
fn an_intent_that_refuses_unresolved_calls_waits_for_calls_of_earlier_epochs_alone() {
    let mut run = Run::claimed("a");
    let stated = |unresolved| move |record: &mut JournalRecord| record.body.facts.unresolved = unresolved;
    let cases = [(2, 2, None), (2, 1, Some(Reason::Unresolved)), (0, 0, None)];
    for (nth, (all, of_epoch, refused)) in cases.into_iter().enumerate() {
        (run.head.undecided_calls, run.head.undecided_calls_of_epoch) = (all, of_epoch);
        let word = run.changed(&format!("refuse {nth}"), request(), stated(Some(Unresolved::Refuse)));
        assert_eq!(word, refused.map_or(Applied, Refused), "{all} {of_epoch}");
        for other in [None, Some(Unresolved::Allow)] {
            assert_eq!(run.changed(&format!("{other:?} {nth}"), request(), stated(other)), Applied);
        }
    }
    (run.head.undecided_calls, run.head.undecided_calls_of_epoch) = (1, 1);
    assert_eq!(run.take(&claim("claim b", "b", 2)), Applied);
    assert_eq!(run.changed("after a claim", request(), stated(Some(Unresolved::Refuse))), Refused(Reason::Unresolved));
}

#[test]
fn a_limited_result_needs_a_start_by_the_same_handle() {
    let secret = |byte| Secret::new([byte; 32]);
    let claims = |commitment: u8, shown: Option<u8>| {
        move |record: &mut JournalRecord| {
            record.body.facts.commitment = Some(secret(commitment).commitment());
            record.body.facts.shown = shown.map(secret);
        }
    };
    let limited = |record: &mut JournalRecord| record.body.facts.only_own = Some(true);
    let mut run = Run::claimed("a");
    let started = |epoch| PendingEffect { last_started_in: epoch, ..pending(1, None) };
    for (name, epoch, claim_facts, since) in [
        ("b", 2, claims(2, None), 2),
        ("b again", 3, claims(3, Some(2)), 2),
        ("wrong secret", 4, claims(4, Some(9)), 4),
        ("used secret", 5, claims(5, Some(2)), 5),
    ] {
        let mut record = claim(name, "b", epoch);
        claim_facts(&mut record);
        assert_eq!(run.take(&record), Applied, "{name}");
        assert_eq!(run.head.handle_since, Epoch::from(since), "{name}");
        for (start, verdict) in [(since - 1, Refused(Reason::NotStartedHere)), (since, Applied)] {
            run.pending.insert(id("call"), started(start.into()));
            run.calls.get_mut("call").unwrap().status = CallStatus::Pending;
            let word = run.changed(&format!("{name} {start}"), completed("call", 1), limited);
            assert_eq!(word, verdict, "{name}: started in {start}");
        }
    }
    for (name, effect, change) in [
        ("unlimited", started(1.into()), None),
        ("uncommitted", PendingEffect { has_committed_start: false, ..started(1.into()) }, Some(true)),
    ] {
        run.pending.insert(id("call"), effect);
        run.calls.get_mut("call").unwrap().status = CallStatus::Pending;
        let word = run.changed(name, completed("call", 1), |record| record.body.facts.only_own = change);
        assert_eq!(word, Applied, "{name}");
    }
}

fn pending(revision: u64, adoptable: Option<(RecordId, bool)>) -> PendingEffect {
    PendingEffect {
        revision,
        newest: ContentHash::default(),
        class: Class::ReconcileRequired,
        attempts: 1,
        last_started_in: Epoch::from(1),
        has_committed_start: true,
        is_start_void: false,
        is_newest_void: false,
        is_before_skip: false,
        adoptable: adoptable.clone(),
        adoptable_by_id: adoptable,
    }
}

fn id(text: &str) -> RecordId {
    text.parse().unwrap()
}
