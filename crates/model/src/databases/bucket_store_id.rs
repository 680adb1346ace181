//! Id of a store in a bucket.
//!
//! Invariant: an id is made of random bits once and never given to another store, whatever its name, so that
//! samples of a dropped store cannot come back under the name of a later one. The Graphite store of a tenant
//! is never dropped: all tenants give it the same id.

use std::fmt;
use std::str::FromStr;

/// Hexadecimal digits of an id.
const DIGITS: usize = 32;

/// Id of a store in a bucket, unique over processes and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketStoreId([u8; 16]);

/// A text that is no [`BucketStoreId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {DIGITS} lowercase hexadecimal digits")]
pub struct BucketStoreIdError;

impl BucketStoreId {
    /// The Graphite store of a tenant: its points join the points of an earlier data directory, as in the
    /// default store.
    pub const GRAPHITE: BucketStoreId = BucketStoreId(*b"graphite\0\0\0\0\0\0\0\0");

    /// The id of 16 random bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> BucketStoreId {
        BucketStoreId(bytes)
    }

    /// Returns the 16 bytes of the id.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for BucketStoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for BucketStoreId {
    type Err = BucketStoreIdError;

    fn from_str(text: &str) -> Result<BucketStoreId, BucketStoreIdError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != DIGITS || !text.bytes().all(is_digit) {
            return Err(BucketStoreIdError);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| BucketStoreIdError)?;
        Ok(BucketStoreId(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text_and_nothing_else() {
        let id = BucketStoreId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "00", "000102030405060708090A0b0c0d0eff", "+00102030405060708090a0b0c0d0eff"] {
            assert_eq!(bad.parse::<BucketStoreId>(), Err(BucketStoreIdError), "{bad}");
        }
    }
}
