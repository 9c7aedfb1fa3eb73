//! Lifecycles: what contradicts an end is refused, and an open state never goes back.

use super::{
    Rule,
    payloads::{
        approval_decided, approval_requested, delivery_intent, delivery_result, effect_intent, effect_result, pool,
        proposal, run_message, terminal_result, tool, wake, write_back,
    },
    run::Run,
    scenario::{Checked, Needs, Scenario},
};
use serde_json::Value;

const SECTION: &str = "Lifecycles";

pub(crate) const RULES: &[Rule] = &[
    Rule::new("effect_transition", SECTION, "an effect that ended does not end otherwise", effect),
    Rule::new("tool_transition", SECTION, "a tool that completed is not asked for again", tool_ended),
    Rule::new("delivery_transition", SECTION, "a delivery that completed does not fail", delivery),
    Rule::new("approval_transition", SECTION, "an approval is decided once", approval),
    Rule::new("wake_transition", SECTION, "a wake has one end", wake_ended),
    Rule::new("message_transition", SECTION, "a message that failed is not accepted any more", message),
    Rule::new("proposal_transition", SECTION, "a proposal that was denied is not applied", proposal_denied),
    Rule::new("effect_unknown", SECTION, "an effect whose result nobody knows has not ended", effect_unknown),
    Rule::new("intent_again", SECTION, "an intent that is said again started again", intent_again),
    Rule::new(
        "tool_not_started",
        SECTION,
        "a tool that was only asked for is no effect that may have happened",
        not_started,
    ),
    Rule::new("terminal_marker", SECTION, "a terminal result may say again how an effect ended", terminal_marker),
    Rule::new("never_back", SECTION, "an open state never goes back to an earlier one", never_back),
    Rule::new("unknown_word", SECTION, "a status that nobody knows is applied and moves nothing", unknown_word),
    Rule::new(
        "proposal_taken_back",
        SECTION,
        "a proposal that is not valid says nothing of where it stands",
        taken_back,
    ),
    Rule::new("pool_returned", SECTION, "a run comes back to a pool that it left", pool_returned),
    Rule::new("staged_once", SECTION, "a write-back that was committed is not staged again", staged_once),
    Rule::new("not_staged", SECTION, "only what is staged commits", not_staged),
    Rule::new("rejection_taken", SECTION, "a rejection ends what is staged, and is taken in any case", rejection_taken),
    Rule::new("commit_stands", SECTION, "a commit stands, whatever is rejected later", commit_stands),
    Rule::new("successor_rejects", SECTION, "a successor gives up what a dead writer staged", successor_rejects),
];

/// Says all but the last payload, which must be refused.
fn refuses(scenario: &mut Scenario<'_>, mut run: Run, payloads: Vec<Value>, reason: &str) -> Checked {
    let last = payloads.len() - 1;
    for (at, payload) in payloads.into_iter().enumerate() {
        if at < last {
            scenario.say(&mut run, payload)?;
        } else {
            let record = run.record(payload);
            scenario.send(&mut run, &record)?.refused(reason)?;
        }
    }
    Ok(())
}

fn effect(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let said = vec![effect_intent("e"), effect_result("e", "completed"), effect_result("e", "failed")];
    refuses(scenario, run, said, "transition")
}

fn tool_ended(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let said = ["requested", "intent_recorded", "completed", "requested"];
    let said = said.map(|status| tool(&run.id, "t", status)).into();
    refuses(scenario, run, said, "transition")
}

fn delivery(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let said = vec![delivery_intent("d"), delivery_result("d", "completed"), delivery_result("d", "failed")];
    refuses(scenario, run, said, "transition")
}

fn approval(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let asked = approval_requested(&run.id, "a");
    let said = vec![asked, approval_decided("a", "approved"), approval_decided("a", "denied")];
    refuses(scenario, run, said, "transition")
}

fn wake_ended(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let said = ["registered", "triggered", "cancelled"].map(|status| wake(&run.id, "w", status)).into();
    refuses(scenario, run, said, "transition")
}

