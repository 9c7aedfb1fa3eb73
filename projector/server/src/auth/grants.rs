//! The permissions of the token file that was read last.

use super::{
    identities::{Credential, Issuer, JwtSubject},
    issuers::KeySource,
    jwks::Key,
    limits::Allowance,
    permissions::Scope,
    receipts::ReceiptKey,
    token_file::{self, TokenFile},
    usage::Usage,
};
use runlog_projector::index::{principal::PrincipalKey, query::visible::Visible};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

/// The permissions of one entry of the file.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(super) credential: Credential,
    pub(crate) principal: String,
    pub(crate) scopes: BTreeSet<Scope>,
    pub(crate) visible: Visible,
    /// Its expiry in the file.
    pub(super) expires_millis: Option<u64>,
    /// Shared by all entries of the principal, including entries of earlier reads of the file.
    pub(super) usage: Arc<Usage>,
    pub(super) allowance: Allowance,
}

impl Grant {
    /// Whether another grant has the same credential and permissions.
    pub(super) fn allows_the_same(&self, other: &Self) -> bool {
        self.credential == other.credential
            && self.expires_millis == other.expires_millis
            && self.principal == other.principal
            && self.scopes == other.scopes
            && self.visible == other.visible
    }
}

/// An issuer whose JWTs are accepted, and its keys.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) issuer: Issuer,
    pub(super) keys: Arc<KeySource>,
}

/// The issuer and the key that verified a JWT.
#[derive(Clone, Debug)]
pub(super) struct VerifiedBy {
    pub(super) trusted: Arc<Trusted>,
    pub(super) key: Arc<Key>,
}

/// The parsed file, indexed for lookups.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) grants: HashMap<Credential, Arc<Grant>>,
    /// By the name of the issuer.
    pub(super) issuers: HashMap<String, Arc<Trusted>>,
    /// The key that signs receipts, if the file has one.
    pub(super) receipts: Option<ReceiptKey>,
    /// The key that proves principals, if the file has one.
    pub(super) principals: Option<PrincipalKey>,
}

impl Table {
    /// Builds the table. A principal of `before` keeps its usage, which counts its requests in flight, and an issuer
    /// keeps its keys. New issuers have no keys yet.
    ///
    /// Errors: for a file that is not valid.
    pub(super) fn new(path: &Path, file: &TokenFile, before: &Self) -> Result<Self, token_file::Error> {
        let mut usages: HashMap<String, Arc<Usage>> =
            before.grants.values().map(|grant| (grant.principal.clone(), Arc::clone(&grant.usage))).collect();
        let mut grant = |credential: Credential, principal: &str, scopes: &BTreeSet<Scope>, runs, expires_millis| {
            let grant = Grant {
                credential: credential.clone(),
                principal: principal.to_owned(),
                scopes: scopes.clone(),
                visible: Visible::new(runs),
                expires_millis,
                usage: Arc::clone(usages.entry(principal.to_owned()).or_default()),
                allowance: file.limits.allowance(principal),
            };
            (credential, Arc::new(grant))
        };
        let mut grants = HashMap::new();
        for (entry, checked) in file.checked()? {
            let credential = Credential::Token(checked.sha256);
            grants.extend([grant(credential, &entry.principal, &entry.scopes, checked.runs, checked.expires_millis)]);
        }
        for (identity, credential, runs) in file.checked_identities()? {
            grants.extend([grant(credential, &identity.principal, &identity.scopes, runs, None)]);
        }
        let mut issuers = HashMap::new();
        for issuer in &file.issuers {
            let keys = match before.issuers.get(&issuer.issuer) {
                Some(known) if known.issuer.has_the_keys_of(issuer) => Arc::clone(&known.keys),
                _ => Arc::new(KeySource::new(path, issuer)),
            };
            issuers.insert(issuer.issuer.clone(), Arc::new(Trusted { issuer: issuer.clone(), keys }));
        }
        let key = file.receipt_key()?;
        let (receipts, principals) = (key.as_ref().map(ReceiptKey::new), key.as_ref().map(PrincipalKey::derive));
        Ok(Self { grants, issuers, receipts, principals })
    }

    /// The grant of a JWT's subject.
    pub(super) fn of_jwt(&self, issuer: &Issuer, subject: String) -> Option<Arc<Grant>> {
        let jwt = JwtSubject { issuer: issuer.issuer.clone(), subject };
        self.grants.get(&Credential::Jwt(jwt)).cloned()
    }

    /// Whether the issuer still has this key and the same settings.
    pub(super) fn still_trusts(&self, by: &VerifiedBy) -> bool {
        let now = self.issuers.get(&by.trusted.issuer.issuer);
        now.is_some_and(|now| now.issuer == by.trusted.issuer && now.keys.contains(&by.key))
    }
}
