//! `demo`: prints the story and the figures of the demo. `demo-agent` and `demo-desk`: its processes.

use crate::{
    args::{self, Global},
    error::Error,
    exit::Answer,
    limits, listen,
    output::{self, Output},
    signals::Signals,
};
use runlog_demo::{Counter, Played, Setup, seed_from};
use runlog_schemas::answer::ErrorKind;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use story::Story;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime};

mod story;

/// Default number of agents.
const AGENTS: u32 = 300;
/// Time limit for the tasks to end when the demo is interrupted.
const END_WAIT: Duration = Duration::from_secs(5);

/// Runs one agent of the demo.
pub(super) fn run_agent(args: &args::DemoAgent) -> Result<Answer, Error> {
    runlog_demo::end_with_parent();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(no_runtime)?;
    let args::DemoAgent { journal, desk, seed, number, keyed } = args;
    let life = runtime.block_on(runlog_demo::run_agent(journal, *desk, *seed, *number, *keyed))?;
    output::document(&life)?;
    Ok(Answer::Yes)
}

/// Runs the demo's desk until stdin closes. Its first line on stdout contains its address.
pub(super) fn run_desk(args: &args::DemoDesk) -> Result<Answer, Error> {
    runlog_demo::end_with_parent();
    let failed = |what: &'static str| move |error: io::Error| Error::new(ErrorKind::Internal, what).because(error);
    let desk = Counter::open(&args.ledger).map_err(failed("the desk cannot open its ledger or its port"))?;
    let address = desk.address().map_err(failed("the desk cannot listen"))?;
    output::document(&serde_json::json!({ "listening": address }))?;
    desk.serve().map_err(failed("the desk cannot listen any more"))?;
    Ok(Answer::Yes)
}

fn no_runtime(error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, "cannot start the async runtime").because(error)
}

/// Runs the demo.
pub(super) fn run(args: &args::Demo, global: &Global) -> Result<Answer, Error> {
    let output = Output::new(global.json, global.quiet);
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(no_runtime)?;
    let mut folder = Folder::new(args.data.as_deref(), args.keep)?;
    let result = runtime.block_on(until_ended(args, &mut folder, &output));
    // Aborts the remaining tasks, which kills their processes.
    runtime.shutdown_timeout(END_WAIT);
    result
}

/// Runs the demo. With `--serve` it then serves the journal until a signal.
async fn until_ended(args: &args::Demo, folder: &mut Folder, output: &Output) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let result = tokio::select! {
        result = play(args, folder, output) => result,
        _ = signals.next() => return Err(Error::new(ErrorKind::Unavailable, "the demo was interrupted")),
    };
    let played = result.map_err(|error| {
        if error.is_output_closed() {
            return error;
        }
        folder.keep();
        let what = format!("the demo failed; its log, index and ledger are in {}", folder.path.display());
        Error::new(error.kind(), what).because(error)
    })?;
    let proved = played.figures.proved;
    if args.serve {
        signals.next().await;
    }
    played.end().await?;
    Ok(Answer::from_bool(proved))
}

/// Runs all steps of the demo and prints them. Leaves the journal open.
async fn play(args: &args::Demo, folder: &mut Folder, output: &Output) -> Result<Played, Error> {
    let agents = args.agents.unwrap_or(AGENTS);
    let seed = args.seed.unwrap_or_else(|| seed_from(&crate::ambient::random_id()));
    if let Some(address) = &args.listen {
        // Fail now rather than after the demo. The port is bound again at the end.
        let listener = listen::bind(address).await?;
        if !listener.local_addr().is_ok_and(|address| address.ip().is_loopback()) {
            return Err(Error::usage(format!(
                "the demo is for this machine only: {address} is not a loopback address, such as 127.0.0.1:7071"
            )));
        }
    }
    let mut story = Story::begin(output, agents, seed, &folder.path, folder.stays())?;
    let setup =
        Setup { folder: folder.path.clone(), clock: crate::ambient::now_millis, random_id: crate::ambient::random_id };
    let open_files = limits::raise_open_files();
    let mut played = runlog_demo::play(setup, seed, agents, open_files, |event| story.tell(event)).await?;
    if args.serve {
        played = played.serve(bind(args.listen.as_deref()).await?).await?;
    }
    let figures = &mut played.figures;
    if !figures.proved {
        folder.keep();
    }
    figures.data = folder.stays().then(|| folder.path.clone());
    story.end(figures)?;
    output.conclude(figures)?;
    Ok(played)
}

/// Listens at `address`, by default at the default address or, if that is in use, at a free port.
async fn bind(address: Option<&str>) -> Result<TcpListener, Error> {
    match address {
        Some(address) => listen::bind(address).await,
        None => match listen::bind(listen::DEFAULT).await {
            Ok(listener) => Ok(listener),
            Err(_) => listen::bind("127.0.0.1:0").await,
        },
    }
}

/// The folder of a demo, which was empty at the start. The drop deletes it, unless it must stay.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Folder {
    /// Creates the requested folder, which stays, or a temporary folder.
    fn new(data: Option<&Path>, keep: bool) -> Result<Self, Error> {
        let temp = std::env::temp_dir();
        let unusable = |error: io::Error| {
            let path = data.unwrap_or(&temp).display();
            let what = format!("cannot use folder {path}; choose another with --data");
            Error::new(ErrorKind::Invalid, what).because(error)
        };
        let Some(path) = data else {
            let temporary = tempfile::Builder::new().prefix("runlog-demo-").tempdir().map_err(unusable)?;
            let mut folder = Self { path: temporary.path().to_owned(), temporary: Some(temporary) };
            if keep {
                folder.keep();
            }
            return Ok(folder);
        };
        std::fs::create_dir_all(path).map_err(unusable)?;
        if std::fs::read_dir(path).map_err(unusable)?.next().is_some() {
            let what = format!("folder {} is not empty; choose an empty or new folder with --data", path.display());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self { path: path.to_owned(), temporary: None })
    }

    fn stays(&self) -> bool {
        self.temporary.is_none()
    }

    /// Keeps the folder for inspection.
    fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = temporary.keep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_own_folder_is_removed_and_a_folder_with_files_is_refused() {
        let temporary = Folder::new(None, false).unwrap();
        let path = temporary.path.clone();
        std::fs::write(path.join("x"), "x").unwrap();
        drop(temporary);
        assert!(!path.exists());

        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        drop(Folder::new(Some(&folder), false).unwrap());
        assert!(folder.exists());
        std::fs::write(folder.join("x"), "x").unwrap();
        assert_eq!(Folder::new(Some(&folder), false).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
