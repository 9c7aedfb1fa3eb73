//! The observability store inside a process and over HTTP.

use runlog_tests::{claims::port_observability, port_fixture::PortBackend};

#[test]
fn rows_are_upserted_and_a_call_ends_once() -> anyhow::Result<()> {
    port_observability::rows_are_upserted_and_a_call_ends_once(&PortBackend::local()?)?;
    port_observability::rows_are_upserted_and_a_call_ends_once(&PortBackend::http()?)
}

#[test]
fn content_is_kept_where_the_store_is_told_to() -> anyhow::Result<()> {
    port_observability::content_is_kept_where_the_store_is_told_to(&PortBackend::local()?)
}

#[test]
fn a_row_is_what_was_stated_of_it_up_to_a_time() -> anyhow::Result<()> {
    port_observability::a_row_is_what_was_stated_of_it_up_to_a_time(&PortBackend::local()?)?;
    port_observability::a_row_is_what_was_stated_of_it_up_to_a_time(&PortBackend::http()?)
}

#[test]
fn a_correction_of_the_past_is_kept() -> anyhow::Result<()> {
    port_observability::a_correction_of_the_past_is_kept(&PortBackend::local()?)?;
    port_observability::a_correction_of_the_past_is_kept(&PortBackend::http()?)
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
fn callbacks_are_told_in_order_and_hold_nobody_up() -> anyhow::Result<()> {
    port_observability::callbacks_are_told_in_order_and_hold_nobody_up(&PortBackend::local()?)
}

#[test]
fn concurrent_writers_lose_and_double_nothing() -> anyhow::Result<()> {
    port_observability::concurrent_writers_lose_and_double_nothing(&PortBackend::local()?)
}

#[test]
fn what_a_killed_process_wrote_is_found_by_the_next() -> anyhow::Result<()> {
    port_observability::what_a_killed_process_wrote_is_found_by_the_next(&PortBackend::local()?)
}

#[test]
fn of_two_processes_the_one_that_took_over_writes() -> anyhow::Result<()> {
    port_observability::of_two_processes_the_one_that_took_over_writes(&PortBackend::http()?)
}
