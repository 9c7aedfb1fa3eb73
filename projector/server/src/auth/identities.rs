//! Principals that authenticate by a JWT or by a client certificate: the members `issuers` and `identities` of the token file.
//!
//! ```json
//! {"issuers": [{"issuer": "https://idp.example", "audience": "runlog", "algorithms": ["ES256"], "jwks_file": "jwks.json"}],
//!  "identities": [
//!    {"principal": "travel-agent", "scopes": ["append"], "runs": ["acme/*"],
//!     "jwt": {"issuer": "https://idp.example", "subject": "0oa4"}},
//!    {"principal": "worker", "scopes": ["append"], "runs": ["acme/*"], "certificate": {"uri": "spiffe://acme.example/worker"}}],
//!  "tokens": []}
//! ```
//!
//! A JWT or a certificate proves who a principal is. Permissions come only from this file.

use super::permissions::{Scope, check_grant};
use reqwest::Url;
use runlog_projector::index::query::visible::RunPattern;
use runlog_schemas::symbols;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    path::PathBuf,
};

/// Identities in a file.
pub const IDENTITIES_MAX: usize = 10_000;
/// Issuers in a file. The server may fetch keys from each.
pub const ISSUERS_MAX: usize = 16;
/// The longest issuer, audience, subject or name of a certificate, bytes.
const NAME_BYTES_MAX: usize = 2048;
/// The claim that names the subject of a JWT, unless the issuer's entry names another.
const SUBJECT_CLAIM: &str = "sub";
/// Claims that have another meaning.
const OTHER_CLAIMS: [&str; 4] = ["iss", "aud", "exp", "nbf"];

symbols! {
    /// Signature algorithms of JWTs, with their names in RFC 7518 and RFC 8037. All are asymmetric: with a shared
    /// secret, a server that checks JWTs could also make them.
    Algorithm { Rs256 = "RS256", Es256 = "ES256", EdDsa = "EdDSA" }
}

/// An issuer whose JWTs are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The required value of `iss`.
    pub issuer: String,
    /// The audience that `aud` must equal or contain.
    pub audience: String,
    /// The required `typ` of the header: `at+jwt` accepts only access tokens (RFC 9068). Default: `typ` is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typ: Option<String>,
    /// The allowed values of `alg`.
    pub algorithms: BTreeSet<Algorithm>,
    /// The file of its public keys, a JWK set (RFC 7517). A relative path starts in the folder of the token file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// The URL of its public keys: `https://…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// The certificate authorities (PEM) for fetching the keys, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_ca: Option<PathBuf>,
    /// The claim that names the subject of a JWT. Default `sub`.
    #[serde(default = "subject_claim", skip_serializing_if = "is_subject_claim")]
    pub subject_claim: String,
}

fn subject_claim() -> String {
    SUBJECT_CLAIM.to_owned()
}

fn is_subject_claim(claim: &String) -> bool {
    claim == SUBJECT_CLAIM
}

/// The subject of a JWT.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtSubject {
    /// One of the file's issuers.
    pub issuer: String,
    /// The value of its `subject_claim`.
    pub subject: String,
}

/// A subject alternative name of a certificate. The common name does not count: it is free text that authorities do not
/// check, and RFC 9525 no longer accepts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateName {
    /// A URI, such as a SPIFFE id. Compared byte by byte.
    Uri(String),
    /// A DNS name without wildcard. Case does not matter.
    Dns(String),
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(name) => write!(f, "uri:{name}"),
            Self::Dns(name) => write!(f, "dns:{name}"),
        }
    }
}

/// A principal's permissions, and the JWT or the certificate that it authenticates with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The principal, as in a token's entry.
    pub principal: String,
    /// Its permissions.
    pub scopes: BTreeSet<Scope>,
    /// For which runs: patterns, as [`RunPattern`] has them.
    pub runs: Vec<String>,
    /// It authenticates with a JWT of this subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtSubject>,
    /// It authenticates with a certificate of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateName>,
}

/// The credential of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Credential {
    /// A token of the file, by its SHA-256.
    Token([u8; 32]),
    Jwt(JwtSubject),
    Certificate(CertificateName),
}

impl Issuer {
    /// Errors: why it cannot be used, in words.
    fn check(&self) -> Result<(), String> {
        for (what, text) in
            [("issuer", &self.issuer), ("audience", &self.audience), ("subject_claim", &self.subject_claim)]
        {
            check_name(what, text)?;
        }
        if let Some(typ) = &self.typ {
            check_name("typ", typ)?;
        }
        if OTHER_CLAIMS.contains(&self.subject_claim.as_str()) {
            return Err(format!("the claim {} does not name the subject of a JWT", self.subject_claim));
        }
        if self.algorithms.is_empty() {
            return Err("no algorithm: it would allow no JWT".to_owned());
        }
        match (&self.jwks_file, &self.jwks_url) {
            (Some(_), None) if self.jwks_ca.is_some() => Err("`jwks_ca` is for a `jwks_url`".to_owned()),
            (Some(_), None) => Ok(()),
            (None, Some(url)) => match Url::parse(url) {
                Ok(url) if url.scheme() == "https" && url.username().is_empty() && url.password().is_none() => Ok(()),
                _ => Err("`jwks_url` must be a URL that starts with https:// and has no credentials".to_owned()),
            },
            _ => Err("an issuer needs one of `jwks_file` and `jwks_url`".to_owned()),
        }
    }

