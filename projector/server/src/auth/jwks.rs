//! An issuer's public keys: a JWK set (RFC 7517), and the signatures that each key verifies.
//!
//! A key's type decides its one algorithm. So a JWT's own `alg` selects a key but never how the key is used: the bytes
//! of an RSA key cannot serve as an HMAC secret.

use super::identities::Algorithm;
use crate::strict_json::{object, unambiguous};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Keys of a set.
const KEYS_MAX: usize = 256;
/// Bytes of an RSA key: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Bytes of a coordinate of P-256, and of a public key of Ed25519.
const COORDINATE_BYTES: usize = 32;

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Modulus and exponent.
    Rs256 { n: Vec<u8>, e: Vec<u8> },
    /// An uncompressed point of P-256.
    Es256(Vec<u8>),
    /// A point of Ed25519.
    EdDsa(Vec<u8>),
}

/// The usable keys of an issuer, each with its `kid`. Default: empty.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<(String, Arc<Key>)>);

/// Why a key set cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    #[error("the key set is malformed")]
    Json(#[source] serde_json::Error),
    #[error("the key set has more than {KEYS_MAX} keys")]
    TooMany,
    #[error("key {kid:?} of the set: {why}")]
    Key { kid: String, why: &'static str },
    #[error("the key set has no key with a `kid` that could be used: RSA, EC with P-256, or OKP with Ed25519")]
    NoKey,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Box<RawValue>>,
}

/// A published key, with the members that are read here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl Jwk {
    /// The algorithm of its type; absent if this server verifies no JWTs with it.
    fn algorithm(&self) -> Option<Algorithm> {
        let by_type = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Algorithm::Rs256,
            ("EC", Some("P-256")) => Algorithm::Es256,
            ("OKP", Some("Ed25519")) => Algorithm::EdDsa,
            _ => return None,
        };
        let verifies = self.used_for.as_deref().is_none_or(|used_for| used_for == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"))
            && self.alg.as_deref().is_none_or(|alg| alg == by_type.as_str());
        verifies.then_some(by_type)
    }

    /// Errors: the reason in words.
    fn key(&self, algorithm: Algorithm) -> Result<Key, &'static str> {
        let coordinate = |text: &Option<String>| match decode_unsigned(text) {
            Some(bytes) if bytes.len() == COORDINATE_BYTES => Ok(bytes),
            _ => Err("a coordinate is not 32 bytes in base64url"),
        };
        match algorithm {
            Algorithm::Rs256 => {
                let number =
                    |text| decode_unsigned(text).map(|bytes| bytes.into_iter().skip_while(|byte| *byte == 0).collect());
                let number = |text| number(text).ok_or("`n` and `e` are not base64url");
                let (n, e): (Vec<u8>, Vec<u8>) = (number(&self.n)?, number(&self.e)?);
                if RSA_BYTES.contains(&n.len()) {
                    Ok(Key::Rs256 { n, e })
                } else {
                    Err("an RSA key has 2048 to 8192 bits")
                }
            }
            Algorithm::Es256 => Ok(Key::Es256([vec![4], coordinate(&self.x)?, coordinate(&self.y)?].concat())),
            Algorithm::EdDsa => Ok(Key::EdDsa(coordinate(&self.x)?)),
        }
    }
}

fn decode_unsigned(text: &Option<String>) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()
}

