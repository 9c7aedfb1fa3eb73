//! The observability store inside a process and over HTTP.

use runlog_tests::port_fixture::PortBackend;

runlog_tests::claims_on! { PortBackend, port_observability:
    rows_are_upserted_and_a_call_ends_once: local, http, limited;
    content_is_stored_if_the_store_is_configured_to: local;
    a_row_as_of_a_time_has_the_statements_up_to_it: local, http;
    corrections_of_past_rows_are_stored: local, http;
    an_end_finds_a_request_and_no_call_starts_after_it: local, http, limited;
    a_group_takes_effect_together_or_not_at_all: local;
    callbacks_run_in_order_and_block_no_writer: local;
    concurrent_writers_lose_and_duplicate_nothing: local;
    writes_of_a_killed_process_are_found_by_the_next: local, limited;
    only_the_process_that_took_over_writes: http, limited;
}
