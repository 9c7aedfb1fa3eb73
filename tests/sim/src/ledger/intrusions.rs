//! The requirements for records of an intruder, and for claims whose ids two processes use. An intruder starts no call, so it may
//! neither clear nor end one.

use super::{Landed, Ledger, batches::members, skips::makes_evidence};
use crate::{intruder, ledger::run_id, plan::Via};
use runlog_schemas::{
    id::{Offset, PartitionId},
    payload::{Payload, PayloadType},
    record::JournalRecord,
};
use serde_json::Value;

/// A claim under which its process has written.
#[derive(Debug, PartialEq)]
pub(crate) struct UsedClaim {
    pub(crate) record_id: String,
    pub(crate) claimed_by: String,
    pub(crate) epoch: u64,
}

/// How often a server began or ceased to see an older end of the log.
#[derive(Debug, PartialEq)]
pub(crate) struct MovesOfEnds {
    moves: (usize, usize),
    /// Whether a server sees one now, from a deposed leader.
    pub(crate) is_deposed: bool,
}

impl Ledger {
    /// How often ends of the log moved, for answers that may be old.
    pub(crate) fn moves_of_ends(&self) -> MovesOfEnds {
        let (deposed, is_deposed) = self.deposed_since();
        MovesOfEnds { moves: (deposed, self.ends_moved), is_deposed }
    }

    /// The last claim of a run, if its process has written under it. After a skip the journal may not count its records.
    pub(crate) fn used_claim(&self, run: u32) -> Option<UsedClaim> {
        let epoch = self.claims.get(&run)?.last()?.epoch;
        if self.has_skip(run) {
            return None;
        }
        let is_of_claim = |landed: &&Landed| {
            let of_epoch = landed.record.place.writer_epoch.get() == epoch;
            of_epoch && landed.outcome == "applied" && landed.record.body.run_id.as_str() == run_id(run)
        };
        let records = || self.records.values().filter(is_of_claim).map(|landed| &landed.record);
        let has_written = records().any(|record| record.place.writer_seq.get() > 0);
        let mut claims = records().filter_map(|record| match &record.payload {
            Payload::RunClaim(claim) => Some((record, claim)),
            _ => None,
        });
        let (record, claim) = claims.next().filter(|_| has_written)?;
        let record_id = record.body.record_id.as_str().to_owned();
        Some(UsedClaim { record_id, claimed_by: claim.claimed_by.clone(), epoch })
    }

    /// A record was applied. A decision of an intruder may only repeat an earlier one. A result may not be applied in the schema
    /// version in which the judge knows the handle that started the call.
    pub(super) fn check_intrusion(&mut self, at: (PartitionId, Offset), record: &JournalRecord) {
        if !intruder::is_by(record.body.record_id.as_str()) {
            return;
        }
        let records = match &record.payload {
            Payload::Batch(batch) => batch.records.as_slice(),
            _ => std::slice::from_ref(record),
        };
        for record in records {
            let Some(request) = record.body.facts.answers.as_ref().map(|request| request.as_str()) else { continue };
            let is_foreign = match &record.payload {
                Payload::EffectResolution(_) => !self.is_cleared(request),
                Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) => self.checks_attempts,
                _ => false,
            };
            if is_foreign {
                let what = record.body.facts.payload_type.clone();
                self.fail(format!("the {what} at {}:{} of an intruder is applied to call {request}", at.0, at.1));
            }
        }
    }
    /// The writer and epoch of the process that has a run, if it claimed the run with a token. A claim straight to the log names no
    /// principal.
    pub(crate) fn claimed_by_token(&self, run: u32) -> Option<(String, u64)> {
        let claim = self.claims.get(&run)?.last()?;
        let life = self.lives.get(&claim.life?)?;
        (life.via != Via::Log).then(|| (claim.writer.clone(), claim.epoch))
    }

    /// Whether a claim of a run is applied, and no skip took it.
    pub(crate) fn has_claim(&self, run: u32, writer: &str, epoch: u64) -> bool {
        let claims = self.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        claims.iter().any(|claim| (claim.epoch, claim.writer.as_str()) == (epoch, writer))
    }

    /// A decision `adopt` takes a result of a process that started the call, however many results an intruder sent. `recovery` is an
    /// answer about a run.
    pub(crate) fn check_adoptable(&mut self, run: u32, recovery: &Value) {
        let place = (recovery["position"]["partition"].as_u64(), recovery["position"]["offset"].as_u64());
        let (Some(partition), Some(offset)) = place else { return };
        for call in recovery["pending"].as_array().into_iter().flatten() {
            let mut evidence = call["evidence"].as_array().into_iter().flatten();
            let adoptable = evidence.find(|one| one["adoptable"] == true).and_then(|one| one["record_id"].as_str());
            let (Some(request), Some(adoptable)) = (call["id"].as_str(), adoptable) else { continue };
            if !intruder::is_by(adoptable) {
                continue;
            }
            if let Some(result) = self.result_of_start(run, request, (partition, offset)) {
                self.fail(format!(
                    "`adopt` takes {adoptable} of an intruder as the result of call {request}, and not {result} of a process that \
                     started it"
                ));
            }
        }
    }

    /// A refused result before a place, which says that a call happened, of a process that started the call.
    fn result_of_start(&self, run: u32, request: &str, (partition, offset): (u64, u64)) -> Option<String> {
        // After a skip the evidence may be another.
        if self.has_skip(run) {
            return None;
        }
        let of_run = self.records.iter().filter(|((at, found), landed)| {
            let is_before = u64::from(at.get()) == partition && found.get() < offset;
            is_before && landed.record.body.run_id.as_str() == run_id(run)
        });
        let mut starts = Vec::new();
        let mut results = Vec::new();
        for (_, landed) in of_run {
            for record in members(&landed.record) {
                let facts = &record.body.facts;
                let is_of_call = facts.answers.as_ref().is_some_and(|answers| answers.as_str() == request);
                let author = (record.place.writer_epoch, record.place.writer_id.clone());
                let starts_it = match facts.payload_type.known() {
                    Some(PayloadType::ToolCallRequested) => record.body.record_id.as_str() == request,
                    Some(PayloadType::ToolCallAttempt) => is_of_call,
                    _ => false,
                };
                let is_evidence = landed.outcome == "refused" && makes_evidence(landed.reason.as_deref());
                if starts_it && landed.outcome == "applied" {
                    starts.push(author);
                } else if is_of_call && is_evidence && facts.payload_type == PayloadType::ToolCallCompleted {
                    results.push((author, record.body.record_id.as_str().to_owned()));
                }
            }
        }
        // The index knows so many starts of one epoch.
        starts.truncate(4);
        results.into_iter().find(|(author, _)| starts.contains(author)).map(|(_, id)| id)
    }
}
