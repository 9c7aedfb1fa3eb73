//! The harness of the tests that cross processes: the command as a user runs it, and a server that can be killed and
//! paused. Also a real broker, seeded randomness, and an independent reader of recorded runs.

pub mod agent;
pub mod agent_process;
pub mod agreement;
pub mod append_counter;
pub mod backend;
pub mod certificates;
pub mod chaos;
pub mod checkpoints;
pub mod claims;
pub mod command;
pub mod content;
pub mod deployment;
pub mod disk;
pub mod example_records;
pub mod foreign;
pub mod hooked_log;
pub mod http_proxy;
pub mod json_schema;
pub mod jwt_issuer;
pub mod kafka;
pub mod linearizability;
pub mod log_contract;
pub mod older_version;
pub mod port_fixture;
pub mod programs;
pub mod random;
pub mod recorded;
pub mod reference_server;
pub mod sample_journal;
pub mod served;
pub mod server;
pub mod small_runs;
pub mod tcp_proxy;
pub mod unreadable;
pub mod writers;
