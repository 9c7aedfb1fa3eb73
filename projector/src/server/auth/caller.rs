//! The sender of a request and its permissions.

use super::{
    identities::Credential, limits::Allowance, receipts::Upload, token_file::Scope, tokens::Known, usage::Usage,
};
use crate::{
    Error,
    index::{principal::Proofs, query::visible::Visible},
};
use runlog_schemas::{
    answer::{CredentialKind, ErrorKind},
    id::RunId,
};
use std::{sync::Arc, time::Duration};

/// How often a stream checks whether its caller's credential has expired.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);

/// The sender of a request. Default: `Nobody`, which has no permissions.
#[derive(Clone, Debug, Default)]
pub(in crate::server) enum Caller {
    /// The server has no authentication: everything is allowed.
    Unchecked,
    /// Not authenticated.
    #[default]
    Nobody,
    /// Authenticated.
    Known(Arc<Known>),
}

/// The principal of a request, for its line in the log.
#[derive(Clone, Debug)]
pub(in crate::server) struct Principal(pub(in crate::server) String);

impl Caller {
    /// The authenticated principal.
    pub(in crate::server) fn principal(&self) -> Option<&str> {
        match self {
            Self::Known(known) => Some(&known.grant.principal),
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// The kind of its credential.
    pub(in crate::server) fn kind(&self) -> CredentialKind {
        let Self::Known(known) = self else { return CredentialKind::Absent };
        match known.grant.credential {
            Credential::Token(_) => CredentialKind::Token,
            Credential::Jwt(_) => CredentialKind::Jwt,
            Credential::Certificate(_) => CredentialKind::Certificate,
        }
    }

    /// When its credential expires, milliseconds since the Unix epoch; none if it does not expire.
    pub(in crate::server) fn expires_millis(&self) -> Option<u64> {
        match self {
            Self::Known(known) => known.expires_millis,
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// Proves its principal and checks other proofs in a journal. Absent without tokens or without a key in their file:
    /// a random key would be lost when the server ends, and no later check could succeed.
    pub(in crate::server) fn proofs(&self, journal_id: &str) -> Option<Proofs> {
        match self {
            Self::Known(known) => Some(Proofs::new(known.authentication.principal_key()?, journal_id)),
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// Its current use and its limits.
    pub(super) fn usage(&self) -> Option<(&Usage, &Allowance)> {
        match self {
            Self::Known(known) => Some((&known.grant.usage, &known.grant.allowance)),
            Self::Unchecked | Self::Nobody => None,
        }
    }

    pub(super) fn principal_text(&self) -> Option<Principal> {
        self.principal().map(|principal| Principal(principal.to_owned()))
    }

    /// The runs that the caller may see.
    pub(in crate::server) fn visible(&self) -> Visible {
        match self {
            Self::Unchecked => Visible::default(),
            Self::Nobody => Visible::none(),
            Self::Known(known) => known.grant.visible.clone(),
        }
    }

    /// Whether it may see a run.
    pub(in crate::server) fn sees(&self, run_id: RunId<&str>) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Nobody => false,
            Self::Known(known) => known.grant.visible.contains(run_id),
        }
    }

    /// Whether it has a scope.
    pub(in crate::server) fn has(&self, scope: Scope) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Nobody => false,
            Self::Known(known) => known.grant.scopes.contains(&scope),
        }
    }

    /// Requires a scope.
    ///
    /// Errors: `Forbidden` with the name of the scope.
    pub(in crate::server) fn require(&self, scope: Scope) -> Result<(), Error> {
        self.require_one_of(&[scope])
    }

    /// Errors: `Forbidden` that names the scopes, of which one is needed.
    pub(in crate::server) fn require_one_of(&self, scopes: &[Scope]) -> Result<(), Error> {
        if scopes.iter().any(|scope| self.has(*scope)) {
            return Ok(());
        }
        Err(forbidden(format!("these credentials do not have the scope {}", names(scopes))))
    }

    /// Errors: `Forbidden` that names the scopes, of which one is needed.
    pub(super) fn require_for_all_runs(&self, scopes: &[Scope]) -> Result<(), Error> {
        if scopes.iter().any(|scope| self.has(*scope)) && self.visible().is_all() {
            return Ok(());
        }
        Err(forbidden(format!("this needs the scope {} for all runs", names(scopes))))
    }

    /// Whether it may read the content of all runs.
    pub(in crate::server) fn reads_all_content(&self) -> bool {
        self.has(Scope::ReadContent) && self.visible().is_all()
    }

    /// Whether it may read the content of a run.
    pub(in crate::server) fn reads_content_of(&self, run_id: RunId<&str>) -> bool {
        self.has(Scope::ReadContent) && self.sees(run_id)
    }

    /// Issues a receipt of an upload, with its expiry. Without tokens no receipt is needed.
    pub(in crate::server) fn receipt(&self, upload: Upload<'_>) -> Option<(String, u64)> {
        match self {
            Self::Known(known) => Some(known.authentication.receipt(upload)),
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// Whether a text is a valid receipt of this upload.
    pub(in crate::server) fn proves(&self, receipt: &str, upload: Upload<'_>) -> bool {
        match self {
            Self::Known(known) => known.authentication.proves(receipt, upload),
            Self::Unchecked | Self::Nobody => false,
        }
    }

    /// Requires that the caller may write a run. The error does not reveal whether the run exists.
    ///
    /// Errors: `Forbidden`.
    pub(super) fn require_run(&self, run_id: RunId<&str>) -> Result<(), Error> {
        if self.sees(run_id) { Ok(()) } else { Err(forbidden(format!("these credentials are not for run {run_id}"))) }
    }

    /// Resolves when its credential is revoked, changed or expired.
    pub(in crate::server) async fn ended(&self) {
        let Self::Known(known) = self else { return std::future::pending().await };
        let mut changes = known.authentication.changes();
        while known.authentication.is_current(known) {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(EXPIRY_CHECK) => {}
            }
        }
    }
}

fn names(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" or ")
}

fn forbidden(message: String) -> Error {
    Error::new(ErrorKind::Forbidden, message)
}
