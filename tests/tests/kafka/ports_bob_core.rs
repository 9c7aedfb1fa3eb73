//! bob-core's tool journal on Kafka.

use runlog_tests::port_fixture::PortBackend;

runlog_tests::claims_on! { PortBackend, port_bob_core:
    entries_equal_the_appended_ones_and_a_lookup_returns_the_first: kafka;
    concurrent_writers_lose_and_duplicate_nothing: kafka;
    appends_of_a_killed_process_are_found_by_the_next: kafka;
    only_the_process_that_took_over_appends: kafka;
    an_append_with_an_unknown_outcome_is_stored_once: kafka;
}
