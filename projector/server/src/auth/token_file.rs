//! The token file: principals and their permissions. It contains the SHA-256 of each token, never a token.
//!
//! ```json
//! {"tokens": [
//!   {"principal": "travel-agent", "scopes": ["append", "read_meta", "read_content"], "runs": ["acme/*"],
//!    "sha256": "9f86…", "created": "2026-11-25T10:00:00.000Z", "expires": "2027-11-25T10:00:00.000Z"}
//! ]}
//! ```
//!
//! `expires` is optional. A principal may have several tokens with different scopes and runs. The file may also contain
//! [`Limits`], and [`identities`](super::identities) for JWTs and client certificates.

use super::{
    identities::{Credential, IDENTITIES_MAX, ISSUERS_MAX, Identity, Issuer, check_issuers},
    limits::Limits,
    permissions::{check_grant, check_principal},
    receipts::{KEY_BYTES, digest},
};
use crate::strict_json::unambiguous;
use runlog_log::private_file::{Exposure, exposure};
use runlog_projector::index::query::{parse_time, time, visible::RunPattern};
use runlog_schemas::datum::{Sha256, hex};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashSet},
    fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

pub use super::permissions::Scope;

/// The largest file, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Tokens in a file.
pub const TOKENS_MAX: usize = 10_000;
/// Random bytes of a token.
pub const SECRET_BYTES: usize = 32;
/// The prefix of every token, so that scanners find tokens in files and logs.
const TOKEN_PREFIX: &str = "runlog_";
/// Digits of a token's hash that name it.
pub const ID_DIGITS: usize = 12;

/// One token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Who holds it: ASCII letters, digits and `. _ - @ / : +`.
    pub principal: String,
    /// The permissions of its principal.
    pub scopes: BTreeSet<Scope>,
    /// For which runs: patterns, as [`RunPattern`] has them.
    pub runs: Vec<String>,
    /// SHA-256 of the token, hexadecimal.
    pub sha256: String,
    /// When it was made, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When it expires, RFC 3339; without it the token never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// The file's content.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenFile {
    /// Limits of principals that differ from the defaults.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The key that signs receipts of uploads: 32 random bytes, hexadecimal. All servers of a journal need the same
    /// key. Without it, a server accepts only its own receipts, and only until it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_key: Option<String>,
    /// The issuers whose JWTs are accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<Issuer>,
    /// Permissions of principals that authenticate by a JWT or a certificate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<Identity>,
    /// Its tokens.
    pub tokens: Vec<Entry>,
}

/// The key is a secret.
impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, issuers, identities, tokens, receipt_key: _ } = self;
        let mut shown = f.debug_struct("TokenFile");
        shown.field("limits", limits).field("issuers", issuers).field("identities", identities);
        shown.field("tokens", tokens).finish_non_exhaustive()
    }
}

/// Why a file of tokens is not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read or written.
    #[error("cannot use the token file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Users other than its owner can read, write or replace it.
    #[error("{}", exposure.message("token file", path))]
    Exposed {
        /// The file.
        path: PathBuf,
        /// How.
        exposure: Exposure,
    },
    /// The file is not JSON of this form.
    #[error("the token file {} is malformed", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// An entry is not valid.
    #[error("token {number} of the file ({principal:?}): {why}")]
    Entry {
        /// From 1 on.
        number: usize,
        /// Its principal.
        principal: String,
        /// The reason.
        why: String,
    },
    /// An identity is not valid.
    #[error("identity {number} of the file ({principal:?}): {why}")]
    Identity {
        /// From 1 on.
        number: usize,
        /// Its principal.
        principal: String,
        /// The reason.
        why: String,
    },
    /// An issuer's entry is not valid.
    #[error("issuer {issuer:?}: {why}")]
    Issuer {
        /// Its name.
        issuer: String,
        /// The reason.
        why: String,
    },
    /// An issuer's keys cannot be used.
    #[error("the keys of issuer {issuer:?} cannot be used: {why}")]
    Keys {
        /// Its name.
        issuer: String,
        /// The reason.
        why: String,
    },
    /// The name of a limited principal is not valid.
    #[error("limits of {principal:?}: {why}")]
    Limits {
        /// Its name.
        principal: String,
        /// The reason.
        why: String,
    },
    /// The key of receipts is not valid.
    #[error("the token file's `receipt_key` is not 64 hexadecimal digits in lower case")]
    ReceiptKey,
    /// There are too many, or the file is too long.
    #[error(
        "the token file {} is over its limit of {TOKENS_MAX} tokens, {IDENTITIES_MAX} identities, {ISSUERS_MAX} issuers and \
         {FILE_BYTES_MAX} bytes",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// A valid entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The hash of the token.
    pub sha256: [u8; 32],
    /// The runs.
    pub runs: Vec<RunPattern>,
    /// Milliseconds since the Unix epoch.
    pub expires_millis: Option<u64>,
}

