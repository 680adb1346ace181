//! SHA-256 as text, to notice changed sources. Not here: the algorithm (`sha2`).

use sha2::{Digest as _, Sha256};

/// Hash of `bytes` in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
