//! The sender of a request and its permissions.

use super::{
    identities::Credential,
    limits::{Allowance, Bucket, Limit},
    permissions::Scope,
    receipts::Upload,
    tokens::AuthenticatedCaller,
    usage::{CountedConnection, InProgress, Usage},
};
use crate::response_memory::ResponseMemory;
use runlog_projector::index::{error::Error, principal::Proofs, query::visible::Visible};
use runlog_schemas::{
    answer::{CredentialKind, ErrorKind},
    id::RunId,
};
use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// How often a stream checks whether its caller's credential has expired.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);

/// The sender of a request. Default: `Nobody`, which has no permissions.
#[derive(Clone, Debug, Default)]
pub(crate) enum Caller {
    /// The server has no authentication: everything is allowed.
    Unchecked,
    /// Not authenticated.
    #[default]
    Nobody,
    /// Authenticated.
    Known(Arc<AuthenticatedCaller>),
}

/// The principal of a request, for its line in the log.
#[derive(Clone, Debug)]
pub(crate) struct Principal(pub(crate) String);

impl Caller {
    /// The authenticated principal.
    pub(crate) fn principal(&self) -> Option<&str> {
        match self {
            Self::Known(known) => Some(&known.grant.principal),
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// The kind of its credential.
    pub(crate) fn kind(&self) -> CredentialKind {
        let Self::Known(known) = self else { return CredentialKind::Absent };
        match known.grant.credential {
            Credential::Token(_) => CredentialKind::Token,
            Credential::Jwt(_) => CredentialKind::Jwt,
            Credential::Certificate(_) => CredentialKind::Certificate,
        }
    }

    /// When its credential expires, milliseconds since the Unix epoch; `None` if it does not expire.
    pub(crate) fn expires_millis(&self) -> Option<u64> {
        match self {
            Self::Known(known) => known.expires_millis,
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// Proves its principal and checks other proofs in a journal. Absent without tokens or without a key in their file:
    /// a random key would be lost when the server ends, and no later check could succeed.
    pub(crate) fn proofs(&self, journal_id: &str) -> Option<Proofs> {
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
    pub(crate) fn visible(&self) -> Visible {
        match self {
            Self::Unchecked => Visible::default(),
            Self::Nobody => Visible::none(),
            Self::Known(known) => known.grant.visible.clone(),
        }
    }

    /// Whether it may see a run.
    pub(crate) fn sees(&self, run_id: RunId<&str>) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Nobody => false,
            Self::Known(known) => known.grant.visible.contains(run_id),
        }
    }

    /// Whether it has a scope.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Nobody => false,
            Self::Known(known) => known.grant.scopes.contains(&scope),
        }
    }

    /// Requires a scope.
    ///
    /// Errors: `Forbidden` with the name of the scope.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), Error> {
        self.require_one_of(&[scope])
    }

    /// Errors: `Forbidden` that names the scopes, of which one is needed.
    pub(crate) fn require_one_of(&self, scopes: &[Scope]) -> Result<(), Error> {
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
    pub(crate) fn reads_all_content(&self) -> bool {
        self.has(Scope::ReadContent) && self.visible().is_all()
    }

    /// Whether it may read the content of a run.
    pub(crate) fn reads_content_of(&self, run_id: RunId<&str>) -> bool {
        self.has(Scope::ReadContent) && self.sees(run_id)
    }

    /// Issues a receipt of an upload, with its expiry. Without tokens no receipt is needed.
    pub(crate) fn receipt(&self, upload: Upload<'_>) -> Option<(String, u64)> {
        match self {
            Self::Known(known) => Some(known.authentication.receipt(upload)),
            Self::Unchecked | Self::Nobody => None,
        }
    }

    /// Whether a text is a valid receipt of this upload.
    pub(crate) fn proves(&self, receipt: &str, upload: Upload<'_>) -> bool {
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
    pub(crate) async fn ended(&self) {
        let Self::Known(known) = self else { return std::future::pending().await };
        let mut changes = known.authentication.changes();
        while known.authentication.is_current(known) {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(EXPIRY_CHECK) => {}
            }
        }
    }

    /// Whether a connection counts for its principal.
    pub(crate) fn counts(&self, connection: &CountedConnection) -> bool {
        self.usage().is_some_and(|(usage, _)| Arc::ptr_eq(&usage.connections, &connection.0.0))
    }

    /// Counts a connection until it ends. Without tokens it is not counted.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(crate) fn connection(&self) -> Result<Option<CountedConnection>, Error> {
        Ok(self.count_in_progress(Limit::Connections, |usage| &usage.connections)?.map(CountedConnection))
    }

