//! `home`: shows the log to which a journal's servers append, sets it for a journal without one, and accepts runs of a lost home.

use super::confirm::confirm;
use crate::{
    args::{self, HomeAccept, HomeAction, HomeInit},
    client::{self, Target},
    error::Error,
    exit::Answer,
    render,
    session::{APPEND_WAIT, READ_WAIT, Session},
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::{ErrorKind, HomeSet, Journal, JournalHome, LogRole, OrOther, Outcomes, Position, Runs},
    id::{LogId, RunId},
};
use serde::Serialize;
use std::time::Duration;

pub(super) async fn run(session: &Session, args: args::Home) -> Result<Answer, Error> {
    match args.action {
        None => show(session, session.wait(&args.wait, READ_WAIT)).await,
        Some(HomeAction::Init(args)) => init(session, &args).await,
        Some(HomeAction::Accept(args)) => accept(session, &args).await,
    }
}

/// The highest number of runs in doubt that `home` counts.
const COUNT_MAX: usize = 1000;

/// The part of a server's answer that is about its log.
#[derive(Debug, Serialize)]
struct Shown {
    journal_id: String,
    topic: String,
    log_id: Option<LogId>,
    home: Option<JournalHome>,
    role: OrOther<LogRole>,
    /// The first open runs that wait because the home was lost. Absent at the journal's first home and at a mirror, and if the server does
    /// not list them.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_doubt: Option<InDoubt>,
}

/// The open runs that wait for `home accept`.
#[derive(Debug, Serialize)]
struct InDoubt {
    count: usize,
    /// Whether there are more runs.
    more: bool,
}

async fn read(session: &Session, wait: Duration) -> Result<Shown, Error> {
    let journal: Journal = session.client.get(Target::new("/v1/journal"), wait).await?;
    let Journal { journal_id, topic, log_id, home, role, .. } = journal;
    Ok(Shown { journal_id, topic, log_id, home, role, in_doubt: None })
}

async fn show(session: &Session, wait: Duration) -> Result<Answer, Error> {
    let mut shown = read(session, wait).await?;
    // A mirror does not know how many runs wait at the home now.
    let is_home = shown.role.known() == Some(&LogRole::Home) && shown.home.as_ref().is_some_and(|home| home.epoch > 1);
    if is_home {
        shown.in_doubt = in_doubt(session, wait).await;
    }
    session.output.answer(&shown, facts)?;
    Ok(Answer::Yes)
}

/// Returns `None` if the server does not list them now, or not to this credential.
async fn in_doubt(session: &Session, wait: Duration) -> Option<InDoubt> {
    let target = Target::new("/v1/runs").with_flag("in_doubt", true).with("limit", COUNT_MAX);
    let list: Runs = session.client.get(target.with("consistency", "eventual"), wait).await.ok()?;
    let Runs { runs, unavailable_partitions, next_cursor } = list;
    unavailable_partitions.is_empty().then_some(InDoubt { count: runs.len(), more: next_cursor.is_some() })
}

fn facts(shown: &Shown, text: &mut Text) {
    let effect = match shown.role.known() {
        Some(LogRole::Home) => Cell::from("this server reads the home"),
        Some(LogRole::Mirror) => {
            Cell::from("this server reads a mirror: appends and reads at latest are refused").bad()
        }
        Some(LogRole::Contested) => {
            Cell::from("two logs were made the home: appends and reads at latest are refused").bad()
        }
        _ => Cell::from("the journal has no home: a server on a copy of the topic would also accept appends").bad(),
    };
    let mut facts = vec![
        ("journal", Cell::from(&shown.journal_id)),
        ("topic", Cell::from(&shown.topic)),
        ("log", shown.log_id.as_ref().map(LogId::as_str).into()),
        ("home", shown.home.as_ref().map(|home| home.log.as_str()).into()),
        ("epoch", shown.home.as_ref().map(|home| u64::from(home.epoch)).into()),
        ("role", Cell::status(shown.role.as_str())),
        ("", effect),
    ];
    if let Some(InDoubt { count, more }) = &shown.in_doubt {
        let more = if *more { " or more" } else { "" };
        let waiting =
            format!("{count}{more} open runs wait for `runlog home accept`; `runlog runs --in-doubt` lists them");
        facts.push(("in doubt", if *count > 0 { Cell::from(waiting).bad() } else { Cell::from("no open runs") }));
    }
    text.facts(facts);
}

/// The body of `POST /v1/home`.
#[derive(Debug, Serialize)]
struct NewHome<'a> {
    log_id: &'a LogId,
    who: &'a str,
    why: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    force: bool,
}

async fn init(session: &Session, args: &HomeInit) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, APPEND_WAIT);
    let args::Attribution { who, why } = &args.attribution;
    let body = client::body(&NewHome { log_id: &args.log_id, who, why, force: args.force })?;
    let target = || Target::new("/v1/home");
    let shown = read(session, wait).await?;
    if shown.log_id.is_none() {
        let what = format!(
            "{} reports no log id: it is older than this command, or its brokers give no topic ids. Nothing happened",
            session.client.base()
        );
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let plan: HomeSet = session.client.post(target().with_flag("dry_run", true), body.clone(), wait).await?;
    if args.dry_run {
        session.output.answer(&plan, home_set)?;
        return Ok(Answer::Yes);
    }
    confirm(args.consent, &format!("make {} the home of journal {}", args.log_id, shown.journal_id), |text| {
        facts(&shown, text);
        let effect =
            "servers on other logs with this journal become read-only, once a mirror has copied the record there";
        text.facts([("effect", Cell::from(effect).bad())]);
    })?;
    let set: HomeSet = session.client.post(target(), body, wait).await?;
    session.output.answer(&set, home_set)?;
    Ok(Answer::Yes)
}

fn home_set(set: &HomeSet, text: &mut Text) {
    let outcome = if set.dry_run { "no record was appended" } else { set.outcome.as_str() };
    let positions: Vec<String> =
        set.positions.iter().map(|Position { partition, offset, .. }| format!("{partition}:{offset}")).collect();
    text.facts([
        ("home", Cell::from(set.home.log.as_str())),
        ("epoch", u64::from(set.home.epoch).into()),
        ("outcome", Cell::from(outcome)),
        ("positions", Cell::from(positions.join(", "))),
    ]);
}

/// The body of `POST /v1/home/accepts`.
#[derive(Debug, Serialize)]
struct NewAccept<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a RunId>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unknown_runs: bool,
    who: &'a str,
    why: &'a str,
}

async fn accept(session: &Session, args: &HomeAccept) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, APPEND_WAIT);
    let args::Attribution { who, why } = &args.attribution;
    let (run_id, unknown_runs) = (args.run.as_ref(), args.unknown_runs);
    let body = client::body(&NewAccept { run_id, unknown_runs, who, why })?;
    let what = run_id.map_or("all runs that this journal does not know".to_owned(), |run_id| format!("run {run_id}"));
    let shown = read(session, wait).await?;
    confirm(args.consent, &format!("let {what} continue"), |text| {
        facts(&shown, text);
        let effect =
            "agents continue without the records that only the lost home had: an effect of these records runs again";
        text.facts([("effect", Cell::from(effect).bad())]);
    })?;
    let accepted: Outcomes = session.client.post(Target::new("/v1/home/accepts"), body, wait).await?;
    session.output.answer(&accepted, |accepted, text| {
        for outcome in &accepted.outcomes {
            render::outcome(outcome, text);
        }
    })?;
    Ok(Answer::from_bool(accepted.outcomes.iter().all(|outcome| Answer::from_outcome(outcome) == Answer::Yes)))
}
