//! The token for requests to a server.

use crate::error::{Action, Error};
use runlog_log::private_file::exposure;
use runlog_schemas::answer::ErrorKind;
use std::{fmt, fs, io::Read as _, path::Path};

/// The maximum size of a token file, bytes: the longest JWT that a server accepts.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// A bearer token, or a JWT. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Parses a token; surrounding whitespace is removed.
    ///
    /// Errors: `Usage` for an empty text, and for characters other than visible ASCII.
    pub fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(usage("the token is empty, or has characters that no token has".to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Reads a file that contains only the token. Blocking.
    ///
    /// Errors: `Usage` if the file is unreadable, if other users may use it, or if its content is not a token.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = read_private(path, "token file", FILE_BYTES_MAX)?;
        Self::new(&text).map_err(|error| usage(format!("{error}, in {}", path.display())))
    }

    /// Reads the token from `RUNLOG_TOKEN`, or from the file that `RUNLOG_TOKEN_FILE` names. `None` if neither is set.
    /// Blocking.
    ///
    /// Errors: as [`Token::new`] and [`Token::from_file`].
    pub fn from_env() -> Result<Option<Self>, Error> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (variable("RUNLOG_TOKEN"), variable("RUNLOG_TOKEN_FILE")) {
            (Some(token), _) => Self::new(&token).map(Some),
            (None, Some(file)) => Self::from_file(file.as_ref()).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

/// Reads at most `bytes_max` of a secret file that only its owner may use. `what` names the file in errors.
pub(crate) fn read_private(path: &Path, what: &str, bytes_max: u64) -> Result<String, Error> {
    let named = path.display();
    let failed = |error: std::io::Error| usage(format!("cannot read the {what} {named}: {error}"));
    let file = fs::File::open(path).map_err(failed)?;
    if let Some(exposure) = exposure(&file, path).map_err(failed)? {
        return Err(usage(exposure.message(what, path)));
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, Action::FixTheInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_token_is_read_from_a_private_file_and_never_shown() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "runlog_secret\n").unwrap();
        let token = Token::from_file(file.path()).unwrap();
        assert_eq!((token.header().as_str(), format!("{token:?}").contains("secret")), ("Bearer runlog_secret", false));
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Token::from_file(file.path()).unwrap_err();
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
        assert!(Token::new("two words").is_err() && Token::new("").is_err());
    }
}
