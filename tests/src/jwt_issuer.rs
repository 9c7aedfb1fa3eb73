//! An issuer of JSON Web Tokens: keys, signed tokens, and a key set over HTTPS.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, anyhow};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Pair;

/// A private key.
pub enum SigningKey {
    /// A key of P-256.
    Es256(EcdsaKeyPair),
    /// A key of Ed25519.
    EdDsa(Ed25519KeyPair),
}

/// Does not show the private key.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// A new key of P-256.
    pub fn es256() -> anyhow::Result<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| anyhow!("no key"))?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random);
        Ok(Self::Es256(pair.map_err(|_| anyhow!("no key"))?))
    }

    /// A new key of Ed25519.
    pub fn eddsa() -> anyhow::Result<Self> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| anyhow!("no key"))?;
        Ok(Self::EdDsa(Ed25519KeyPair::from_pkcs8(made.as_ref()).map_err(|_| anyhow!("no key"))?))
    }

    /// Its public key as a JWK, with a `kid`.
    pub fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Es256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": encode(x), "y": encode(y) })
            }
            Self::EdDsa(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encode(pair.public_key().as_ref()) })
            }
        }
    }

    /// A signed JWT with this header and these claims.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = match self {
            Self::Es256(pair) => {
                pair.sign(&SystemRandom::new(), message.as_bytes()).map(|signed| encode(signed.as_ref()))
            }
            Self::EdDsa(pair) => Ok(encode(pair.sign(message.as_bytes()).as_ref())),
        };
        format!("{message}.{}", signature.unwrap_or_default())
    }
}

/// Base64url without padding, as in JWTs.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// An HTTPS server that gives every request the same answer, and counts them.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its address.
    pub address: SocketAddr,
    answer: Arc<Mutex<String>>,
    requests: Arc<AtomicUsize>,
}

impl Site {
    /// Serves with this certificate until the runtime ends.
    pub async fn start(pair: &Pair) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config =
            config.with_no_client_auth().with_single_cert(chain.context("no chain")?, key.context("no key")?)?;
        let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await?);
        let site = Self { address: listener.local_addr()?, answer: Arc::default(), requests: Arc::default() };
        let served = site.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, site) = (acceptor.clone(), served.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate closes the connection.
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let (mut request, mut line, mut length) = (BufReader::new(&mut stream), String::new(), 0);
                    // Reads the head up to its empty line, and the body: a connection that closes with unread bytes is reset.
                    while request.read_line(&mut line).await.is_ok_and(|bytes| bytes > 2) {
                        let declared = line
                            .to_ascii_lowercase()
                            .strip_prefix("content-length:")
                            .map(str::trim)
                            .map(str::parse::<usize>);
                        if let Some(Ok(bytes)) = declared {
                            length = bytes;
                        }
                        line.clear();
                    }
                    request.read_exact(&mut vec![0; length]).await.ok();
                    site.requests.fetch_add(1, Ordering::Relaxed);
                    let answer = site.answer.lock().map(|answer| answer.clone()).unwrap_or_default();
                    stream.write_all(answer.as_bytes()).await.ok();
                    stream.shutdown().await.ok();
                });
            }
        });
        Ok(site)
    }

    /// Sets the answer to later requests: status, header lines with their line ends, and body.
    pub fn set_answer(&self, status: &str, headers: &str, body: &str) {
        let answer =
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        if let Ok(mut now) = self.answer.lock() {
            *now = answer;
        }
    }

    /// The number of requests so far.
    pub fn request_count(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}
