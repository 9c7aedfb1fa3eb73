use super::*;
use runlog_schemas::answer::Lookup;
use serde_json::{Value, json};

/// A recovery with these calls, in the JSON of an answer.
fn recovery(completed: Vec<Value>, pending: Vec<Value>) -> Recovery {
    serde_json::from_value(json!({
        "run_id": "r", "status": "open", "position": position(), "checkpoint": null, "records_after": 0,
        "completed": completed, "pending": pending, "approvals": [], "wakes": [], "messages": [], "write_backs": [],
        "missing_content": [], "unclaimed": 0, "next_journal_seq": 100, "next_writer_seq": 100,
        "next_checkpoint_seq": 1, "epoch": 1, "writer_id": "w", "hash": "0".repeat(64),
        "resumable": true, "reason": null, "next_cursor": null,
    }))
    .unwrap()
}

/// The same with a checkpoint that covers this number.
fn at_checkpoint(covers: u64, completed: Vec<Value>, pending: Vec<Value>) -> Recovery {
    let checkpoint = json!({
        "checkpoint_id": "c", "covers_journal_seq": covers, "checkpoint_seq": 1, "schema_version": 1, "state": null,
        "position": position(),
    });
    Recovery { checkpoint: serde_json::from_value(checkpoint).unwrap(), ..recovery(completed, pending) }
}

/// The ended calls of the whole run.
fn ended(completed: Vec<Value>) -> Vec<Done> {
    recovery(completed, Vec::new()).completed
}

fn position() -> Value {
    position_at(1)
}

fn position_at(offset: u64) -> Value {
    json!({ "topic": "t", "partition": 0, "offset": offset, "index": 0 })
}

/// The answer of a lookup, with the offset at which the call got its status.
fn looked_up(id: &str, status: &str, offset: u64) -> Lookup {
    serde_json::from_value(json!({
        "status": status, "fingerprint": "v1:a", "occurrence": 1, "occurrences": 1, "tool_name": "pay", "arguments": null,
        "result": null, "error": null, "position": position_at(offset), "request_record_id": id,
    }))
    .unwrap()
}

/// The key `k` of the tool `pay`.
fn k() -> (String, String) {
    ("pay".to_owned(), "k".to_owned())
}

/// A completed call of the tool `pay`.
fn completed(id: &str, seq: u64, fingerprint: &str, key: Option<&str>) -> Value {
    json!({
        "tool_name": "pay", "fingerprint": fingerprint, "occurrence": 1, "status": "completed", "position": position(),
        "id": id, "journal_seq": seq, "idempotency_key": key,
    })
}

/// A pending call of the tool `pay`.
fn pending(id: &str, seq: u64, fingerprint: Option<&str>, key: Option<&str>, class: &str) -> Value {
    json!({
        "kind": "tool_call", "id": id, "tool_name": "pay", "fingerprint": fingerprint, "occurrence": 1, "class": class,
        "reason": "no result", "evidence": [], "attempts": 2, "journal_seq": seq, "idempotency_key": key,
    })
}

fn take(replay: &mut Replay, key: Option<&str>, fingerprint: &str) -> Decision {
    replay.take("pay", key, Fingerprint::new(fingerprint.to_owned()).unwrap().borrow())
}

/// The request that answers the call.
fn answered_by(decision: Decision) -> String {
    match decision {
        Decision::Recorded(call) => call.id.as_str().to_owned(),
        other => panic!("not answered by a recorded call: {other:?}"),
    }
}

fn id(text: &str) -> RecordId {
    RecordId::new(text.to_owned()).unwrap()
}

