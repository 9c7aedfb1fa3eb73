//! What the token file allows, as it was read last.

use super::{
    identities::{Credential, Issuer, JwtSubject},
    issuers::KeySource,
    jwks::Key,
    limits::Allowance,
    receipts::ReceiptKey,
    room::Room,
    token_file::{self, Scope, TokenFile},
};
use crate::index::{principal::PrincipalKey, query::visible::Visible};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

/// What one entry of the file allows.
#[derive(Debug)]
pub(in crate::server) struct Grant {
    pub(super) credential: Credential,
    pub(in crate::server) principal: String,
    pub(in crate::server) scopes: BTreeSet<Scope>,
    pub(in crate::server) visible: Visible,
    /// When the file says that it ends.
    pub(super) expires_millis: Option<u64>,
    /// Shared by all entries of the principal, also those of a file that was read before.
    pub(super) room: Arc<Room>,
    pub(super) allowance: Allowance,
}

impl Grant {
    /// Whether another one allows the same.
    pub(super) fn allows_the_same(&self, other: &Self) -> bool {
        self.credential == other.credential
            && self.expires_millis == other.expires_millis
            && self.principal == other.principal
            && self.scopes == other.scopes
            && self.visible == other.visible
    }
}

/// An issuer whose JWTs are taken, and its keys.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) issuer: Issuer,
    pub(super) keys: Arc<KeySource>,
}

/// What a JWT was verified by.
#[derive(Clone, Debug)]
pub(super) struct VerifiedBy {
    pub(super) trusted: Arc<Trusted>,
    pub(super) key: Arc<Key>,
}

/// What was made of the file.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) grants: HashMap<Credential, Arc<Grant>>,
    /// By the name of the issuer.
    pub(super) issuers: HashMap<String, Arc<Trusted>>,
    /// What receipts are signed with, if the file says so.
    pub(super) receipts: Option<ReceiptKey>,
    /// What principals are proven with, if the file has a key.
    pub(super) principals: Option<PrincipalKey>,
}

impl Table {
    /// A principal of `before` keeps its room, with what is in progress, and an issuer its keys. New issuers have none yet.
    ///
    /// Errors: for a file that is not valid.
    pub(super) fn new(path: &Path, file: &TokenFile, before: &Self) -> Result<Self, token_file::Error> {
        let mut rooms: HashMap<String, Arc<Room>> =
            before.grants.values().map(|grant| (grant.principal.clone(), Arc::clone(&grant.room))).collect();
        let mut grant = |credential: Credential, principal: &str, scopes: &BTreeSet<Scope>, runs, expires_millis| {
            let grant = Grant {
                credential: credential.clone(),
                principal: principal.to_owned(),
                scopes: scopes.clone(),
                visible: Visible::new(runs),
                expires_millis,
                room: Arc::clone(rooms.entry(principal.to_owned()).or_default()),
                allowance: file.limits.of(principal),
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

    /// Whether a JWT of the issuer would be verified by the same key, and checked in the same way.
    pub(super) fn still_trusts(&self, by: &VerifiedBy) -> bool {
        let now = self.issuers.get(&by.trusted.issuer.issuer);
        now.is_some_and(|now| now.issuer == by.trusted.issuer && now.keys.contains(&by.key))
    }
}
