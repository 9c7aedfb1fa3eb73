//! The observability store on Kafka.

use runlog_tests::{claims::port_observability, port_fixture::PortBackend};

#[test]
fn rows_are_upserted_and_a_call_ends_once() -> anyhow::Result<()> {
    port_observability::rows_are_upserted_and_a_call_ends_once(&PortBackend::kafka()?)
}

#[test]
fn a_group_takes_effect_together_or_not_at_all() -> anyhow::Result<()> {
    port_observability::a_group_takes_effect_together_or_not_at_all(&PortBackend::kafka()?)
}

#[test]
fn concurrent_writers_lose_and_duplicate_nothing() -> anyhow::Result<()> {
    port_observability::concurrent_writers_lose_and_duplicate_nothing(&PortBackend::kafka()?)
}

#[test]
fn writes_of_a_killed_process_are_found_by_the_next() -> anyhow::Result<()> {
    port_observability::writes_of_a_killed_process_are_found_by_the_next(&PortBackend::kafka()?)
}

#[test]
fn only_the_process_that_took_over_writes() -> anyhow::Result<()> {
    port_observability::only_the_process_that_took_over_writes(&PortBackend::kafka()?)
}

#[test]
fn corrections_of_past_rows_are_stored() -> anyhow::Result<()> {
    port_observability::corrections_of_past_rows_are_stored(&PortBackend::kafka()?)
}

#[test]
fn an_end_finds_a_request_and_no_call_starts_after_it() -> anyhow::Result<()> {
    port_observability::an_end_finds_a_request_and_no_call_starts_after_it(&PortBackend::kafka()?)
}
