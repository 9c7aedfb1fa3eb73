//! On a journal within the process, the agent is a task that is aborted.

use anyhow::ensure;
use runlog_testing::{
    InProcess,
    producer::{Action, answer::ErrorKind},
};
use serde_json::json;

use crate::agent::{Airline, travel};

/// Runs the agent until the airline has executed a request without an answer, and aborts the agent.
async fn travel_and_die(journal: &InProcess, airline: &Airline) -> anyhow::Result<()> {
    let (runlog, customer) = (journal.connect("travel-agent"), airline.clone());
    let agent = tokio::spawn(async move { travel(&runlog, &customer, "trip-1").await });
    airline.done.notified().await;
    agent.abort();
    ensure!(agent.await.is_err_and(|error| error.is_cancelled()), "the agent ended before it was aborted");
    Ok(())
}

fn airline(folder: &tempfile::TempDir) -> Airline {
    Airline::new(&folder.path().join("ledger"))
}

#[tokio::test]
async fn a_trip_is_booked_and_paid_once() -> anyhow::Result<()> {
    let (journal, folder) = (InProcess::start().await?, tempfile::tempdir()?);
    let airline = airline(&folder);
    assert_eq!(travel(&journal.connect("travel-agent"), &airline, "trip-1").await?, json!("B-trip-1-HAT136"));
    assert_eq!(airline.requests(), ["book trip-1-HAT136", "pay"]);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_while_it_books_does_not_book_twice() -> anyhow::Result<()> {
    let (journal, folder) = (InProcess::start().await?, tempfile::tempdir()?);
    let airline = airline(&folder);
    travel_and_die(&journal, &airline.clone().silent_about("book")).await?;
    assert_eq!(travel(&journal.connect("travel-agent"), &airline, "trip-1").await?, json!("B-trip-1-HAT136"));
    // Two requests with one key.
    assert_eq!(airline.requests(), ["book trip-1-HAT136", "book trip-1-HAT136", "pay"]);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_while_it_pays_does_not_pay_again() -> anyhow::Result<()> {
    let (journal, folder) = (InProcess::start().await?, tempfile::tempdir()?);
    let airline = airline(&folder);
    travel_and_die(&journal, &airline.clone().silent_about("pay")).await?;
    let runlog = journal.connect("travel-agent");
    let error = travel(&runlog, &airline, "trip-1").await.unwrap_err();
    assert_eq!((error.kind(), error.action()), (ErrorKind::ReconcileRequired, Action::Operator));
    assert_eq!(airline.requests(), ["book trip-1-HAT136", "pay"]);
    let pending = runlog.open("trip-1").await?.recovery().pending.clone();
    assert_eq!(pending.iter().map(|pending| pending.tool_name.as_str()).collect::<Vec<_>>(), ["pay"]);
    Ok(())
}

#[tokio::test]
async fn each_journal_is_empty() -> anyhow::Result<()> {
    for _ in 0..3 {
        let journal = InProcess::start().await?;
        let run = journal.connect("travel-agent").open("trip-1").await?;
        assert_eq!((run.recovery().epoch.get(), run.recovery().pending.len()), (1, 0));
    }
    Ok(())
}
