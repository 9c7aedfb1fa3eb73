//! Avro's binary encoding, implemented by hand: the format of log records and index rows.
//!
//! The format is the Avro 1.12 specification's "Binary Encoding": zigzag varints, length-prefixed strings, arrays in
//! blocks, unions as a branch index and its value, records as their fields in order. It is implemented by hand, because the
//! projector reads an envelope in place, hashes a suffix of the same bytes and does not decode the payload.
//! `tests/claims/oracle.rs` compares it with `apache-avro` on generated values. The `.avsc` file stays the contract.
//!
//! Every length is checked against the remaining bytes *before* an allocation. Caps: a datum's size
//! (`codec::RECORD_BYTES_MAX`), an array's items ([`ITEMS_MAX`]), the depth of JSON (`canonical::DEPTH_MAX`); Types are
//! not recursive, except that a batch contains records, one level deep.

mod sha256;

pub use sha256::{Sha256, hex};

/// The error for bytes that are not valid Avro of the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct Malformed {
    /// The problem.
    pub what: &'static str,
    /// The byte offset from the start of the datum.
    pub at: usize,
}

/// A text that is not a symbol of the enum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not one of {known}")]
pub struct NoSymbol {
    /// The text.
    pub text: String,
    /// The symbols, separated by commas.
    pub known: String,
}

/// Largest number of items of one array, in all blocks together. An item of one encoded byte can be large in memory.
pub const ITEMS_MAX: usize = 1 << 16;

/// A cursor over one datum.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether the cursor is within a batch. A batch within a batch is refused.
    pub(crate) in_batch: bool,
    version: u16,
}

impl<'a> Input<'a> {
    /// Starts at the first byte of a datum of the latest schema version.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::of_version(bytes, u16::MAX)
    }

    /// Starts at the first byte of a datum of a schema version, which lacks later fields.
    pub fn of_version(bytes: &'a [u8], version: u16) -> Self {
        Self { bytes, at: 0, in_batch: false, version }
    }

    /// Returns the schema version of the datum.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the number of consumed bytes.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of remaining bytes.
    #[inline]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Creates the error `what` at the current position.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// Reads the next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        if n > self.left() {
            return Err(self.malformed("length runs past the end"));
        }
        let out = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(out)
    }

    /// Reads an Avro `int` or `long`.
    #[inline]
    pub fn long(&mut self) -> Result<i64, Malformed> {
        // Most numbers are lengths and branches of one byte.
        match self.bytes.get(self.at) {
            Some(&byte) if byte & 0x80 == 0 => {
                self.at += 1;
                Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1))
            }
            _ => self.longer(),
        }
    }

    #[inline(never)]
    fn longer(&mut self) -> Result<i64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else { return Err(self.malformed("number runs past the end")) };
            self.at += 1;
            if shift == 63 && byte > 1 {
                return Err(self.malformed("number longer than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(self.malformed("number longer than 64 bits"))
    }

    /// Skips the next byte if it is zero: the null of an optional value, or the end of an array.
    #[inline]
    pub(crate) fn zero(&mut self) -> bool {
        let there = self.bytes.get(self.at) == Some(&0);
        self.at += usize::from(there);
        there
    }

    /// Reads a length or count: a `long` that is not negative.
    #[inline]
    pub fn length(&mut self) -> Result<usize, Malformed> {
        let at = self.at;
        usize::try_from(self.long()?).map_err(|_| Malformed { what: "negative length", at })
    }

    /// Reads an Avro `string`, borrowed.
    pub fn str(&mut self) -> Result<&'a str, Malformed> {
        let n = self.length()?;
        let at = self.at;
        std::str::from_utf8(self.bytes(n)?).map_err(|_| Malformed { what: "string is not UTF-8", at })
    }

    /// Reads an Avro `string` or null, borrowed.
    pub fn optional_str(&mut self) -> Result<Option<&'a str>, Malformed> {
        if self.zero() || self.branch(2)? == 0 { Ok(None) } else { self.str().map(Some) }
    }

    /// Checks and skips an Avro `string`.
    pub fn skip_str(&mut self) -> Result<(), Malformed> {
        self.text_bytes().map(drop)
    }

    /// Reads the bytes of an Avro `string`, which are UTF-8.
    #[inline]
    pub(crate) fn text_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.length()?;
        let at = self.at;
        let bytes = self.bytes(n)?;
        // Most strings are ASCII, and this check is faster than the check for UTF-8.
        let is_text = is_ascii(bytes) || std::str::from_utf8(bytes).is_ok();
        if is_text { Ok(bytes) } else { Err(Malformed { what: "string is not UTF-8", at }) }
    }

    /// Reads the branch of a union with `branches` branches.
    #[inline]
    pub fn branch(&mut self, branches: usize) -> Result<usize, Malformed> {
        let at = self.at;
        let index = self.length()?;
        if index < branches { Ok(index) } else { Err(Malformed { what: "no such union branch", at }) }
    }
}

