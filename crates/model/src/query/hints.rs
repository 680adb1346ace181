//! Parts of a request: samples and labels that its reader needs, type and shard.
//!
//! Not here: the request (`request`).

use std::sync::Arc;

use crate::Labels;

/// Grouping of an aggregation (`by` or `without`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Projection {
    /// Label names, ascending.
    pub names: Vec<Arc<str>>,
    /// True for `by`: `names` are the labels of the group; false for `without`.
    pub include: bool,
}

impl Projection {
    /// Labels of a group by `names`, which ascend, or by all others.
    #[must_use]
    pub fn new(names: &[&str], include: bool) -> Projection {
        debug_assert!(names.is_sorted(), "names ascend");
        Projection { names: names.iter().map(|name| Arc::from(*name)).collect(), include }
    }

    /// Returns true if the label is used.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.names.binary_search_by(|known| (**known).cmp(name)).is_ok() == self.include
    }

    /// Returns true if no label is used: all series are one group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.include && self.names.is_empty()
    }
}

/// Samples of a series that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SampleNeed {
    /// All in the range.
    #[default]
    All,
    /// The newest in the range: older ones may be left out.
    Newest,
}

/// Needs of a reader that uses no values and only the labels of groups.
#[derive(Debug, Clone, Copy)]
pub struct PresenceHints<'a> {
    /// Samples of which time and staleness are read.
    pub samples: SampleNeed,
    /// Labels that are read.
    pub projection: &'a Projection,
}

/// One of several parts into which the series of a query are split by a hash of their labels, so that
/// each part is computed apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    idx: u32,
    count: u32,
}

impl Shard {
    /// Shard `idx` of `count`; `None` if there is no such shard.
    #[must_use]
    pub fn new(idx: u32, count: u32) -> Option<Shard> {
        (idx < count).then_some(Shard { idx, count })
    }

    /// Number of this shard.
    #[must_use]
    pub fn idx(&self) -> u32 {
        self.idx
    }

    /// Number of all shards.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if the series is in this shard. Depends on nothing but the labels, on any machine.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        // FNV-1a; a byte that is not UTF-8 ends each text.
        let text = |text: &str| text.bytes().chain([0xff]).collect::<Vec<u8>>();
        let bytes = labels.iter().flat_map(|(name, value)| [text(name), text(value)]).flatten();
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, step);
        (hash >> 32) % u64::from(self.count) == u64::from(self.idx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_in_one_shard() {
        let mut sizes = [0; 7];
        for id in 0..7000 {
            let labels = Labels::from_pairs([("__name__", "m"), ("id", id.to_string().as_str())]);
            let shards = (0..7).filter(|idx| Shard::new(*idx, 7).expect("a shard").selects(&labels));
            let shards: Vec<u32> = shards.collect();
            assert_eq!(shards.len(), 1, "{labels}");
            sizes[shards[0] as usize] += 1;
        }
        assert!(sizes.iter().all(|size| (850..1150).contains(size)), "{sizes:?}");
        assert_eq!(Shard::new(7, 7), None);
    }

    /// Machines of other versions must agree.
    #[test]
    fn shards_are_stable() {
        let labels = Labels::from_pairs([("__name__", "up"), ("job", "node")]);
        let shard = (0..1000).find(|idx| Shard::new(*idx, 1000).expect("a shard").selects(&labels));
        assert_eq!(shard, Some(534));
    }
}