#[test]
fn a_pending_call_of_a_class_that_this_build_does_not_know_does_not_run_again() {
    let newer = recovery(vec![], vec![pending("open", 3, Some("v1:a"), None, "retry_on_tuesdays")]);
    let mut replay = Replay::new(&newer);
    assert_eq!(replay.unresolved(), Some(id("open").borrow()));
    replay.refresh(&newer);
    assert_eq!(replay.unresolved(), Some(id("open").borrow()), "after a refresh, too");
    match take(&mut replay, None, "v1:a") {
        Decision::Recorded(call) => assert!(!call.pending.unwrap().retry_safe),
        other => panic!("not answered by the recorded call: {other:?}"),
    }
}

#[test]
fn recorded_calls_answer_in_request_order_and_once_each() {
    let calls = vec![completed("second", 7, "v1:a", None), completed("first", 3, "v1:a", None)];
    let mut replay = Replay::new(&recovery(calls, vec![pending("third", 9, Some("v1:a"), None, "retry_safe")]));
    assert_eq!(take(&mut replay, None, "v1:b"), Decision::New, "other arguments are another call");
    for request in ["first", "second", "third"] {
        assert_eq!(answered_by(take(&mut replay, None, "v1:a")), request);
    }
    assert_eq!(take(&mut replay, None, "v1:a"), Decision::New);
}

#[test]
fn a_key_identifies_one_call_every_time_and_whatever_the_checkpoint_covers() {
    let later = vec![completed("later", 9, "v1:a", Some("k")), completed("keyless", 10, "v1:a", None)];
    let mut replay = Replay::new(&at_checkpoint(8, later, Vec::new()));
    assert!(replay.needs_covered(&Some(k())), "although a later request has the key");
    replay.add_covered(&ended(vec![completed("covered", 1, "v1:a", Some("k"))]));
    assert_eq!(answered_by(take(&mut replay, Some("k"), "v1:a")), "covered");
    assert_eq!(answered_by(take(&mut replay, Some("k"), "v1:a")), "covered");
    assert_eq!(take(&mut replay, Some("k"), "v1:b"), Decision::Conflict(id("covered")));
    assert_eq!(take(&mut replay, Some("other"), "v1:a"), Decision::New, "a call without a key answers none with one");
    let a = Fingerprint::new("v1:a".to_owned()).unwrap();
    assert_eq!(replay.take("book", Some("k"), a.borrow()), Decision::New, "a key is scoped to its tool");
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "keyless", "nor does one with a key answer one without");
}

#[test]
fn a_recorded_call_with_an_empty_key_answers_a_call_without_one() {
    let now = recovery(
        vec![completed("done", 2, "v1:a", Some(""))],
        vec![pending("open", 3, Some("v1:a"), Some(""), "reconcile_required")],
    );
    let mut replay = Replay::new(&now);
    replay.adopt(&now, |_| false);
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "done");
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "open");
    assert_eq!(take(&mut replay, None, "v1:a"), Decision::New);
}

#[test]
fn a_process_that_does_not_resume_at_the_checkpoint_begins_at_the_start() {
    let all = ["covered", "other"].map(|id| completed(id, if id == "other" { 2 } else { 1 }, "v1:a", None));
    let later = completed("later", 9, "v1:a", None);
    let ended = ended([&all[..], std::slice::from_ref(&later)].concat());
    let now = at_checkpoint(8, vec![later], Vec::new());
    let mut replay = Replay::new(&now);
    assert!(replay.needs_covered(&None));
    replay.add_covered(&ended);
    assert!(!replay.needs_covered(&None) && !replay.needs_covered(&Some(k())), "they are added once");
    assert_eq!(replay.unanswered(0), ["covered", "other", "later"].map(id), "before its first call, too");
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "covered");
    assert_eq!(replay.unanswered(0), ["covered", "other", "later"].map(id), "it has not received them");
    replay.resume_at_checkpoint();
    assert_eq!(replay.unanswered(0), ["covered", "later"].map(id), "from now on the checkpoint covers the rest");
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "later");
    for adds_covered in [false, true] {
        let mut replay = Replay::new(&now);
        replay.resume_at_checkpoint();
        assert!(!replay.needs_covered(&None), "a process that resumes at the checkpoint reads no covered call");
        if adds_covered {
            replay.add_covered(&ended);
        }
        assert_eq!(replay.unanswered(0), [id("later")]);
        assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "later");
        assert_eq!(take(&mut replay, None, "v1:a"), Decision::New);
    }
}

