//! Runs a command: from its arguments to its answer.
//!
//! ```text
//!   args ──▶ command/<name> ──▶ client ──▶ server
//!                  │
//!                  └──▶ output (answer) ──▶ exit code
//! ```

use crate::{
    args::{Cli, Command, DeadLetterAction},
    client::Client,
    config::Config,
    error::Error,
    exit::Answer,
    limits, logging,
    output::Output,
    session::Session,
};
use runlog_schemas::answer::ErrorKind;

mod anomalies;
mod cancel;
mod checkpoint;
mod confirm;
mod conformance;
mod dead_letters;
mod demo;
mod doctor;
mod effects;
mod export;
mod home;
mod import;
mod lookup;
mod manual;
mod mcp_gate;
mod overview;
mod pages;
mod publish;
mod recover;
mod retention;
mod runs;
mod schema;
mod serve;
mod tail;
mod timeline;
mod token;
mod verify;
mod whoami;

/// Runs one command.
pub(crate) fn run(cli: Cli) -> Result<Answer, Error> {
    if let Command::Serve(mut args) = cli.command {
        args.insecure_no_tls = cli.global.insecure_no_tls;
        // The log format may be in the config file.
        let config = Config::for_command(&cli.global)?;
        logging::start_of_server(&cli.global, args.log_format.or(config.serve.log_format).unwrap_or_default());
        limits::forbid_core_dumps();
        return serve::run(args, config);
    }
    logging::start(&cli.global);
    limits::forbid_core_dumps();
    match cli.command {
        Command::Demo(args) => return demo::run(&args, &cli.global),
        Command::DemoAgent(args) => return demo::run_agent(&args),
        Command::DemoDesk(args) => return demo::run_desk(&args),
        Command::Completions(args) => return manual::completions(&args),
        Command::Man(args) => return manual::pages(&args),
        Command::Schema(args) => return schema::run(args, &Output::new(cli.global.json, cli.global.quiet)),
        Command::Token(args) => return token::run(args.action, &Output::new(cli.global.json, cli.global.quiet)),
        _ => {}
    }
    let config = Config::for_command(&cli.global)?;
    let server = config.server(cli.global.server.as_deref());
    let security = config.security(&cli.global)?;
    if let Command::Conformance(args) = cli.command {
        let server_typed = cli.global.server_typed;
        return conformance::run(
            &args,
            &server,
            server_typed,
            &security,
            &Output::new(cli.global.json, cli.global.quiet),
        );
    }
    if let Command::McpGate(args) = cli.command {
        return mcp_gate::run(&args, &config, &server, security);
    }
    let client = Client::new(&server, &security)?;
    let output = Output::new(cli.global.json, cli.global.quiet);
    let session = Session { client, output, config, verbose: cli.global.verbose };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Internal, "cannot start the async runtime").because(error))?;
    runtime.block_on(ask(&session, cli.command))
}

async fn ask(session: &Session, command: Command) -> Result<Answer, Error> {
    match command {
        Command::Import(args) => import::run(session, args).await,
        Command::Export(args) => export::run(session, args).await,
        Command::Publish(args) => publish::run(session, args).await,
        Command::Runs(args) => runs::list(session, args).await,
        Command::Show(args) => timeline::show(session, args).await,
        Command::Tail(args) => tail::run(session, args).await,
        Command::Lookup(args) => lookup::run(session, args).await,
        Command::Checkpoint(args) => checkpoint::run(session, args).await,
        Command::Recover(args) => recover::run(session, args).await,
        Command::Effects(args) => effects::run(session, args).await,
        Command::Cancel(args) => cancel::run(session, args).await,
        Command::Anomalies(args) => anomalies::run(session, args).await,
        Command::DeadLetter(args) => match args.action {
            DeadLetterAction::List(args) => dead_letters::list(session, args).await,
            DeadLetterAction::Show(args) => dead_letters::show(session, args).await,
            DeadLetterAction::Skip(args) => dead_letters::skip(session, args).await,
        },
        Command::Retention(args) => retention::run(session, args).await,
        Command::Home(args) => home::run(session, args).await,
        Command::Doctor(args) => doctor::run(session, args).await,
        Command::Overview(args) => overview::run(session, args).await,
        Command::WhoAmI(args) => whoami::run(session, args).await,
        Command::Verify(args) => verify::run(session, args).await,
        Command::Demo(_)
        | Command::DemoAgent(_)
        | Command::DemoDesk(_)
        | Command::Serve(_)
        | Command::Conformance(_)
        | Command::McpGate(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Schema(_)
        | Command::Token(_) => Err(Error::new(ErrorKind::Internal, "this command has no server to ask")),
    }
}
