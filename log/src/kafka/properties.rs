//! Properties of librdkafka in files: a file of properties, and files with one secret each.

use super::config::KafkaConfig;
use crate::{
    error::{Error, Kind},
    private_file::{self, Exposure},
};
use std::{collections::BTreeMap, fs, io::Read as _, path::Path};

/// The longest file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Suffix of a property name: the property `NAME_file` names a file, which contains the value of the property NAME.
const FILE: &str = "_file";
/// Properties that name the file of a private key. librdkafka reads it itself.
const KEY_FILES: [&str; 2] = ["ssl.key.location", "ssl.keystore.location"];

impl KafkaConfig {
    /// Adds the properties of a file, one `name=value` a line, as for other clients of librdkafka. Ignores empty lines and
    /// lines that begin with `#`. A property replaces an earlier property of the same name. Blocking.
    ///
    /// Errors: `Kind::Invalid` if the file cannot be read or a line is malformed, or if it contains a password and other users
    /// have access to it.
    pub fn read_properties(&mut self, path: &Path) -> Result<(), Error> {
        let (text, exposure) = self.read(path)?;
        let named = path.display();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The message does not repeat the line, which may contain a password.
            let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
                return Err(self.refused(format!("line {number} of {named} is not NAME=VALUE")));
            };
            if let Some(exposure) = exposure.as_ref().filter(|_| is_secret(name)) {
                return Err(self.refused(exposure.message(&file_with(name), path)));
            }
            self.properties.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }

    /// Returns the properties, with the secrets from their files. Checks who can access the files of private keys. Blocking.
    ///
    /// Errors: `Kind::Invalid`, with the name of the file and without its content.
    pub(super) fn resolved(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut resolved = BTreeMap::new();
        for (name, value) in &self.properties {
            if KEY_FILES.contains(&name.as_str()) {
                self.examine_key(name, Path::new(value))?;
            }
            let Some(property) = name.strip_suffix(FILE) else {
                resolved.insert(name.clone(), value.clone());
                continue;
            };
            if self.properties.contains_key(property) {
                return Err(self.refused(format!("the client properties {property} and {name} exclude each other")));
            }
            let path = Path::new(value);
            let (text, exposure) = self.read(path)?;
            if let Some(exposure) = exposure {
                return Err(self.refused(exposure.message(&file_with(property), path)));
            }
            resolved.insert(property.to_owned(), text.trim_end_matches(['\r', '\n']).to_owned());
        }
        Ok(resolved)
    }

    /// Reads a file. Also returns the reason, if any, why it must not contain secrets.
    fn read(&self, path: &Path) -> Result<(String, Option<Exposure>), Error> {
        let failed = |error: std::io::Error| {
            self.refused(format!("cannot read the file of client properties {}", path.display())).because(error)
        };
        let file = fs::File::open(path).map_err(failed)?;
        let exposure = private_file::exposure(&file, path).map_err(failed)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Ok((text, exposure))
    }

    fn examine_key(&self, name: &str, path: &Path) -> Result<(), Error> {
        let exposure = fs::File::open(path).and_then(|file| private_file::exposure(&file, path));
        let exposure = exposure.map_err(|error| {
            self.refused(format!("cannot read the {} {}", file_with(name), path.display())).because(error)
        })?;
        exposure.map_or(Ok(()), |exposure| Err(self.refused(exposure.message(&file_with(name), path))))
    }

    fn refused(&self, what: String) -> Error {
        Error::new(Kind::Invalid, &self.topic, what)
    }
}

fn file_with(property: &str) -> String {
    format!("file with {property}")
}

/// Returns whether the value of a property of librdkafka is a secret.
pub fn is_secret(property: &str) -> bool {
    let marks = ["password", "passphrase", "secret", "key.pem"];
    marks.iter().any(|mark| property.contains(mark)) && !property.ends_with(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn read(text: &str, mode: u32) -> Result<BTreeMap<String, String>, Error> {
        let mut config = KafkaConfig::new("b:1", "t").with("sasl.username", "before");
        config.read_properties(file(text, mode).path())?;
        config.resolved()
    }

    #[test]
    fn a_file_has_one_property_per_line_and_only_its_owner_may_read_passwords() {
        let text = "# of the cluster\n\nsecurity.protocol = SASL_SSL\nsasl.username=me\nsasl.password=a=b hunter2\n";
        let properties = read(text, 0o600).unwrap();
        assert_eq!(properties["security.protocol"], "SASL_SSL");
        assert_eq!((properties["sasl.username"].as_str(), properties["sasl.password"].as_str()), ("me", "a=b hunter2"));
        for (text, mode, why) in [(text, 0o644, "chmod 600"), ("a=b\nhunter2", 0o600, "line 2")] {
            let refusal = read(text, mode).unwrap_err().to_string();
            assert!(refusal.contains(why) && !refusal.contains("hunter2"), "{refusal}");
        }
        assert!(read("ssl.ca.location=/ca.pem", 0o644).is_ok(), "it has no secret");
    }

    #[test]
    fn a_secret_may_be_in_a_file_of_its_own() {
        let secret = file("hunter2\n", 0o600);
        let named = |name: &str| format!("{name}={}", secret.path().display());
        let properties = read(&named("sasl.password_file"), 0o644).expect("it names the secret's file only");
        assert_eq!(properties["sasl.password"], "hunter2");
        let both = read(&format!("sasl.password=x\n{}", named("sasl.password_file")), 0o600).unwrap_err();
        assert!(both.to_string().contains("exclude"), "{both}");
        fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o604)).unwrap();
        let refusal = read(&named("sasl.password_file"), 0o600).unwrap_err().to_string();
        assert!(refusal.contains("chmod 600") && !refusal.contains("hunter2"), "{refusal}");
    }

    #[test]
    fn a_private_key_that_librdkafka_reads_is_for_its_owner_alone() {
        for name in ["ssl.key.location", "ssl.keystore.location"] {
            let key = file("key", 0o600);
            let line = format!("{name}={}", key.path().display());
            assert!(read(&line, 0o644).is_ok(), "{name}");
            fs::set_permissions(key.path(), fs::Permissions::from_mode(0o644)).unwrap();
            let refusal = read(&line, 0o600).unwrap_err().to_string();
            assert!(refusal.contains(name) && refusal.contains("chmod 600"), "{refusal}");
        }
    }
}
