//! On a server in a container, the agent is a process that is killed. These tests need Docker and the images of `make image
//! kafka-image`.

use runlog_testing::containers::{KafkaServer, Server};

use crate::agent::{Airline, Process};

/// Kills the agent during the booking, kills the second agent during its booking too, and lets a third agent finish.
async fn kill_twice_and_finish(journal: &str, server: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let airline = Airline::new(&folder.path().join("ledger"));
    for _ in 0..2 {
        let mut agent = Process::start(journal, server, &airline.clone().silent_about("book"))?;
        agent.wait_for_text("done, and no answer").await?;
        agent.kill().await?;
    }
    let mut agent = Process::start(journal, server, &airline)?;
    assert_eq!(agent.wait_for_text("traveled: ").await?, r#""B-trip-1-HAT136""#);
    // Three requests with one key.
    let booked = "book trip-1-HAT136";
    assert_eq!(airline.requests(), [booked, booked, booked, "pay"]);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_in_mid_call_resumes_with_a_server() -> anyhow::Result<()> {
    let server = Server::start().await?;
    kill_twice_and_finish(server.url(), server.url()).await
}

#[tokio::test]
async fn an_agent_that_is_killed_in_mid_call_resumes_with_kafka() -> anyhow::Result<()> {
    let kafka = KafkaServer::start().await?;
    kill_twice_and_finish(&format!("kafka:{}", kafka.brokers()), kafka.url()).await
}

#[tokio::test]
async fn two_servers_at_one_time_are_separate_and_empty() -> anyhow::Result<()> {
    let (one, other) = tokio::try_join!(Server::start(), Server::start())?;
    assert_ne!((one.url(), one.container()), (other.url(), other.container()));
    one.connect("travel-agent").await?.open("trip-1").await?;
    assert!(other.connect("travel-agent").await?.recovery("trip-1").await?.is_none());
    Ok(())
}