#[test]
fn a_key_is_looked_up_once_and_its_first_request_answers() {
    let mut replay = Replay::new(&at_checkpoint(8, vec![completed("later", 9, "v1:a", Some("k"))], Vec::new()));
    assert!(replay.add_looked_up(&k(), Some(&looked_up("covered", "completed", 1))));
    assert!(!replay.needs_covered(&Some(k())));
    assert_eq!(answered_by(take(&mut replay, Some("k"), "v1:a")), "covered");
    assert_eq!(take(&mut replay, Some("k"), "v1:b"), Decision::Conflict(id("covered")));
    let other = ("pay".to_owned(), "other".to_owned());
    assert!(replay.needs_covered(&Some(other.clone())) && replay.add_looked_up(&other, None));
    assert!(!replay.needs_covered(&Some(other)), "the run has no such call");
    assert_eq!(take(&mut replay, Some("other"), "v1:a"), Decision::New);
}

#[test]
fn a_looked_up_call_that_began_after_the_checkpoint_keeps_its_state() {
    let open = pending("open", 9, Some("v1:a"), Some("k"), "retry_safe");
    let mut replay = Replay::new(&at_checkpoint(8, Vec::new(), vec![open]));
    assert!(replay.add_looked_up(&k(), Some(&looked_up("open", "pending", 1))));
    match take(&mut replay, Some("k"), "v1:a") {
        Decision::Recorded(call) => assert!(call.id == id("open") && call.pending.is_some(), "{call:?}"),
        other => panic!("not answered by the recorded call: {other:?}"),
    }
}

#[test]
fn a_lookup_that_does_not_settle_which_call_answers_is_followed_by_the_list() {
    let open = pending("open", 3, Some("v1:a"), Some("k"), "retry_safe");
    let covered = ended(vec![completed("covered", 5, "v1:a", Some("k"))]);
    let unsettled = [
        ("the checkpoint covers it, and may cover an ended one", looked_up("open", "pending", 1)),
        ("it is pending, and the recovery does not list it", looked_up("unknown", "pending", 1)),
        ("it ended after the recovery, maybe in another process", looked_up("unknown", "completed", 2)),
    ];
    for (why, first) in unsettled {
        let mut replay = Replay::new(&at_checkpoint(8, Vec::new(), vec![open.clone()]));
        assert!(!replay.add_looked_up(&k(), Some(&first)) && replay.needs_covered(&Some(k())), "{why}");
        replay.add_covered(&covered);
        assert_eq!(answered_by(take(&mut replay, Some("k"), "v1:a")), "covered", "{why}");
    }
}

#[test]
fn of_several_requests_with_a_key_an_ended_one_answers() {
    let open = pending("open", 3, Some("v1:a"), Some("k"), "retry_safe");
    let later = completed("ended", 5, "v1:a", Some("k"));
    for (covers, listed) in [(0, vec![later.clone()]), (4, vec![later.clone()]), (8, Vec::new())] {
        let mut replay = Replay::new(&at_checkpoint(covers, listed, vec![open.clone()]));
        replay.add_covered(&ended(vec![later.clone()]));
        assert_eq!(answered_by(take(&mut replay, Some("k"), "v1:a")), "ended", "covers {covers}");
    }
}

