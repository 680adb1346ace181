//! Types of the fields of one tenant, for protocols with types: per field and shard group, the kind of its
//! samples, and per field all kinds that its series in the head and in blocks of known shard groups have.
//!
//! Invariants: a field of one shard group has one kind; an entry is made before the first sample it stands
//! for is stored. Wire keys of series of a field with several kinds are not cached, so that each of their
//! samples is checked. A deletion clears the kinds of shard groups.
//! Not here: looking the kinds up (`write::field_types`).

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::{TimeRange, WordKind, WriteBatch};
use xxhash_rust::xxh3::Xxh3;

/// Keyed hash of measurement and field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FieldKey(u128);

impl FieldKey {
    pub(crate) fn new(seed: u64, measurement: &str, field: &str) -> FieldKey {
        let mut hash = Xxh3::with_seed(seed);
        hash.update(&(measurement.len() as u64).to_le_bytes());
        hash.update(measurement.as_bytes());
        hash.update(field.as_bytes());
        FieldKey(hash.digest128())
    }
}

/// Kinds of words, one bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KindSet(u8);

impl KindSet {
    /// Returns the kinds of the series of a batch; none for a protocol without types. Cost: a pass over the
    /// series.
    pub(crate) fn of_batch(batch: &WriteBatch) -> KindSet {
        if !batch.source.is_typed {
            return KindSet::default();
        }
        KindSet(batch.kinds.iter().fold(0, |kinds, kind| kinds | 1 << *kind as u8))
    }

    pub(crate) fn of(kind: WordKind) -> KindSet {
        KindSet(1 << kind as u8)
    }

    pub(crate) fn contains(self, kind: WordKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    pub(crate) fn insert(&mut self, kind: WordKind) {
        self.0 |= 1 << kind as u8;
    }

    pub(crate) fn merge(&mut self, other: KindSet) {
        self.0 |= other.0;
    }

    pub(crate) fn has_several(self) -> bool {
        self.0.count_ones() > 1
    }
}

/// Types of the fields of a tenant.
#[derive(Default)]
pub(crate) struct FieldTypes {
    by_group: HashMap<(FieldKey, i64), WordKind>,
    kinds: HashMap<FieldKey, KindSet>,
    contested: HashSet<FieldKey>,
    /// Kinds of a field name in all measurements, in the head and in blocks of [`FieldTypes::asked`].
    by_name: HashMap<String, KindSet>,
    /// Shard groups whose blocks have been asked for kinds, by their start.
    asked: HashMap<i64, TimeRange>,
}

impl FieldTypes {
    /// Returns the kind of a field in a shard group, if it is known.
    pub(crate) fn kind_in(&self, field: FieldKey, group_start: i64) -> Option<WordKind> {
        self.by_group.get(&(field, group_start)).copied()
    }

    /// Gives a field its kind in a shard group unless it has one; returns the kind that it has.
    pub(crate) fn claim(&mut self, field: FieldKey, group_start: i64, kind: WordKind) -> WordKind {
        *self.by_group.entry((field, group_start)).or_insert(kind)
    }

    /// Returns the kinds of a field, if they are known.
    pub(crate) fn kinds(&self, field: FieldKey) -> Option<KindSet> {
        self.kinds.get(&field).copied()
    }

    /// Sets the kinds of a field; returns true if it has several since this call.
    pub(crate) fn set_kinds(&mut self, field: FieldKey, kinds: KindSet) -> bool {
        self.kinds.insert(field, kinds);
        kinds.has_several() && self.contested.insert(field)
    }

    /// Returns true if the blocks of a shard group have been asked.
    pub(crate) fn has_asked(&self, group: TimeRange) -> bool {
        self.asked.get(&group.start) == Some(&group)
    }

    /// Notes that the blocks of shard groups have been asked.
    pub(crate) fn set_asked(&mut self, groups: &[TimeRange]) {
        self.asked.extend(groups.iter().map(|group| (group.start, *group)));
    }

    /// Returns the shard groups whose blocks have been asked.
    pub(crate) fn asked(&self) -> Vec<TimeRange> {
        self.asked.values().copied().collect()
    }

    /// Adds kinds to a field name.
    pub(crate) fn add_kinds_of_name(&mut self, name: &str, kinds: KindSet) {
        match self.by_name.get_mut(name) {
            Some(known) => known.merge(kinds),
            None => {
                self.by_name.insert(name.to_owned(), kinds);
            }
        }
    }

    /// Returns the kinds that a field of this name has in any measurement.
    pub(crate) fn kinds_of_name(&self, name: &str) -> KindSet {
        self.by_name.get(name).copied().unwrap_or_default()
    }

    /// Returns true if the field has series of several kinds.
    pub(crate) fn is_contested(&self, field: FieldKey) -> bool {
        self.contested.contains(&field)
    }

    /// Forgets the kinds of shard groups, as samples were deleted.
    pub(crate) fn forget_groups(&mut self) {
        self.by_group.clear();
    }
}
