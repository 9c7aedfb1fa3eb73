//! A writer's own decision, which names its epoch and no state of the effect. With schema version 3 it is about an effect of the
//! writer's own handle only, for every sender.

use super::{NONE, Writer, pending, start};
use anyhow::ensure;
use serde_json::{Value, json};
use tempfile::tempdir;

fn own_not_done(writer: &Writer<'_>, id: &str, call: &str, facts: &Value) -> anyhow::Result<String> {
    let payload = json!({ "type": "effect_resolution", "request_record_id": call, "decision": "not_done", "who": "a",
        "why": "it never started" });
    let mut all = json!({ "epoch": writer.epoch });
    for (name, value) in facts.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    writer.append(id, &payload, &all)
}

#[test]
fn a_decision_without_a_basis_is_about_an_effect_of_its_own_handle() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = start(folder.path(), "3")?;
    let old = Writer::claim(&server)?;
    for call in ["pay", "answered"] {
        says!(old.intent(call, &NONE, &NONE), "applied");
    }
    let writer = Writer::claim(&server)?;
    for call in ["own", "own-answered"] {
        says!(writer.intent(call, &NONE, &NONE), "applied");
    }
    says!(old.failed("late", "own-answered"), "refused fenced");
    for call in ["pay", "answered", "own-answered"] {
        says!(own_not_done(&writer, &format!("blind about {call}"), call, &NONE), "reconcile_required");
        ensure!(pending(&server, call)?["class"] == "reconcile_required", "{call}");
    }
    says!(own_not_done(&writer, "own-not-done", "own", &NONE), "applied");
    says!(own_not_done(&writer, "own-not-done", "own", &NONE), "repeat");
    // Whoever names the state that it saw may decide about any effect.
    let seen = pending(&server, "pay")?;
    says!(own_not_done(&writer, "seen", "pay", &json!({ "basis": seen["basis"] })), "applied");
    let seen = pending(&server, "own-answered")?;
    says!(own_not_done(&writer, "at a revision", "own-answered", &json!({ "revision": seen["revision"] })), "applied");
    Ok(())
}
