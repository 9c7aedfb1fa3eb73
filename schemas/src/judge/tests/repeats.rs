//! Tests records that are sent again.

use super::{super::*, Applied, Refused, Repeat, Run, claim, completed, user_turn};

#[test]
fn a_repeat_has_the_first_verdict_and_no_effect() {
    let mut run = Run::claimed("a");
    let first = run.next_record("x", user_turn("x"));
    assert_eq!(run.take(&first), Applied);
    let before = run.head.clone();
    assert_eq!(run.take(&first), Repeat(None));
    assert_eq!(run.head, before);
}

#[test]
fn a_repeat_consumes_its_writer_seq_only_if_that_is_the_next() {
    let mut run = Run::claimed("a");
    let mut again = run.next_record("x", user_turn("x"));
    run.take(&again);
    let (writer_seq, journal_seq) = run.next();
    for far in [WriterSeq::ZERO, 1.into(), writer_seq.saturating_add(1), writer_seq.saturating_add(9)] {
        again.place.writer_seq = far;
        assert_eq!(run.take(&again), Repeat(None));
        assert_eq!(run.next(), (writer_seq, journal_seq), "repeated as {far}");
    }
    again.place.writer_seq = writer_seq;
    // Not even the next number of the run is consumed.
    again.place.journal_seq = journal_seq;
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq));
}

#[test]
fn a_repeat_in_a_place_that_is_not_its_writers_consumes_nothing() {
    let mut run = Run::claimed("a");
    let mut again = run.next_record("x", user_turn("x"));
    run.take(&again);
    assert_eq!(run.take(&claim("claim-b", "b", 2)), Applied);
    let before = run.head.clone();
    // The next number of the epoch, from a writer without the epoch.
    again.place.writer_seq = 1.into();
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.head, before);
    // Its content with the new writer's numbers is a repeat too: an append with an unknown outcome is sent again.
    again.place.writer_id = "b".parse().unwrap();
    again.place.writer_epoch = 2.into();
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.head.next_writer_seq, 2.into());
}

#[test]
fn a_repeat_of_a_record_refused_for_its_content_is_refused_again() {
    let mut run = Run::claimed("a");
    let orphan = run.next_record("x", completed("nobody", 1));
    assert_eq!(run.take(&orphan), Refused(Reason::Transition));
    assert_eq!(run.take(&orphan), Repeat(Some(Reason::Transition)));
    let conflicting = run.next_record("y", user_turn("y"));
    let mut low = conflicting.clone();
    low.place.writer_seq = 1.into();
    assert_eq!(run.take(&low), Refused(Reason::Conflict));
    assert_eq!(run.take(&conflicting), Repeat(Some(Reason::Conflict)));
}

#[test]
fn a_record_refused_for_its_numbers_is_judged_again() {
    let mut run = Run::claimed("a");
    let record = run.next_record("x", user_turn("x"));
    let mut early = record.clone();
    early.place.writer_seq = early.place.writer_seq.saturating_add(1);
    let mut foreign = record.clone();
    foreign.place.writer_id = "b".parse().unwrap();
    assert_eq!(run.take(&early), Refused(Reason::Gap));
    assert_eq!(run.take(&foreign), Refused(Reason::Fenced));
    assert_eq!(run.take(&record), Applied);
}

#[test]
fn a_record_that_lost_its_number_is_numbered_again_and_applied_once() {
    let mut run = Run::claimed("a");
    let mut low = run.next_record("x", user_turn("x"));
    low.place.writer_seq = 1.into();
    let mut odd = run.next_record("y", user_turn("y"));
    odd.place.journal_seq = 9.into();
    assert_eq!((run.take(&low), run.take(&odd)), (Refused(Reason::Conflict), Refused(Reason::Sequence)));
    for id in ["x", "y"] {
        let again = run.next_record(id, user_turn(id));
        let mut foreign = again.clone();
        foreign.place.writer_id = "b".parse().unwrap();
        assert_eq!(run.take_renumbered(&foreign), Refused(Reason::Fenced), "other rules hold");
        let (writer_seq, journal_seq) = run.next();
        assert_eq!(run.take_renumbered(&again), Applied);
        assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq.saturating_add(1)));
        let again = run.next_record(id, user_turn(id));
        assert_eq!((run.take_renumbered(&again), run.take(&again)), (Repeat(None), Repeat(None)));
    }
}

#[test]
fn a_record_of_version_1_that_lost_its_number_stays_refused() {
    let mut run = Run::claimed("a");
    let mut low = run.next_record("x", user_turn("x"));
    low.place.writer_seq = 1.into();
    assert_eq!(run.take(&low), Refused(Reason::Conflict));
    let again = run.next_record("x", user_turn("x"));
    assert_eq!(run.take(&again), Repeat(Some(Reason::Conflict)));
}

#[test]
fn numbering_again_helps_no_record_that_was_refused_for_anything_else() {
    let mut run = Run::claimed("a");
    let orphan = run.next_record("x", completed("nobody", 1));
    assert_eq!(run.take(&orphan), Refused(Reason::Transition));
    let again = run.next_record("x", completed("nobody", 1));
    assert_eq!(run.take_renumbered(&again), Repeat(Some(Reason::Transition)));
    let other = run.next_record("turn", user_turn("something else"));
    assert_eq!(run.take(&other), Refused(Reason::Conflict));
    assert_eq!(run.take_renumbered(&other), Repeat(Some(Reason::Conflict)), "the id is another record's");
    // A record that is judged again and refused for its content stays refused.
    let mut low = run.next_record("y", completed("nobody", 1));
    low.place.writer_seq = 1.into();
    assert_eq!(run.take(&low), Refused(Reason::Conflict));
    let again = run.next_record("y", completed("nobody", 1));
    assert_eq!(run.take_renumbered(&again), Refused(Reason::Transition));
    let again = run.next_record("y", completed("nobody", 1));
    assert_eq!(run.take_renumbered(&again), Repeat(Some(Reason::Transition)));
}
