//! Lifecycles: a record that contradicts an end is refused, and an open state never returns to an earlier state.

use super::{
    payloads::{
        approval_decided, approval_requested, delivery_intent, delivery_result, effect_intent, effect_result, pool,
        proposal, run_message, terminal_result, tool, wake, write_back,
    },
    rule::{Rule, rule},
    run::Run,
    scenario::{Checked, Needs, Scenario},
};
use serde_json::Value;

const SECTION: &str = "Lifecycles";

pub(crate) const RULES: &[Rule] = &[
    rule("effect_transition", SECTION, "an effect that ended cannot end differently").test(|scenario, run| {
        let payloads = vec![effect_intent("e"), effect_result("e", "completed"), effect_result("e", "failed")];
        refuses(scenario, run, payloads, "transition")
    }),
    rule("tool_transition", SECTION, "a tool that completed cannot be requested again").test(|scenario, run| {
        let payloads = ["requested", "intent_recorded", "completed", "requested"];
        let payloads = payloads.map(|status| tool(&run.id, "t", status)).into();
        refuses(scenario, run, payloads, "transition")
    }),
    rule("delivery_transition", SECTION, "a delivery that completed cannot fail").test(|scenario, run| {
        let payloads = vec![delivery_intent("d"), delivery_result("d", "completed"), delivery_result("d", "failed")];
        refuses(scenario, run, payloads, "transition")
    }),
    rule("approval_transition", SECTION, "an approval is decided once").test(|scenario, run| {
        let request = approval_requested(&run.id, "a");
        let payloads = vec![request, approval_decided("a", "approved"), approval_decided("a", "denied")];
        refuses(scenario, run, payloads, "transition")
    }),
    rule("wake_transition", SECTION, "a wake has one end").test(|scenario, run| {
        let payloads = ["registered", "triggered", "cancelled"].map(|status| wake(&run.id, "w", status)).into();
        refuses(scenario, run, payloads, "transition")
    }),
    rule("message_transition", SECTION, "a message that failed cannot be accepted again").test(|scenario, run| {
        let payloads = ["accepted", "failed", "accepted"].map(|status| run_message(&run.id, "m", status)).into();
        refuses(scenario, run, payloads, "transition")
    }),
    rule("proposal_transition", SECTION, "a proposal that was denied cannot be applied").test(|scenario, run| {
        refuses(
            scenario,
            run,
            ["pending", "denied", "applied"].map(|status| proposal("p", status)).into(),
            "transition",
        )
    }),
    rule("effect_unknown", SECTION, "an effect whose result is unknown has not ended").test(|scenario, mut run| {
        scenario.append(&mut run, effect_intent("e"))?;
        scenario.append(&mut run, effect_result("e", "unknown"))?;
        scenario.recovery(&run)?.lists("/pending", "id", &["e"])
    }),
    rule("intent_again", SECTION, "a second intent of an effect counts as another start").test(|scenario, mut run| {
        scenario.append(&mut run, effect_intent("e"))?;
        scenario.recovery(&run)?.has("/pending/0/attempts", 1)?;
        scenario.append(&mut run, effect_intent("e"))?;
        scenario.recovery(&run)?.has("/pending/0/attempts", 2)
    }),
    rule("tool_not_started", SECTION, "a tool that was requested but not started is not a pending effect").test(
        |scenario, mut run| {
            let requested = tool(&run.id, "t", "requested");
            scenario.append(&mut run, requested)?;
            scenario.recovery(&run)?.lists("/pending", "id", &[])?;
            let started = tool(&run.id, "t", "intent_recorded");
            scenario.append(&mut run, started)?;
            scenario.recovery(&run)?.lists("/pending", "id", &["t"])
        },
    ),
    rule("terminal_marker", SECTION, "a terminal result may repeat the status with which an effect ended").test(
        |scenario, mut run| {
            scenario.append(&mut run, effect_intent("e"))?;
            scenario.append(&mut run, effect_result("e", "completed"))?;
            scenario.append(&mut run, terminal_result("e", "completed")).map(drop)
        },
    ),
    rule("never_back", SECTION, "an open state never returns to an earlier state").test(|scenario, mut run| {
        for status in ["pending", "approved", "pending"] {
            scenario.append(&mut run, proposal("p", status))?;
        }
        let answer = scenario.query_items(&run, "proposals", false)?;
        answer.only("/standing")?;
        answer.has("/standing/0/status", "approved")
    }),
    rule("unknown_word", SECTION, "a record with an unknown status is applied and changes no state").test(
        |scenario, mut run| {
            let registered = wake(&run.id, "w", "registered");
            let id = scenario.append(&mut run, registered)?;
            let unknown = wake(&run.id, "w", "of_a_later_version");
            scenario.append(&mut run, unknown)?;
            let answer = scenario.query_items(&run, "wakes", false)?;
            answer.only("/standing")?;
            answer.has("/standing/0/status", "registered")?;
            answer.has("/standing/0/record_id", id)
        },
    ),
    rule("proposal_taken_back", SECTION, "a proposal with is_valid false does not set the proposal's state").test(
        |scenario, mut run| {
            let record = run.record(proposal("p", "pending")).invalid(0);
            scenario.send(&mut run, &record)?.expect_applied()?;
            scenario.query_items(&run, "proposals", false)?.lists("/standing", "id", &[])
        },
    ),
    rule("pool_returned", SECTION, "a run can rejoin a pool that it left").test(|scenario, mut run| {
        for status in ["run_joined", "run_left", "run_joined"] {
            let payload = pool(&run.id, "p", status);
            scenario.append(&mut run, payload)?;
        }
        scenario.query_items(&run, "pools", false)?.lists("/standing", "id", &["p"])
    }),
    rule("staged_once", SECTION, "a write-back that was committed cannot be staged again").test(|scenario, run| {
        let payloads = ["staged", "committed", "staged"].map(|phase| write_back(phase, 1)).into();
        refuses(scenario, run, payloads, "transition")
    }),
    rule("not_staged", SECTION, "only a staged write-back can be committed").test(|scenario, run| {
        refuses(scenario, run, vec![write_back("staged", 1), write_back("committed", 2)], "not_staged")
    }),
    rule("rejection_taken", SECTION, "a rejection ends a staged write-back, and is applied without one too").test(
        |scenario, mut run| {
            scenario.append(&mut run, write_back("staged", 1))?;
            scenario.append(&mut run, write_back("rejected", 1))?;
            scenario.query_items(&run, "write_backs", false)?.lists("/standing", "id", &[])?;
            scenario.query_items(&run, "write_backs", true)?.lists("/standing", "status", &["rejected"])?;
            scenario.append(&mut run, write_back("rejected", 2)).map(drop)
        },
    ),
    rule("commit_stands", SECTION, "a later rejection does not undo a commit").test(|scenario, mut run| {
        for phase in ["staged", "committed", "rejected"] {
            scenario.append(&mut run, write_back(phase, 1))?;
        }
        scenario.query_items(&run, "write_backs", true)?.lists("/standing", "status", &["committed"])
    }),
    rule("successor_rejects", SECTION, "a successor can reject a write-back that a dead writer staged").test(
        |scenario, mut run| {
            scenario.append(&mut run, write_back("staged", 1))?;
            scenario.append(&mut run, write_back("rejected", 1))?;
            scenario.query_items(&run, "write_backs", false)?.lists("/standing", "id", &[]).needs("rejection_taken")?;
            scenario.append(&mut run, write_back("staged", 2))?;
            scenario.claim(&mut run, "successor")?;
            scenario.append(&mut run, write_back("rejected", 2))?;
            scenario.query_items(&run, "write_backs", false)?.lists("/standing", "id", &[])
        },
    ),
];

/// Appends the payloads. The last payload must be refused, all others applied.
fn refuses(scenario: &mut Scenario<'_>, mut run: Run, payloads: Vec<Value>, reason: &str) -> Checked {
    let last = payloads.len() - 1;
    for (at, payload) in payloads.into_iter().enumerate() {
        if at < last {
            scenario.append(&mut run, payload)?;
        } else {
            let record = run.record(payload);
            scenario.send(&mut run, &record)?.expect_refused(reason)?;
        }
    }
    Ok(())
}
