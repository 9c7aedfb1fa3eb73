//! An agent whose run was open when the journal's home was lost, over each transport: no effect runs and nothing counts as done, until
//! an operator accepts the run.

use anyhow::{Context, ensure};
use runlog_log::{
    Entry, Log, LogId, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_producer::{Action, Config, Error, Journal, LoopState, Run, Runlog, SideEffect};
use runlog_projector::{
    Projector,
    index::home::{Accept, Carried, Home, Role, header},
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::{RecordId, RunId},
    payload::{Genesis, Payload},
    record::JournalRecord,
};
use runlog_tests::{agent::entry, served::Served};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const WAIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Process,
    Server,
    /// Appends to the log directly; a server answers.
    Log,
}

struct Site {
    log: MemoryLog,
    served: Served,
}

impl Site {
    async fn start() -> anyhow::Result<Self> {
        let id = LogId::memory("new");
        let log = MemoryLog::with(MemoryOptions { partitions: 1, id, ..MemoryOptions::default() });
        Ok(Self { served: Served::over(Arc::new(log.clone())).await?, log })
    }

    /// A journal of an older version, which has no home.
    async fn without_home() -> anyhow::Result<Self> {
        let id = LogId::memory("new");
        let log = MemoryLog::with(MemoryOptions { partitions: 1, id, ..MemoryOptions::default() });
        let genesis = Payload::Genesis(Genesis { journal_id: "old".into(), partitions: 1 });
        let genesis = JournalRecord::of_partition(RecordId::new("genesis".to_owned())?, "test", genesis);
        log.append(PartitionId::ZERO, vec![entry(&genesis)]).await?;
        Ok(Self { served: Served::over(Arc::new(log.clone())).await?, log })
    }

    async fn connect(&self, through: Through) -> Result<Runlog, Error> {
        let server = self.served.url("");
        match through {
            Through::Process => {
                let config = Config::new(Journal::Local("unused".into()), "agent");
                Ok(Runlog::embedded(config, self.served.projector.clone()))
            }
            Through::Server => Runlog::connect(Config::new(Journal::Http(server), "agent")).await,
            Through::Log => {
                let journal = Journal::Kafka { brokers: "unused".into(), server };
                let log: Arc<dyn Log> = Arc::new(self.log.clone());
                Runlog::connect(Config { log: Some(log), ..Config::new(journal, "agent") }).await
            }
        }
    }

    async fn end(&self) -> anyhow::Result<u64> {
        Ok(self.log.bounds(PartitionId::ZERO, WAIT).await?.end.get())
    }
}

/// Appends a record of the journal with a header, and waits until it is applied.
async fn carry(log: &MemoryLog, projector: &Projector, carried: Carried) -> anyhow::Result<()> {
    let mut reader = log.reader(&[(PartitionId::ZERO, 0_u32.into())])?;
    let genesis = reader.poll(1, Duration::ZERO)?.into_iter().next().context("a genesis")?;
    let entry = Entry { key: genesis.key, value: genesis.value, headers: vec![header(&carried)] };
    log.append(PartitionId::ZERO, vec![entry]).await?;
    Ok(projector.caught_up(PartitionId::ZERO, WAIT).await?)
}

fn takeover() -> anyhow::Result<Carried> {
    let [log, from] = ["new", "lost"].map(LogId::memory);
    let log = log.context("an id")?;
    Ok(Carried::Home(Home { epoch: 2, log, from, who: "ann".into(), why: "flood".into() }))
}

fn check_doubt<T>(what: &str, result: Result<T, Error>) -> anyhow::Result<Error> {
    let error = result.err().with_context(|| format!("{what} was not refused"))?;
    ensure!((error.kind(), error.action()) == (ErrorKind::ReconcileRequired, Action::Operator), "{what}: {error:?}");
    ensure!(error.to_string().contains("the home memory:lost was lost"), "{what}: {error}");
    Ok(error)
}

/// Calls a tool whose effect is counted.
async fn call(run: &Run, tool: &str, effects: &AtomicU32) -> Result<runlog_producer::Answer, Error> {
    let effect = |_| async {
        effects.fetch_add(1, Ordering::Relaxed);
        Ok(json!("done").into())
    };
    run.tool(tool, &1).once(effect).await
}