impl Entry {
    /// Makes the entry of a new token, and the token, from `secret`.
    pub fn new(
        principal: String,
        scopes: BTreeSet<Scope>,
        runs: Vec<String>,
        secret: &[u8; SECRET_BYTES],
    ) -> (Self, String) {
        let token = format!("{TOKEN_PREFIX}{}", hex(secret));
        let sha256 = hex(&hash(&token));
        (Self { principal, scopes, runs, sha256, created: None, expires: None }, token)
    }

    /// The id of the token in lists and revocations: the first digits of its hash.
    pub fn id(&self) -> &str {
        self.sha256.get(..ID_DIGITS).unwrap_or(&self.sha256)
    }

    /// Errors: why it is not valid, in words.
    pub fn check(&self) -> Result<Checked, String> {
        let runs = check_grant(&self.principal, &self.scopes, &self.runs)?;
        let at = |text: &str| {
            parse_time(text).map(|millis| millis.max(0).cast_unsigned()).map_err(|error| error.to_string())
        };
        self.created.as_deref().map(at).transpose()?;
        let expires_millis = self.expires.as_deref().map(at).transpose()?;
        let sha256 = digest(&self.sha256).ok_or("`sha256` is not 64 hexadecimal digits in lower case")?;
        Ok(Checked { sha256, runs, expires_millis })
    }
}

/// The hash of a token.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::of(token.as_bytes()).0
}

/// Formats a time as RFC 3339.
pub fn format_time(millis: u64) -> String {
    time(millis)
}

/// Reads a file of secrets without [`exposure`].
///
/// Errors: `Io`, `Exposed`, `TooLarge`.
pub(super) fn read_private(path: &Path, bytes_max: u64) -> Result<String, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    if let Some(exposure) = exposure(&file, path).map_err(failed)? {
        return Err(Error::Exposed { path: path.to_owned(), exposure });
    }
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > bytes_max { Err(Error::TooLarge { path: path.to_owned() }) } else { Ok(text) }
}

/// An identity of the file, its credential, and its runs.
pub(super) type CheckedIdentity<'f> = (&'f Identity, Credential, Vec<RunPattern>);

