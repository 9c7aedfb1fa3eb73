//! The observability store, on rows by number.

use super::done::Done;
use runlog_ports::{
    Blocking,
    observability::{self, DbError, ObservabilityStore, Store, Write},
    taken_over,
};
use runlog_producer::Config;
use runlog_tests::port_fixture::{done, request, row, turn};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    Turn(u8),
    Requested(u8),
    Done(u8),
    Both(u8),
    Turns,
    Call(u8),
}

pub(crate) struct Port(Store);

impl Port {
    pub(crate) fn open(config: Config, workspace: &str) -> anyhow::Result<Self> {
        Ok(Self(Store::open(Blocking::connect(config)?, workspace, observability::Config { content: true })?))
    }

    pub(crate) fn run(&self, command: Command) -> Done {
        let store = &self.0;
        let obeyed = match command {
            Command::Turn(n) => store.upsert_conversation_turn(turn(n, 10)).map(|()| json!(null)),
            Command::Requested(n) => store.record_tool_call_requested(request(n, 10)).map(|()| json!(null)),
            Command::Done(n) => store.record_tool_call_done(done(n, 20)).map(|()| json!(null)),
            Command::Both(n) => {
                store.atomically(vec![Write::Requested(request(n, 10)), Write::Done(done(n, 20))]).map(|()| json!(null))
            }
            Command::Turns => store.list_conversation_since(0, 1000).map(|turns| json!(format!("{turns:?}"))),
            Command::Call(n) => store.get_tool_call(row(n), "call").map(|call| json!(format!("{call:?}"))),
        };
        obeyed.map_err(|error| {
            let lost_run = matches!(&error, DbError::Journal(error) if taken_over(error));
            (error.to_string(), lost_run)
        })
    }
}
