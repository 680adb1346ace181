//! Bloom filter of the tag keys or field keys of one line: most lines repeat none, which needs no comparison.
//!
//! Invariant: a name that was added is always found; another name is found in about one of a thousand cases
//! per name of the line.

const WORD_COUNT: usize = 16;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Names of one line, one bit each.
#[derive(Default)]
pub(super) struct NameFilter {
    words: [u64; WORD_COUNT],
}

impl NameFilter {
    /// Adds a name; returns true if it may have been added before.
    // PERF: inlined into the walk over a line. cargo bench -p chronolith-ingest --bench line_speed
    #[inline]
    pub(super) fn may_have(&mut self, name: &[u8]) -> bool {
        let hash = hash_of(name) as usize;
        let bit = 1 << (hash % 64);
        let Some(word) = self.words.get_mut(hash / 64 % WORD_COUNT) else { return true };
        let may_have = *word & bit != 0;
        *word |= bit;
        may_have
    }
}

/// Returns a hash of the first and the last eight bytes and the length.
#[inline]
fn hash_of(name: &[u8]) -> u64 {
    let bytes = if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
    } else if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
    } else {
        name.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    (bytes.wrapping_add(name.len() as u64)).wrapping_mul(MULTIPLIER) >> 48
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_few_others() {
        let names: Vec<String> = (0..100).map(|n| format!("{}{n}", "field_".repeat(n % 4))).collect();
        let mut filter = NameFilter::default();
        let false_count = names.iter().filter(|name| filter.may_have(name.as_bytes())).count();
        assert!(false_count < 15, "{false_count}");
        assert!(names.iter().all(|name| filter.may_have(name.as_bytes())));
    }
}
