//! What the log and the projector suffer.

use super::{AppendFault, Step, record, world::World};
use crate::delivery::What;

#[derive(Clone, Copy)]
enum Trouble {
    Gap,
    Redeliver,
    Hold,
    Release,
    MoveStart,
    Overtake,
    Crash,
    Unreadable,
    UnknownSchema,
    Genesis,
}

impl World {
    pub(super) fn trouble(&mut self) {
        let partitions = u64::from(self.model.journal.partitions);
        let partition = u32::try_from(self.random.below(partitions)).unwrap_or(0);
        let troubles = [
            (14, Trouble::Gap),
            (20, Trouble::Redeliver),
            (9, Trouble::Hold),
            (12, Trouble::Release),
            (3, Trouble::MoveStart),
            (2, Trouble::Overtake),
            (30, Trouble::Crash),
            (12, Trouble::Unreadable),
            (6, Trouble::UnknownSchema),
            (4, Trouble::Genesis),
        ];
        match self.random.weigh(Trouble::Gap, &troubles) {
            Trouble::Gap => {
                let count = self.random.between(1, 5);
                self.ends[partition as usize] += count;
                self.step(Step::Gap { partition, count });
            }
            Trouble::Redeliver => {
                let back = self.random.between(1, 6);
                self.step(Step::Redeliver { partition, back });
            }
            Trouble::Hold => self.step(Step::Hold { partition }),
            Trouble::Release => self.step(Step::Release { partition }),
            Trouble::MoveStart => self.move_start(partition),
            Trouble::Overtake => self.overtake(partition),
            Trouble::Crash => {
                let point = self.random.below(1 << 32);
                self.step(Step::Crash { point });
            }
            Trouble::Unreadable => self.unreadable(partition),
            Trouble::UnknownSchema => {
                let what = "unknown_schema".to_owned();
                let run_id = self.random.pick(&self.runs).filter(|_| self.random.percent(60));
                let at = run_id.as_ref().map(|run_id| self.partition_of(run_id)).filter(|_| self.random.percent(90));
                let unknown = match run_id {
                    Some(run_id) => What::UnknownOfRun { what, run_id },
                    None => What::UnknownSchema { what },
                };
                self.append(at.unwrap_or(partition), unknown, AppendFault::None);
            }
            Trouble::Genesis => {
                let genesis = self.genesis();
                self.append(partition, record(genesis), AppendFault::None);
            }
        }
    }

    /// Up to where the reader is at most, so that it misses nothing.
    fn move_start(&mut self, partition: u32) {
        let read = &self.model.partitions[partition as usize];
        if read.stopped.is_none() {
            let start = self.random.below(read.next + 1).max(read.start);
            self.step(Step::MoveStart { partition, start });
        }
    }

    /// A held reader loses its place: records land, and the log's start moves past them before it sees them.
    fn overtake(&mut self, partition: u32) {
        if self.model.partitions[partition as usize].stopped.is_some() {
            return;
        }
        self.step(Step::Hold { partition });
        self.unreadable(partition);
        let start = self.ends[partition as usize];
        self.step(Step::MoveStart { partition, start });
        self.step(Step::Release { partition });
    }

    fn unreadable(&mut self, partition: u32) {
        let reason = self.random.pick(&["not_framed", "undecodable", "too_large"]).unwrap_or("not_framed");
        let bytes = self.random.between(1, 2_000_000);
        let sha256 = format!("{bytes:064x}");
        self.append(partition, What::Unreadable { reason: reason.to_owned(), sha256, bytes }, AppendFault::None);
    }
}
