//! The observability store inside a process and over HTTP.

use runlog_tests::{claims::port_observability, port_fixture::PortBackend};

#[test]
fn rows_are_upserted_and_a_call_ends_once() -> anyhow::Result<()> {
    port_observability::rows_are_upserted_and_a_call_ends_once(&PortBackend::local()?)?;
    port_observability::rows_are_upserted_and_a_call_ends_once(&PortBackend::http()?)
}

#[test]
fn content_is_stored_if_the_store_is_configured_to() -> anyhow::Result<()> {
    port_observability::content_is_stored_if_the_store_is_configured_to(&PortBackend::local()?)
}

#[test]
fn a_row_as_of_a_time_has_the_statements_up_to_it() -> anyhow::Result<()> {
    port_observability::a_row_as_of_a_time_has_the_statements_up_to_it(&PortBackend::local()?)?;
    port_observability::a_row_as_of_a_time_has_the_statements_up_to_it(&PortBackend::http()?)
}

#[test]
fn corrections_of_past_rows_are_stored() -> anyhow::Result<()> {
    port_observability::corrections_of_past_rows_are_stored(&PortBackend::local()?)?;
    port_observability::corrections_of_past_rows_are_stored(&PortBackend::http()?)
}

#[test]
fn an_end_finds_a_request_and_no_call_starts_after_it() -> anyhow::Result<()> {
    port_observability::an_end_finds_a_request_and_no_call_starts_after_it(&PortBackend::local()?)?;
    port_observability::an_end_finds_a_request_and_no_call_starts_after_it(&PortBackend::http()?)
}

#[test]
fn a_group_takes_effect_together_or_not_at_all() -> anyhow::Result<()> {
    port_observability::a_group_takes_effect_together_or_not_at_all(&PortBackend::local()?)
}

#[test]
fn callbacks_run_in_order_and_block_no_writer() -> anyhow::Result<()> {
    port_observability::callbacks_run_in_order_and_block_no_writer(&PortBackend::local()?)
}

#[test]
fn concurrent_writers_lose_and_duplicate_nothing() -> anyhow::Result<()> {
    port_observability::concurrent_writers_lose_and_duplicate_nothing(&PortBackend::local()?)
}

#[test]
fn writes_of_a_killed_process_are_found_by_the_next() -> anyhow::Result<()> {
    port_observability::writes_of_a_killed_process_are_found_by_the_next(&PortBackend::local()?)
}

#[test]
fn only_the_process_that_took_over_writes() -> anyhow::Result<()> {
    port_observability::only_the_process_that_took_over_writes(&PortBackend::http()?)
}
