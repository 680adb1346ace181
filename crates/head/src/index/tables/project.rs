//! Grouping of series by some of their labels, by pair numbers: text is read only for new groups.
//!
//! Invariant: groups are numbered in order of first appearance and keep their numbers when the index is
//! rebuilt.

use chronolith_base::hash::HashMap;
use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;
use chronolith_model::query::Projection;

use super::tenant_index::TenantIndex;

/// Groups of series, and the least label set among the recorded series of each.
pub(crate) struct Groups<'a> {
    projection: &'a Projection,
    labels: Vec<Labels>,
    by_labels: HashMap<Labels, u32>,
    /// The least label set of each group; `None` if no series was recorded.
    least: Vec<Option<Labels>>,
    /// Groups by their pairs, for this generation of the index.
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
    /// Returns an empty grouping.
    pub(crate) fn new(projection: &'a Projection) -> Groups<'a> {
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

    /// Resets the state if the index was rebuilt; required each time after the index was locked.
    pub(crate) fn begin_page(&mut self, tables: &TenantIndex) {
        if self.generation != tables.generation() {
            self.by_pairs.clear();
            self.generation = tables.generation();
        }
        self.last = (Vec::new(), None);
        self.names.clear();
        self.names.extend(self.projection.names.iter().filter_map(|name| tables.find_name(name)));
        self.names.sort_unstable();
    }

    /// Returns the group of the series in a row.
    pub(crate) fn group_of(&mut self, tables: &TenantIndex, row: usize) -> u32 {
        let (names, include) = (&self.names, self.projection.include);
        let is_used = |pair: &u32| names.binary_search(&tables.pairs[*pair as usize].name).is_ok() == include;
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

    /// Returns the group of `self.pairs`, which are unknown in this generation.
    fn add(&mut self, tables: &TenantIndex) -> u32 {
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

    /// Returns the labels of a group.
    pub(crate) fn labels(&self, group: u32) -> &Labels {
        &self.labels[group as usize]
    }

    /// Records the rows of a page.
    pub(crate) fn note_least(&mut self, tables: &TenantIndex, rows: LeastRows) {
        for (group, row) in rows.by_group {
            let labels = tables.labels_of_row(row, &mut self.key);
            let least = &mut self.least[group as usize];
            if least.as_ref().is_none_or(|least| labels < *least) {
                *least = Some(labels);
            }
        }
    }

    /// Returns the labels of the groups, and the groups by their least recorded series; groups without one
    /// come last.
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
    /// Records the row of a series.
    pub(crate) fn note(&mut self, tables: &TenantIndex, group: u32, row: usize) {
        let least = self.by_group.entry(group).or_insert(row);
        if tables.compare_rows(row, *least).is_lt() {
            *least = row;
        }
    }
}
