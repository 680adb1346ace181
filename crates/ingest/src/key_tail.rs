//! Labels that the server adds to a series, as bytes for the end of its wire key.
//!
//! Invariant: a tail has its own length and the number of the protocol at its end, so that the key as sent is
//! found again. Not here: parsing of keys with a tail (`added_labels`).

/// Set in the number of a protocol whose keys have added labels.
pub(crate) const ADDED: u8 = 0x80;
/// Number at the end of a key whose inner key has a tail as well.
pub(crate) const NESTED: u8 = 0x3f;
/// Bits of the protocol number at the end of a key that have the [`Conflict`].
pub(crate) const CONFLICT_BITS: u8 = 0xc0;

/// Length of the pairs and number of the protocol.
const TAIL_BYTES: usize = 4 + 1;

/// Labels as bytes for the end of wire keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedLabels {
    /// `name NUL value NUL` each.
    pairs: Vec<u8>,
    conflict: Conflict,
}

/// Result for a label that is sent and added. The numbers are in wire keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Conflict {
    /// The added value replaces the sent one.
    #[default]
    Replace = 0,
    /// The sent value stays, an empty one too (`honor_labels: true`).
    KeepSent = 0x40,
    /// The sent value moves to the name with the prefix `exported_` (`honor_labels: false`).
    RenameSent = 0x80,
}

impl AddedLabels {
    /// Labels without NUL bytes; others are left out.
    pub fn new<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> AddedLabels {
        let mut pairs = Vec::new();
        let has_nul = |text: &str| text.as_bytes().contains(&0);
        for (name, value) in labels.into_iter().filter(|(name, value)| !has_nul(name) && !has_nul(value)) {
            pairs.extend_from_slice(name.as_bytes());
            pairs.push(0);
            pairs.extend_from_slice(value.as_bytes());
            pairs.push(0);
        }
        AddedLabels { pairs, conflict: Conflict::Replace }
    }

    /// Sets the result for labels that are sent as well.
    #[must_use]
    pub fn with_conflict(mut self, conflict: Conflict) -> AddedLabels {
        self.conflict = conflict;
        self
    }

    /// Returns the bytes that [`AddedLabels::put_tail`] appends.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.pairs.len() + TAIL_BYTES
    }

    /// Appends the labels to a key of a source whose number is `protocol`, with a tail or without one.
    pub(crate) fn put_outer_tail(&self, protocol: u8, raw: &mut Vec<u8>) {
        self.put_tail(if protocol & ADDED == 0 { protocol } else { NESTED }, raw);
    }

    /// Appends the labels to a key of `protocol` that ends `raw`. All keys of a batch have them or none.
    pub(crate) fn put_tail(&self, protocol: u8, raw: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        debug_assert_eq!(protocol & CONFLICT_BITS, 0, "bits of a number that conflicts have");
        raw.extend_from_slice(&self.pairs);
        raw.extend_from_slice(&(self.pairs.len() as u32).to_le_bytes());
        raw.push(protocol | self.conflict as u8);
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// Splits a key into the key as sent, the added pairs, and the number of its protocol with [`CONFLICT_BITS`].
pub(crate) fn split(raw: &[u8]) -> Option<(&[u8], &[u8], u8)> {
    let (&protocol, rest) = raw.split_last()?;
    let (rest, len) = rest.split_last_chunk::<4>()?;
    let at = rest.len().checked_sub(u32::from_le_bytes(*len) as usize)?;
    let (sent, pairs) = rest.split_at(at);
    Some((sent, pairs, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_split_as_it_was_put_together() {
        assert_eq!(split(b"abc\x02\x00\x00\x00\x07"), Some((&b"a"[..], &b"bc"[..], 7)));
        assert_eq!(split(b"abc\x04\x00\x00\x00\x07"), None);
        let mut raw = b"up".to_vec();
        let added = AddedLabels::new([("a", "b"), ("nul\0", "x")]).with_conflict(Conflict::RenameSent);
        added.put_tail(5, &mut raw);
        assert_eq!(raw.len(), 2 + added.tail_bytes());
        assert_eq!(split(&raw), Some((&b"up"[..], &b"a\0b\0"[..], 0x85)));
    }
}
