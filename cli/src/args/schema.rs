//! What is typed about the schemas of records. No server is asked.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Schema {
    #[command(subcommand)]
    pub(crate) action: SchemaAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaAction {
    /// List the versions that this command reads
    List,
    /// Print a version's schema
    Show(SchemaShow),
    /// Say whether all that was written with one schema is read with another
    Check(SchemaCheck),
}

#[derive(Debug, Args)]
pub(crate) struct SchemaShow {
    /// Which one, such as JournalRecord/v1 [default: the one that is written]
    #[arg(value_name = "NAME/VERSION")]
    pub(crate) which: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaCheck {
    /// The file of the schema that records were written with
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The file of the schema that they are to be read with
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
}
