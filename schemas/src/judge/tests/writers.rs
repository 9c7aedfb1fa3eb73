//! Claims of a run, and the writers that they fence.

use super::{super::*, Applied, JournalRecord, Refused, Repeat, Run, claim, user_turn};
use crate::id::{Epoch, OrEmpty};

#[test]
fn before_any_claim_everybody_writes_in_epoch_0_and_in_no_other() {
    let mut run = Run::default();
    for writer in ["", "a", "b"] {
        assert_eq!(
            run.changed(&format!("x{writer}"), user_turn(writer), |record| {
                record.place.writer_id = writer.parse().unwrap();
            }),
            Applied
        );
    }
    assert_eq!(
        run.changed("x", user_turn("x"), |record| record.place.writer_epoch = 1.into()),
        Refused(Reason::Fenced)
    );
    assert_eq!(run.next(), (4.into(), 4.into()));
}

#[test]
fn only_the_writer_of_the_last_applied_claim_writes() {
    let mut run = Run::claimed("a");
    run.take(&claim("claim-b", "b", 2));
    let before = run.head.clone();
    for (writer, epoch) in [("a", 1), ("", 0), ("a", 2), ("b", 1), ("b", 3), ("", 2)] {
        let word = run.changed("x", user_turn("x"), |record| {
            record.place.writer_id = writer.parse().unwrap();
            record.place.writer_epoch = Epoch::from(epoch);
        });
        assert_eq!(word, Refused(Reason::Fenced), "{writer} in {epoch}");
        assert_eq!(run.head, before, "a fenced record consumes nothing");
    }
    assert_eq!(run.add("x", user_turn("x")), Applied);
}

#[test]
fn a_claim_is_applied_at_the_next_epoch_only() {
    let mut run = Run::claimed("a");
    let before = run.head.clone();
    for epoch in [0, 1, 3, 9] {
        assert_eq!(run.take(&claim("c", "b", epoch)), Refused(Reason::Fenced), "epoch {epoch}");
    }
    let changes: [fn(&mut JournalRecord); 2] =
        [|record| record.place.writer_seq = 1.into(), |record| record.place.writer_id = OrEmpty::NONE];
    for change in changes {
        let mut odd = claim("c", "b", 2);
        change(&mut odd);
        assert_eq!(run.take(&odd), Refused(Reason::Fenced));
    }
    assert_eq!(run.head, before);
    // A record refused as fenced may be sent again.
    assert_eq!(run.take(&claim("c", "b", 2)), Applied);
    assert_eq!((run.head.epoch, run.head.writer_id.as_str()), (2.into(), "b"));
    assert_eq!(run.next(), (1.into(), before.next_journal_seq), "the writer's numbers begin at 1, the run's continue");
}

#[test]
fn the_first_of_two_claims_for_one_epoch_wins_and_the_other_is_fenced() {
    let mut run = Run::default();
    assert_eq!(run.take(&claim("c-a", "a", 1)), Applied);
    assert_eq!(run.take(&claim("c-b", "b", 1)), Refused(Reason::Fenced));
    assert_eq!(
        run.changed("x", user_turn("x"), |record| record.place.writer_id = "b".parse().unwrap()),
        Refused(Reason::Fenced)
    );
    assert_eq!(run.add("y", user_turn("y")), Applied);
    // The first writer's claim, sent again, does not return the run to it.
    run.take(&claim("c-c", "c", 2));
    assert_eq!(run.take(&claim("c-a", "a", 1)), Repeat(None));
    assert_eq!((run.head.epoch, run.head.writer_id.as_str(), run.head.next_writer_seq), (2.into(), "c", 1.into()));
}

#[test]
fn a_claim_under_the_id_of_another_record_is_a_conflict() {
    let mut run = Run::claimed("a");
    // A claim that lost is refused again, under any id.
    assert_eq!(run.take(&claim("turn", "c", 3)), Refused(Reason::Fenced));
    assert_eq!(run.take(&claim("turn", "b", 2)), Refused(Reason::Conflict));
    assert_eq!(run.head.epoch, 1.into());
}
