//! What the tests that cross processes are written with: the command as a user runs it, a server that can be killed and
//! stopped, a real broker, seeded randomness, and a second reading of recorded runs.

pub mod agent;
pub mod agreement;
pub mod cable;
pub mod checkpoints;
pub mod claims;
pub mod command;
pub mod content;
pub mod cut;
pub mod described;
pub mod disk;
pub mod every_kind;
pub mod foreign;
pub mod kafka;
pub mod log_contract;
pub mod ported;
pub mod programs;
pub mod random;
pub mod recorded;
pub mod second;
pub mod served;
pub mod server;
pub mod site;
pub mod tailed;
pub mod unreadable;
pub mod way;
pub mod writers;
