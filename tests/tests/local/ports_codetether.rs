//! codetether's write-back journal inside a process and over HTTP.

use runlog_tests::{claims::port_codetether, port_fixture::PortBackend};

#[test]
fn the_export_is_the_crates_byte_for_byte() -> anyhow::Result<()> {
    port_codetether::the_export_is_the_crates_byte_for_byte(&PortBackend::local()?)?;
    port_codetether::the_export_is_the_crates_byte_for_byte(&PortBackend::http()?)
}

#[test]
fn only_a_staged_change_that_passes_its_checks_is_committed() -> anyhow::Result<()> {
    port_codetether::only_a_staged_change_that_passes_its_checks_is_committed(&PortBackend::http()?)
}

#[test]
fn concurrent_writers_lose_and_duplicate_nothing() -> anyhow::Result<()> {
    port_codetether::concurrent_writers_lose_and_duplicate_nothing(&PortBackend::local()?)
}

#[test]
fn open_transactions_of_a_killed_process_are_reconciled_or_abandoned() -> anyhow::Result<()> {
    port_codetether::open_transactions_of_a_killed_process_are_reconciled_or_abandoned(&PortBackend::local()?)?;
    port_codetether::open_transactions_of_a_killed_process_are_reconciled_or_abandoned(&PortBackend::http()?)
}

#[test]
fn only_the_process_that_took_over_writes() -> anyhow::Result<()> {
    port_codetether::only_the_process_that_took_over_writes(&PortBackend::http()?)
}

#[test]
fn staged_changes_survive_a_claim_of_their_own_process() -> anyhow::Result<()> {
    port_codetether::staged_changes_survive_a_claim_of_their_own_process(&PortBackend::local()?)?;
    port_codetether::staged_changes_survive_a_claim_of_their_own_process(&PortBackend::http()?)
}

#[test]
fn a_rejection_waits_until_a_commit_is_known_not_to_have_been_applied() -> anyhow::Result<()> {
    port_codetether::a_rejection_waits_until_a_commit_is_known_not_to_have_been_applied()
}
