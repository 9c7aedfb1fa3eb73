//! bob-core's tool journal inside a process and over HTTP.

use runlog_tests::{claims::port_bob_core, port_fixture::PortBackend};

#[test]
fn entries_equal_the_appended_ones_and_a_lookup_returns_the_first() -> anyhow::Result<()> {
    port_bob_core::entries_equal_the_appended_ones_and_a_lookup_returns_the_first(&PortBackend::local()?)?;
    port_bob_core::entries_equal_the_appended_ones_and_a_lookup_returns_the_first(&PortBackend::http()?)
}

#[test]
fn a_result_too_large_for_a_record_is_read_back_complete() -> anyhow::Result<()> {
    port_bob_core::a_result_too_large_for_a_record_is_read_back_complete(&PortBackend::local()?)?;
    port_bob_core::a_result_too_large_for_a_record_is_read_back_complete(&PortBackend::http()?)
}

#[test]
fn concurrent_writers_lose_and_duplicate_nothing() -> anyhow::Result<()> {
    port_bob_core::concurrent_writers_lose_and_duplicate_nothing(&PortBackend::local()?)
}

#[test]
fn appends_of_a_killed_process_are_found_by_the_next() -> anyhow::Result<()> {
    port_bob_core::appends_of_a_killed_process_are_found_by_the_next(&PortBackend::local()?)
}

#[test]
fn only_the_process_that_took_over_appends() -> anyhow::Result<()> {
    port_bob_core::only_the_process_that_took_over_appends(&PortBackend::http()?)
}

#[test]
fn a_redacted_call_is_still_found() -> anyhow::Result<()> {
    port_bob_core::a_redacted_call_is_still_found(&PortBackend::local()?)?;
    port_bob_core::a_redacted_call_is_still_found(&PortBackend::http()?)
}

#[test]
fn an_append_with_an_unknown_outcome_is_stored_once() -> anyhow::Result<()> {
    port_bob_core::an_append_with_an_unknown_outcome_is_stored_once(&PortBackend::local()?)?;
    port_bob_core::an_append_with_an_unknown_outcome_is_stored_once(&PortBackend::http()?)
}
