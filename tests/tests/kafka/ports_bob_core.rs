//! bob-core's tool journal on Kafka.

use runlog_tests::{claims::port_bob_core, port_fixture::PortBackend};

#[test]
fn entries_are_what_was_appended_and_a_lookup_answers_the_first() -> anyhow::Result<()> {
    port_bob_core::entries_are_what_was_appended_and_a_lookup_answers_the_first(&PortBackend::kafka()?)
}

#[test]
fn concurrent_writers_lose_and_double_nothing() -> anyhow::Result<()> {
    port_bob_core::concurrent_writers_lose_and_double_nothing(&PortBackend::kafka()?)
}

#[test]
fn what_a_killed_process_appended_is_found_by_the_next() -> anyhow::Result<()> {
    port_bob_core::what_a_killed_process_appended_is_found_by_the_next(&PortBackend::kafka()?)
}

#[test]
fn of_two_processes_the_one_that_took_over_appends() -> anyhow::Result<()> {
    port_bob_core::of_two_processes_the_one_that_took_over_appends(&PortBackend::kafka()?)
}

#[test]
fn an_append_whose_end_nobody_knew_is_there_once() -> anyhow::Result<()> {
    port_bob_core::an_append_whose_end_nobody_knew_is_there_once(&PortBackend::kafka()?)
}
