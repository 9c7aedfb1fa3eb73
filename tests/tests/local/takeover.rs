//! Agent processes over HTTP: of two that want one run at most one acts, and killed processes lose nothing.

use runlog_tests::deployment::Deployment;

runlog_tests::claims_on! { Deployment, takeover:
    an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run: http;
    one_of_several_concurrent_claims_of_a_run_wins: http;
}

runlog_tests::claims_on! { Deployment, killed_producers:
    acknowledgements_to_killed_agents_hold_and_no_effect_happens_twice: http;
}