impl KeySet {
    /// Parses a set. Omits keys without a `kid`, or for other purposes.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        let set: Jwks = unambiguous(text).map_err(Malformed::Json)?;
        if set.keys.len() > KEYS_MAX {
            return Err(Malformed::TooMany);
        }
        let mut keys: Vec<(String, Arc<Key>)> = Vec::new();
        for jwk in set.keys {
            let jwk: Jwk = object(jwk.get()).map_err(Malformed::Json)?;
            let (Some(kid), Some(algorithm)) = (jwk.kid.clone(), jwk.algorithm()) else { continue };
            match jwk.key(algorithm) {
                Ok(_) if keys.iter().any(|(other, key)| *other == kid && key.algorithm() == algorithm) => {
                    return Err(Malformed::Key { kid, why: "another key has the same `kid`" });
                }
                Ok(key) => keys.push((kid, Arc::new(key))),
                Err(why) => return Err(Malformed::Key { kid, why }),
            }
        }
        if keys.is_empty() { Err(Malformed::NoKey) } else { Ok(Self(keys)) }
    }

    /// Returns the key with this id for an algorithm.
    pub(super) fn get(&self, kid: &str, algorithm: Algorithm) -> Option<Arc<Key>> {
        let entry = self.0.iter().find(|(name, key)| name == kid && key.algorithm() == algorithm);
        entry.map(|(_, key)| Arc::clone(key))
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.0.iter().any(|(_, own)| **own == *key)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Key {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rs256 { .. } => Algorithm::Rs256,
            Self::Es256(_) => Algorithm::Es256,
            Self::EdDsa(_) => Algorithm::EdDsa,
        }
    }

    /// Whether a signature of a message was made with the private key that belongs to this one.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rs256 { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::Es256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::EdDsa(point) => UnparsedPublicKey::new(&signature::ED25519, point).verify(message, signature),
        };
        verified.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const P256: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";

    fn es256(changes: Value) -> Value {
        let mut key = json!({ "kty": "EC", "crv": "P-256", "kid": "a", "x": P256, "y": P256 });
        for (name, value) in changes.as_object().unwrap() {
            key[name] = value.clone();
        }
        key
    }

    fn parse_set(keys: &[Value]) -> Result<KeySet, Malformed> {
        KeySet::parse(&json!({ "keys": keys }).to_string())
    }

    /// RFC 7515, appendices A.2 and A.3, and RFC 8037, appendix A.4.
    #[test]
    fn signatures_of_the_standards_are_verified_and_changed_ones_are_not() {
        let joe = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let rs256 = (
            json!({ "kty": "RSA", "kid": "a", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddx\
                HmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63\
                kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-\
                DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ" }),
            format!("eyJhbGciOiJSUzI1NiJ9.{joe}"),
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7\
             t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12j\
             zDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe\
             77Rw",
        );
        let es256 = (
            es256(json!({ "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" })),
            format!("eyJhbGciOiJFUzI1NiJ9.{joe}"),
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        );
        let eddsa = (
            json!({ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }),
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        );
        let all = [(Algorithm::Rs256, rs256), (Algorithm::Es256, es256), (Algorithm::EdDsa, eddsa)];
        for (algorithm, (jwk, message, signature)) in all {
            let key = parse_set(&[jwk]).unwrap().get("a", algorithm).unwrap();
            let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert!(key.verifies(message.as_bytes(), &signature), "{algorithm}");
            assert!(!key.verifies(message.to_uppercase().as_bytes(), &signature), "{algorithm}");
            assert!(!key.verifies(message.as_bytes(), &signature[1..]), "{algorithm}");
        }
    }

    #[test]
    fn a_key_is_for_the_algorithm_of_its_type_alone() {
        let set = parse_set(&[es256(json!({})), es256(json!({ "kid": null }))]).unwrap();
        assert_eq!(set.len(), 1, "the key without `kid` is left out");
        assert!(set.get("a", Algorithm::Es256).is_some() && set.get("b", Algorithm::Es256).is_none());
        assert!(set.get("a", Algorithm::Rs256).is_none() && set.get("a", Algorithm::EdDsa).is_none());
        for other in [
            json!({ "use": "enc" }),
            json!({ "key_ops": ["sign"] }),
            json!({ "alg": "HS256" }),
            json!({ "crv": "P-521" }),
            json!({ "kty": "oct", "k": P256 }),
        ] {
            let with_usable = parse_set(&[es256(json!({ "kid": "b" })), es256(other.clone())]).unwrap();
            assert_eq!(with_usable.len(), 1, "{other}");
            assert!(matches!(parse_set(&[es256(other.clone())]), Err(Malformed::NoKey)), "{other}");
        }
    }

    #[test]
    fn a_set_with_a_damaged_key_is_refused_by_its_name() {
        let rsa = json!({ "kty": "RSA", "kid": "a", "n": P256, "e": "AQAB" });
        for (key, why) in [
            (es256(json!({ "x": "AQ" })), "32 bytes"),
            (es256(json!({ "y": null })), "32 bytes"),
            (es256(json!({ "x": format!("{P256}=") })), "32 bytes"),
            // The last digit of 43 has two bits that encode nothing.
            (es256(json!({ "x": P256.replace("VEU", "VEV") })), "32 bytes"),
            (rsa, "2048"),
        ] {
            let error = parse_set(&[key]).unwrap_err().to_string();
            assert!(error.contains("\"a\"") && error.contains(why), "{error}");
        }
        assert!(parse_set(&[es256(json!({})), es256(json!({}))]).unwrap_err().to_string().contains("same"));
        assert!(matches!(KeySet::parse("{}"), Err(Malformed::Json(_))));
    }

    #[test]
    fn a_set_that_readers_could_read_differently_is_refused() {
        let key = es256(json!({})).to_string();
        let set = |keys: &str| KeySet::parse(&format!("{{\"keys\":{keys}}}"));
        assert_eq!(set(&format!("[{key}]")).unwrap().len(), 1);
        for twice in [
            key.replace("\"kid\":", "\"kid\":\"b\",\"kid\":"),
            key.replace("\"kid\":", "\"x5c\":[],\"x5c\":[\"\"],\"kid\":"),
        ] {
            let refused = set(&format!("[{twice}]")).unwrap_err();
            let why = runlog_schemas::answer::with_causes(&refused);
            assert!(why.contains("two members"), "{twice}: {why}");
        }
        let in_order = json!(["EC", "a", null, null, null, "P-256", P256, P256, null, null]);
        assert!(matches!(set(&format!("[{in_order}]")), Err(Malformed::Json(_))), "an array of the members' values");
        assert!(matches!(KeySet::parse(&format!("[[{key}]]")), Err(Malformed::Json(_))));
    }
}
