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
use crate::strict_json::unambiguous;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use runlog_schemas::json;
use serde::{Deserialize, de::IgnoredAny};

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
    crit: Option<IgnoredAny>,
}

impl Header {
    /// Compares media types: case does not matter, and `application/` may be left out (RFC 7515, section 4.1.9).
    fn is_of_type(&self, wanted: &str) -> bool {
        let short = |text: &str| {
            let text = text.to_ascii_lowercase();
            text.strip_prefix("application/").map(str::to_owned).unwrap_or(text)
        };
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
    /// The text of the claims, to look up the subject claim.
    text: String,
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
        let (header, text) = (text(header)?, text(claims)?);
        let header: Header = unambiguous(&header).map_err(|_| Refused::Malformed)?;
        let claims: Claims = unambiguous(&text).map_err(|_| Refused::Malformed)?;
        if header.crit.is_some() {
            return Err(Refused::Malformed);
        }
        Ok(Self { header, claims, text, message, signature: bytes(signature)? })
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
        self.claims_at(issuer, now_millis)
    }

    /// Checks the claims of a JWT whose signature is verified.
    ///
    /// Errors: the first defect.
    pub(super) fn claims_at(&self, issuer: &Issuer, now_millis: u64) -> Result<Verified, Refused> {
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
        let subject = self.claim(&issuer.subject_claim).ok_or(Refused::Subject)?;
        Ok(Verified { subject, expires_millis })
    }

    /// The value of a claim that is a string.
    fn claim(&self, name: &str) -> Option<String> {
        let claims = json::members(&self.text).ok()?;
        let (_, value) = claims.iter().find(|(own, _)| own == name)?;
        serde_json::from_str(value).ok()
    }
}

fn bytes(part: &str) -> Result<Vec<u8>, Refused> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Malformed)
}

fn text(part: &str) -> Result<String, Refused> {
    String::from_utf8(bytes(part)?).map_err(|_| Refused::Malformed)
}

/// Converts RFC 7519's `NumericDate`: seconds since the Unix epoch, perhaps with a fraction.
fn millis(seconds: f64) -> Result<u64, Refused> {
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(Refused::Malformed);
    }
    Ok((seconds * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"alg":"ES256","kid":"k","typ":"application/at+jwt"}"#;
    const CLAIMS: &str = r#"{"iss":"i","aud":"a","exp":1,"sub":"s","n":{"sub":"t"},"no":1}"#;

    fn token(header: &str, claims: &str) -> String {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.AA", part(header), part(claims))
    }

    fn is_malformed(token: &str) -> bool {
        Jwt::parse(token).err() == Some(Refused::Malformed)
    }

    #[test]
    fn a_jwt_that_readers_could_read_differently_is_malformed() {
        let good = token(HEADER, CLAIMS);
        let jwt = Jwt::parse(&good).unwrap();
        assert_eq!((jwt.claim("sub").as_deref(), jwt.claim("no"), jwt.claim("t")), (Some("s"), None, None));
        assert!(jwt.header.is_of_type("at+JWT") && !jwt.header.is_of_type("jwt"));
        let twice = HEADER.replace("application/", "application/application/");
        assert!(!Jwt::parse(&token(&twice, CLAIMS)).unwrap().header.is_of_type("at+jwt"));
        for (header, claims) in [
            (HEADER, CLAIMS.replace(r#""sub":"s""#, r#""sub":"s","sub":"root""#)),
            (HEADER, CLAIMS.replace(r#""sub":"t""#, r#""sub":"t","sub":"u""#)),
            (HEADER, CLAIMS.replace(r#""exp":1"#, r#""exp":1,"exp":2"#)),
            (HEADER, r#"["i","a",1,null]"#.to_owned()),
            (r#"["ES256","k","at+jwt",null]"#, CLAIMS.to_owned()),
            (&HEADER.replace(r#""kid":"k""#, r#""kid":"k","x":1,"x":2"#), CLAIMS.to_owned()),
            (&HEADER.replace("ES256", "none"), CLAIMS.to_owned()),
            (&HEADER.replace(r#""kid":"k""#, r#""kid":"k","crit":[]"#), CLAIMS.to_owned()),
        ] {
            assert!(is_malformed(&token(header, &claims)), "{header} {claims}");
        }
        // Padding, bits that encode nothing, the other alphabet, white space, and a fourth part.
        for other in [
            format!("{good}=="),
            good.replace(".AA", ".AB"),
            good.replace(".AA", ".+A"),
            format!("{good} "),
            format!("{good}.AA"),
        ] {
            assert!(is_malformed(&other), "{other}");
        }
    }

    #[test]
    fn a_time_beyond_its_range_is_malformed() {
        assert_eq!((millis(0.0), millis(1.9999), millis(SECONDS_MAX)), (Ok(0), Ok(1999), Ok(100_000_000_000_000)));
        for seconds in [-0.001, 1.001e11, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(millis(seconds), Err(Refused::Malformed), "{seconds}");
        }
        for exp in ["1e400", "\"1\"", "null", "NaN"] {
            assert!(is_malformed(&token(HEADER, &CLAIMS.replace(r#""exp":1"#, &format!(r#""exp":{exp}"#)))), "{exp}");
        }
    }
}
