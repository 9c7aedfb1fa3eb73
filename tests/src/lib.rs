//! What the tests that cross processes are written with: the command as a user runs it, a server that can be killed and
//! stopped, a real broker, seeded randomness, and a second reading of recorded runs.

pub mod agent;
pub mod agent_process;
pub mod agreement;
pub mod audit;
pub mod backend;
pub mod checkpoints;
pub mod claims;
pub mod cluster;
pub mod command;
pub mod contended_runs;
pub mod content;
pub mod counting_log;
pub mod deployment;
pub mod disk;
pub mod effect_desk;
pub mod example_records;
pub mod foreign;
pub mod gate_worker;
pub mod http_proxy;
pub mod json_schema;
pub mod kafka;
pub mod kill_fleet;
pub mod linearizability;
pub mod log_contract;
pub mod older_version;
pub mod port_fixture;
pub mod programs;
pub mod random;
pub mod recorded;
pub mod reference_server;
pub mod sample_journal;
pub mod server;
pub mod tcp_proxy;
pub mod unreadable;
pub mod writers;
