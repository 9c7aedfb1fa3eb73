//! codetether's write-back journal inside a process and over HTTP.

use runlog_tests::{claims::port_codetether, port_fixture::PortBackend};

runlog_tests::claims_on! { PortBackend, port_codetether:
    the_export_is_the_crates_byte_for_byte: local, http;
    only_a_staged_change_that_passes_its_checks_is_committed: http;
    concurrent_writers_lose_and_duplicate_nothing: local;
    open_transactions_of_a_killed_process_are_reconciled_or_abandoned: local, http, limited;
    only_the_process_that_took_over_writes: http, limited;
    staged_changes_survive_a_claim_of_their_own_process: local, http;
}

#[test]
fn a_rejection_waits_until_a_commit_is_known_not_to_have_been_applied() -> anyhow::Result<()> {
    port_codetether::a_rejection_waits_until_a_commit_is_known_not_to_have_been_applied()
}
