//! JSON Web Tokens (RFC 7519), signed in JWS's compact form (RFC 7515).
//!
//! ```text
//!   base64url(header) . base64url(claims) . base64url(signature)
//!     alg, kid, typ       iss, aud, exp, nbf, sub
//! ```
//!
//! Signatures are checked by ring, which TLS has anyway. The crate `jsonwebtoken` has no backend for it, takes the provider of its
//! cryptography from a variable of the whole process (a library must not set it for the program that embeds it), and reads a
//! clock of its own. What is left of it are three parts in base64.

use super::{
    identities::{Algorithm, Issuer},
    jwks::Key,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The longest JWT, bytes.
pub(super) const JWT_BYTES_MAX: usize = 16 << 10;
/// How far the clocks of an issuer and of this server may differ.
pub(super) const LEEWAY_MILLIS: u64 = 30_000;
/// The latest time that is calculated with, seconds since the Unix epoch: the year 5138.
const SECONDS_MAX: f64 = 1e11;

/// Why a JWT is not taken. The log says so; clients get the same answer for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("it has not the form of a JWT that this server takes")]
    Malformed,
    #[error("its issuer is none of the file")]
    Issuer,
    #[error("the issuer's entry does not have its algorithm")]
    Algorithm,
    #[error("the issuer has no such key for its algorithm")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("its `typ` is not the type of the issuer's entry")]
    Type,
    #[error("it is for another audience")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("no identity of the file has its subject")]
    Subject,
}

/// The header. What it has besides is not looked at: a key or a place of keys that comes with a JWT is its sender's.
#[derive(Debug, Deserialize)]
struct Header {
    alg: Algorithm,
    kid: String,
    typ: Option<String>,
    /// Extensions that must be understood. None are.
    crit: Option<Value>,
}

impl Header {
    /// Compares media types: case does not matter, and `application/` may be left out (RFC 7515, section 4.1.9).
    fn is_of_type(&self, wanted: &str) -> bool {
        let short = |text: &str| text.to_ascii_lowercase().trim_start_matches("application/").to_owned();
        self.typ.as_deref().is_some_and(|typ| short(typ) == short(wanted))
    }
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: f64,
    nbf: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// A JWT that was read. Nothing of it is true before its signature is verified.
#[derive(Debug)]
pub(super) struct Jwt<'t> {
    header: Header,
    claims: Claims,
    /// All of them, for the one that names who it is about.
    all: Map<String, Value>,
    /// What was signed.
    message: &'t str,
    signature: Vec<u8>,
}

/// What a JWT says that was checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) subject: String,
    /// From when on it is refused, milliseconds since the Unix epoch.
    pub(super) expires_millis: u64,
}

impl<'t> Jwt<'t> {
    /// Errors: `Malformed`.
    pub(super) fn parse(token: &'t str) -> Result<Self, Refused> {
        if token.len() > JWT_BYTES_MAX {
            return Err(Refused::Malformed);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Refused::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(Refused::Malformed)?;
        // A dot is no digit of base64: there are three parts.
        let (header, all): (Header, Map<String, Value>) = (json(header)?, json(claims)?);
        if header.crit.is_some() {
            return Err(Refused::Malformed);
        }
        Ok(Self { header, claims: json(claims)?, all, message, signature: bytes(signature)? })
    }

    /// Whose it claims to be.
    pub(super) fn issuer(&self) -> &str {
        &self.claims.iss
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.header.alg
    }

    pub(super) fn kid(&self) -> &str {
        &self.header.kid
    }

    /// Checks it by a key of its issuer that is for its algorithm. `now_millis` is since the Unix epoch.
    ///
    /// Errors: the first thing that is wrong with it.
    pub(super) fn verify(&self, issuer: &Issuer, key: &Key, now_millis: u64) -> Result<Verified, Refused> {
        if !key.verifies(self.message.as_bytes(), &self.signature) {
            return Err(Refused::Signature);
        }
        if self.claims.iss != issuer.issuer {
            return Err(Refused::Issuer);
        }
        if issuer.typ.as_deref().is_some_and(|wanted| !self.header.is_of_type(wanted)) {
            return Err(Refused::Type);
        }
        let is_audience = match &self.claims.aud {
            Audience::One(one) => *one == issuer.audience,
            Audience::Several(several) => several.contains(&issuer.audience),
        };
        if !is_audience {
            return Err(Refused::Audience);
        }
        let expires_millis = millis(self.claims.exp)?.saturating_add(LEEWAY_MILLIS);
        if now_millis >= expires_millis {
            return Err(Refused::Expired);
        }
        if let Some(not_before) = self.claims.nbf
            && now_millis.saturating_add(LEEWAY_MILLIS) < millis(not_before)?
        {
            return Err(Refused::NotYetValid);
        }
        let subject = self.all.get(&issuer.subject_claim).and_then(Value::as_str).ok_or(Refused::Subject)?;
        Ok(Verified { subject: subject.to_owned(), expires_millis })
    }
}

fn bytes(part: &str) -> Result<Vec<u8>, Refused> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Malformed)
}

fn json<T: DeserializeOwned>(part: &str) -> Result<T, Refused> {
    serde_json::from_slice(&bytes(part)?).map_err(|_| Refused::Malformed)
}

/// Of RFC 7519's `NumericDate`: seconds since the Unix epoch, perhaps with a fraction.
fn millis(seconds: f64) -> Result<u64, Refused> {
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(Refused::Malformed);
    }
    Ok((seconds * 1000.0) as u64)
}
