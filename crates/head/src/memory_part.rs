//! Memory of one part of the head, for metrics.

/// Memory of one kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPart {
    /// Name in lower case with underscores.
    pub name: &'static str,
    /// Bytes allocated.
    pub bytes: u64,
    /// Number of objects.
    pub count: u64,
}

impl MemoryPart {
    /// Returns a part.
    #[must_use]
    pub fn new(name: &'static str, bytes: u64, count: u64) -> MemoryPart {
        MemoryPart { name, bytes, count }
    }

    /// Adds `parts` to the parts of the same name in `sums`.
    pub(crate) fn add(sums: &mut Vec<MemoryPart>, parts: impl IntoIterator<Item = MemoryPart>) {
        for part in parts {
            match sums.iter_mut().find(|sum| sum.name == part.name) {
                Some(sum) => (sum.bytes, sum.count) = (sum.bytes + part.bytes, sum.count + part.count),
                None => sums.push(part),
            }
        }
    }
}
