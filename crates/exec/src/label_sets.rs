//! Hash table of label sets, numbered: groups of aggregations, signatures of joins.
//!
//! Invariants: numbers count from 0 in the order in which sets first appear. Looking a set up allocates
//! nothing, and hashes nothing if the last lookup was for an equal set, which is frequent because series are
//! sorted.
//! Not here: choice of labels (`grouping`, `join::matching`).

use chronolith_base::hash::HashTable;
use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;

/// Label sets and their numbers.
#[derive(Default)]
pub struct LabelSets {
    /// Numbers by hash of the set.
    index: HashTable<usize>,
    sets: Vec<Labels>,
    last: usize,
    key: LabelsKey,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The set has this number already.
    Old(usize),
    /// The set is new and got this number.
    New(usize),
}

impl Entry {
    /// The number.
    pub fn number(self) -> usize {
        let (Entry::Old(number) | Entry::New(number)) = self;
        number
    }
}

impl LabelSets {
    /// The number of the set that `fill` makes, if it has one.
    pub fn find(&mut self, fill: impl FnOnce(&mut LabelsKey)) -> Option<usize> {
        fill(&mut self.key);
        self.find_key().ok()
    }

    /// The number of the set that `fill` makes; a new one, if it has none.
    pub fn number(&mut self, fill: impl FnOnce(&mut LabelsKey)) -> Entry {
        fill(&mut self.key);
        let hash = match self.find_key() {
            Ok(number) => return Entry::Old(number),
            Err(hash) => hash,
        };
        let number = self.sets.len();
        self.sets.push(self.key.to_labels());
        self.index.insert_unique(hash, number, |&at| self.sets[at].hash64());
        self.last = number;
        Entry::New(number)
    }

    /// The set with a number.
    ///
    /// # Panics
    /// If no set has it.
    pub fn labels(&self, number: usize) -> &Labels {
        &self.sets[number]
    }

    /// Number of sets.
    pub fn count(&self) -> usize {
        self.sets.len()
    }

    fn find_key(&mut self) -> Result<usize, u64> {
        if self.sets.get(self.last).is_some_and(|set| self.key.is(set)) {
            return Ok(self.last);
        }
        let hash = self.key.hash64();
        let number = *self.index.find(hash, |&at| self.key.is(&self.sets[at])).ok_or(hash)?;
        self.last = number;
        Ok(number)
    }
}
