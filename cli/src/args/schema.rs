//! Flags of `schema`, which contacts no server.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Schema {
    #[command(subcommand)]
    pub(crate) action: SchemaAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaAction {
    /// List the schema versions that this command can read
    List,
    /// Print the schema of a version
    Show(SchemaShow),
    /// Check whether everything written with one schema can be read with another
    Check(SchemaCheck),
}

#[derive(Debug, Args)]
pub(crate) struct SchemaShow {
    /// Schema name and version, such as JournalRecord/v1 [default: the newest version]
    #[arg(value_name = "NAME/VERSION")]
    pub(crate) which: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaCheck {
    /// File with the schema that the records were written with
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// File with the schema to read them with
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
}
