//! Flags of `token`, which changes a file and contacts no server.

use super::decide::Consent;
use crate::value;
use clap::{Args, Subcommand};
use runlog_server::auth::token_file::Scope;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

/// The file of tokens.
#[derive(Debug, Args)]
pub(crate) struct TokensArg {
    /// File of tokens that `runlog serve --tokens` reads
    #[arg(long, env = "RUNLOG_TOKENS", value_name = "FILE")]
    pub(crate) tokens: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Make a token, print it once, and add its hash to the file; creates the file if it is missing
    Create(TokenCreate),
    /// List the tokens of the file, and the identities that authenticate by JWT or certificate
    List(TokensArg),
    /// Remove tokens from the file: servers refuse them within 5 s, and close their streams
    Revoke(TokenRevoke),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    #[command(flatten)]
    pub(crate) file: TokensArg,
    /// Who will hold the token; recorded with every decision made with it
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: String,
    /// Permissions of the token: append, read_meta, read_content, approve, resolve, operate, audit
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', required = true, value_parser = value::scope)]
    pub(crate) scopes: Vec<Scope>,
    /// For which runs: a run id, a prefix as in 'acme/*', or '*' for all. May be repeated
    #[arg(long = "runs", value_name = "PATTERN", required = true)]
    pub(crate) runs: Vec<String>,
    /// How long the token is valid, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = value::long_duration)]
    pub(crate) expires_in: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevoke {
    #[command(flatten)]
    pub(crate) file: TokensArg,
    /// Ids of tokens, as `runlog token list` prints them
    #[arg(value_name = "ID", required_unless_present = "principal")]
    pub(crate) ids: Vec<String>,
    /// Revoke all tokens and identities of this principal
    #[arg(long, value_name = "NAME", conflicts_with = "ids")]
    pub(crate) principal: Option<String>,
    #[command(flatten)]
    pub(crate) consent: Consent,
}
