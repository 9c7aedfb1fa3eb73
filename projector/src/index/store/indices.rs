//! The list of all indices.

use super::{
    anomalies, checkpoints, contents, dead_letters, deliveries, effects, events, evolving, horizons, index::Index,
    keys, markers, meta, pools, records, runs, runs_by_time, tool_calls, turns, write_backs,
};

/// Every index, by its byte. `verify` compares them, and clients follow them by name. All other lists of indices derive
/// from this one.
pub const INDICES: [Index; 21] = [
    runs::INDEX,
    records::INDEX,
    tool_calls::INDEX,
    checkpoints::INDEX,
    effects::INDEX,
    anomalies::INDEX,
    dead_letters::INDEX,
    contents::INDEX,
    evolving::APPROVALS,
    evolving::WAKES,
    evolving::MESSAGES,
    pools::INDEX,
    markers::INDEX,
    write_backs::INDEX,
    turns::INDEX,
    evolving::PROPOSALS,
    events::INDEX,
    keys::INDEX,
    deliveries::INDEX,
    horizons::INDEX,
    runs_by_time::INDEX,
];

const _: () = {
    let (mut at, mut byte) = (0, meta::INDEX.byte);
    while at < INDICES.len() {
        assert!(INDICES[at].byte > byte, "indices are listed by their bytes, and no byte is used twice");
        byte = INDICES[at].byte;
        at += 1;
    }
};

/// The index of a key; `None` for `meta` and for unknown index bytes.
pub fn index_of(key: &[u8]) -> Option<Index> {
    INDICES.into_iter().find(|index| Some(&index.byte) == key.first())
}
