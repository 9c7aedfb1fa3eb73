//! Appends batches directly to a topic, with or without a projector.

use futures_util::{FutureExt, future::BoxFuture};
use runlog_log::{Kind, Log, kafka::KafkaLog};
use runlog_schemas::{id::RunId, partition::partition_of, record::JournalRecord};

use super::Sink;
use crate::agent::{entry, id};

/// The topic.
#[derive(Debug)]
pub struct Kafka(pub KafkaLog);

impl Sink for Kafka {
    fn send<'a>(&'a self, run_id: &'a str, batch: &'a [JournalRecord]) -> BoxFuture<'a, anyhow::Result<bool>> {
        let partition = partition_of(id::<RunId>(run_id).borrow(), self.0.partitions());
        let appended = self.0.append(partition, batch.iter().map(entry).collect());
        async move {
            match appended.await {
                Ok(_) => Ok(true),
                Err(error) if matches!(error.kind(), Kind::Unknown | Kind::Retry) => Ok(false),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }

    fn recovered(&self) -> BoxFuture<'_, ()> {
        tokio::task::yield_now().boxed()
    }
}
