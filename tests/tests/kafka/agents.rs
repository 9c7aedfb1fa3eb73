//! The gate's claims, and two processes competing for one run, with appends sent directly to Kafka.

use runlog_tests::{
    backend::Backend,
    claims::{batches, reopen, takeover},
    deployment::Deployment,
};

runlog_tests::served_claims!(Deployment::kafka);

#[test]
fn an_agent_paused_after_its_intent_runs_no_effect_once_it_lost_the_run() -> anyhow::Result<()> {
    takeover::an_agent_paused_after_its_intent_runs_no_effect_once_it_lost_the_run(&Deployment::kafka()?)
}

#[test]
fn an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run() -> anyhow::Result<()> {
    takeover::an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run(&Deployment::kafka()?)
}

#[test]
fn one_of_several_concurrent_claims_of_a_run_wins() -> anyhow::Result<()> {
    takeover::one_of_several_concurrent_claims_of_a_run_wins(&Deployment::kafka()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn reopen_after_an_unknown_append_neither_loses_nor_duplicates_a_held_result() {
    let backend = Backend::kafka().await.expect("a server");
    reopen::reopen_after_an_unknown_append_neither_loses_nor_duplicates_a_held_result(&backend).await;
    reopen::reopen_loses_to_a_takeover_and_leaves_held_results_as_evidence(&backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_effect_whole_or_not_at_all() {
    let backend = Backend::kafka().await.expect("a server");
    batches::a_batch_takes_effect_whole_or_not_at_all(&backend).await;
    batches::reopen_finds_a_whole_batch_or_sends_it_whole(&backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_written_again_takes_no_number() {
    let backend = Backend::kafka().await.expect("a server");
    batches::a_record_that_is_written_again_takes_no_number(&backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_calls_that_outlive_their_run_are_evidence() {
    let backend = Backend::kafka().await.expect("a server");
    Box::pin(reopen::results_of_calls_that_outlive_their_run_are_evidence(&backend)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_checkpoint_builds_on_one_that_was_refused() {
    reopen::no_checkpoint_builds_on_one_that_was_refused(&Backend::kafka().await.expect("a server")).await;
}
