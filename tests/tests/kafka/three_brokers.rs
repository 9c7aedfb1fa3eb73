//! A cluster of three brokers under gates and imports. A leader is killed, paused and cut off, and records are lost on
//! purpose. Without loss in Kafka, every acknowledged record is kept. No effect happens twice, histories are linearizable,
//! and servers recover by themselves. `make cluster` runs 200 faults.

use runlog_tests::{
    chaos::cluster::{
        broken_promises::Breach,
        faults::Fault,
        run::{Event, run},
    },
    random::Random,
};

/// The small disk, MiB.
const DISK_MIB: u32 = 192;

#[test]
fn gates_and_imports_survive_faults_of_a_cluster_and_lost_records_are_noticed() -> anyhow::Result<()> {
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    let events = [
        Event::Fault(Fault::LeaderKilled),
        Event::Fault(Fault::LeaderPaused),
        Event::Fault(Fault::LeaderCutFromBrokers),
        Event::Breach(Breach::UncleanElection),
        Event::Breach(Breach::TruncatedAheadOfTheIndex),
    ];
    let report = run(DISK_MIB, &events, seed, &|line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
