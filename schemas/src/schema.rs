//! The contract: the `.avsc` files of all versions, compiled in, and their fingerprints.
//!
//! `avsc/RELEASED` lists the released versions, which never change. All [`versions`] are read in place (see
//! [`crate::evolution`]). A record is written in the lowest version that expresses it
//! ([`JournalRecord::version`](crate::record::JournalRecord::version)): the same content always has the same bytes, and
//! an older reader stops only at content that it does not know. A record that a server numbers again is written at
//! least in version [`RENUMBERED_SINCE`].

use crate::datum::hex;
use std::sync::LazyLock;

/// The name of the record that all versions describe.
pub const NAME: &str = "JournalRecord";

/// Version 1, `schemas/avsc/v1/JournalRecord.avsc`, the version of nearly every record.
pub const JOURNAL_RECORD: &str = include_str!("../avsc/v1/JournalRecord.avsc");

/// Version 2, `schemas/avsc/v2/JournalRecord.avsc`: decisions with the state on which they are based.
pub const JOURNAL_RECORD_V2: &str = include_str!("../avsc/v2/JournalRecord.avsc");

/// Version 3, `schemas/avsc/v3/JournalRecord.avsc`, not released: attempts and decisions with a basis, requests that
/// state which calls must be decided before they start and whether they are safe to repeat, claims that one handle
/// makes.
pub const JOURNAL_RECORD_V3: &str = include_str!("../avsc/v3/JournalRecord.avsc");

/// The released versions, as `avsc/RELEASED` lists them.
pub const RELEASED: &str = include_str!("../avsc/RELEASED");

/// All readable versions, oldest first: number and schema.
pub const TEXTS: &[(u16, &str)] = &[(1, JOURNAL_RECORD), (2, JOURNAL_RECORD_V2), (3, JOURNAL_RECORD_V3)];

/// The number of the newest readable version.
pub const NEWEST: u16 = TEXTS[TEXTS.len() - 1].0;

/// The newest version that servers and clients write by default. Version 3 is read but not written by default, because an older
/// server stops at the first record of a version that it does not know.
pub const WRITTEN_BY_DEFAULT: u16 = 2;

/// The first version whose records are judged again after a refusal for their numbers (`judge`). An older reader stops at such a
/// record, because it would judge it differently.
pub const RENUMBERED_SINCE: u16 = 2;

/// The first version whose attempts and decisions have a basis, and whose claims have a commitment.
pub const BASIS_SINCE: u16 = 3;

/// A version of the record's schema.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    /// 1, 2, 3 …
    pub number: u16,
    /// The `.avsc` file.
    pub text: &'static str,
    /// The Rabin fingerprint of its parsing canonical form, little-endian as on the wire.
    pub fingerprint: [u8; 8],
    /// Whether it is released. A released version never changes.
    pub released: bool,
}

static VERSIONS: LazyLock<Vec<Version>> = LazyLock::new(|| {
    let version = |(number, text): &(u16, &'static str)| Version {
        number: *number,
        text,
        fingerprint: fingerprint_of(text).expect("a compiled-in schema parses"),
        released: released().any(|line| line.folder == format!("v{number}")),
    };
    TEXTS.iter().map(version).collect()
});

/// Returns all readable versions, oldest first.
pub fn versions() -> &'static [Version] {
    &VERSIONS
}

/// Returns the lowest version, for records that need no later version.
pub fn lowest() -> &'static Version {
    VERSIONS.first().expect("there is a version")
}

/// Returns the version with this number, which must exist.
pub(crate) fn numbered(number: u16) -> &'static Version {
    VERSIONS.iter().find(|version| version.number == number).expect("a version that records are written in")
}

/// Returns the newest version that this build can read and write.
pub fn current() -> &'static Version {
    VERSIONS.last().expect("there is a version")
}

/// Returns the version with this fingerprint, as on the wire.
pub fn by_fingerprint(fingerprint: &[u8]) -> Option<&'static Version> {
    versions().iter().find(|version| version.fingerprint == fingerprint)
}

/// Returns the version that `text` spells, with any formatting, docs and defaults. `None` if it is another schema or
/// not a schema.
pub fn by_text(text: &str) -> Option<&'static Version> {
    by_fingerprint(&fingerprint_of(text).ok()?)
}

/// The Rabin fingerprint of a schema's parsing canonical form, little-endian as on the wire.
pub fn fingerprint_of(text: &str) -> Result<[u8; 8], String> {
    let schema = apache_avro::Schema::parse_str(text).map_err(|error| error.to_string())?;
    let bytes = schema.fingerprint::<apache_avro::rabin::Rabin>().bytes;
    <[u8; 8]>::try_from(bytes.as_slice()).map_err(|_| format!("a fingerprint of {} bytes", bytes.len()))
}

/// A line of `avsc/RELEASED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// `v1`, `v2` …
    pub folder: &'static str,
    /// The Rabin fingerprint, hexadecimal.
    pub fingerprint: &'static str,
    /// The SHA-256 of the `.avsc` file, hexadecimal.
    pub sha256: &'static str,
}

/// The lines of [`RELEASED`].
pub fn released() -> impl Iterator<Item = Released> {
    lines(RELEASED)
}

/// Parses the lines of such a list.
pub fn lines(list: &'static str) -> impl Iterator<Item = Released> {
    list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        let folder = words.next()?;
        let mut word = || words.next().unwrap_or_default();
        Some(Released { folder, fingerprint: word(), sha256: word() })
    })
}

/// Formats a version like `JournalRecord/v1`.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{NAME}/v{} ({})", self.number, hex(&self.fingerprint))
    }
}
