//! The gate's claims, two processes competing for one run, and killed processes, with appends sent directly to Kafka.

use runlog_tests::{backend::Backend, deployment::Deployment};

runlog_tests::served_claims!(Deployment::kafka);

runlog_tests::claims_on! { Deployment, takeover:
    an_agent_paused_after_its_intent_runs_no_effect_once_it_lost_the_run: kafka;
    an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run: kafka;
    one_of_several_concurrent_claims_of_a_run_wins: kafka;
}

runlog_tests::claims_on! { Deployment, killed_producers:
    acknowledgements_to_killed_agents_hold_and_no_effect_happens_twice: kafka;
}

async fn backend() -> Backend {
    Backend::kafka().await.expect("a server")
}

runlog_tests::backend_claims! { backend, reopen:
    reopen_after_an_unknown_append_neither_loses_nor_duplicates_a_held_result,
    reopen_loses_to_a_takeover_and_leaves_held_results_as_evidence,
    results_of_calls_that_outlive_their_run_are_evidence,
    no_checkpoint_builds_on_one_that_was_refused,
}

runlog_tests::backend_claims! { backend, batches:
    a_batch_takes_effect_whole_or_not_at_all,
    reopen_finds_a_whole_batch_or_sends_it_whole,
    a_record_that_is_written_again_takes_no_number,
}

runlog_tests::covered_call_claims!(backend);
