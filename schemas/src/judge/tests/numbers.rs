//! The numbers of a writer and of a run: gaps, conflicts, and the numbers that a refusal consumes.

use super::{super::*, Applied, Refused, Repeat, Run, checkpoint, completed, user_turn};

#[test]
fn a_writer_seq_beyond_the_next_is_a_gap_and_consumes_nothing() {
    let mut run = Run::claimed("a");
    let before = run.head.clone();
    for ahead in [1, 2, 100] {
        let word = run.changed("x", user_turn("x"), |record| {
            record.place.writer_seq = record.place.writer_seq.saturating_add(ahead)
        });
        assert_eq!(word, Refused(Reason::Gap));
        assert_eq!(run.head, before);
    }
}

#[test]
fn a_known_id_with_other_content_is_a_conflict_and_consumes_the_next_number() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(run.add("turn", user_turn("something else")), Refused(Reason::Conflict));
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq.saturating_add(1)));
    // This content with this id was judged before, so it is not a second refusal.
    let mut again = run.next_record("turn", user_turn("something else"));
    assert_eq!(run.take(&again), Repeat(Some(Reason::Conflict)));
    assert_eq!(run.next(), (writer_seq.saturating_add(2), journal_seq.saturating_add(1)));
    again.payload = user_turn("a third thing").into();
    assert_eq!(run.take(&again), Refused(Reason::Conflict));
    // The refusal did not change the record of this id.
    let mut first = run.next_record("turn", user_turn("hello"));
    first.place.writer_seq = 1.into();
    assert_eq!(run.take(&first), Repeat(None));
}

#[test]
fn a_lower_writer_seq_with_other_content_is_a_conflict() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(
        run.changed("x", user_turn("x"), |record| record.place.writer_seq = record.place.writer_seq.saturating_sub(1)),
        Refused(Reason::Conflict)
    );
    // Its journal_seq was the next one, its writer_seq was not.
    assert_eq!(run.next(), (writer_seq, journal_seq.saturating_add(1)));
    let word = run.changed("y", user_turn("y"), |record| {
        record.place.writer_seq = 0.into();
        record.place.journal_seq = 1.into();
    });
    assert_eq!(word, Refused(Reason::Conflict));
    assert_eq!(run.next(), (writer_seq, journal_seq.saturating_add(1)));
}

#[test]
fn a_journal_seq_other_than_the_next_is_refused_and_consumes_the_writers_number() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    for (taken, wrong) in
        [(1, JournalSeq::ZERO), (2, journal_seq.saturating_sub(1)), (3, journal_seq.saturating_add(1))]
    {
        let word = run.changed(&format!("x{taken}"), user_turn("x"), |record| record.place.journal_seq = wrong);
        assert_eq!(word, Refused(Reason::Sequence), "{wrong}");
        assert_eq!(run.next(), (writer_seq.saturating_add(taken), journal_seq));
    }
    let word = run.changed("y", checkpoint("c", 1, None), |record| record.place.journal_seq = journal_seq);
    assert_eq!(word, Refused(Reason::Sequence), "checkpoints have no number of the run");
    assert_eq!(run.next(), (writer_seq.saturating_add(4), journal_seq));
}

#[test]
fn what_follows_a_record_refused_for_its_content_is_not_lost() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    // A writer sends three records before it gets the refusal of the first one.
    let orphan = run.next_record("x1", completed("nobody", 1));
    let mut second = run.next_record("x2", user_turn("x2"));
    let mut third = run.next_record("x3", completed("call", 1));
    for (record, after) in [(&mut second, 1), (&mut third, 2)] {
        record.place.writer_seq = writer_seq.saturating_add(after);
        record.place.journal_seq = journal_seq.saturating_add(after);
    }
    assert_eq!(run.take(&orphan), Refused(Reason::Transition));
    assert_eq!((run.take(&second), run.take(&third)), (Applied, Applied));
    assert_eq!(run.next(), (writer_seq.saturating_add(3), journal_seq.saturating_add(3)));
}
