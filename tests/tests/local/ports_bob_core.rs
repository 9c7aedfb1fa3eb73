//! bob-core's tool journal inside a process and over HTTP.

use runlog_tests::{claims::port_bob_core, port_fixture::PortBackend};

#[test]
fn entries_are_what_was_appended_and_a_lookup_answers_the_first() -> anyhow::Result<()> {
    port_bob_core::entries_are_what_was_appended_and_a_lookup_answers_the_first(&PortBackend::local()?)?;
    port_bob_core::entries_are_what_was_appended_and_a_lookup_answers_the_first(&PortBackend::http()?)
}

#[test]
fn a_result_that_no_record_holds_comes_back_whole() -> anyhow::Result<()> {
    port_bob_core::a_result_that_no_record_holds_comes_back_whole(&PortBackend::local()?)?;
    port_bob_core::a_result_that_no_record_holds_comes_back_whole(&PortBackend::http()?)
}

#[test]
fn concurrent_writers_lose_and_double_nothing() -> anyhow::Result<()> {
    port_bob_core::concurrent_writers_lose_and_double_nothing(&PortBackend::local()?)
}

#[test]
fn what_a_killed_process_appended_is_found_by_the_next() -> anyhow::Result<()> {
    port_bob_core::what_a_killed_process_appended_is_found_by_the_next(&PortBackend::local()?)
}

#[test]
fn of_two_processes_the_one_that_took_over_appends() -> anyhow::Result<()> {
    port_bob_core::of_two_processes_the_one_that_took_over_appends(&PortBackend::http()?)
}

#[test]
fn what_a_redaction_takes_out_of_a_call_does_not_hide_it() -> anyhow::Result<()> {
    port_bob_core::what_a_redaction_takes_out_of_a_call_does_not_hide_it(&PortBackend::local()?)?;
    port_bob_core::what_a_redaction_takes_out_of_a_call_does_not_hide_it(&PortBackend::http()?)
}

#[test]
fn an_append_whose_end_nobody_knew_is_there_once() -> anyhow::Result<()> {
    port_bob_core::an_append_whose_end_nobody_knew_is_there_once(&PortBackend::local()?)?;
    port_bob_core::an_append_whose_end_nobody_knew_is_there_once(&PortBackend::http()?)
}