/// Returns whether all bytes are ASCII. Faster than the standard library for short strings; most have fewer than 40 bytes.
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else { return bytes.iter().fold(0, |all, byte| all | byte) < 0x80 };
    let (words, _) = bytes.as_chunks::<8>();
    let all = words.iter().fold(u64::from_ne_bytes(*last), |all, word| all | u64::from_ne_bytes(*word));
    all & 0x8080_8080_8080_8080 == 0
}

/// Appends an Avro `long`.
pub fn put_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

/// Appends an Avro `string` or `bytes`.
pub fn put_bytes(value: &[u8], out: &mut Vec<u8>) {
    put_long(value.len().cast_signed() as i64, out);
    out.extend_from_slice(value);
}

/// Capacity that suffices for most encodings.
const ENCODING_BYTES: usize = 64;

/// A value with an Avro encoding.
pub trait Datum: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads one value.
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed>;
    /// Checks and skips one value.
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        Self::take(input).map(drop)
    }

    /// Returns the encoding.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENCODING_BYTES);
        self.put(&mut out);
        out
    }

    /// Reads a value that must fill `bytes` to the end.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input::new(bytes);
        let value = Self::take(&mut input)?;
        if input.left() > 0 { Err(input.malformed("bytes left over")) } else { Ok(value) }
    }
}

impl Datum for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        input.str().map(str::to_owned)
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        input.skip_str()
    }
}

impl Datum for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        match input.bytes(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(input.malformed("boolean is neither 0 nor 1")),
        }
    }
}

impl Datum for Sha256 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut hash = [0u8; 32];
        hash.copy_from_slice(input.bytes(32)?);
        Ok(Self(hash))
    }
}

macro_rules! integers {
    ($($t:ty as $avro:ty),*) => {$(
        impl Datum for $t {
            fn put(&self, out: &mut Vec<u8>) {
                // Avro's numbers are signed. Constructors refuse larger numbers; here they saturate.
                put_long(<$avro>::try_from(*self).unwrap_or(<$avro>::MAX).into(), out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                let at = input.position();
                let number = <$avro>::try_from(input.long()?).ok().and_then(|number| <$t>::try_from(number).ok());
                number.ok_or(Malformed { what: "number out of range", at })
            }
        }
    )*};
}
integers!(i32 as i32, i64 as i64, u8 as i32, u16 as i32, u32 as i32, u64 as i64);

impl<T: Datum> Datum for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => put_long(0, out),
            Some(value) => {
                put_long(1, out);
                value.put(out);
            }
        }
    }
    #[inline]
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        if input.zero() || input.branch(2)? == 0 { Ok(None) } else { T::take(input).map(Some) }
    }
    #[inline]
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        if input.zero() || input.branch(2)? == 0 { Ok(()) } else { T::skip(input) }
    }
}

/// Reads the blocks of an array, and calls `item` once per item.
pub(crate) fn blocks<'a>(
    input: &mut Input<'a>,
    mut item: impl FnMut(&mut Input<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut items = 0;
    loop {
        let at = input.position();
        let mut count = input.long()?;
        if count == 0 {
            return Ok(());
        }
        if count < 0 {
            // A negative count is followed by the block's size in bytes.
            count = count.checked_neg().ok_or(Malformed { what: "block count out of range", at })?;
            input.length()?;
        }
        // Every item has at least one byte, so a larger count is malformed.
        let count = usize::try_from(count).ok().filter(|count| *count <= input.left());
        let count = count.ok_or(Malformed { what: "more items than bytes", at })?;
        items += count;
        if items > ITEMS_MAX {
            return Err(Malformed { what: "too many items", at });
        }
        for _ in 0..count {
            item(input)?;
        }
    }
}

impl<T: Datum> Datum for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        if !self.is_empty() {
            put_long(self.len().cast_signed() as i64, out);
            for item in self {
                item.put(out);
            }
        }
        put_long(0, out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut items = Vec::new();
        if input.zero() {
            return Ok(items);
        }
        blocks(input, |input| {
            items.push(T::take(input)?);
            Ok(())
        })?;
        Ok(items)
    }
    #[inline]
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        if input.zero() { Ok(()) } else { blocks(input, T::skip) }
    }
}

