//! A payload in the content store: the judgement stays the same, and only the named content is accepted.

use crate::vocabulary::full;
use runlog_schemas::{
    codec::{self, Unreadable},
    datum::Datum,
    draft::{self, Draft},
    id::OrEmpty,
    or_other::OrOther,
    payload::{ContentMismatch, Payload, PayloadType, StoredPayload},
    record::{JournalRecord, RecordKind},
};

/// Every record whose payload may be in the content store: with its payload, with its claim check, and the content.
fn taken_out() -> Vec<(JournalRecord, JournalRecord, Vec<u8>)> {
    let detached = |whole: JournalRecord| {
        let mut left = whole.clone();
        left.detach(0).map(|content| (whole, left, content))
    };
    full::records().into_iter().filter_map(|(_, record)| detached(record)).collect()
}

#[test]
fn a_payload_in_the_content_store_does_not_change_the_judgement() {
    let all = taken_out();
    let stays = |known: &&PayloadType| all.iter().all(|(whole, ..)| whole.payload.payload_type() != **known);
    let stay: Vec<_> = PayloadType::ALL.iter().filter(stays).map(|known| known.as_str()).collect();
    assert_eq!(
        stay,
        ["tool_call_attempt", "run_claim", "skip", "genesis", "retention_horizon", "batch", "stored_payload"]
    );
    for (whole, left, content) in all {
        let (inline, stored) = (codec::encode(&whole), codec::encode(&left));
        let (inline, stored) = (codec::read(&inline).unwrap(), codec::read(&stored).unwrap());
        assert_eq!((inline.kind, &inline.facts), (stored.kind, &stored.facts));
        // An identity that moved with the limit would make a conflict of a record that is sent again.
        assert_eq!(inline.content_hash(), stored.content_hash());
        assert_eq!((inline.content_hash(), stored.content_hash()), (whole.content_hash(), left.content_hash()));
        assert_eq!(inline.payload_hash(), stored.payload_hash());
        assert_ne!(inline.record_hash(), stored.record_hash());
        assert_eq!((inline.stored(), stored.stored().cloned().map(Payload::from)), (None, Some(left.payload.clone())));
        assert_eq!(stored.stored().unwrap().open(&content), Ok(whole.payload.clone()));
        assert_eq!(draft::fits(&left, &whole.payload), Ok(()));
        // Sent as JSON by a producer with a store of its own, it is the same record.
        assert_eq!(Draft::parse(&serde_json::to_string(&left).unwrap()).unwrap().record, left);
    }
}

#[test]
fn only_a_payload_over_the_limit_is_detached() {
    let (whole, _, content) = taken_out().swap_remove(0);
    let mut record = whole.clone();
    assert_eq!((record.detach(content.len()), &record), (None, &whole));
    assert_eq!(record.detach(content.len() - 1), Some(content));
    let left = record.clone();
    assert_eq!((record.detach(0), record), (None, left), "a claim check is not taken out again");
}

#[test]
fn content_that_differs_from_its_reference_is_refused() {
    let (whole, _, content) = taken_out().swap_remove(0);
    let stored = StoredPayload::of(whole.payload.payload_type(), &content);
    for at in 0..content.len() {
        let mut flipped = content.clone();
        flipped[at] ^= 1;
        assert!(matches!(stored.open(&flipped), Err(ContentMismatch::Other { .. })), "{at}");
    }
    assert!(stored.open(&content[1..]).is_err() && stored.open(&[&content[..], b"x"].concat()).is_err());
    let lying = StoredPayload { bytes: stored.bytes + 1, ..stored.clone() };
    assert!(lying.open(&content).is_err());
    let other = StoredPayload { payload_type: PayloadType::LoopCheckpoint.into(), ..stored };
    assert_eq!(other.open(&content), Err(ContentMismatch::NotOfType("loop_checkpoint".into())));
    // Content that is itself a claim check is refused too.
    let nested = Payload::from(other).to_bytes();
    assert!(StoredPayload::of(PayloadType::ToolCallCompleted, &nested).open(&nested).is_err());
}

#[test]
fn what_the_projection_reads_itself_is_never_elsewhere() {
    let (_, left, _) = taken_out().swap_remove(0);
    let malformed =
        |record: &JournalRecord| matches!(codec::read(&codec::encode(record)), Err(Unreadable::Undecodable(_)));
    for kind in [RecordKind::Skip, RecordKind::Genesis, RecordKind::RunClaim] {
        let mut record = left.clone();
        record.body.record_kind = kind;
        record.body.run_id = if kind.of_partition() { OrEmpty::NONE } else { "r".parse().unwrap() };
        assert!(malformed(&record), "{kind:?}");
        assert!(Draft::parse(&serde_json::to_string(&record).unwrap()).is_err(), "{kind:?}");
    }
    let mut record = left;
    // The facts must name the type of the stored content, which is never `stored_payload`.
    for (facts, content) in
        [("conversation_turn", None), ("stored_payload", None), ("stored_payload", Some("encrypted"))]
    {
        record.body.facts.payload_type = OrOther::of(facts);
        if let (Payload::StoredPayload(stored), Some(content)) = (&mut record.payload, content) {
            stored.payload_type = OrOther::of(content);
        }
        assert!(malformed(&record), "facts of {facts} for a {content:?}");
        assert!(Draft::parse(&serde_json::to_string(&record).unwrap()).is_err(), "{facts} for a {content:?}");
    }
}
