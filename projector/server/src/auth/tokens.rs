//! Authenticates callers by the current token file.

use super::{
    grants::{Grant, Table, VerifiedBy},
    identities::{CertificateName, Credential},
    jwt::{Jwt, Refused},
    receipts::{KEY_BYTES, ReceiptKey, Upload},
    token_file::{self, TokenFile},
};
use crate::{
    client_certificate::ClientCertificate,
    metrics::Refusals,
    watched_file::{self, Reload, WatchedFile},
};
use futures_util::future::{join, join_all, pending};
use runlog_projector::index::{config::Clock, executor::Executor, principal::PrincipalKey};
use runlog_schemas::datum::Sha256;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

/// The longest token, bytes; a longer one is not looked up.
const TOKEN_BYTES_MAX: usize = 256;

/// An authenticated caller and its credential.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedCaller {
    pub(crate) grant: Arc<Grant>,
    pub(super) authentication: Arc<Authentication>,
    /// When its credential expires.
    pub(super) expires_millis: Option<u64>,
    /// The key that verified its JWT.
    verified_by: Option<VerifiedBy>,
}

/// The tokens that a server accepts. Their file is read every 2 s.
pub struct Authentication {
    path: PathBuf,
    clock: Clock,
    table: WatchedFile<Table>,
    /// The key that signs receipts if the file has none.
    own_receipts: ReceiptKey,
    /// Counts requests that exceeded a limit of their principal.
    pub(crate) refusals: Refusals,
}

