//! The server is killed while agents write to it over HTTP. The log is the server's own.

use runlog_tests::{claims::killed_server, server::Launch, writers::http::Http};

fn leaves_numbers(run_id: &str) -> bool {
    run_id.ends_with(['1', '4', '7'])
}

fn claims(number: usize) -> bool {
    number.is_multiple_of(3) && !leaves_numbers(&number.to_string())
}

#[test]
fn a_server_killed_at_random_moments_loses_no_acknowledged_record_and_applies_none_twice() -> anyhow::Result<()> {
    let launch = Launch::temporary()?.partitions(4);
    killed_server::acknowledged_records_are_applied_once(&launch, claims, |url| Http::new(url, leaves_numbers))
}