async fn continues_after_an_accept_only(through: Through) -> anyhow::Result<()> {
    let site = Site::start().await?;
    let runlog = site.connect(through).await?;
    let (run, other, slow, pay) =
        (runlog.open("r").await?, runlog.open("other").await?, AtomicU32::new(0), AtomicU32::new(0));
    ensure!(call(&run, "slow", &slow).await.is_ok() && slow.load(Ordering::Relaxed) == 1);

    // The home is lost while an effect runs.
    let (log, projector) = (site.log.clone(), site.served.projector.clone());
    let effect = |_| async {
        pay.fetch_add(1, Ordering::Relaxed);
        carry(&log, &projector, takeover().unwrap()).await.unwrap();
        Ok(json!("paid").into())
    };
    let paid = run.tool("pay", &1).once(effect).await;
    if through == Through::Log {
        // The log has no server in front of it. The result is in the log, and counts only after the accept.
        paid?;
    } else {
        let error = check_doubt("the result", paid)?;
        ensure!(error.side_effect() == SideEffect::Held, "{error:?}");
    }
    for _ in 0..3 {
        check_doubt("a call", call(&run, "late", &slow).await)?;
        check_doubt("a call of another handle", call(&other, "late", &slow).await)?;
    }
    ensure!((slow.load(Ordering::Relaxed), pay.load(Ordering::Relaxed)) == (1, 1), "an effect ran");
    let before = site.end().await?;
    check_doubt("a flush", run.flush().await)?;
    for run_id in ["r", "other", "unknown"] {
        let again = site.connect(through).await?;
        check_doubt("a run", again.open(run_id).await)?;
        check_doubt("a writer", again.writer(run_id).await)?;
        check_doubt("a recovery", again.recovery(run_id).await)?;
        check_doubt("a checkpoint", again.checkpoint(run_id, None).await)?;
    }
    ensure!(site.end().await? == before, "a refused call appended a record");

    let accepted: RunId = RunId::new("r".to_owned())?;
    let accept = Accept { epoch: 2, run: Some(accepted), who: "ann".into(), why: "checked".into() };
    carry(&site.log, &site.served.projector, Carried::Accept(accept)).await?;
    run.reopen().await?;
    if through != Through::Log {
        let answer = call(&run, "pay", &pay).await?;
        ensure!(answer.recorded && pay.load(Ordering::Relaxed) == 1, "the held result answers the call: {answer:?}");
    }
    let resumed = site.connect(through).await?.open("r").await?;
    for (tool, effects) in [("slow", &slow), ("pay", &pay)] {
        let answer = call(&resumed, tool, effects).await?;
        ensure!(answer.recorded && effects.load(Ordering::Relaxed) == 1, "{tool}: {answer:?}");
    }
    call(&resumed, "late", &slow).await?;
    ensure!(slow.load(Ordering::Relaxed) == 2, "a new effect runs");
    check_doubt("the run that was not accepted", call(&other, "late", &slow).await)?;
    Ok(())
}

/// A position as a request names it.
fn named(Position { partition, offset, log, .. }: &Position) -> anyhow::Result<String> {
    Ok(format!("{partition}:{offset}@{}", log.as_ref().context("a log")?))
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_after_a_takeover_name_the_own_log_and_are_taken_back() -> anyhow::Result<()> {
    let (site, effects) = (Site::start().await?, AtomicU32::new(0));
    let own = LogId::memory("new");
    carry(&site.log, &site.served.projector, takeover()?).await?;
    let all = Accept { epoch: 2, run: None, who: "ann".into(), why: "checked".into() };
    carry(&site.log, &site.served.projector, Carried::Accept(all)).await?;
    for (nth, through) in [Through::Process, Through::Server, Through::Log].into_iter().enumerate() {
        let (runlog, run_id) = (site.connect(through).await?, format!("new-{nth}"));
        let run = runlog.open(run_id.as_str()).await?;
        let turn = run.turn("user", "hello").await?;
        call(&run, "pay", &effects).await?;
        let checkpoint = run.checkpoint(&LoopState::default()).await?;
        run.flush().await?;
        let recovered = runlog.recovery(run_id.as_str()).await?.context("a recovery")?.position;
        for position in [&turn, &checkpoint, &recovered] {
            ensure!(position.log == own, "{through:?}: {position:?}");
            run.applied(position, WAIT).await?;
            let named = named(position)?;
            let place = named.split_once('@').context("a log")?.0.to_owned();
            for query in
                ["recovery?as_of=", "recovery?consistency=at-least=", "outcome?position=", "checkpoints/latest?as_of="]
            {
                let status = async |position: &str| {
                    let (status, answer) = site.served.get(&format!("/v1/runs/{run_id}/{query}{position}")).await;
                    (status, answer["reason"].clone())
                };
                // Before the first checkpoint there is none.
                let (of_own, reason) = status(&named).await;
                ensure!(reason.is_null() && (of_own == 200 || of_own == 404), "{query}{named}: {of_own} {reason}");
                for foreign in [&place, &format!("{place}@memory:lost")] {
                    ensure!(status(foreign).await == (409, json!("foreign_log")), "{query}{foreign}");
                }
            }
        }
        // Another process continues the run.
        let resumed = site.connect(through).await?.open(run_id.as_str()).await?;
        ensure!(call(&resumed, "pay", &effects).await?.recorded, "{through:?}");
    }
    ensure!(effects.load(Ordering::Relaxed) == 3, "an effect ran twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_the_process_of_the_projector_continues_a_run_after_an_accept_only() -> anyhow::Result<()> {
    continues_after_an_accept_only(Through::Process).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_server_continues_a_run_after_an_accept_only() -> anyhow::Result<()> {
    continues_after_an_accept_only(Through::Server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_appends_to_the_log_itself_continues_a_run_after_an_accept_only() -> anyhow::Result<()> {
    continues_after_an_accept_only(Through::Log).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_connected_before_its_server_knew_a_home_writes_after_a_takeover() -> anyhow::Result<()> {
    let site = Site::without_home().await?;
    let projector = &site.served.projector;
    let connected = [site.connect(Through::Server).await?, site.connect(Through::Log).await?];
    ensure!(projector.home().role() == Role::Unknown);
    let lost = LogId::memory("lost").context("an id")?;
    let home = Home { epoch: 1, log: lost, from: None, who: "ann".into(), why: "agents write here".into() };
    let accept = Accept { epoch: 2, run: None, who: "ann".into(), why: "checked".into() };
    for carried in [Carried::Home(home), takeover()?, Carried::Accept(accept)] {
        carry(&site.log, projector, carried).await?;
    }
    ensure!(projector.home().role() == Role::Home);
    for (runlog, name) in connected.iter().zip(["by-server", "by-log"]) {
        let effects = AtomicU32::new(0);
        let run = runlog.open(name).await.with_context(|| name.to_owned())?;
        call(&run, "pay", &effects).await.with_context(|| name.to_owned())?;
        ensure!(effects.load(Ordering::Relaxed) == 1);
    }
    Ok(())
}
