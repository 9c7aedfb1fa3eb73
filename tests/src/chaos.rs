//! Chaos: agents work on a journal, faults hit them, and an audit compares acknowledgements, effects and journal.
//!
//! ```text
//!   deployment  × agents         × faults           → audit
//!   local log     agent process    SIGKILL            acknowledgements in the journal, effects as its calls
//!   Kafka         gate worker      SIGSTOP            stories record by record (`writers`)
//!   3 brokers     contended run    brokers, network   histories linearizable
//!                 story, probe     records lost       indices equal the log
//! ```
//!
//! The tests of each combination. Nightly tests are longer, or have rarer faults.
//!
//! | fault | agents | local log | Kafka | three brokers |
//! |---|---|---|---|---|
//! | agent killed at any moment | agent process | `takeover` | `agents` | |
//! | agent killed at each failpoint, appends in flight | agent process | | nightly `kills` | |
//! | agent paused around its intent | agent process | `takeover` | `agents` | |
//! | server killed at any moment | stories | `projector_kill` | `projector_kill` | |
//! | server killed at each failpoint, appends in flight | agent process, probes | | nightly `kills` | |
//! | server paused | two agent processes | | `gates_race` | |
//! | broker killed, paused | raw log | | `broker_loss`, `broker_pauses` | |
//! | broker paused for 1 to 60 s | requests to a server | | nightly `pauses` | nightly `pauses` |
//! | connections cut | agent process, stories | | `connections_cut` | |
//! | leader killed, paused, cut off from brokers | gate workers, contended runs, imports, probes | | | nightly `three_brokers` |
//! | six more faults of one broker | the same | | | nightly `cluster` |
//! | unclean election, truncation of records that the index lacks | a victim's calls | | | nightly `three_brokers` |
//! | truncation of records that the index has, topic recreated | the same | | | nightly `cluster` |

pub mod audit;
pub mod cluster;
pub mod contended_runs;
pub mod effect_desk;
pub mod gate_worker;
pub mod importer;
pub mod kill_fleet;
pub mod probes;
