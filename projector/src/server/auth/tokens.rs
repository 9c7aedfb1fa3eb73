//! The tokens of a server, as its file has them now.

use super::{
    caller::Caller,
    limits::Allowance,
    receipts::{KEY_BYTES, ReceiptKey, Upload},
    room::Room,
    token_file::{self, Scope, TokenFile},
};
use crate::{
    index::{Clock, executor::Executor, principal::PrincipalKey, query::visible::Visible},
    server::{
        followed::{self, Followed, Read},
        metrics::Refusals,
    },
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

/// The longest token that is looked up, bytes.
const TOKEN_BYTES_MAX: usize = 256;

/// What a token allows.
#[derive(Clone, Debug)]
pub(in crate::server) struct Grant {
    sha256: [u8; 32],
    pub(in crate::server) principal: String,
    pub(in crate::server) scopes: BTreeSet<Scope>,
    pub(in crate::server) visible: Visible,
    expires_millis: Option<u64>,
    /// Shared by all tokens of the principal, also those of a file that was read before.
    pub(super) room: Arc<Room>,
    pub(super) allowance: Allowance,
}

impl Grant {
    /// Whether another one allows the same.
    fn allows_the_same(&self, other: &Self) -> bool {
        let of = |grant: &Self| (grant.sha256, grant.expires_millis);
        of(self) == of(other)
            && self.principal == other.principal
            && self.scopes == other.scopes
            && self.visible == other.visible
    }
}

/// What was made of the file.
#[derive(Debug, Default)]
pub(super) struct Table {
    grants: HashMap<[u8; 32], Arc<Grant>>,
    /// What receipts are signed with, if the file says so.
    receipts: Option<ReceiptKey>,
    /// What principals are proven with, if the file has a key.
    principals: Option<PrincipalKey>,
}

/// The tokens that a server takes. They follow their file: it is read every 2 s.
pub struct Authentication {
    path: PathBuf,
    clock: Clock,
    table: Followed<Table>,
    /// What receipts are signed with where the file does not say so.
    own_receipts: ReceiptKey,
    /// Requests that were over a limit of their principal.
    pub(in crate::server) refusals: Refusals,
}

/// Hashes are no secrets, and nobody needs them.
impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Authentication {
    /// Reads the file. Blocking.
    ///
    /// Errors: whatever makes it unusable.
    pub fn open(path: &Path, clock: Clock) -> Result<Arc<Self>, token_file::Error> {
        let text = TokenFile::text(path)?;
        let table = table(&TokenFile::parse(&text, path)?, &Table::default())?;
        let mut key = [0; KEY_BYTES];
        let failed = |error: getrandom::Error| token_file::Error::Io { path: path.to_owned(), source: error.into() };
        getrandom::fill(&mut key).map_err(failed)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            clock,
            table: Followed::new(digest(&text), table),
            own_receipts: ReceiptKey::new(&key),
            refusals: Refusals::default(),
        }))
    }

    /// Whoever holds a token; none where it is unknown or expired.
    pub(super) fn identify(self: &Arc<Self>, token: &str) -> Option<Caller> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let sha256 = token_file::hash(token);
        let grant = self.table.now().grants.get(&sha256).cloned()?;
        let is_same = bool::from(grant.sha256.ct_eq(&sha256)) && !self.is_expired(&grant);
        is_same.then(|| Caller::Known(grant, Arc::clone(self)))
    }

    fn is_expired(&self, grant: &Grant) -> bool {
        grant.expires_millis.is_some_and(|expires| (self.clock)() >= expires)
    }

    /// Whether a token is still there, allows the same and has not expired.
    pub(super) fn is_current(&self, grant: &Grant) -> bool {
        !self.is_expired(grant)
            && self.table.now().grants.get(&grant.sha256).is_some_and(|now| now.allows_the_same(grant))
    }

    /// When tokens expire that are still taken, milliseconds since the Unix epoch, and their principals. In no order.
    pub(in crate::server) fn expiring(&self) -> Vec<(u64, String)> {
        let table = self.table.now();
        let taken = table.grants.values().filter(|grant| !self.is_expired(grant));
        taken.filter_map(|grant| Some((grant.expires_millis?, grant.principal.clone()))).collect()
    }

    /// A receipt of an upload, and when it expires.
    pub(super) fn receipt(&self, upload: Upload<'_>) -> (String, u64) {
        let now = (self.clock)();
        self.table.now().receipts.as_ref().unwrap_or(&self.own_receipts).issue(upload, now)
    }

    /// Whether a text is a receipt of this upload.
    pub(super) fn proves(&self, receipt: &str, upload: Upload<'_>) -> bool {
        let now = (self.clock)();
        self.table.now().receipts.as_ref().unwrap_or(&self.own_receipts).proves(receipt, upload, now)
    }

    /// What principals are proven with; none where the file has no key.
    pub(super) fn principal_key(&self) -> Option<PrincipalKey> {
        self.table.now().principals.clone()
    }

    /// Told when the table changes.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Table>> {
        self.table.changes()
    }

    /// Reads the file again; where it cannot be used, the tokens stay as they were, and it says so. Blocking.
    pub fn reload(&self) {
        let read = TokenFile::text(&self.path).map(|text| (digest(&text), text));
        let make = |text: String, before: &Table| table(&TokenFile::parse(&text, &self.path)?, before);
        match self.table.take(read, make) {
            Read::Same => {}
            Read::Restored | Read::Replaced => {
                let tokens = self.table.now().grants.len();
                tracing::info!(tokens, file = %self.path.display(), "the tokens were read again");
            }
            Read::Unusable(why) => {
                tracing::error!("the token file cannot be used, so the tokens stay as they were: {why}");
            }
        }
    }

    /// Why the file is not used as it is now; none if it is.
    pub(in crate::server) fn failure(&self) -> Option<String> {
        self.table.failure()
    }

    /// Reads the file every 2 s, until it is dropped.
    pub(in crate::server) async fn follow(self: Arc<Self>, executor: Executor) {
        followed::follow(executor, move || self.reload()).await;
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// The tokens of a file. A principal of `before` keeps its room, with what is in progress.
fn table(file: &TokenFile, before: &Table) -> Result<Table, token_file::Error> {
    let mut rooms: HashMap<String, Arc<Room>> =
        before.grants.values().map(|grant| (grant.principal.clone(), Arc::clone(&grant.room))).collect();
    let grants = file.checked()?.into_iter().map(|(entry, checked)| {
        let grant = Grant {
            sha256: checked.sha256,
            principal: entry.principal.clone(),
            scopes: entry.scopes.clone(),
            visible: Visible::new(checked.runs),
            expires_millis: checked.expires_millis,
            room: Arc::clone(rooms.entry(entry.principal.clone()).or_default()),
            allowance: file.limits.of(&entry.principal),
        };
        (checked.sha256, Arc::new(grant))
    });
    let key = file.receipt_key()?;
    let (receipts, principals) = (key.as_ref().map(ReceiptKey::new), key.as_ref().map(PrincipalKey::derive));
    Ok(Table { grants: grants.collect(), receipts, principals })
}
