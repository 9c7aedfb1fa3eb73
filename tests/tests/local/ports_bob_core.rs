//! bob-core's tool journal inside a process and over HTTP.

use runlog_tests::port_fixture::PortBackend;

runlog_tests::claims_on! { PortBackend, port_bob_core:
    entries_equal_the_appended_ones_and_a_lookup_returns_the_first: local, http, limited;
    a_result_too_large_for_a_record_is_read_back_complete: local, http;
    concurrent_writers_lose_and_duplicate_nothing: local;
    appends_of_a_killed_process_are_found_by_the_next: local, limited;
    only_the_process_that_took_over_appends: http, limited;
    a_redacted_call_is_still_found: local, http;
    an_append_with_an_unknown_outcome_is_stored_once: local, http;
}