fn message(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let said = ["accepted", "failed", "accepted"].map(|status| run_message(&run.id, "m", status)).into();
    refuses(scenario, run, said, "transition")
}

fn proposal_denied(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    refuses(scenario, run, ["pending", "denied", "applied"].map(|status| proposal("p", status)).into(), "transition")
}

fn effect_unknown(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, effect_intent("e"))?;
    scenario.say(&mut run, effect_result("e", "unknown"))?;
    scenario.recovery(&run)?.lists("/pending", "id", &["e"])
}

fn intent_again(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, effect_intent("e"))?;
    scenario.recovery(&run)?.has("/pending/0/attempts", 1)?;
    scenario.say(&mut run, effect_intent("e"))?;
    scenario.recovery(&run)?.has("/pending/0/attempts", 2)
}

fn not_started(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let asked = tool(&run.id, "t", "requested");
    scenario.say(&mut run, asked)?;
    scenario.recovery(&run)?.lists("/pending", "id", &[])?;
    let begun = tool(&run.id, "t", "intent_recorded");
    scenario.say(&mut run, begun)?;
    scenario.recovery(&run)?.lists("/pending", "id", &["t"])
}

fn terminal_marker(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, effect_intent("e"))?;
    scenario.say(&mut run, effect_result("e", "completed"))?;
    scenario.say(&mut run, terminal_result("e", "completed")).map(drop)
}

fn never_back(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    for status in ["pending", "approved", "pending"] {
        scenario.say(&mut run, proposal("p", status))?;
    }
    let answer = scenario.standing(&run, "proposals", false)?;
    answer.only("/standing")?;
    answer.has("/standing/0/status", "approved")
}

fn unknown_word(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let registered = wake(&run.id, "w", "registered");
    let id = scenario.say(&mut run, registered)?;
    let unknown = wake(&run.id, "w", "of_a_later_version");
    scenario.say(&mut run, unknown)?;
    let answer = scenario.standing(&run, "wakes", false)?;
    answer.only("/standing")?;
    answer.has("/standing/0/status", "registered")?;
    answer.has("/standing/0/record_id", id)
}

fn taken_back(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(proposal("p", "pending")).invalid(0);
    scenario.send(&mut run, &record)?.applied()?;
    scenario.standing(&run, "proposals", false)?.lists("/standing", "id", &[])
}

fn pool_returned(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    for status in ["run_joined", "run_left", "run_joined"] {
        let said = pool(&run.id, "p", status);
        scenario.say(&mut run, said)?;
    }
    scenario.standing(&run, "pools", false)?.lists("/standing", "id", &["p"])
}

fn staged_once(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    let said = ["staged", "committed", "staged"].map(|phase| write_back(phase, 1)).into();
    refuses(scenario, run, said, "transition")
}

fn not_staged(scenario: &mut Scenario<'_>) -> Checked {
    let run = scenario.run();
    refuses(scenario, run, vec![write_back("staged", 1), write_back("committed", 2)], "not_staged")
}

fn rejection_taken(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, write_back("staged", 1))?;
    scenario.say(&mut run, write_back("rejected", 1))?;
    scenario.standing(&run, "write_backs", false)?.lists("/standing", "id", &[])?;
    scenario.standing(&run, "write_backs", true)?.lists("/standing", "status", &["rejected"])?;
    scenario.say(&mut run, write_back("rejected", 2)).map(drop)
}

fn commit_stands(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    for phase in ["staged", "committed", "rejected"] {
        scenario.say(&mut run, write_back(phase, 1))?;
    }
    scenario.standing(&run, "write_backs", true)?.lists("/standing", "status", &["committed"])
}

fn successor_rejects(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, write_back("staged", 1))?;
    scenario.say(&mut run, write_back("rejected", 1))?;
    scenario.standing(&run, "write_backs", false)?.lists("/standing", "id", &[]).needs("rejection_taken")?;
    scenario.say(&mut run, write_back("staged", 2))?;
    scenario.claim(&mut run, "successor")?;
    scenario.say(&mut run, write_back("rejected", 2))?;
    scenario.standing(&run, "write_backs", false)?.lists("/standing", "id", &[])
}
