//! The processes that tests start and kill, and the long runs of `make`. They are one program, because each program links
//! RocksDB and librdkafka. `test_process NAME ARGUMENT...`; each module describes its arguments, input and output.

mod agent;
mod checkpoints;
mod failpoint;
mod faults;
mod killed_server;
mod local_appender;
mod pauses;
mod port;
mod rebuild_cost;
mod shared_broker;
mod topic_appender;

/// The command uses the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("agent") => agent::run(arguments),
        Some("checkpoints") => checkpoints::run(),
        Some("cluster") => faults::cluster(arguments),
        Some("killed-server") => killed_server::run(arguments),
        Some("kills") => faults::kills(arguments),
        Some("local-appender") => local_appender::run(arguments),
        Some("pauses") => pauses::run(arguments),
        Some("port") => port::run(arguments),
        Some("rebuild-cost") => rebuild_cost::run(arguments),
        Some("shared-broker") => shared_broker::run(),
        Some("topic-appender") => topic_appender::run(arguments),
        other => anyhow::bail!("{other:?} is no process; the modules of test_process.rs list them"),
    }
}
