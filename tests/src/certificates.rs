//! Certificates that are made during a test: a CA, and the certificates that it signs.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd};

/// An authority, with its certificate in a file.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Its certificate.
    pub ca: PathBuf,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub cert: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// A new CA, with its certificate in `DIR/NAME.pem`.
    pub fn new(dir: &Path, name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca = dir.join(format!("{name}.pem"));
        fs::write(&ca, issuer.pem())?;
        Ok(Self { issuer, ca })
    }

    /// A certificate for these names and addresses, until the first of January of a year.
    pub fn sign(&self, names: &[&str], until: i32) -> anyhow::Result<Pair> {
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        self.sign_params(params, names.first().context("a name")?, until)
    }

    /// A certificate with a common name, and with these URIs for its subject.
    pub fn sign_uris(&self, common_name: &str, uris: &[&str], until: i32) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::default();
        for uri in uris {
            params.subject_alt_names.push(SanType::URI((*uri).try_into()?));
        }
        self.sign_params(params, common_name, until)
    }

    fn sign_params(&self, mut params: CertificateParams, common_name: &str, until: i32) -> anyhow::Result<Pair> {
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate()?;
        Ok(Pair { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl Pair {
    /// Writes `DIR/NAME.pem` and `DIR/NAME.key`, each atomically; only the owner can read the key.
    pub fn write(&self, dir: &Path, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let (cert, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        replace(&key, &self.key)?;
        replace(&cert, &self.cert)?;
        Ok((cert, key))
    }
}

/// Replaces a file atomically; only its owner can read it.
pub fn replace(path: &Path, content: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, content)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600))?;
    Ok(fs::rename(&beside, path)?)
}
