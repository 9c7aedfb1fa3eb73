//! bob-core's tool journal inside a process and over HTTP.

use runlog_tests::{claims::port_bob_core, ported::Way};

#[test]
fn entries_are_what_was_appended_and_a_lookup_answers_the_first() -> anyhow::Result<()> {
    port_bob_core::entries_are_what_was_appended_and_a_lookup_answers_the_first(&Way::local()?)?;
    port_bob_core::entries_are_what_was_appended_and_a_lookup_answers_the_first(&Way::http()?)
}

#[test]
fn a_result_that_no_record_holds_comes_back_whole() -> anyhow::Result<()> {
    port_bob_core::a_result_that_no_record_holds_comes_back_whole(&Way::local()?)?;
    port_bob_core::a_result_that_no_record_holds_comes_back_whole(&Way::http()?)
}

#[test]
fn concurrent_writers_lose_and_double_nothing() -> anyhow::Result<()> {
    port_bob_core::concurrent_writers_lose_and_double_nothing(&Way::local()?)
}

#[test]
fn what_a_killed_process_appended_is_found_by_the_next() -> anyhow::Result<()> {
    port_bob_core::what_a_killed_process_appended_is_found_by_the_next(&Way::local()?)
}

#[test]
fn of_two_processes_the_one_that_took_over_appends() -> anyhow::Result<()> {
    port_bob_core::of_two_processes_the_one_that_took_over_appends(&Way::http()?)
}

#[test]
fn what_a_redaction_takes_out_of_a_call_does_not_hide_it() -> anyhow::Result<()> {
    port_bob_core::what_a_redaction_takes_out_of_a_call_does_not_hide_it(&Way::local()?)?;
    port_bob_core::what_a_redaction_takes_out_of_a_call_does_not_hide_it(&Way::http()?)
}

#[test]
fn an_append_whose_end_nobody_knew_is_there_once() -> anyhow::Result<()> {
    port_bob_core::an_append_whose_end_nobody_knew_is_there_once(&Way::local()?)?;
    port_bob_core::an_append_whose_end_nobody_knew_is_there_once(&Way::http()?)
}