/// Skips one field. The accessor only determines the field's type.
#[doc(hidden)]
pub fn skip_field<R, T: Datum>(_: fn(&R) -> &T, input: &mut Input<'_>) -> Result<(), Malformed> {
    T::skip(input)
}

/// Implements [`Datum`] for a struct: its fields, in the schema's order.
///
/// A field of a later schema version names that version: `note since 2`. In an older datum it has its type's [`Default`], which
/// must be the schema's default.
#[macro_export]
macro_rules! datum {
    ($name:ident {}) => {
        impl $crate::datum::Datum for $name {
            fn put(&self, _: &mut Vec<u8>) {}
            fn take(_: &mut $crate::datum::Input<'_>) -> Result<Self, $crate::datum::Malformed> {
                Ok(Self {})
            }
        }
    };
    ($name:ident { $($field:ident $(since $since:literal)?),* $(,)? }) => {
        impl $crate::datum::Datum for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::datum::Datum::put(&self.$field, out);)*
            }
            fn take(input: &mut $crate::datum::Input<'_>) -> Result<Self, $crate::datum::Malformed> {
                Ok(Self { $($field: $crate::datum!(@take input $(since $since)?),)* })
            }
            fn skip(input: &mut $crate::datum::Input<'_>) -> Result<(), $crate::datum::Malformed> {
                $($crate::datum!(@skip input $field $(since $since)?);)*
                Ok(())
            }
        }
    };
    (@take $input:ident) => { $crate::datum::Datum::take($input)? };
    (@take $input:ident since $since:literal) => {
        if $input.version() >= $since { $crate::datum::Datum::take($input)? } else { Default::default() }
    };
    (@skip $input:ident $field:ident) => { $crate::datum::skip_field(|record: &Self| &record.$field, $input)? };
    (@skip $input:ident $field:ident since $since:literal) => {
        if $input.version() >= $since { $crate::datum!(@skip $input $field) }
    };
}

/// Declares an Avro `enum`: its symbols in the schema's order, with the same spelling in JSON and Avro.
///
/// With `open`, the first symbol is `unrecognized`, the schema's default: an unknown symbol in JSON becomes
/// `unrecognized`, and its text is kept in the record's unknown fields.
#[macro_export]
macro_rules! symbols {
    ($(#[$doc:meta])* open $name:ident { $($variant:ident = $symbol:literal),* $(,)? }) => {
        $crate::symbols!(@type $(#[$doc])* #[derive(serde::Serialize)] $name {
            Unrecognized = "unrecognized", $($variant = $symbol,)*
        });

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let symbol = <String as serde::Deserialize>::deserialize(d)?;
                Ok(match symbol.as_str() { $($symbol => Self::$variant,)* _ => Self::Unrecognized })
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $symbol:literal),* $(,)? }) => {
        $crate::symbols!(@type $(#[$doc])* #[derive(serde::Serialize, serde::Deserialize)] $name {
            $($variant = $symbol,)*
        });
    };
    (@type $(#[$doc:meta])* $name:ident { $($variant:ident = $symbol:literal),* $(,)? }) => {
        $crate::described! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub enum $name { $(#[doc = concat!("`", $symbol, "`")] #[serde(rename = $symbol)] $variant,)* }
        }

        impl $name {
            /// Every symbol, in the schema's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The symbol, as in Avro and JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $symbol,)* }
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::datum::NoSymbol;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|symbol| symbol.as_str() == text).ok_or_else(|| {
                    let symbols: Vec<&str> = Self::ALL.iter().map(|symbol| symbol.as_str()).collect();
                    $crate::datum::NoSymbol { text: text.to_owned(), known: symbols.join(", ") }
                })
            }
        }

        impl $crate::datum::Datum for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $crate::datum::put_long(*self as i64, out);
            }
            fn take(input: &mut $crate::datum::Input<'_>) -> Result<Self, $crate::datum::Malformed> {
                let index = input.length()?;
                Self::ALL.get(index).copied().ok_or_else(|| input.malformed("no such symbol"))
            }
        }
    };
}

/// An enum of symbols, unchanged.
#[cfg(not(feature = "openapi"))]
#[macro_export]
macro_rules! described {
    ($($item:tt)*) => { $($item)* };
}

/// An enum of symbols, with its JSON Schema.
#[cfg(feature = "openapi")]
#[macro_export]
macro_rules! described {
    ($($item:tt)*) => {
        #[derive(schemars::JsonSchema)]
        #[schemars(transform = $crate::symbol_schema::list_symbols)]
        $($item)*
    };
}
