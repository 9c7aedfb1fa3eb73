//! Tests batches.

use super::{
    super::*, Applied, JournalRecord, NoOp, Payload, Refused, Repeat, Run, Word, attempt, checkpoint, claim, completed,
    failed, lifecycle, request, resolution, user_turn,
};
use crate::{
    id::{Epoch, JournalSeq, RecordId, RunId, WriterSeq},
    payload::wrapped::{Batch, Encrypted},
};
use proptest::prelude::*;

impl Run {
    /// Returns the next numbers of the writer and of the run.
    fn numbers(&self) -> (u64, u64) {
        (self.head.next_writer_seq.get(), self.head.next_journal_seq.get())
    }

    /// Builds a batch of these payloads with the next numbers.
    fn next_batch(&self, id: &str, payloads: Vec<Payload>) -> JournalRecord {
        let (mut writer_seq, mut journal_seq) = self.next();
        let mut records = Vec::new();
        for (index, payload) in payloads.into_iter().enumerate() {
            let mut record = self.next_record(&format!("{id}/{index}"), payload);
            record.place.writer_seq = writer_seq;
            writer_seq = writer_seq.saturating_add(1);
            if record.body.record_kind.numbered() {
                record.place.journal_seq = journal_seq;
                journal_seq = journal_seq.saturating_add(1);
            }
            records.push(record);
        }
        self.next_record(id, Batch { records })
    }

    fn add_batch(&mut self, id: &str, payloads: Vec<Payload>) -> Word {
        let batch = self.next_batch(id, payloads);
        self.take(&batch)
    }
}

fn records(batch: &mut JournalRecord) -> &mut Vec<JournalRecord> {
    match &mut batch.payload {
        Payload::Batch(batch) => &mut batch.records,
        _ => panic!("a batch"),
    }
}

#[test]
fn each_record_of_a_batch_is_judged_after_its_predecessors() {
    let mut run = Run::claimed("a");
    let payloads = vec![request().into(), completed("b/0", 1).into(), completed("b/0", 1).into()];
    let (writer_seq, journal_seq) = run.numbers();
    assert_eq!(run.add_batch("b", payloads.clone()), Applied);
    assert_eq!(run.numbers(), (writer_seq + 3, journal_seq + 3));
    assert_eq!(run.calls["b/0"].status, CallStatus::Completed);
    let reversed = vec![completed("c/1", 1).into(), request().into()];
    assert_eq!(run.add_batch("c", reversed), Refused(Reason::Transition));
}

#[test]
fn one_refusal_refuses_all_with_its_reason_and_consumes_the_numbers_of_all() {
    for (bad, reason) in [
        (Payload::from(completed("nobody", 1)), Reason::Transition),
        (checkpoint("c", 99, None).into(), Reason::Checkpoint),
    ] {
        let mut run = Run::claimed("a");
        let numbered = u64::from(matches!(bad, Payload::ToolCallCompleted(_)));
        let before = run.clone();
        let batch = run.next_batch("b", vec![completed("call", 1).into(), bad, user_turn("x").into()]);
        assert_eq!(run.take(&batch), Refused(reason));
        assert_eq!(run.calls, before.calls, "no record of a refused batch is visible");
        assert_eq!((run.head.records, run.head.hash), (before.head.records, before.head.hash));
        let seen = &run.seen["b"][0];
        assert_eq!((seen.index, seen.refused), (1, Some(reason)), "the refused record is named");
        assert!(!run.seen.contains_key("b/0"));
        assert_eq!(run.numbers(), (before.numbers().0 + 3, before.numbers().1 + 2 + numbered));
        assert_eq!(run.add("b/0", completed("call", 1)), Applied, "its records can be sent alone");
    }
}

#[test]
fn a_batch_that_is_numbered_after_a_refused_batch_is_applied() {
    let mut run = Run::claimed("a");
    let bad = run.next_batch("bad", vec![user_turn("1").into(), completed("nobody", 1).into()]);
    let mut assumed_run = run.clone();
    // Its writer assumes that it was applied until it gets the outcome.
    assumed_run.head.next_writer_seq = run.head.next_writer_seq.saturating_add(2);
    assumed_run.head.next_journal_seq = run.head.next_journal_seq.saturating_add(2);
    let next = assumed_run.next_batch("next", vec![user_turn("2").into(), checkpoint("c", 1, None).into()]);
    assert_eq!(run.take(&bad), Refused(Reason::Transition));
    assert_eq!(run.take(&next), Applied);
}

