//! Grouping of series by some of their labels, by number of pair: no text is read but for a group that is
//! new.
//!
//! Holds: groups are numbered in order of first appearance and keep their numbers when the tables are built
//! anew.

use std::cmp::Ordering;

use chronolith_base::hash::HashMap;
use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;
use chronolith_model::query::Projection;

use super::Tables;

/// Groups of series, and the least label set among the series of each that were noted.
pub(crate) struct Groups<'a> {
    projection: Projection<'a>,
    labels: Vec<Labels>,
    by_labels: HashMap<Labels, u32>,
    /// The least label set of each group; `None` if no series was noted.
    least: Vec<Option<Labels>>,
    /// Groups by the pairs that they have, in this generation of the tables.
    by_pairs: HashMap<Box<[u32]>, u32>,
    generation: u32,
    /// Numbers of the names of the projection, ascending.
    names: Vec<u32>,
    /// Pairs of the last series, and its group.
    last: (Vec<u32>, Option<u32>),
    pairs: Vec<u32>,
    key: LabelsKey,
}

/// Rows with the least labels of their groups, within a page.
#[derive(Default)]
pub(crate) struct LeastRows {
    by_group: HashMap<u32, usize>,
}

impl<'a> Groups<'a> {
    /// Without groups.
    pub(crate) fn new(projection: Projection<'a>) -> Groups<'a> {
        Groups {
            projection,
            labels: Vec::new(),
            by_labels: HashMap::default(),
            least: Vec::new(),
            by_pairs: HashMap::default(),
            generation: 0,
            names: Vec::new(),
            last: (Vec::new(), None),
            pairs: Vec::new(),
            key: LabelsKey::default(),
        }
    }

    /// To be called when the tables were locked.
    pub(crate) fn begin_page(&mut self, tables: &Tables) {
        if self.generation != tables.generation() {
            self.by_pairs.clear();
            self.generation = tables.generation();
        }
        self.last = (Vec::new(), None);
        self.names.clear();
        self.names.extend(self.projection.names.iter().filter_map(|name| tables.find_name(name)));
        self.names.sort_unstable();
    }

    /// The group of the series in a row.
    pub(crate) fn group_of(&mut self, tables: &Tables, row: usize) -> u32 {
        let (names, include) = (&self.names, self.projection.include);
        let is_used =
            |pair: &&u32| names.binary_search(&tables.pairs[**pair as usize].name).is_ok() == include;
        self.pairs.clear();
        self.pairs.extend(tables.members_of(row).iter().filter(is_used));
        if let (pairs, Some(group)) = &self.last
            && *pairs == self.pairs
        {
            return *group;
        }
        let known = self.by_pairs.get(&*self.pairs).copied();
        let group = known.unwrap_or_else(|| self.add(tables));
        std::mem::swap(&mut self.last.0, &mut self.pairs);
        self.last.1 = Some(group);
        group
    }

    /// The group with the pairs at hand, which are not known in this generation.
    fn add(&mut self, tables: &Tables) -> u32 {
        self.key.set_sorted(self.pairs.iter().map(|&pair| tables.pair_text(pair)));
        let labels = self.key.to_labels();
        let next = self.labels.len() as u32;
        let group = *self.by_labels.entry(labels.clone()).or_insert(next);
        if group == next {
            self.labels.push(labels);
            self.least.push(None);
        }
        self.by_pairs.insert(self.pairs.as_slice().into(), group);
        group
    }

    /// Notes the rows of a page.
    pub(crate) fn note_least(&mut self, tables: &Tables, rows: LeastRows) {
        for (group, row) in rows.by_group {
            let labels = tables.labels_of_row(row, &mut self.key);
            let least = &mut self.least[group as usize];
            if least.as_ref().is_none_or(|least| labels < *least) {
                *least = Some(labels);
            }
        }
    }

    /// Labels of the groups; and the groups in order of the least series that were noted, groups without one
    /// last.
    pub(crate) fn finish(self) -> (Vec<Labels>, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.labels.len() as u32).collect();
        let key = |group: &u32| {
            let least = &self.least[*group as usize];
            (least.is_none(), least.as_ref(), &self.labels[*group as usize])
        };
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        (self.labels, order)
    }
}

impl LeastRows {
    /// Notes the row of a series.
    pub(crate) fn note(&mut self, tables: &Tables, group: u32, row: usize) {
        let least = self.by_group.entry(group).or_insert(row);
        if tables.compare_rows(row, *least).is_lt() {
            *least = row;
        }
    }
}

impl Tables {
    /// As the labels of the series in two rows compare.
    pub(crate) fn compare_rows(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.members_of(a), self.members_of(b));
        match a.iter().zip(b).find(|(a, b)| a != b) {
            Some((&a, &b)) => self.pair_text(a).cmp(&self.pair_text(b)),
            None => a.len().cmp(&b.len()),
        }
    }

    /// Row of a live series, for ids that ascend from call to call: `place` is 0 at first.
    pub(crate) fn row_from(&self, place: &mut usize, id: u32) -> Option<usize> {
        self.live_idx_from(place, id)
    }
}