#[test]
fn covered_calls_precede_the_others_and_those_that_a_handle_began_are_not_added_again() {
    let later = vec![completed("unanswered", 2, "v1:a", None), completed("later", 9, "v1:a", None)];
    let mut replay = Replay::new(&at_checkpoint(8, later.clone(), Vec::new()));
    let own = RecordedCall { id: id("own"), fingerprint: Fingerprint::of_hashed_call("pay", "x"), pending: None };
    assert!(replay.add_looked_up(&k(), None));
    replay.add(11.into(), "pay", Some("k"), own);
    let own = [completed("own", 11, "v1:a", Some("k")), completed("another process's", 12, "v1:a", None)];
    let covered = ["first", "third"].map(|id| completed(id, if id == "first" { 1 } else { 3 }, "v1:a", None));
    // In another order than the run's, too.
    replay.add_covered(&ended([own.to_vec(), later, covered.to_vec()].concat()));
    assert_eq!(replay.unanswered(0), ["first", "unanswered", "third", "later", "own"].map(id));
    for request in ["first", "unanswered", "third", "later"] {
        assert_eq!(answered_by(take(&mut replay, None, "v1:a")), request);
    }
    assert_eq!(take(&mut replay, None, "v1:a"), Decision::New);
}

#[test]
fn only_a_retry_safe_effect_may_run_again_and_any_other_blocks_new_effects() {
    let cases = [("retry_safe", true), ("reconcile_required", false)];
    for ((class, safe), refreshed) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let now = recovery(Vec::new(), vec![pending("p", 1, Some("v1:a"), None, class)]);
        let mut replay = Replay::new(&now);
        if refreshed {
            replay.refresh(&now);
        }
        assert_eq!(replay.unresolved().is_none(), safe, "{class}, refreshed: {refreshed}");
        let Decision::Recorded(call) = take(&mut replay, None, "v1:a") else { panic!("{class}: not recorded") };
        let retry = call.pending.map(|pending| (pending.retry_safe, pending.attempts));
        assert_eq!(retry, Some((safe, 2)), "{class}, refreshed: {refreshed}");
    }
    let mut replay = Replay::new(&recovery(Vec::new(), vec![pending("e", 1, None, None, "reconcile_required")]));
    assert_eq!(replay.unresolved(), Some(id("e").borrow()), "an effect without a fingerprint blocks too");
    assert_eq!(take(&mut replay, None, "v1:a"), Decision::New, "and answers no call");
}

#[test]
fn a_decision_ends_a_pending_call_and_lets_new_effects_run() {
    let decided = pending("decided", 1, Some("v1:a"), Some("k"), "reconcile_required");
    let open = pending("open", 2, Some("v1:b"), None, "retry_safe");
    let mut replay = Replay::new(&recovery(Vec::new(), vec![decided, open.clone()]));
    assert_eq!(replay.unresolved(), Some(id("decided").borrow()));
    replay.refresh(&recovery(Vec::new(), vec![open]));
    assert_eq!(replay.unresolved(), None);
    let Decision::Recorded(call) = take(&mut replay, Some("k"), "v1:a") else { panic!("not recorded") };
    assert_eq!(call.pending, None, "its answer is in the journal, and its effect does not run");
}

#[test]
fn a_call_that_was_given_up_answers_the_next_one_before_later_requests_do() {
    let calls = vec![completed("first", 1, "v1:a", None), completed("second", 2, "v1:a", None)];
    let mut replay = Replay::new(&recovery(calls, Vec::new()));
    let Decision::Recorded(call) = take(&mut replay, None, "v1:a") else { panic!("not recorded") };
    replay.put_back(None, call.clone());
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "first");
    replay.restore(None, call.clone());
    replay.restore(None, call);
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "first");
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "second", "restored twice, it answers one call");
}

#[test]
fn an_intent_whose_acknowledgement_was_lost_is_adopted_unless_its_call_is_running() {
    let landed = ["running", "lost"].map(|request| pending(request, 1, Some("v1:a"), None, "reconcile_required"));
    let mut replay = Replay::default();
    replay.adopt(&recovery(Vec::new(), landed.to_vec()), |request| request.as_str() == "running");
    assert_eq!(replay.unresolved(), Some(id("lost").borrow()));
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "lost");
    assert_eq!(take(&mut replay, None, "v1:a"), Decision::New);
}

