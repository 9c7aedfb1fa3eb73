//! The rules by name: each rule counts its decisions, and each can be switched off.
//!
//! A switched-off rule never applies; everything else stays. A suite that compares the product with this model notices a
//! missing rule only if some history has another answer without it, and the switches show that there is such a history.

use std::{cell::RefCell, collections::BTreeSet};

/// One rule of the journal. The names follow the specification; a comment describes the rule's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An applied record again, with the same content: no effect.
    RepeatOfApplied,
    /// A record refused for its content again: refused as it was, without another anomaly.
    RepeatOfRefused,
    /// A record that was refused for its numbers, in version 2 of the schema: judged again.
    Renumbered,
    /// A repeat whose number is the next one consumes it.
    RepeatConsumes,
    /// A repeat under another epoch or writer than the run's consumes nothing.
    RepeatOfOtherEpoch,
    /// A claim at the last epoch + 1 takes the run over.
    ClaimApplied,
    /// Any other claim is lost.
    ClaimLost,
    /// A claim that reuses a record id is a conflict.
    ClaimReusesId,
    /// A record that is not from the last claim's writer is fenced.
    FencedWriter,
    /// Before any claim only epoch 0 writes.
    FencedUnclaimed,
    /// A number beyond the next one.
    Gap,
    /// A lower number, with a new record.
    ConflictNumber,
    /// A known record id with other content.
    ConflictId,
    /// A refusal for content consumes the `writer_seq` that was the next.
    RefusalConsumesWriterSeq,
    /// A refusal for content consumes the `journal_seq` that was the next.
    RefusalConsumesJournalSeq,
    /// Kinds that need no claim are not judged by their place.
    UnclaimedKind,
    /// A numbered record carries the next `journal_seq`.
    SequenceNext,
    /// An unnumbered record carries 0.
    SequenceUnnumbered,
    /// A run starts once.
    StartedOnce,
    /// A call's result or attempt answers a pending request.
    CallTransition,
    /// The contract's effects: nothing contradicts an end.
    EffectTransition,
    /// The contract's tool calls: nothing contradicts an end but a rewritten result.
    ToolTransition,
    /// The contract's deliveries: nothing contradicts an end.
    DeliveryTransition,
    /// An effect whose result is `unknown` has not ended.
    EffectUnknown,
    /// A repeated intent starts the effect again.
    IntentAgain,
    /// A tool that was only requested may not have happened.
    ToolNotStarted,
    /// The contract's marker may repeat how an effect ended.
    TerminalMarker,
    /// An open state never goes back to an earlier one.
    NeverBack,
    /// An unknown word changes no state.
    UnknownWord,
    /// The same completion again changes nothing, and is no refusal.
    SameCompletion,
    /// A resolution answers a pending request; `adopt` needs evidence.
    ResolutionTransition,
    /// A decision is refused where its effect has a greater revision than it was made at.
    StaleDecision,
    /// A decision with a basis is refused unless that is the effect's basis.
    DecisionBasis,
    /// A decision with a basis is also refused where its effect has a greater revision than it names.
    RevisionBesideBasis,
    /// Each record about an effect gives it a basis that it never had.
    BasisNeverReturns,
    /// An attempt with a basis is refused unless that is the call's newest record.
    AttemptBasis,
    /// An attempt with a basis is refused unless the call may run again without a decision.
    AttemptPermitted,
    /// An attempt with a basis has the next number.
    AttemptNumber,
    /// An intent with that condition is refused while a call of an earlier epoch waits for a decision.
    IntentRefuses,
    /// Calls of the epoch itself do not wait for one another.
    IntentOfEpoch,
    /// A claim that shows the secret of the claim before it is made by the same handle.
    SecretShown,
    /// A record that is limited to the own effects of its handle is refused if another handle started the effect last.
    NotStartedHere,
    /// A start in an epoch whose claim has no commitment may have any handle's result.
    UncommittedStart,
    /// So may a request that only reports another system's call.
    Observed,
    /// A result that is refused for its handle is evidence.
    EvidenceNotStartedHere,
    /// A request that declares itself repeatable is safe to repeat.
    Repeatable,
    /// A key without text is no key.
    KeyWithoutText,
    /// A tool call's dedupe key is no key that its answers return.
    DedupeKeyOfCall,
    /// Other content under the id of evidence is evidence, too.
    EvidenceOfSameId,
    /// A decision without a basis counts and reads the first evidence of each id.
    EvidenceById,
    /// A decision with a basis names the evidence that it adopts.
    AdoptNamesEvidence,
    /// A `not_done` decision also names its evidence, against evidence that the effect happened.
    NotDoneNamesEvidence,
    /// A writer's own decision is applied in its epoch only.
    DecisionFenced,
    /// Resolved as done.
    ResolvedDone,
    /// Resolved by adopting the evidence.
    ResolvedAdopt,
    /// Resolved as not done: the effect may run again.
    ResolvedNotDone,
    /// Given up.
    ResolvedGiveUp,
    /// Evidence that contradicts itself says that the effect happened.
    AdoptPrefersCompleted,
    /// A later record of an effect cancels its `not_done` decision.
    NotDoneTakenBack,
    /// An attempt is a start: knowledge about the previous start does not apply to it.
    AttemptStartsAgain,
    /// A key makes a pending effect safe to run again.
    KeyIsRetrySafe,
    /// A fenced result is evidence while its effect is pending.
    EvidenceFenced,
    /// A result after the run's end is evidence, too.
    EvidenceEnded,
    /// A result that is refused for its numbers, or in a batch, is evidence, too.
    EvidenceOfNumbers,
    /// A result in a malformed batch is evidence that only decisions with a basis read.
    EvidenceOfBatch,
    /// When more evidence arrives than is kept, the oldest that does not say that the effect happened is discarded.
    EvidenceMakesRoom,
    /// For each start of an effect one result of its process is kept, even if others append many.
    EvidenceOfStart,
    /// A process that claims its run again sends its result under the later epoch.
    EvidenceOfPrincipal,
    /// A copy that another process sends is not the result of the process that started the effect.
    EvidenceCopied,
    /// A decision with a basis is about the effect whose basis it is, of whichever kind.
    DecisionOfBasis,
    /// A decision with a basis adopts a result of a process that started the effect before one of others.
    AdoptPrefersStart,
    /// A refused result that contradicts the end of its effect is kept.
    ContradictionKept,
    /// Evidence that the effect happened contradicts another result that ends the effect.
    EvidenceContradicts,
    /// Approvals are decided once.
    ApprovalTransition,
    /// Wakes have one end.
    WakeTransition,
    /// Run messages have one end, but several may get and answer one.
    MessageTransition,
    /// Proposals: denied, or applied and reverted.
    ProposalTransition,
    /// A fact stated as not valid does not change the state of its proposal.
    ProposalTakenBack,
    /// A run returns to a pool that it left.
    PoolReturned,
    /// A transaction is not staged again after its end.
    StagedOnce,
    /// Only a staged write-back can be committed.
    NotStaged,
    /// A rejection ends a staged transaction, and is applied in any case.
    RejectionTaken,
    /// A commit remains despite a later rejection.
    CommitStands,
    /// A successor rejects a dead writer's staged transaction.
    SuccessorRejects,
    /// A checkpoint covers at most the run's records.
    CheckpointCovers,
    /// A checkpoint's id is new.
    CheckpointIdTaken,
    /// A checkpoint's base is applied and not pruned.
    CheckpointBase,
    /// A checkpoint's spans are within the lists that they name.
    CheckpointSpans,
    /// A checkpoint with a wrong list hash is not returned.
    CheckpointHash,
    /// A checkpoint of an unknown schema version is not returned.
    CheckpointVersion,
    /// A covered request that was unanswered is not covered.
    CheckpointUnanswered,
    /// A prune hides checkpoints that cover less.
    PruneHides,
    /// A prune with the flag keeps the latest checkpoint that follows the run's end.
    PrunePreserves,
    /// After the run's end the only numbered records are checkpoints, recovery markers and the end of a turn.
    Ended,
    /// The end of a turn follows the run's end.
    TurnEndsLater,
    /// The contract's terminal marker ends the run.
    MarkerEndsRun,
    /// A batch takes effect whole.
    BatchApplied,
    /// One refusal refuses a batch.
    BatchRefused,
    /// An invalid batch: empty, nested, of several runs, or with numbers that do not follow one another.
    BatchShape,
    /// A record outside its run's partition.
    WrongPartition,
    /// Unreadable bytes.
    DeadLetter,
    /// An unknown schema stops the partition.
    Stopped,
    /// A skip voids its record.
    SkipVoids,
    /// A decision or an attempt that a skipped record made stale stays refused.
    SkipPermitsNothing,
    /// A skipped or displaced record counts in the revision.
    SkippedCounts,
    /// A skipped record still cancels a `not_done` decision.
    SkipRevokes,
    /// A record that a skip displaced leaves the traces of a skipped record.
    SkipDisplaces,
    /// A skip displaces no record after itself.
    SkipEnds,
    /// A request under the id of a skipped or displaced request is refused.
    RequestOfVoidCall,
    /// Between a skipped or displaced record about an effect and the skip, nothing decides about it or permits it.
    NothingBeforeSkip,
    /// A decision that names neither basis nor revision is refused while a skipped or displaced record is the newest.
    DecisionAfterSkip,
    /// A request that was skipped or displaced is an effect that may have happened.
    SkipKeepsStart,
    /// Between a skipped claim and its skip nobody writes the run.
    SkippedClaim,
    /// In a run with a skip, decisions without a basis count each refused result as evidence.
    EvidenceAfterSkip,
    /// An attempt that was not checked does not replace a skipped or displaced start.
    UncheckedAttempt,
    /// A skipped or displaced start is no handle's and no epoch's own.
    SkippedStartIsForeign,
    /// A skip of a refused record that left no trace leaves none.
    SkipOfRefused,
    /// A refused result that is skipped leaves a trace for any reason for which it is evidence.
    SkipOfLaterEvidence,
    /// A skip of a malformed batch leaves a trace of its results that only records with a basis are judged by.
    SkipOfBatch,
    /// A log that lost records cannot void an applied one: the partition stops at the skip.
    CannotRebuild,
    /// A partition begins with the journal's genesis.
    Genesis,
    /// An offset delivered before.
    Redelivered,
    /// A log that starts after the reader's position.
    Truncated,
    /// A horizon removes content.
    Retention,
    /// Records after the horizon keep their content.
    RetentionInFront,
    /// Records that were appended at or after the horizon's time keep their content.
    RetentionUntil,
    /// A checkpoint whose inherited messages are removed is not returned.
    RetentionOfMessages,
    /// Among several horizons the latest time is named.
    RetentionFurthest,
    /// An erasure removes content.
    Erasure,
    /// A retraction ends a fact from its valid time on.
    Retraction,
    /// At the same valid time an assertion wins over a retraction.
    AssertWins,
    /// A retraction of a later record has no effect.
    RetractionOfLater,
    /// A decision that ends a call states a fact about the call.
    DecisionStates,
    /// Events of one run.
    EventRun,
    /// Events of one family.
    EventFamily,
    /// Events of one kind.
    EventKind,
    /// Events about one subject.
    EventSubject,
    /// Events that relate to one reference.
    EventRelated,
    /// Events with one correlation entry.
    EventCorrelation,
    /// Events with one tag.
    EventTag,
    /// Only the first references, entries and tags of a record are indexed.
    EventEach,
    /// A long text is not indexed.
    EventText,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 142] = [
        Self::RepeatOfApplied,
        Self::RepeatOfRefused,
        Self::Renumbered,
        Self::RepeatConsumes,
        Self::RepeatOfOtherEpoch,
        Self::ClaimApplied,
        Self::ClaimLost,
        Self::ClaimReusesId,
        Self::FencedWriter,
        Self::FencedUnclaimed,
        Self::Gap,
        Self::ConflictNumber,
        Self::ConflictId,
        Self::RefusalConsumesWriterSeq,
        Self::RefusalConsumesJournalSeq,
        Self::UnclaimedKind,
        Self::SequenceNext,
        Self::SequenceUnnumbered,
        Self::StartedOnce,
        Self::CallTransition,
        Self::EffectTransition,
        Self::ToolTransition,
        Self::DeliveryTransition,
        Self::EffectUnknown,
        Self::IntentAgain,
        Self::ToolNotStarted,
        Self::TerminalMarker,
        Self::NeverBack,
        Self::UnknownWord,
        Self::SameCompletion,
        Self::ResolutionTransition,
        Self::StaleDecision,
        Self::DecisionBasis,
        Self::RevisionBesideBasis,
        Self::BasisNeverReturns,
        Self::AttemptBasis,
        Self::AttemptPermitted,
        Self::AttemptNumber,
        Self::IntentRefuses,
        Self::IntentOfEpoch,
        Self::SecretShown,
        Self::NotStartedHere,
        Self::UncommittedStart,
        Self::Observed,
        Self::EvidenceNotStartedHere,
        Self::Repeatable,
        Self::KeyWithoutText,
        Self::DedupeKeyOfCall,
        Self::EvidenceOfSameId,
        Self::EvidenceById,
        Self::AdoptNamesEvidence,
        Self::NotDoneNamesEvidence,
        Self::DecisionFenced,
        Self::ResolvedDone,
        Self::ResolvedAdopt,
        Self::ResolvedNotDone,
        Self::ResolvedGiveUp,
        Self::AdoptPrefersCompleted,
        Self::NotDoneTakenBack,
        Self::AttemptStartsAgain,
        Self::KeyIsRetrySafe,
        Self::EvidenceFenced,
        Self::EvidenceEnded,
        Self::EvidenceOfNumbers,
        Self::EvidenceOfBatch,
        Self::EvidenceMakesRoom,
        Self::EvidenceOfStart,
        Self::EvidenceOfPrincipal,
        Self::EvidenceCopied,
        Self::DecisionOfBasis,
        Self::AdoptPrefersStart,
        Self::ContradictionKept,
        Self::EvidenceContradicts,
        Self::ApprovalTransition,
        Self::WakeTransition,
        Self::MessageTransition,
        Self::ProposalTransition,
        Self::ProposalTakenBack,
        Self::PoolReturned,
        Self::StagedOnce,
        Self::NotStaged,
        Self::RejectionTaken,
        Self::CommitStands,
        Self::SuccessorRejects,
        Self::CheckpointCovers,
        Self::CheckpointIdTaken,
        Self::CheckpointBase,
        Self::CheckpointSpans,
        Self::CheckpointHash,
        Self::CheckpointVersion,
        Self::CheckpointUnanswered,
        Self::PruneHides,
        Self::PrunePreserves,
        Self::Ended,
        Self::TurnEndsLater,
        Self::MarkerEndsRun,
        Self::BatchApplied,
        Self::BatchRefused,
        Self::BatchShape,
        Self::WrongPartition,
        Self::DeadLetter,
        Self::Stopped,
        Self::SkipVoids,
        Self::SkipPermitsNothing,
        Self::SkippedCounts,
        Self::SkipRevokes,
        Self::SkipDisplaces,
        Self::SkipEnds,
        Self::RequestOfVoidCall,
        Self::NothingBeforeSkip,
        Self::DecisionAfterSkip,
        Self::SkipKeepsStart,
        Self::SkippedClaim,
        Self::EvidenceAfterSkip,
        Self::UncheckedAttempt,
        Self::SkippedStartIsForeign,
        Self::SkipOfRefused,
        Self::SkipOfLaterEvidence,
        Self::SkipOfBatch,
        Self::CannotRebuild,
        Self::Genesis,
        Self::Redelivered,
        Self::Truncated,
        Self::Retention,
        Self::RetentionInFront,
        Self::RetentionUntil,
        Self::RetentionOfMessages,
        Self::RetentionFurthest,
        Self::Erasure,
        Self::Retraction,
        Self::AssertWins,
        Self::RetractionOfLater,
        Self::DecisionStates,
        Self::EventRun,
        Self::EventFamily,
        Self::EventKind,
        Self::EventSubject,
        Self::EventRelated,
        Self::EventCorrelation,
        Self::EventTag,
        Self::EventEach,
        Self::EventText,
    ];
}

/// Which rules decided something so far, and which rules are switched off.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    broken: BTreeSet<Rule>,
    fired: RefCell<BTreeSet<Rule>>,
}

impl Rules {
    /// All rules but some.
    pub(crate) fn breaking(rules: &[Rule]) -> Self {
        Self { broken: rules.iter().copied().collect(), fired: RefCell::default() }
    }

    /// Whether the rule applies: its condition holds, and it is not switched off. Counts the application.
    pub(crate) fn fires(&self, rule: Rule, there: bool) -> bool {
        let applies = there && !self.broken.contains(&rule);
        if applies {
            self.fired.borrow_mut().insert(rule);
        }
        applies
    }

    /// Whether the rule decided something in the folded records or the answers so far.
    pub fn fired(&self, rule: Rule) -> bool {
        self.fired.borrow().contains(&rule)
    }
}