    /// Whether another entry names the same file or URL of keys.
    pub(super) fn has_the_keys_of(&self, other: &Self) -> bool {
        let location = |issuer: &Self| (issuer.jwks_file.clone(), issuer.jwks_url.clone(), issuer.jwks_ca.clone());
        location(self) == location(other)
    }
}

impl Identity {
    /// Errors: why it is not valid, in words.
    pub(super) fn check(&self) -> Result<(Credential, Vec<RunPattern>), String> {
        let runs = check_grant(&self.principal, &self.scopes, &self.runs)?;
        let credential = match (&self.jwt, &self.certificate) {
            (Some(jwt), None) => {
                check_name("subject", &jwt.subject)?;
                Credential::Jwt(jwt.clone())
            }
            (None, Some(CertificateName::Uri(uri))) => {
                check_name("uri", uri)?;
                Credential::Certificate(CertificateName::Uri(uri.clone()))
            }
            (None, Some(CertificateName::Dns(name))) => {
                check_name("dns", name)?;
                if name.contains('*') {
                    return Err("a `dns` name has no wildcard".to_owned());
                }
                Credential::Certificate(CertificateName::Dns(name.to_ascii_lowercase()))
            }
            _ => return Err("an identity needs one of `jwt` and `certificate`".to_owned()),
        };
        Ok((credential, runs))
    }
}

fn check_name(what: &str, text: &str) -> Result<(), String> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) {
        return Ok(());
    }
    Err(format!("`{what}` has 1 to {NAME_BYTES_MAX} bytes"))
}

/// Errors: the issuer that cannot be used, and why.
pub(super) fn check_issuers(issuers: &[Issuer]) -> Result<(), (String, String)> {
    let mut seen = HashSet::new();
    for issuer in issuers {
        let wrong = |why| (issuer.issuer.clone(), why);
        issuer.check().map_err(wrong)?;
        if !seen.insert(&issuer.issuer) {
            return Err(wrong("the file contains it twice".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::auth::token_file::TokenFile;
    use serde_json::{Value, json};
    use std::path::Path;

    /// Why a file with this issuer and this identity is refused; empty if it is accepted.
    fn refusal(issuer: Value, identity: Value) -> String {
        let mut file = json!({ "tokens": [], "issuers": [{ "issuer": "i", "audience": "a", "algorithms": ["ES256"],
            "jwks_file": "k" }], "identities": [{ "principal": "p", "scopes": ["append"], "runs": ["acme/*"],
            "jwt": { "issuer": "i", "subject": "s" } }] });
        for (at, changes) in [("issuers", issuer), ("identities", identity)] {
            for (name, value) in changes.as_object().unwrap() {
                file[at][0][name] = value.clone();
            }
        }
        let parsed = TokenFile::parse(&file.to_string(), Path::new("tokens.json"));
        parsed.map_or_else(|error| runlog_schemas::answer::with_causes(&error), |_| String::new())
    }

    #[test]
    fn an_issuer_that_could_accept_unintended_tokens_is_refused() {
        assert_eq!(refusal(json!({}), json!({})), "");
        let none = Value::Null;
        for (issuer, why) in [
            (json!({ "algorithms": [] }), "no algorithm"),
            (json!({ "algorithms": ["none"] }), "unknown variant `none`"),
            (json!({ "algorithms": ["HS256"] }), "unknown variant `HS256`"),
            (json!({ "audience": "" }), "audience"),
            (json!({ "subject_claim": "iss" }), "claim iss"),
            (json!({ "jwks_file": none }), "one of"),
            (json!({ "jwks_url": "https://h/k" }), "one of"),
            (json!({ "jwks_file": none, "jwks_url": "http://h/k" }), "https://"),
            (json!({ "jwks_ca": "c" }), "jwks_ca"),
            (json!({ "leeway": 1 }), "leeway"),
            (json!({ "issuer": "j" }), "no issuer of the file"),
        ] {
            let error = refusal(issuer.clone(), json!({}));
            assert!(error.contains(why), "{issuer}: {error}");
        }
        for (identity, why) in [
            (json!({ "scopes": [] }), "no scope"),
            (json!({ "runs": ["acme*"] }), "separator"),
            (json!({ "scopes": ["operate"] }), "all runs"),
            (json!({ "principal": "a b" }), "principal"),
            (json!({ "jwt": none }), "one of"),
            (json!({ "certificate": { "dns": "a" } }), "one of"),
            (json!({ "jwt": none, "certificate": { "dns": "*.a" } }), "wildcard"),
            (json!({ "jwt": none, "certificate": { "cn": "a" } }), "unknown variant `cn`"),
        ] {
            let error = refusal(json!({}), identity.clone());
            assert!(error.contains(why), "{identity}: {error}");
        }
    }
}
