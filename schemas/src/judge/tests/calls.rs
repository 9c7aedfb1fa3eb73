//! What answers a call, and what an operator decides of it.

use super::{
    super::*, Applied, JournalRecord, NoOp, Payload, Refused, Repeat, Run, attempt, completed, failed, resolution,
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
fn the_same_completion_again_changes_nothing_and_is_no_fault() {
    let mut run = Run::claimed("a");
    run.add("end", completed("call", 1));
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(run.add("end again", completed("call", 1)), NoOp);
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq.saturating_add(1)));
}

#[test]
fn an_answer_needs_a_request() {
    let mut run = Run::claimed("a");
    // A turn is no request.
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
    run.calls.get_mut("call").unwrap().has_evidence = true;
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