    /// Counts a request until it is answered. Without tokens it is not counted.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(super) fn request(&self) -> Result<Option<InProgress>, Error> {
        self.take(Limit::RequestsPerSecond, 1)?;
        self.count_in_progress(Limit::RequestsInProgress, |usage| &usage.requests)
    }

    /// Counts a stream of a run until it ends.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(crate) fn stream(&self) -> Result<Option<InProgress>, Error> {
        self.count_in_progress(Limit::Streams, |usage| &usage.streams)
    }

    /// Counts a stream of all runs until it ends; a server allows few.
    pub(crate) fn stream_of_all_runs(&self) -> Result<Option<InProgress>, Error> {
        self.count_in_progress(Limit::StreamsOfAllRuns, |usage| &usage.streams_of_all_runs)
    }

    /// Waits for memory for a long body, in KiB.
    pub(crate) async fn body(&self, kilobytes: u32) -> Option<OwnedSemaphorePermit> {
        let (usage, _) = self.usage()?;
        // It is never closed.
        usage.bodies.clone().acquire_many_owned(kilobytes).await.ok()
    }

    /// Waits for a permit to fold a past state of a run.
    pub(crate) async fn past_permit(&self) -> Option<OwnedSemaphorePermit> {
        let (usage, _) = self.usage()?;
        // It is never closed.
        usage.pasts.clone().acquire_owned().await.ok()
    }

    /// The principal's share of the quotas of large answers; absent without tokens.
    pub(crate) fn response_memory(&self) -> Option<&ResponseMemory> {
        self.usage().map(|(usage, _)| &usage.response_memory)
    }

    fn count_in_progress(
        &self,
        limit: Limit,
        counter: impl Fn(&Usage) -> &Arc<AtomicU64>,
    ) -> Result<Option<InProgress>, Error> {
        let Some((usage, allowance)) = self.usage() else { return Ok(None) };
        let max = allowance.get(limit);
        // Counts before it compares: a race can refuse a request too many, but never admits one too many.
        let in_progress = InProgress(Arc::clone(counter(usage)));
        if in_progress.0.fetch_add(1, Ordering::Relaxed) < max {
            return Ok(Some(in_progress));
        }
        Err(self.over(limit, max, None))
    }

    /// Takes an amount of a limit per time if any of the limit is left. The amount may exceed the remainder.
    ///
    /// Errors: `Overloaded` if the limit is used up. Nothing happened, and the error has the time of the retry.
    pub(crate) fn take(&self, limit: Limit, amount: u64) -> Result<(), Error> {
        let result = self.bucket(limit, |bucket, max, now| match bucket.wait(limit, max, now) {
            None => {
                bucket.take(limit, max, amount, now);
                Ok(())
            }
            Some(wait) => Err((max, wait)),
        });
        result.unwrap_or(Ok(())).map_err(|(max, wait)| self.over(limit, max, Some(wait)))
    }

    /// Takes an amount that was used already, even beyond the limit.
    pub(crate) fn owe(&self, limit: Limit, amount: u64) {
        self.bucket(limit, |bucket, max, now| bucket.take(limit, max, amount, now));
    }

    /// Changes the use of a limit per time. Returns none without such a limit.
    fn bucket<T>(&self, limit: Limit, change: impl FnOnce(&mut Bucket, u64, Instant) -> T) -> Option<T> {
        let (usage, allowance) = self.usage()?;
        let mut rates = usage.rates.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(rates.bucket(limit)?, allowance.get(limit), Instant::now()))
    }

    fn over(&self, limit: Limit, max: u64, wait: Option<Duration>) -> Error {
        if let Self::Known(known) = self {
            known.authentication.refusals.count(limit);
        }
        let what = limit.in_words();
        let message =
            format!("this principal is at its limit of {max} {what}; nothing happened, send this request again later");
        let error = Error::new(ErrorKind::Overloaded, message);
        if let Some(wait) = wait { error.retry_after(wait) } else { error }
    }
}

fn names(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" or ")
}

fn forbidden(message: String) -> Error {
    Error::new(ErrorKind::Forbidden, message)
}