#[test]
fn a_malformed_batch_is_refused_and_consumes_a_number_per_record() {
    type Change = fn(&mut JournalRecord);
    let changes: [(&str, Change, u64); 10] = [
        ("empty", |batch| records(batch).clear(), 1),
        ("of another run", |batch| records(batch)[1].body.run_id = "another".parse().unwrap(), 2),
        ("of another writer", |batch| records(batch)[1].place.writer_id = "b".parse().unwrap(), 2),
        ("of another epoch", |batch| records(batch)[0].place.writer_epoch = Epoch::ZERO, 2),
        ("numbers that are not consecutive", |batch| ahead(&mut records(batch)[1]), 2),
        ("numbers that begin elsewhere", |batch| records(batch).iter_mut().for_each(ahead), 2),
        ("a number of the run", |batch| batch.place.journal_seq = JournalSeq::from(3), 2),
        ("a claim", |batch| records(batch)[1] = in_place_of(&records(batch)[1].clone(), claim("c", "a", 2)), 2),
        (
            "a record that needs no claim",
            |batch| {
                let decision = JournalRecord::new(
                    RunId::ours("run"),
                    RecordId::ours("r").to_owned(),
                    "agent",
                    resolution("call", "done").into(),
                );
                records(batch)[1] = in_place_of(&records(batch)[1].clone(), decision);
            },
            2,
        ),
        ("held elsewhere", |batch| drop(records(batch)[1].detach(0)), 2),
    ];
    for (what, change, numbers) in changes {
        let mut run = Run::claimed("a");
        let (writer_seq, _) = run.numbers();
        let mut batch = run.next_batch("b", vec![user_turn("1").into(), user_turn("2").into()]);
        change(&mut batch);
        assert_eq!(run.take(&batch), Refused(Reason::Batch), "{what}");
        assert_eq!(run.numbers().0, writer_seq + numbers, "{what}");
    }
    // An encrypted batch is refused: its records cannot be judged.
    let mut run = Run::claimed("a");
    let mut hidden = run.next_batch("b", vec![user_turn("1").into()]);
    let hides = Encrypted {
        algorithm: "x".into(),
        nonce: crate::scalar::Bytes(vec![1]),
        ciphertext: crate::scalar::Bytes(vec![1]),
    };
    hidden.payload = hides.into();
    assert_eq!(run.take(&hidden), Refused(Reason::Batch));
}

fn ahead(record: &mut JournalRecord) {
    record.place.writer_seq = record.place.writer_seq.saturating_add(1);
}

fn in_place_of(taken: &JournalRecord, mut record: JournalRecord) -> JournalRecord {
    record.place = taken.place.clone();
    record
}

#[test]
fn a_batch_is_a_repeat_however_it_is_numbered_and_consumes_its_numbers_only_if_they_are_the_next() {
    let mut run = Run::claimed("a");
    let payloads = vec![user_turn("1").into(), user_turn("2").into()];
    let first = run.next_batch("b", payloads.clone());
    assert_eq!(run.take(&first), Applied);
    let before = run.clone();
    assert_eq!(run.take(&first), Repeat(None));
    assert_eq!(run.head, before.head);
    // The batch is sent by a successor of its writer.
    run.take(&claim("c2", "b", 2));
    let (writer_seq, journal_seq) = run.numbers();
    let again = run.next_batch("b", payloads.clone());
    assert_eq!(again.content_hash(), first.content_hash());
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.numbers(), (writer_seq + 2, journal_seq));
    assert_eq!(run.add_batch("b", vec![user_turn("1").into()]), Refused(Reason::Conflict));
}

