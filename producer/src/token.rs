//! The token that a server asks for.

use crate::error::{Action, Error};
use runlog_log::private_file::is_private;
use runlog_schemas::answer::ErrorKind;
use std::{fmt, fs, io::Read as _, path::Path};

/// The longest file of a token, bytes: that of the longest JWT that a server takes.
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
    /// Errors: `Usage` for a text that no header can carry.
    pub fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(usage("the token is empty, or has characters that no token has".to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Reads a file that has nothing but the token. Blocking.
    ///
    /// Errors: `Usage` where it cannot be read, or where other users may read or write it.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = read_private(path, "token file", FILE_BYTES_MAX)?;
        Self::new(&text).map_err(|error| usage(format!("{error}, in {}", path.display())))
    }

    /// The token of `RUNLOG_TOKEN`, or that in the file that `RUNLOG_TOKEN_FILE` names; none without either. Blocking.
    ///
    /// Errors: those of [`Token::new`] and [`Token::from_file`].
    pub fn from_env() -> Result<Option<Self>, Error> {
        let of = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (of("RUNLOG_TOKEN"), of("RUNLOG_TOKEN_FILE")) {
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

/// Reads a file of secrets that only its owner may use, up to a length; `what` names it in errors.
pub(crate) fn read_private(path: &Path, what: &str, bytes_max: u64) -> Result<String, Error> {
    let named = path.display();
    let failed = |error: std::io::Error| usage(format!("cannot read the {what} {named}: {error}"));
    let file = fs::File::open(path).map_err(failed)?;
    if !is_private(&file.metadata().map_err(failed)?) {
        return Err(usage(format!("other users may use the {what} {named}; take that away with chmod 600")));
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
    fn a_token_is_read_from_a_file_that_nobody_else_can_read_and_never_shown() {
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
