//! `mcp-gate`: starts the gate between an MCP client and an MCP server, and ends it.
//!
//! ```text
//!   the client closes its end ─▶ calls in flight get `--grace` ─▶ receipts recorded ─▶ the server's input ends ─▶ exit 0
//!   SIGTERM, SIGINT           ─▶ the same without the grace: calls in flight stay pending
//!   the server ends           ─▶ its calls stay pending ─▶ exit 4
//! ```

use crate::{
    ambient, args,
    config::Config,
    error::Error,
    exit::Answer,
    mcp::{
        gate::Gate,
        naming::Naming,
        policy::Policy,
        runs::Runs,
        stdio,
        upstream::{FromServer, Upstream, child, http},
    },
    signals::Signals,
};
use runlog_producer::{Config as Producer, Journal, OpenOptions, Runlog, Security, Token};
use runlog_schemas::answer::ErrorKind;
use std::{sync::Arc, time::Duration};
use tokio::{
    process::Child,
    sync::{mpsc, watch},
    time::timeout,
};

/// The environment of clients that name their session there.
const SESSION_VARIABLE: &str = "CLAUDE_CODE_SESSION_ID";
/// Time to record receipts, and to write the last lines, at the end.
const END_WAIT: Duration = Duration::from_secs(1);
/// Time to answer the calls in flight when the server has ended.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// A running server.
enum Server {
    Child(Box<Child>),
    Http(watch::Receiver<bool>),
}

pub(super) fn run(args: &args::McpGate, config: &Config, server: &str, security: Security) -> Result<Answer, Error> {
    let policy = Policy::read(args.policy.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Internal, "cannot start the async runtime").because(error))?;
    let ended = runtime.block_on(serve(args, config, server, security, policy));
    runtime.shutdown_background();
    ended
}

async fn serve(
    args: &args::McpGate,
    config: &Config,
    server: &str,
    security: Security,
    policy: Policy,
) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let runlog = Runlog::connect(producer(config, server, security)?).await?;
    let naming = Naming {
        fixed: args.run.clone(),
        session: std::env::var(SESSION_VARIABLE).ok().filter(|session| !session.is_empty()),
        connection: ambient::random_id(),
    };
    let options = OpenOptions {
        from_start: args.replay,
        allow_unresolved: policy.allow_unresolved,
        receipts: true,
        ..OpenOptions::default()
    };
    let (upstream, to_server) = Upstream::new();
    let (running, from_server) = start(args, to_server)?;
    let (client, written) = stdio::write();
    let page = format!("{}/ui/decisions", server.trim_end_matches('/'));
    let runs = Runs::new(runlog, naming, options);
    let gate = Gate::new((policy, runs), upstream.clone(), client, page, ambient::random_id);

    let (one, other) = (Arc::clone(&gate), Arc::clone(&gate));
    let mut from_client = tokio::spawn(async move { one.serve_client(stdio::read()).await });
    let mut from_server = tokio::spawn(async move { other.serve_server(from_server).await });
    let ended = tokio::select! {
        read = &mut from_client => {
            tokio::select! {
                () = gate.drain(args.grace) => {}
                _ = signals.next() => {}
                _ = &mut from_server => {}
            }
            let unreadable = |error| Error::new(ErrorKind::Invalid, "cannot read the client's messages").because(error);
            read.unwrap_or(Ok(())).map(|()| Answer::Yes).map_err(unreadable)
        }
        why = &mut from_server => {
            // The calls in flight are answered: they may have happened.
            gate.drain(ANSWER_WAIT).await;
            Err(Error::new(ErrorKind::Unavailable, why.unwrap_or_default()))
        }
        _ = signals.next() => Ok(Answer::Yes),
    };
    drop(timeout(END_WAIT, gate.save()).await);
    upstream.close();
    match running {
        Server::Child(child) => child::end(*child).await,
        Server::Http(ended) => http::end(ended).await,
    }
    from_client.abort();
    from_server.abort();
    drop(gate);
    drop(timeout(END_WAIT, written).await);
    ended
}

fn start(
    args: &args::McpGate,
    to_server: mpsc::Receiver<crate::mcp::upstream::ToServer>,
) -> Result<(Server, mpsc::Receiver<FromServer>), Error> {
    let Some(url) = &args.upstream else {
        let (child, from_server) = child::start(&args.command, to_server)?;
        return Ok((Server::Child(Box::new(child)), from_server));
    };
    let token = args.upstream_token_file.as_deref().map(Token::from_file).transpose()?;
    let security = Security { token, ..Security::default() };
    let (ended, from_server) = http::start(url, &security, to_server)?;
    Ok((Server::Http(ended), from_server))
}

/// Returns the producer's configuration, with the protection of the connection that all commands have.
fn producer(config: &Config, server: &str, security: Security) -> Result<Producer, Error> {
    let is_http = server.starts_with("http://") || server.starts_with("https://");
    let journal = Journal::parse(server, None).filter(|_| is_http);
    let journal =
        journal.ok_or_else(|| Error::usage(format!("invalid server URL {server:?}: it must start with http")))?;
    let defaults = Producer::new(journal, "mcp-gate");
    let deadline = config.deadline(None).unwrap_or(defaults.deadline);
    let Security { token, tls, insecure_no_tls } = security;
    Ok(Producer {
        claimed_by: format!("runlog mcp-gate, process {}", std::process::id()),
        token,
        tls: Some(tls),
        insecure_no_tls,
        deadline,
        ..defaults
    })
}