#[test]
fn a_request_that_answered_a_call_and_is_pending_again_answers_no_other_call() {
    let mut replay = Replay::new(&recovery(vec![completed("voided", 1, "v1:a", None)], Vec::new()));
    let Decision::Recorded(call) = take(&mut replay, None, "v1:a") else { panic!("not recorded") };
    replay.mark_answered(id("voided").borrow(), 0);
    let again = pending("voided", 1, Some("v1:a"), None, "reconcile_required");
    replay.adopt(&recovery(Vec::new(), vec![again]), |_| false);
    assert_eq!(replay.unresolved(), Some(id("voided").borrow()), "it blocks new effects");
    assert_eq!(take(&mut replay, None, "v1:a"), Decision::New);
    replay.restore(None, call);
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "voided", "its answer did not reach the agent");
}

#[test]
fn a_pending_request_that_the_checkpoint_covers_as_answered_answers_only_a_process_that_starts_before_it() {
    let [answered, listed] = ["answered", "listed"].map(|of| pending(of, 3, Some("v1:a"), None, "reconcile_required"));
    let mut now = at_checkpoint(8, Vec::new(), vec![answered, listed]);
    now.checkpoint.as_mut().unwrap().unanswered = vec![id("listed")];
    let mut resumed = Replay::new(&now);
    resumed.resume_at_checkpoint();
    resumed.adopt(&now, |_| false);
    assert_eq!(resumed.unanswered(0), [id("listed")]);
    assert_eq!(answered_by(take(&mut resumed, None, "v1:a")), "listed");
    assert_eq!(take(&mut resumed, None, "v1:a"), Decision::New);
    assert_eq!(resumed.unresolved(), Some(id("answered").borrow()), "it blocks new effects");
    let mut started = Replay::new(&now);
    assert_eq!(answered_by(take(&mut started, None, "v1:a")), "answered");
}

#[test]
fn requests_that_are_put_back_answer_in_the_order_of_the_log() {
    let calls = ["first", "second", "third"].map(|id| completed(id, if id == "first" { 1 } else { 2 }, "v1:a", None));
    let calls = calls.into_iter().enumerate().map(|(at, mut call)| {
        call["occurrence"] = json!(at + 1);
        call
    });
    let mut replay = Replay::new(&recovery(calls.collect(), Vec::new()));
    let taken = [(); 3].map(|()| take(&mut replay, None, "v1:a"));
    replay.mark_answered(id("second").borrow(), 0);
    for decision in taken {
        let Decision::Recorded(call) = decision else { panic!("not recorded") };
        replay.put_back(None, call);
    }
    assert_eq!(replay.unanswered(0), ["first", "second", "third"].map(id), "one of them as it was answered");
    for request in ["first", "second", "third"] {
        assert_eq!(answered_by(take(&mut replay, None, "v1:a")), request);
    }
}

#[test]
fn a_request_whose_end_a_skip_voids_is_pending_for_its_next_call() {
    let open = [
        pending("keyless", 1, Some("v1:a"), None, "reconcile_required"),
        pending("keyed", 2, Some("v1:a"), Some("k"), "retry_safe"),
    ];
    let done = vec![completed("keyless", 1, "v1:a", None), completed("keyed", 2, "v1:a", Some("k"))];
    let mut first = Replay::new(&recovery(done.clone(), Vec::new()));
    first.refresh(&recovery(Vec::new(), open.to_vec()));
    // A process that begins at the start reads the calls that the checkpoint covers when it makes its first call.
    let mut late = Replay::new(&at_checkpoint(8, Vec::new(), Vec::new()));
    late.adopt(&recovery(Vec::new(), open.to_vec()), |_| false);
    late.add_covered(&ended(vec![completed("after", 3, "v1:a", None)]));
    for (replay, unanswered) in [(&mut first, vec!["keyless", "keyed"]), (&mut late, vec!["keyless", "keyed", "after"])]
    {
        assert_eq!(replay.unresolved(), Some(id("keyless").borrow()));
        assert_eq!(replay.unanswered(0), unanswered.into_iter().map(id).collect::<Vec<_>>());
        for (key, request) in [(None, "keyless"), (Some("k"), "keyed")] {
            let Decision::Recorded(call) = take(replay, key, "v1:a") else { panic!("not recorded") };
            assert!(call.id == id(request) && call.pending.is_some(), "{call:?}");
        }
    }
    // The call ended again before the list was read, and answers once.
    let mut twice = Replay::new(&at_checkpoint(8, Vec::new(), Vec::new()));
    twice.adopt(&recovery(Vec::new(), open.to_vec()), |_| false);
    twice.add_covered(&ended(done));
    assert_eq!(answered_by(take(&mut twice, None, "v1:a")), "keyless");
    assert_eq!(take(&mut twice, None, "v1:a"), Decision::New);
}