#[test]
fn records_that_landed_alone_are_repeats_within_a_batch_and_the_other_way_round() {
    let mut run = Run::claimed("a");
    let batch = run.next_batch("b", vec![user_turn("1").into(), user_turn("2").into()]);
    let Payload::Batch(Batch { records }) = &batch.payload else { panic!("a batch") };
    assert_eq!(run.take(&records[0]), Applied);
    let mut rest = run.next_batch("b", vec![user_turn("1").into(), user_turn("2").into()]);
    // The repeat consumes no number of the run.
    if let Payload::Batch(rest) = &mut rest.payload {
        let place = &mut rest.records[1].place;
        place.journal_seq = place.journal_seq.saturating_sub(1);
    }
    let (writer_seq, journal_seq) = run.numbers();
    assert_eq!(run.take(&rest), Applied);
    assert_eq!(run.numbers(), (writer_seq + 2, journal_seq + 1));
    assert_eq!(run.take(&records[1]), Repeat(None), "one of it, sent alone");
    // A record that was refused alone is refused in a batch.
    assert_eq!(run.add("x/0", completed("nobody", 1)), Refused(Reason::Transition));
    assert_eq!(run.add_batch("x", vec![completed("nobody", 1).into()]), Refused(Reason::Transition));
    // Under the id of another record.
    assert_eq!(run.add("y/0", user_turn("y")), Applied);
    assert_eq!(run.add_batch("y", vec![user_turn("z").into()]), Refused(Reason::Conflict));
}

#[test]
fn a_batch_is_judged_by_its_place_before_anything_in_it() {
    let mut run = Run::claimed("a");
    let bad = || vec![Payload::from(completed("nobody", 1))];
    let before = run.head.clone();
    let mut early = run.next_batch("b", bad());
    ahead(&mut early);
    assert_eq!(run.take(&early), Refused(Reason::Gap));
    let mut foreign = run.next_batch("b", bad());
    foreign.place.writer_id = "b".parse().unwrap();
    assert_eq!(run.take(&foreign), Refused(Reason::Fenced));
    assert_eq!(run.head, before, "it consumes nothing and may come again");
    let mut late = run.next_batch("b", bad());
    late.place.writer_seq = WriterSeq::from(1);
    assert_eq!(run.take(&late), Refused(Reason::Conflict));
    // A batch under the id of one of its records: the two could not both be found again.
    let mut same = run.next_batch("s", vec![user_turn("1").into()]);
    records(&mut same)[0].body.record_id = RecordId::ours("s").to_owned();
    assert_eq!(run.take(&same), Refused(Reason::Conflict));
    assert_eq!(run.add("end", lifecycle("completed")), Applied);
    let unnumbered = vec![checkpoint("c", 1, None).into(), checkpoint("d", 1, Some("c")).into()];
    assert_eq!(run.add_batch("u", unnumbered), Applied, "an ended run takes what is not numbered");
    assert_eq!(run.add_batch("n", vec![user_turn("1").into()]), Refused(Reason::Ended));
}

/// Random payloads, legal or not.
fn payloads() -> impl Strategy<Value = Vec<Payload>> {
    let one = (0..8_u8, 0..4_u8).prop_map(|(kind, which)| -> Payload {
        let call = format!("r{which}");
        match kind {
            0 => user_turn(&call).into(),
            1 | 2 => request().into(),
            3 => completed(&call, 1).into(),
            4 => failed(&call).into(),
            5 => attempt(&call).into(),
            6 => checkpoint(&format!("c{which}"), u32::from(which), None).into(),
            _ => checkpoint(&format!("d{which}"), 1, Some(&format!("c{which}"))).into(),
        }
    });
    proptest::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn a_batch_has_the_effect_of_its_records_one_by_one_or_no_effect(payloads in payloads()) {
        let mut alone = Run::claimed("a");
        let mut whole = alone.clone();
        let (mut batch, before) = (whole.next_batch("b", payloads), whole.clone());
        for (at, record) in records(&mut batch).iter_mut().enumerate() {
            record.body.record_id = RecordId::new(format!("r{at}")).unwrap();
        }
        let words: Vec<Word> = records(&mut batch).iter().map(|record| alone.take(record)).collect();
        let refused = words.iter().find_map(|word| match word {
            Refused(reason) => Some(*reason),
            _ => None,
        });
        let word = whole.take(&batch);
        match refused {
            Some(reason) => {
                prop_assert_eq!(word, Refused(reason));
                prop_assert_eq!((&whole.calls, &whole.checkpoints), (&before.calls, &before.checkpoints));
                prop_assert_eq!(whole.head.records, before.head.records);
            }
            None => {
                prop_assert_eq!(word, Applied);
                prop_assert!(words.iter().all(|word| matches!(word, Applied | NoOp)));
                prop_assert_eq!((&whole.calls, &whole.checkpoints), (&alone.calls, &alone.checkpoints));
                prop_assert_eq!(&whole.head, &alone.head, "the run hash included");
            }
        }
        // In both cases its writer continues after the batch's last number.
        prop_assert_eq!(whole.numbers(), alone.numbers());
    }
}
