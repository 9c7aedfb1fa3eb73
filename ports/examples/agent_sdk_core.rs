//! A run of the SDK's own kernel on Runlog's journal. Its request to the provider is an effect: the intent is recorded before it,
//! the result after it. Kill it anywhere and start it again: it continues from the journal.
//!
//! ```text
//! cargo run -p runlog-ports --features agent-sdk-core,embedded --example agent_sdk_core -- local:/tmp/journal run-1
//! ```
//!
//! The first argument is the journal, `local:DIR` or `http://HOST:PORT`; the second is the run. With any third
//! argument the provider does not answer, so that there is time to kill the process.

#![allow(clippy::print_stdout, reason = "what an example says")]

use agent_sdk_core::{
    Agent, AgentError, AgentId, AgentRuntime, InMemoryAgentEventBus, JournalRecord, JournalRecordPayload,
    PolicyDecision, PolicyKind, PolicyOutcome, PolicyRef, PolicyStage, PrivacyClass, ProviderAdapter,
    ProviderCapabilities, ProviderRequest, ProviderResponse, ProviderRouteSnapshot, ReplayMode, ReplayReducer,
    RetentionClass, RunId, RunJournalReader, RunRequest, RuntimePackage, RuntimePackageId, RuntimePolicyPort,
    SourceKind, SourceRef,
    testing::{FakeContentResolver, FakeProvider},
};
use runlog_ports::{
    agent_sdk_core::Journal,
    producer::{self, Config},
};
use std::{env, error::Error, thread};

/// Allows every run.
struct Allowed;

impl RuntimePolicyPort for Allowed {
    fn evaluate_run_start(&self, request: &RunRequest, _: &RuntimePackage) -> Result<PolicyOutcome, AgentError> {
        Ok(PolicyOutcome {
            stage: PolicyStage::Input,
            decision: PolicyDecision::allow("policy.example.allow"),
            subject: None,
            source: Some(request.source.clone()),
            destination: None,
            policy_refs: Vec::new(),
            privacy: PrivacyClass::Internal,
            retention: RetentionClass::RunScoped,
        })
    }
}

/// A provider that may never answer.
struct Provider {
    answers: FakeProvider,
    holds: bool,
}

impl ProviderAdapter for Provider {
    fn capabilities(&self) -> ProviderCapabilities {
        self.answers.capabilities()
    }

    fn complete(&self, request: &ProviderRequest) -> Result<ProviderResponse, AgentError> {
        println!("the provider is asked");
        if self.holds {
            loop {
                thread::park();
            }
        }
        self.answers.complete(request)
    }
}

fn runtime(agent: &Agent, journal: Journal, provider: Provider) -> Result<AgentRuntime, AgentError> {
    let package = RuntimePackage::builder(RuntimePackageId::new("package.example"))
        .agent(agent.snapshot())
        .provider_route(ProviderRouteSnapshot::new("provider.example", "model.example"))
        .policy(PolicyRef::with_kind(PolicyKind::RuntimePackage, "policy.example"))
        .build()?;
    AgentRuntime::builder()
        .default_package(package)
        .provider("provider.example", provider)?
        .journal(journal)
        .event_bus(InMemoryAgentEventBus::default())
        .content(FakeContentResolver::default())
        .policy(Allowed)
        .build()
}

/// Runs the example; for the arguments see above.
pub fn example(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let journal_url = arguments.next().ok_or("where is the journal?")?;
    let run = RunId::new(arguments.next().ok_or("which run?")?);
    let holds = arguments.next().is_some();
    let journal_url = producer::Journal::parse(&journal_url, None).ok_or("no journal's URL")?;
    let journal = Journal::connect(Config::new(journal_url, "example"))?;

    // The run's state: the SDK's own reducer over the journal's records. The kernel ends its turn after the run's end, which the
    // reducer does not accept.
    let records = journal.records_for_run(&run)?;
    let ended = |record: &JournalRecord| matches!(record.payload, JournalRecordPayload::TerminalResult(_));
    let end = records.iter().position(ended).map_or(records.len(), |index| index + 1);
    let mut reducer = ReplayReducer::new(ReplayMode::ResumeReplay);
    records.iter().take(end).try_for_each(|record| reducer.apply(record.clone()))?;
    let state = reducer.finish()?;
    println!("{} records, {} effects pending", records.len(), state.unsafe_pending_side_effects.len());
    if let Some(status) = state.terminal_status {
        println!("the run is {status}");
        return Ok(());
    }
    if let Some(effect) = state.unsafe_pending_side_effects.iter().find(|effect| !effect.retry_allowed) {
        return Err(format!("{} may have happened: find out, and resolve it", effect.effect_id.as_str()).into());
    }

    // A pending request has a key, and may be sent again. The kernel starts from the beginning: a record that it writes again is
    // the same, and is in the journal once.
    let agent = Agent::builder().id(AgentId::new("agent.example")).name("example").build()?;
    let provider = Provider { answers: FakeProvider::with_responses(["forty-two"]), holds };
    let runtime = runtime(&agent, journal.clone(), provider)?;
    let source = SourceRef::with_kind(SourceKind::Host, "source.example");
    let result = agent.run_text(&runtime, run.clone(), source, "what is it?")?;
    println!("{}, {} records", result.output, journal.records_for_run(&run)?.len());
    Ok(())
}

#[allow(dead_code, reason = "a test has its own")]
fn main() -> Result<(), Box<dyn Error>> {
    example(env::args().skip(1))
}