#[test]
fn a_request_is_unanswered_until_the_agent_has_its_answer() {
    let mut replay = Replay::new(&recovery(vec![completed("new", 8, "v1:a", None)], Vec::new()));
    let call =
        |request| RecordedCall { id: id(request), fingerprint: Fingerprint::of_hashed_call("pay", "x"), pending: None };
    replay.add(4.into(), "pay", Some("k"), call("old"));
    replay.add(9.into(), "pay", None, call("refused"));
    assert_eq!(replay.unanswered(0), ["old", "new", "refused"].map(id));
    replay.mark_answered(id("new").borrow(), 0);
    replay.forget(&id("refused"));
    assert_eq!(replay.unanswered(1), [id("old")]);
}

#[test]
fn an_answered_request_counts_as_unanswered_until_the_busy_period_of_its_answer_ends() {
    let call =
        |request| RecordedCall { id: id(request), fingerprint: Fingerprint::of_hashed_call("pay", "x"), pending: None };
    let mut replay = Replay::default();
    for (seq, request) in [(1, "first"), (2, "second"), (3, "third"), (4, "refused")] {
        replay.add(JournalSeq::from(seq), "pay", None, call(request));
    }
    replay.mark_answered(id("second").borrow(), 0);
    replay.mark_answered(id("first").borrow(), 0);
    replay.mark_answered(id("refused").borrow(), 0);
    replay.forget(&id("refused"));
    assert_eq!(replay.unanswered(0), ["first", "second", "third"].map(id), "in the order of the requests");
    replay.mark_answered(id("third").borrow(), 1);
    assert_eq!(replay.unanswered(1), [id("third")]);
    assert!(replay.unanswered(2).is_empty());
}

#[test]
fn with_receipts_an_answered_request_counts_as_unanswered_until_the_agent_confirms_it() {
    let call =
        |request| RecordedCall { id: id(request), fingerprint: Fingerprint::of_hashed_call("pay", "x"), pending: None };
    let mut replay = Replay::default().with_receipts(true);
    for (seq, request) in [(1, "first"), (2, "second")] {
        replay.add(JournalSeq::from(seq), "pay", None, call(request));
        replay.mark_answered(id(request).borrow(), seq.into());
    }
    replay.mark_received(id("first").borrow());
    assert_eq!(replay.unanswered(7), [id("second")], "no call is in flight any more");
}

#[test]
fn a_covered_call_answers_although_a_void_call_has_its_number() {
    let void = pending("void", 5, Some("v1:a"), None, "retry_safe");
    let mut replay = Replay::new(&at_checkpoint(8, Vec::new(), vec![void]));
    replay.add_covered(&ended(vec![completed("applied", 5, "v1:b", None)]));
    assert_eq!(answered_by(take(&mut replay, None, "v1:b")), "applied", "its effect does not run again");
    assert_eq!(answered_by(take(&mut replay, None, "v1:a")), "void");
    assert_eq!(replay.unanswered(0), ["applied", "void"].map(id), "the agent has received neither answer");
    assert_eq!(take(&mut replay, None, "v1:b"), Decision::New);
}

