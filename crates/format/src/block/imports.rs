//! `import.json` of a tenant: what imports have brought, so that a second one brings nothing twice
//! (`docs/block/imports.md`).
//!
//! Invariant: text of a later version is refused. Not here: writing the file (`import`).

use serde::{Deserialize, Serialize};

use crate::block::meta::Ulid;

/// The only version there is.
pub const VERSION: u64 = 1;

/// Imports of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportState {
    /// [`VERSION`].
    pub version: u64,
    /// Blocks that were copied.
    #[serde(default)]
    pub blocks: Vec<Ulid>,
    /// Heads by source.
    #[serde(default)]
    pub heads: Vec<HeadState>,
    /// Blocks of an import under way: they are removed when it begins again.
    #[serde(default)]
    pub pending: Vec<Ulid>,
}

/// The head of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadState {
    /// Directory, as the operator named it.
    pub source: String,
    /// Names and lengths of the head's files, hashed.
    pub fingerprint: String,
    /// Blocks made of it.
    pub blocks: Vec<Ulid>,
}

/// Reason for refusing the file.
#[derive(Debug, thiserror::Error)]
pub enum ImportStateError {
    /// Not JSON, or a field is missing or of another type.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Written by something newer.
    #[error("version {0}, expected 1")]
    Version(u64),
}

impl ImportState {
    /// Nothing imported.
    #[must_use]
    pub fn new() -> ImportState {
        ImportState { version: VERSION, ..ImportState::default() }
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// [`ImportStateError`].
    pub fn decode(text: &[u8]) -> Result<ImportState, ImportStateError> {
        let state: ImportState = serde_json::from_slice(text)?;
        if state.version == VERSION { Ok(state) } else { Err(ImportStateError::Version(state.version)) }
    }

    /// The file's text.
    ///
    /// # Panics
    /// Never: all fields have a JSON form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("strings and numbers have a JSON form");
        text.push(b'\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_and_later_versions_are_refused() {
        let ulid = Ulid::new(1_700_000_000_000, 7);
        let head = HeadState { source: "a".to_owned(), fingerprint: "f".to_owned(), blocks: vec![ulid] };
        let state = ImportState { blocks: vec![ulid], heads: vec![head], ..ImportState::new() };
        assert_eq!(ImportState::decode(&state.encode()).unwrap(), state);
        assert!(matches!(ImportState::decode(br#"{"version":2}"#), Err(ImportStateError::Version(2))));
        assert!(ImportState::decode(b"{}").is_err());
    }
}