/// Omits the hashes: they are no secrets, but clutter the output.
impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Authentication {
    /// Reads the file. Blocking.
    ///
    /// Errors: any defect that makes the file unusable.
    pub fn open(path: &Path, clock: Clock) -> Result<Arc<Self>, token_file::Error> {
        let text = TokenFile::text(path)?;
        let table = Table::new(path, &TokenFile::parse(&text, path)?, &Table::default())?;
        for trusted in table.issuers.values() {
            trusted.keys.reload();
            if let Some(why) = trusted.keys.failure() {
                return Err(token_file::Error::Keys { issuer: trusted.issuer.issuer.clone(), why });
            }
        }
        let mut key = [0; KEY_BYTES];
        let failed = |error: getrandom::Error| token_file::Error::Io { path: path.to_owned(), source: error.into() };
        getrandom::fill(&mut key).map_err(failed)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            clock,
            table: WatchedFile::new(digest(&text), table),
            own_receipts: ReceiptKey::new(&key),
            refusals: Refusals::default(),
        }))
    }

    /// Authenticates a token of the file or a JWT. Returns `None` if it is refused.
    pub(super) async fn identify(self: &Arc<Self>, token: &str) -> Option<AuthenticatedCaller> {
        if let Some(known) = self.by_token(token) {
            return Some(known).filter(|known| !self.is_expired(known.expires_millis));
        }
        match self.by_jwt(token).await {
            Ok(known) => Some(known),
            Err(refused) => {
                tracing::debug!("a bearer token is not in the token file, and is not a valid JWT: {refused}");
                None
            }
        }
    }

    fn by_token(self: &Arc<Self>, token: &str) -> Option<AuthenticatedCaller> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let sha256 = token_file::hash(token);
        let grant = self.table.current().grants.get(&Credential::Token(sha256)).cloned()?;
        let is_same = matches!(&grant.credential, Credential::Token(own) if bool::from(own.ct_eq(&sha256)));
        let expires_millis = grant.expires_millis;
        is_same.then(|| AuthenticatedCaller {
            grant,
            authentication: Arc::clone(self),
            expires_millis,
            verified_by: None,
        })
    }

    /// Authenticates a certificate by its names. Returns `None` if they match no identity or several.
    pub(super) fn by_certificate(self: &Arc<Self>, certificate: &ClientCertificate) -> Option<AuthenticatedCaller> {
        if self.is_expired(Some(certificate.expires_millis)) {
            return None;
        }
        let table = self.table.current();
        let grant_of = |name: &CertificateName| table.grants.get(&Credential::Certificate(name.clone()));
        let mut grants = certificate.names.iter().filter_map(grant_of);
        let grant = Arc::clone(grants.next()?);
        if grants.any(|other| other.credential != grant.credential) {
            tracing::debug!(principal = grant.principal, "refused a certificate whose names match several identities");
            return None;
        }
        let expires_millis = Some(certificate.expires_millis);
        Some(AuthenticatedCaller { grant, authentication: Arc::clone(self), expires_millis, verified_by: None })
    }

    async fn by_jwt(self: &Arc<Self>, token: &str) -> Result<AuthenticatedCaller, Refused> {
        let jwt = Jwt::parse(token)?;
        let trusted = self.table.current().issuers.get(jwt.issuer()).cloned().ok_or(Refused::Issuer)?;
        if !trusted.issuer.algorithms.contains(&jwt.algorithm()) {
            return Err(Refused::Algorithm);
        }
        let key = trusted.keys.key(jwt.kid(), jwt.algorithm()).await.ok_or(Refused::Key)?;
        let verified = jwt.verify(&trusted.issuer, &key, (self.clock)())?;
        let grant = self.table.current().of_jwt(&trusted.issuer, verified.subject).ok_or(Refused::Subject)?;
        Ok(AuthenticatedCaller {
            grant,
            authentication: Arc::clone(self),
            expires_millis: Some(verified.expires_millis),
            verified_by: Some(VerifiedBy { trusted, key }),
        })
    }

    fn is_expired(&self, expires_millis: Option<u64>) -> bool {
        expires_millis.is_some_and(|expires| (self.clock)() >= expires)
    }

    /// Whether a caller's credential is still accepted, with the same permissions.
    pub(super) fn is_current(&self, known: &AuthenticatedCaller) -> bool {
        let table = self.table.current();
        !self.is_expired(known.expires_millis)
            && table.grants.get(&known.grant.credential).is_some_and(|now| now.allows_the_same(&known.grant))
            && known.verified_by.as_ref().is_none_or(|by| table.still_trusts(by))
    }

    /// The expiry of each valid token that expires, milliseconds since the Unix epoch, and its principal; unordered.
    pub(crate) fn expiring(&self) -> Vec<(u64, String)> {
        let table = self.table.current();
        let valid = table.grants.values().filter(|grant| !self.is_expired(grant.expires_millis));
        valid.filter_map(|grant| Some((grant.expires_millis?, grant.principal.clone()))).collect()
    }

    /// Issues a receipt of an upload. Returns the receipt and its expiry.
    pub(super) fn receipt(&self, upload: Upload<'_>) -> (String, u64) {
        let now = (self.clock)();
        self.table.current().receipts.as_ref().unwrap_or(&self.own_receipts).issue(upload, now)
    }

    /// Whether a text is a valid receipt of this upload.
    pub(super) fn proves(&self, receipt: &str, upload: Upload<'_>) -> bool {
        let now = (self.clock)();
        self.table.current().receipts.as_ref().unwrap_or(&self.own_receipts).proves(receipt, upload, now)
    }

    /// The key that proves principals; absent if the file has no key.
    pub(super) fn principal_key(&self) -> Option<PrincipalKey> {
        self.table.current().principals.clone()
    }

    /// Whether the file has the key that the servers of a journal share.
    pub fn has_receipt_key(&self) -> bool {
        self.table.current().receipts.is_some()
    }

    /// Notifies when the table changes.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Table>> {
        self.table.changes()
    }

    /// Reads the token file and the files of keys again. If one is unusable, its old content stays in use, and the
    /// reason is logged. Blocking.
    pub fn reload(&self) {
        let read = TokenFile::text(&self.path).map(|text| (digest(&text), text));
        let make = |text: String, before: &Table| Table::new(&self.path, &TokenFile::parse(&text, &self.path)?, before);
        match self.table.update(read, make) {
            Reload::Same => {}
            Reload::Restored | Reload::Replaced => {
                let tokens = self.table.current().grants.len();
                tracing::info!(tokens, file = %self.path.display(), "the tokens were read again");
            }
            Reload::Unusable(why) => {
                tracing::error!("the token file cannot be used, so the old tokens stay in use: {why}");
            }
        }
        for trusted in self.table.current().issuers.values() {
            trusted.keys.reload();
        }
    }

    /// The issuers whose keys are older than their file or URL has, and why.
    pub(crate) fn key_failures(&self) -> Vec<(String, String)> {
        let table = self.table.current();
        let failed = table.issuers.iter().filter_map(|(name, trusted)| Some((name.clone(), trusted.keys.failure()?)));
        failed.collect()
    }

    /// Why the current file is not used; `None` if it is used.
    pub(crate) fn failure(&self) -> Option<String> {
        self.table.failure()
    }

    /// Reads the files every 2 s and fetches keys, until the future is dropped.
    pub(crate) async fn reload_periodically(self: Arc<Self>, executor: Executor) {
        let reloaded = Arc::clone(&self);
        let files = watched_file::reload_periodically(executor.clone(), move || reloaded.reload());
        join(files, self.fetch_issuer_keys(&executor)).await;
    }

    async fn fetch_issuer_keys(&self, executor: &Executor) {
        let mut changes = self.table.changes();
        loop {
            let table = Arc::clone(&changes.borrow_and_update());
            let fetched = join_all(table.issuers.values().map(|trusted| trusted.keys.fetch_periodically(executor)));
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                // Without issuers the fetches end at once.
                () = async { fetched.await; pending().await } => {}
            }
        }
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::of(text.as_bytes()).0
}
