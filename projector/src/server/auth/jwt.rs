//! JSON Web Tokens (RFC 7519), signed in JWS's compact form (RFC 7515).
//!
//! ```text
//!   base64url(header) . base64url(claims) . base64url(signature)
//!     alg, kid, typ       iss, aud, exp, nbf, sub
//! ```
//!
//! ring checks the signatures, since TLS depends on it anyway. The crate `jsonwebtoken` has no backend for ring. It
//! takes its cryptography provider from a process-wide variable, which a library must not set for the program that
//! embeds it, and it reads its own clock. The remaining work is three parts in base64.

use super::{
    identities::{Algorithm, Issuer},
    jwks::Key,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The longest JWT, bytes.
pub(super) const JWT_BYTES_MAX: usize = 16 << 10;
/// How much the clocks of an issuer and of this server may differ.
pub(super) const LEEWAY_MILLIS: u64 = 30_000;
/// The latest accepted time, seconds since the Unix epoch: the year 5138.
const SECONDS_MAX: f64 = 1e11;

/// Why a JWT is refused. The reason is only logged; clients get the same answer for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("it does not have the form of a JWT that this server accepts")]
    Malformed,
    #[error("its issuer is not in the token file")]
    Issuer,
    #[error("the issuer's entry does not allow its algorithm")]
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
    #[error("no identity of the token file has its subject")]
    Subject,
}

/// The header. Other members are ignored: a key or a key URL in a JWT comes from its sender.
#[derive(Debug, Deserialize)]
struct Header {
    alg: Algorithm,
    kid: String,
    typ: Option<String>,
    /// Extensions that a reader must understand; this reader understands none.
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

/// A parsed JWT. None of its claims can be trusted before its signature is verified.
#[derive(Debug)]
pub(super) struct Jwt<'t> {
    header: Header,
    claims: Claims,
    /// All claims, to look up the subject claim.
    all: Map<String, Value>,
    /// The signed text.
    message: &'t str,
    signature: Vec<u8>,
}

/// The verified claims of a JWT.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) subject: String,
    /// When it expires, milliseconds since the Unix epoch.
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
        // base64 has no dot, so the signature rejects a fourth part.
        let (header, all): (Header, Map<String, Value>) = (json(header)?, json(claims)?);
        if header.crit.is_some() {
            return Err(Refused::Malformed);
        }
        Ok(Self { header, claims: json(claims)?, all, message, signature: bytes(signature)? })
    }

    /// The issuer that the JWT claims.
    pub(super) fn issuer(&self) -> &str {
        &self.claims.iss
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.header.alg
    }

    pub(super) fn kid(&self) -> &str {
        &self.header.kid
    }

    /// Verifies the JWT with a key of its issuer for its algorithm. `now_millis` is since the Unix epoch.
    ///
    /// Errors: the first defect.
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

/// Converts RFC 7519's `NumericDate`: seconds since the Unix epoch, perhaps with a fraction.
fn millis(seconds: f64) -> Result<u64, Refused> {
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(Refused::Malformed);
    }
    Ok((seconds * 1000.0) as u64)
}
