//! The observability store on Kafka.

use runlog_tests::port_fixture::PortBackend;

runlog_tests::claims_on! { PortBackend, port_observability:
    rows_are_upserted_and_a_call_ends_once: kafka;
    a_group_takes_effect_together_or_not_at_all: kafka;
    concurrent_writers_lose_and_duplicate_nothing: kafka;
    writes_of_a_killed_process_are_found_by_the_next: kafka;
    only_the_process_that_took_over_writes: kafka;
    corrections_of_past_rows_are_stored: kafka;
    an_end_finds_a_request_and_no_call_starts_after_it: kafka;
}
