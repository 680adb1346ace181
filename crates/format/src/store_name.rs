//! Names of stores, in file and directory names and in frames of the WAL. The default store of a tenant has
//! the tenant's id; others have `__ns-` (a database's, in nanoseconds) or `__ms-` (of Graphite clients, in
//! milliseconds) and their number in 16 lowercase hexadecimal digits, which no id of a tenant begins with.
//!
//! Invariants: each store has one name and each name one store; names sort as ids do.
//! Not here: folders in a bucket (`bucket`), where stores have other ids.

use std::borrow::Cow;

use chronolith_model::tenant::TenantIdError;
use chronolith_model::{StoreId, TenantId};

/// Prefix of stores of databases.
const PREFIX_DATABASE: &str = "__ns-";
/// Prefix of stores of Graphite clients.
const PREFIX_GRAPHITE: &str = "__ms-";
/// Digits of a number.
const DIGIT_COUNT: usize = 16;

/// Reason why a name is no store's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreNameError {
    /// Neither a tenant nor a known prefix.
    #[error(transparent)]
    Tenant(#[from] TenantIdError),
    /// A number that is too short or too long.
    #[error("store name has {found} bytes after {prefix}, expected {DIGIT_COUNT} hexadecimal digits")]
    Length {
        /// The prefix.
        prefix: &'static str,
        /// Bytes after it.
        found: usize,
    },
    /// A character that is no digit.
    #[error(
        "store name has the character {found:?} after {prefix}, expected {DIGIT_COUNT} lowercase hexadecimal digits"
    )]
    Digit {
        /// The prefix.
        prefix: &'static str,
        /// The first such character.
        found: char,
    },
}

/// Returns the name of a store. Cost: no allocation for the default store of a tenant.
#[must_use]
pub fn store_name(store: &StoreId) -> Cow<'_, str> {
    match store {
        StoreId::Default(tenant) => Cow::Borrowed(tenant.as_str()),
        StoreId::Database { number } => Cow::Owned(format!("{PREFIX_DATABASE}{number:016x}")),
        StoreId::Graphite { number } => Cow::Owned(format!("{PREFIX_GRAPHITE}{number:016x}")),
    }
}

/// Returns the store with a name.
///
/// # Errors
/// [`StoreNameError`].
pub fn parse_store_name(name: &str) -> Result<StoreId, StoreNameError> {
    if let Some(digits) = name.strip_prefix(PREFIX_DATABASE) {
        return Ok(StoreId::Database { number: parse_number(PREFIX_DATABASE, digits)? });
    }
    if let Some(digits) = name.strip_prefix(PREFIX_GRAPHITE) {
        return Ok(StoreId::Graphite { number: parse_number(PREFIX_GRAPHITE, digits)? });
    }
    Ok(StoreId::Default(TenantId::new(name)?))
}

fn parse_number(prefix: &'static str, digits: &str) -> Result<u64, StoreNameError> {
    if digits.len() != DIGIT_COUNT {
        return Err(StoreNameError::Length { prefix, found: digits.len() });
    }
    let mut number = 0;
    for found in digits.chars() {
        // One store has one name: uppercase digits would be a second one.
        let digit = found.to_digit(16).filter(|_| !found.is_ascii_uppercase());
        number = number << 4 | u64::from(digit.ok_or(StoreNameError::Digit { prefix, found })?);
    }
    Ok(number)
}

#[cfg(test)]
mod tests;
