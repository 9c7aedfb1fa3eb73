//! Flags of the commands that void, delete or decide something. Each command shows its plan and asks for a confirmation.

use super::options::{Deadline, PageOptions, ReadOptions, RunArg};
use crate::value;
use clap::Args;
use runlog_schemas::{
    id::{PartitionId, RecordId},
    judge::lifecycle::EffectKind,
};

/// The confirmation for scripts.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Consent {
    /// Do it without asking. Without a terminal and without --yes, nothing happens and the exit code is 2
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Who decided, recorded in the journal.
#[derive(Debug, Args)]
pub(crate) struct Attribution {
    /// Who decided; recorded in the journal
    #[arg(long, value_name = "NAME", value_parser = value::statement)]
    pub(crate) who: String,
    /// Why; recorded in the journal
    #[arg(long, value_name = "TEXT", value_parser = value::statement)]
    pub(crate) why: String,
}

#[derive(Debug, Args)]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Effect id: the record id of its request. `runlog effects --pending` lists them
    #[arg(value_name = "ID", value_parser = value::record_id)]
    pub(crate) id: RecordId,
    /// Kind of the effect, if effects of several kinds have the id: tool_call, effect, tool or output_delivery
    #[arg(long, value_name = "KIND", value_parser = value::effect_kind)]
    pub(crate) kind: Option<EffectKind>,
    #[command(flatten)]
    pub(crate) decision: Decision,
    /// Decide although the process that started the effect wrote to the run within the last 30 s: it may still record the result
    #[arg(long)]
    pub(crate) force: bool,
    /// Decide --not-done although this record says that it happened: the newest such evidence. --yes does not replace it
    #[arg(long, value_name = "RECORD_ID", value_parser = value::record_id, conflicts_with_all = ["done", "adopt", "give_up"])]
    pub(crate) against: Option<RecordId>,
    #[command(flatten)]
    pub(crate) attribution: Attribution,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Decision {
    /// It happened, with this result. A text needs quotes of its own: --done '"paid"'
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) done: Option<String>,
    /// It happened: accept the refused result that is kept as evidence
    #[arg(long)]
    pub(crate) adopt: bool,
    /// It did not happen, and no process can still do it: it may run again
    #[arg(long)]
    pub(crate) not_done: bool,
    /// The outcome cannot be determined: record the call as failed
    #[arg(long)]
    pub(crate) give_up: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) run: RunArg,
    #[command(flatten)]
    pub(crate) attribution: Attribution,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterSkip {
    /// Position of the record
    #[arg(value_name = "PARTITION:OFFSET")]
    pub(crate) position: value::LogPosition,
    #[command(flatten)]
    pub(crate) attribution: Attribution,
    /// Skip a record that can be read too: every reader loses it, and its effects wait for a decision
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would be voided, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct Retention {
    /// Payload type whose content is deleted, such as conversation_turn or tool_call_completed. Without it, the existing
    /// horizons are listed
    #[arg(value_name = "FAMILY", requires_all = ["until", "who", "why"])]
    pub(crate) family: Option<String>,
    /// Delete the content of records that the log received before this time (RFC 3339)
    #[arg(long, value_name = "TIME", requires = "family")]
    pub(crate) until: Option<String>,
    /// Who decided; recorded in the journal
    #[arg(long, value_name = "NAME", requires = "family")]
    pub(crate) who: Option<String>,
    /// Why; recorded in the journal
    #[arg(long, value_name = "TEXT", requires = "family")]
    pub(crate) why: Option<String>,
    /// Delete only in this partition [default: all partitions]
    #[arg(long, value_name = "N", requires = "family")]
    pub(crate) partition: Option<PartitionId>,
    /// Show how many records would be affected, and change nothing
    #[arg(long, requires = "family")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) page: PageOptions,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}
