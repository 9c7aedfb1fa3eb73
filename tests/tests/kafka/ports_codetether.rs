//! codetether's write-back journal on Kafka.

use runlog_tests::port_fixture::PortBackend;

runlog_tests::claims_on! { PortBackend, port_codetether:
    the_export_is_the_crates_byte_for_byte: kafka;
    only_a_staged_change_that_passes_its_checks_is_committed: kafka;
    concurrent_writers_lose_and_duplicate_nothing: kafka;
    open_transactions_of_a_killed_process_are_reconciled_or_abandoned: kafka;
    only_the_process_that_took_over_writes: kafka;
    staged_changes_survive_a_claim_of_their_own_process: kafka;
}
