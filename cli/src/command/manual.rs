//! `completions` and `man`: generated from the same definition as the help.

use crate::{
    args::{Cli, Completions, Man},
    error::Error,
    exit::Answer,
    output,
};
use clap::CommandFactory;
use runlog_schemas::answer::ErrorKind;

pub(super) fn completions(args: &Completions) -> Result<Answer, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "runlog", &mut script);
    output::raw(&script)?;
    Ok(Answer::Yes)
}

pub(super) fn pages(args: &Man) -> Result<Answer, Error> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot write manual pages to {}; name a folder that you may write to", args.dir.display());
        Error::new(ErrorKind::Invalid, what).because(error)
    };
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)?;
    Ok(Answer::Yes)
}