#[test]
fn calls_with_one_number_are_unanswered_each_until_its_own_answer() {
    let voids = ["void 1", "void 2"].map(|request| pending(request, 5, Some("v1:a"), None, "retry_safe"));
    let first = recovery(Vec::new(), voids[..1].to_vec());
    let both = recovery(Vec::new(), voids.to_vec());
    let call = RecordedCall { id: id("applied"), fingerprint: Fingerprint::of_hashed_call("pay", "x"), pending: None };
    for mut replay in [Replay::new(&both), Replay::new(&first)] {
        replay.adopt(&both, |_| false);
        replay.add(5.into(), "pay", None, call.clone());
        replay.add(6.into(), "pay", None, RecordedCall { id: id("a later one"), ..call.clone() });
        let listed = ["void 1", "void 2", "applied", "a later one"].map(id);
        assert_eq!(replay.unanswered(0), listed, "void calls precede the applied call with their number");
        replay.mark_answered(id("void 1").borrow(), 0);
        replay.mark_answered(id("applied").borrow(), 0);
        assert_eq!(replay.unanswered(0), listed, "a message list of this busy period may lack the answers");
        assert_eq!(replay.unanswered(1), ["void 2", "a later one"].map(id));
    }
}

#[test]
fn equal_void_calls_with_one_number_answer_in_the_order_of_the_log() {
    let nth = |mut call: Value, occurrence: u32| {
        call["occurrence"] = json!(occurrence);
        call
    };
    let ran = ["second", "third"].map(|request| completed(request, 5, "v1:a", None));
    let ran = [nth(ran[1].clone(), 3), nth(ran[0].clone(), 2)];
    let open = [("fourth", 4), ("first", 1)]
        .map(|(request, occurrence)| nth(pending(request, 5, Some("v1:a"), None, "retry_safe"), occurrence));
    let order = ["first", "second", "third", "fourth"];
    let mut replay = Replay::new(&recovery(ran.to_vec(), open.to_vec()));
    assert_eq!(replay.unanswered(0), order.map(id));
    assert_eq!(order.map(|_| answered_by(take(&mut replay, None, "v1:a"))), order);

    // The process starts at the run's beginning, although a checkpoint covers the calls that have ended.
    let mut replay = Replay::new(&at_checkpoint(8, Vec::new(), open.to_vec()));
    replay.add_covered(&ended(ran.to_vec()));
    assert_eq!(replay.unanswered(0), order.map(id));
    assert_eq!(order.map(|_| answered_by(take(&mut replay, None, "v1:a"))), order);
}

#[test]
fn a_program_may_leave_out_calls_that_failed_or_are_safe_to_repeat() {
    let mut failed = completed("failed", 9, "v1:a", None);
    failed["status"] = json!("failed");
    let listed = vec![completed("unanswered", 2, "v1:a", None), completed("done", 10, "v1:a", None), failed];
    let open = vec![
        pending("keyed", 12, Some("v1:b"), Some("k"), "retry_safe"),
        pending("safe", 13, Some("v1:c"), None, "retry_safe"),
        pending("uncertain", 11, Some("v1:d"), None, "reconcile_required"),
        pending("effect", 14, None, None, "reconcile_required"),
    ];
    let mut replay = Replay::new(&at_checkpoint(8, listed, open));
    assert_eq!(replay.not_requested(), ["done", "uncertain", "keyed"].map(id));
    assert_eq!(answered_by(take(&mut replay, Some("k"), "v1:b")), "keyed");
    assert_eq!(take(&mut replay, None, "v1:e"), Decision::New, "a new call is no answer to a recorded one");
    assert_eq!(replay.not_requested(), ["done", "uncertain"].map(id));
    replay.mark_repeatable("other");
    assert_eq!(replay.not_requested().len(), 2);
    replay.mark_repeatable("pay");
    assert!(replay.not_requested().is_empty());
}
