//! Tests the beginning and the end of a run.

use super::{
    super::*,
    Applied, Payload, Refused, Run, checkpoint,
    checkpoints::{contracts, of_contract},
    claim, completed, lifecycle, request, resolution, user_turn,
};
use serde_json::json;

#[test]
fn a_run_starts_once() {
    let mut run = Run::default();
    assert_eq!(run.add("a", lifecycle("started")), Applied);
    assert_eq!(run.add("b", lifecycle("started")), Refused(Reason::Transition));
    // A status that the contract does not name is kept and has no effect.
    assert_eq!(run.add("c", lifecycle("napping")), Applied);
    assert_eq!(run.head.status, RunStatus::Open);
}

#[test]
fn an_ended_run_accepts_only_unnumbered_records_and_the_contracts_markers() {
    for status in ["completed", "failed", "cancelled"] {
        let mut run = Run::claimed("a");
        assert_eq!(run.add("end", lifecycle(status)), Applied);
        assert_eq!(run.head.status.as_str(), status);
        for (id, late) in [
            ("turn 2", Payload::from(user_turn("late"))),
            ("call 2", request().into()),
            ("result", completed("call", 1).into()),
            ("end 2", lifecycle("completed").into()),
        ] {
            assert_eq!(run.add(id, late), Refused(Reason::Ended), "{id}");
        }
        assert_eq!(run.add("loop checkpoint", checkpoint("c", 1, None)), Applied);
        assert_eq!(run.add("contract's checkpoint", contracts(1)), Applied);
        let marker = json!({ "type": "recovery", "unsafe_pending": [], "recovery_reason": "died" });
        assert_eq!(run.add("recovery marker", of_contract(&marker)), Applied);
        assert_eq!(run.add("resolution", resolution("call", "done")), Applied);
        assert_eq!(run.take(&claim("claim 2", "b", 2)), Applied, "a claim skips the content rules");
        assert_eq!(run.head.status.as_str(), status);
    }
}
