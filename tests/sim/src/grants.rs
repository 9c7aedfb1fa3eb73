//! The credentials of a seed with tokens: agents may append, operators may decide, and an intruder may only append.

use crate::ambient;
use runlog_schemas::datum::hex;
use runlog_server::{Options, access::AllowedHosts, auth::Authentication};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{io::Write, path::Path, sync::LazyLock};
use tempfile::NamedTempFile;

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A process of an agent, or a client that publishes.
    Agent,
    /// An operator or a reader.
    Operator,
    /// The harness, which may do everything.
    Harness,
    /// A process with the scopes of an agent that decides about effects of other processes.
    Intruder,
}

impl Sender {
    const ALL: [Self; 4] = [Self::Agent, Self::Operator, Self::Harness, Self::Intruder];

    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Harness => "harness",
            Self::Intruder => "intruder",
        }
    }

    fn scopes(self) -> &'static [&'static str] {
        match self {
            Self::Agent | Self::Intruder => &["append", "read_meta", "read_content"],
            Self::Operator => &["read_meta", "read_content", "resolve", "operate"],
            Self::Harness => &["append", "read_meta", "read_content", "resolve", "operate"],
        }
    }

    fn token(self) -> String {
        format!("runlog_of_{}", self.name())
    }

    /// The header that authenticates the sender.
    pub(crate) fn authorization(self) -> String {
        format!("Bearer {}", self.token())
    }
}

/// The options of a server that accepts the tokens of all senders.
pub(crate) fn options() -> anyhow::Result<Options> {
    static FILE: LazyLock<std::io::Result<NamedTempFile>> = LazyLock::new(|| {
        let token = |sender: &Sender| {
            json!({ "principal": sender.name(), "scopes": sender.scopes(), "runs": ["*"],
                "sha256": hex(&Sha256::digest(sender.token())) })
        };
        let tokens: Vec<_> = Sender::ALL.iter().map(token).collect();
        let mut file = NamedTempFile::new()?;
        file.write_all(json!({ "tokens": tokens }).to_string().as_bytes())?;
        Ok(file)
    });
    let path: &Path = match &*FILE {
        Ok(file) => file.path(),
        Err(error) => anyhow::bail!("the file with the tokens: {error}"),
    };
    let mut options = Options::from(AllowedHosts::default());
    options.authentication = Some(Authentication::open(path, ambient::millis)?);
    Ok(options)
}
