//! Block names: 48 bits of milliseconds, 80 random bits, as 26 characters of Crockford's base 32.
//! Invariant: text order is number order is order of creation (to the millisecond).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a ULID.
const ULID_CHARS: usize = 26;

/// A universally unique, lexicographically sortable identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ulid(u128);

/// A text that is no ULID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid ULID {0:?}")]
pub struct UlidError(String);

impl Ulid {
    /// A name from a time (clamped to 48 bits) and 128 random bits, of which the low 80 are used.
    #[must_use]
    pub fn new(time_ms: i64, random: u128) -> Ulid {
        const TIME_MAX: u64 = (1 << 48) - 1;
        let time = u64::try_from(time_ms).unwrap_or(0).min(TIME_MAX);
        Ulid(u128::from(time) << 80 | random & ((1 << 80) - 1))
    }

    /// The time within.
    #[must_use]
    pub fn time_ms(self) -> i64 {
        i64::try_from(self.0 >> 80).unwrap_or(i64::MAX)
    }

    /// Returns the 16 bytes of the ULID; they sort as the name does.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// From the number that [`Ulid::to_bytes`] gives, most significant byte first.
    #[must_use]
    pub fn from_bits(bits: u128) -> Ulid {
        Ulid(bits)
    }

    fn chars(self) -> [u8; ULID_CHARS] {
        let mut out = [0; ULID_CHARS];
        let mut rest = self.0;
        for slot in out.iter_mut().rev() {
            *slot = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        out
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chars().iter().try_for_each(|&c| fmt::Write::write_char(f, char::from(c)))
    }
}

impl fmt::Debug for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Ulid {
    type Err = UlidError;

    /// Takes upper-case text only: directories are named so, and two names for one block would be trouble.
    fn from_str(text: &str) -> Result<Ulid, UlidError> {
        let refuse = || UlidError(text.chars().take(64).collect());
        // The first character holds the top three of 128 bits.
        if text.len() != ULID_CHARS || text.as_bytes().first().is_none_or(|&c| c > b'7') {
            return Err(refuse());
        }
        let mut value = 0u128;
        for c in text.bytes() {
            let digit = ALPHABET.iter().position(|&a| a == c).ok_or_else(refuse)?;
            value = value << 5 | digit as u128;
        }
        Ok(Ulid(value))
    }
}

impl Serialize for Ulid {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ulid {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Ulid, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
