//! Numeric ids.

use super::illegal::Illegal;
use crate::datum::{Datum, Input, Malformed};
use std::{fmt, str::FromStr};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($number:ty as $avro:ty, any $small:ty) = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($number);

        impl $name {
            /// The smallest number.
            pub const ZERO: Self = Self(0);
            /// The largest number. The schema's number is signed.
            pub const MAX: Self = Self(<$avro>::MAX.cast_unsigned());

            /// Creates the id. Refuses a number beyond the schema's range.
            pub fn new(number: $number) -> Result<Self, Illegal> {
                if number <= Self::MAX.0 {
                    return Ok(Self(number));
                }
                Err(Illegal::TooLarge { what: $what, max: Self::MAX.0.into(), number: number.into() })
            }

            /// Returns the plain number.
            pub fn get(self) -> $number {
                self.0
            }

            /// Returns the number signed, as in the Avro schema and in Kafka.
            pub fn signed(self) -> $avro {
                self.0.cast_signed()
            }

            /// Converts a signed number. Refuses a negative number, which Kafka and the schema use for a missing number.
            pub fn from_signed(number: $avro) -> Result<Self, Illegal> {
                let negative = |_| Illegal::NotANumber { what: $what, max: Self::MAX.0.into(), text: number.to_string() };
                <$number>::try_from(number).map(Self).map_err(negative)
            }

            /// Returns the next number, or `None` after the largest.
            pub fn next(self) -> Option<Self> {
                Self::new(self.0 + 1).ok()
            }

            /// Adds `count`, up to the largest number.
            #[must_use]
            pub fn saturating_add(self, count: $number) -> Self {
                Self(self.0.saturating_add(count).min(Self::MAX.0))
            }

            /// Subtracts `count`, down to 0.
            #[must_use]
            pub fn saturating_sub(self, count: $number) -> Self {
                Self(self.0.saturating_sub(count))
            }

            /// Returns the distance from `earlier`, or 0 if `earlier` is greater.
            pub fn since(self, earlier: Self) -> $number {
                self.0.saturating_sub(earlier.0)
            }
        }

        impl From<$small> for $name {
            fn from(number: $small) -> Self {
                Self(number.into())
            }
        }

        impl TryFrom<$number> for $name {
            type Error = Illegal;
            fn try_from(number: $number) -> Result<Self, Illegal> {
                Self::new(number)
            }
        }

        impl FromStr for $name {
            type Err = Illegal;
            fn from_str(text: &str) -> Result<Self, Illegal> {
                let refused = || Illegal::NotANumber { what: $what, max: Self::MAX.0.into(), text: text.to_owned() };
                text.parse().map_err(|_| refused()).and_then(|number| Self::new(number).map_err(|_| refused()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        /// Prints the plain number.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Datum for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                <$number>::take(input).map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = <$number as serde::Deserialize>::deserialize(deserializer)?;
                Self::new(number).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

numbers! {
    /// The number of a run's claim, from 1; 0 before the first claim.
    Epoch(u64 as i64, any u32) = "writer epoch";
    /// A writer's records within its epoch: 1, 2, 3 …; 0 for claims and for records that need none.
    WriterSeq(u64 as i64, any u32) = "writer_seq";
    /// A record's number in its run: 1, 2, 3 …; 0 for kinds without numbers.
    JournalSeq(u64 as i64, any u32) = "journal_seq";
    /// A record's position in its partition: increasing, with gaps allowed.
    Offset(u64 as i64, any u32) = "offset";
    /// A partition, from 0.
    PartitionId(u32 as i32, any u16) = "partition";
}

impl PartitionId {
    /// Returns the partition, of `count`, of a key with this hash, as Kafka's default partitioner assigns it.
    pub(crate) fn of_hash(hash: u32, count: u32) -> Self {
        Self((hash & Self::MAX.0) % count.max(1))
    }

    /// Returns all partitions of a journal with `count` partitions.
    pub fn all(count: u32) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..count.min(Self::MAX.0)).map(Self)
    }

    /// Returns the index into a list of all partitions.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