impl TokenFile {
    /// Reads a file that only its owner may use.
    ///
    /// Errors: any defect makes the whole file unusable.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&read_private(path, FILE_BYTES_MAX)?, path)
    }

    pub(super) fn text(path: &Path) -> Result<String, Error> {
        read_private(path, FILE_BYTES_MAX)
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let file: Self = unambiguous(text).map_err(|source| Error::Json { path: path.to_owned(), source })?;
        let Self { tokens, identities, issuers, .. } = &file;
        if tokens.len() > TOKENS_MAX || identities.len() > IDENTITIES_MAX || issuers.len() > ISSUERS_MAX {
            return Err(Error::TooLarge { path: path.to_owned() });
        }
        file.checked()?;
        Ok(file)
    }

    /// The key of receipts.
    pub(super) fn receipt_key(&self) -> Result<Option<[u8; KEY_BYTES]>, Error> {
        self.receipt_key.as_deref().map(|text| digest(text).ok_or(Error::ReceiptKey)).transpose()
    }

    /// Checks the identities. Returns the credential and the runs of each.
    ///
    /// Errors: `Issuer` or `Identity` for the first invalid or repeated entry.
    pub(super) fn checked_identities(&self) -> Result<Vec<CheckedIdentity<'_>>, Error> {
        check_issuers(&self.issuers).map_err(|(issuer, why)| Error::Issuer { issuer, why })?;
        let mut seen = HashSet::new();
        let mut checked = Vec::with_capacity(self.identities.len());
        for (number, identity) in (1..).zip(&self.identities) {
            let wrong = |why| Error::Identity { number, principal: identity.principal.clone(), why };
            let (credential, runs) = identity.check().map_err(wrong)?;
            if let Credential::Jwt(jwt) = &credential
                && !self.issuers.iter().any(|issuer| issuer.issuer == jwt.issuer)
            {
                return Err(wrong(format!("{:?} is no issuer of the file", jwt.issuer)));
            }
            if !seen.insert(credential.clone()) {
                return Err(wrong("an earlier identity of the file has the same credential".to_owned()));
            }
            checked.push((identity, credential, runs));
        }
        Ok(checked)
    }

    /// Checks the whole file. Returns its tokens.
    ///
    /// Errors: `Entry` for the first token that is not valid or repeats a hash; `Limits` for an invalid name of a
    /// principal; `ReceiptKey`; `Issuer` or `Identity` for an invalid issuer or identity.
    pub fn checked(&self) -> Result<Vec<(&Entry, Checked)>, Error> {
        for principal in self.limits.principals() {
            check_principal(principal).map_err(|why| Error::Limits { principal: principal.to_owned(), why })?;
        }
        self.receipt_key()?;
        self.checked_identities()?;
        let mut seen = BTreeSet::new();
        let mut entries = Vec::with_capacity(self.tokens.len());
        for (number, entry) in (1..).zip(&self.tokens) {
            let wrong = |why| Error::Entry { number, principal: entry.principal.clone(), why };
            let checked = entry.check().map_err(wrong)?;
            if !seen.insert(checked.sha256) {
                return Err(wrong("another token of the file has the same hash".to_owned()));
            }
            entries.push((entry, checked));
        }
        Ok(entries)
    }

    /// Replaces the file atomically: a reader finds the old or the new file, whole. Only the owner may use it.
    ///
    /// Errors: errors of [`checked`](Self::checked), `Json`, `Io`; the file stays unchanged.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.checked()?;
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let json = |source| Error::Json { path: path.to_owned(), source };
        let text = serde_json::to_string_pretty(self).map_err(json)? + "\n";
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let write = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::File::open(folder)?.sync_all()
        };
        write().map_err(|error| {
            fs::remove_file(&temporary).ok();
            failed(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::answer::with_causes;
    use std::os::unix::fs::PermissionsExt as _;

    fn entry(scopes: &[Scope], runs: &[&str]) -> Entry {
        let runs = runs.iter().map(|text| (*text).to_owned()).collect();
        Entry::new("jo@desk".to_owned(), scopes.iter().copied().collect(), runs, &[7; 32]).0
    }

    #[test]
    fn an_entry_that_could_allow_unintended_requests_is_refused() {
        assert!(entry(&[Scope::Append], &["acme/*"]).check().is_ok());
        assert!(entry(&[Scope::Operate], &["*"]).check().is_ok());
        let mut renamed = entry(&[Scope::Append], &["*"]);
        renamed.principal = "jo (admin)".to_owned();
        for (wrong, why) in [
            (entry(&[], &["*"]), "scope"),
            (entry(&[Scope::Append], &[]), "runs"),
            (entry(&[Scope::Append], &["acme*"]), "separator"),
            (entry(&[Scope::Operate], &["acme/*"]), "all runs"),
            (renamed, "principal"),
            (Entry { sha256: "AB".repeat(32), ..entry(&[Scope::Append], &["*"]) }, "sha256"),
            (Entry { expires: Some("soon".into()), ..entry(&[Scope::Append], &["*"]) }, "soon"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_file_contains_no_token_and_only_its_owner_can_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let (entry, token) = Entry::new("a".to_owned(), [Scope::Append].into(), vec!["*".to_owned()], &[9; 32]);
        let file = TokenFile { tokens: vec![entry], ..TokenFile::default() };
        file.write(&path).unwrap();
        assert_eq!(TokenFile::read(&path).unwrap(), file);
        assert!(!fs::read_to_string(&path).unwrap().contains(&token[7..]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o644, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = TokenFile::read(&path).unwrap_err();
            assert!(matches!(error, Error::Exposed { .. }) && error.to_string().contains("tokens.json"), "{error}");
        }
        let parsed = |text: &str| TokenFile::parse(text, &path).map_err(|error| with_causes(&error));
        parsed(r#"{"tokens": [], "limits": {"*": {"streams": 1}}}"#).unwrap();
        for (text, why) in [
            (r#"{"tokens": [], "limits": {"*": {"streams": 1}, "*": {}}}"#, "two members"),
            (r#"{"tokens": [], "limits": {"*": {"streams": 1, "streams": 9}}}"#, "two members"),
            ("[{}, null, [], [], []]", "not an object"),
        ] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let twice = TokenFile { tokens: [file.tokens.clone(), file.tokens].concat(), ..TokenFile::default() };
        assert!(matches!(twice.write(&path), Err(Error::Entry { number: 2, .. })));
    }
}
