//! bob-core's tool journal on Kafka.

use runlog_tests::{claims::port_bob_core, port_fixture::PortBackend};

#[test]
fn entries_equal_the_appended_ones_and_a_lookup_returns_the_first() -> anyhow::Result<()> {
    port_bob_core::entries_equal_the_appended_ones_and_a_lookup_returns_the_first(&PortBackend::kafka()?)
}

#[test]
fn concurrent_writers_lose_and_duplicate_nothing() -> anyhow::Result<()> {
    port_bob_core::concurrent_writers_lose_and_duplicate_nothing(&PortBackend::kafka()?)
}

#[test]
fn appends_of_a_killed_process_are_found_by_the_next() -> anyhow::Result<()> {
    port_bob_core::appends_of_a_killed_process_are_found_by_the_next(&PortBackend::kafka()?)
}

#[test]
fn only_the_process_that_took_over_appends() -> anyhow::Result<()> {
    port_bob_core::only_the_process_that_took_over_appends(&PortBackend::kafka()?)
}

#[test]
fn an_append_with_an_unknown_outcome_is_stored_once() -> anyhow::Result<()> {
    port_bob_core::an_append_with_an_unknown_outcome_is_stored_once(&PortBackend::kafka()?)
}
