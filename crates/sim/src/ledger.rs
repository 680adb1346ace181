//! What the store must answer: for each tenant, series and time the values that are right.
//!
//! Holds: a value that was acknowledged is the only right one, by the tenant's policy for duplicates; whatever was under
//! way when something failed may be there or not, until a start after a power cut shows which.
//! Not here: asking the store (`read`), deciding what was acknowledged (`write`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_base::hash::HashMap;
use chronolith_model::{DuplicatePolicy, Labels, Matcher, TenantId, TenantLimits, TimeRange};

use crate::series::labels_of;
use crate::value::Value;

/// What may be found at one time of a series.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    /// Exactly this.
    Sure(Value),
    /// Any of several.
    Open(Box<Doubt>),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Doubt {
    /// What may be found; `None` is nothing.
    pub(crate) allowed: Vec<Option<Value>>,
    /// Values that were taken, do not answer, and may come to light when a deletion fails half way.
    hidden: Vec<Value>,
}

impl Doubt {
    fn allow(&mut self, value: Option<Value>) {
        if !self.allowed.contains(&value) {
            self.allowed.push(value);
        }
    }

    fn hide(&mut self, value: Value) {
        if !self.allowed.contains(&Some(value)) && !self.hidden.contains(&value) {
            self.hidden.push(value);
        }
    }

    fn is_settled(&self) -> bool {
        self.allowed.len() == 1
    }
}

impl Cell {
    pub(crate) fn allows(&self, found: Option<Value>) -> bool {
        match self {
            Cell::Sure(value) => found == Some(*value),
            Cell::Open(doubt) => doubt.allowed.contains(&found),
        }
    }

    /// Whether there must be a sample.
    pub(crate) fn is_present(&self) -> bool {
        !self.allows(None)
    }

    /// Some value that may be found.
    pub(crate) fn value(&self) -> Option<Value> {
        match self {
            Cell::Sure(value) => Some(*value),
            Cell::Open(doubt) => doubt.allowed.iter().flatten().next().copied(),
        }
    }

    fn doubt(&self) -> Doubt {
        match self {
            Cell::Sure(value) => Doubt { allowed: vec![Some(*value)], hidden: Vec::new() },
            Cell::Open(doubt) => (**doubt).clone(),
        }
    }
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Acknowledged as stored.
    Acked,
    /// Stored or refused because of another value; the store says of the whole batch only how many were.
    AckedOrConflict,
    /// The write failed.
    InFlight,
}

/// One series.
pub(crate) struct SeriesLedger {
    pub(crate) labels: Labels,
    pub(crate) cells: BTreeMap<i64, Cell>,
}

impl SeriesLedger {
    /// Takes a sample.
    fn put(&mut self, policy: DuplicatePolicy, fate: Fate, time: i64, value: Value) -> Settled {
        let cell = self.cells.get_mut(&time);
        let next = match (cell, policy, fate) {
            (None, _, Fate::Acked | Fate::AckedOrConflict) => Cell::Sure(value),
            (None, _, Fate::InFlight) => open(Doubt { allowed: vec![None, Some(value)], hidden: Vec::new() }),
            (Some(Cell::Sure(old)), _, _) if *old == value => return Settled::Yes,
            (Some(_), DuplicatePolicy::LastWins, Fate::Acked) => Cell::Sure(value),
            (Some(cell), DuplicatePolicy::LastWins, _) => {
                let mut doubt = cell.doubt();
                doubt.allow(Some(value));
                open(doubt)
            }
            (Some(cell), DuplicatePolicy::KeepFirst, _) => {
                let mut doubt = cell.doubt();
                let may_be_empty = doubt.allowed.contains(&None);
                let has_other = doubt.allowed.iter().any(|v| v.is_some_and(|v| v != value));
                if !may_be_empty {
                    doubt.hide(value);
                } else {
                    doubt.allow(Some(value));
                    let is_stored = fate == Fate::Acked || (fate == Fate::AckedOrConflict && !has_other);
                    if is_stored {
                        doubt.allowed.retain(Option::is_some);
                    }
                }
                open(doubt)
            }
        };
        let settled = if is_settled(&next) { Settled::Yes } else { Settled::No };
        self.cells.insert(time, next);
        settled
    }

    /// The cells in `range`.
    pub(crate) fn cells_in(&self, range: TimeRange) -> impl Iterator<Item = (i64, &Cell)> {
        self.cells.range(range.start..range.end.max(range.start)).map(|(time, cell)| (*time, cell))
    }

    /// Takes what was found for what is.
    fn settle(&mut self, found: &BTreeMap<i64, Value>) {
        self.cells.retain(|time, cell| {
            let Cell::Open(doubt) = cell else { return true };
            let found = found.get(time).copied();
            // A value that was taken while it was open whether another one is there may lie behind that.
            let behind = std::mem::take(&mut doubt.allowed);
            behind.into_iter().flatten().for_each(|value| doubt.hide(value));
            doubt.hidden.retain(|value| found.is_some() && Some(*value) != found);
            doubt.allowed = vec![found];
            if let (true, Some(value)) = (doubt.hidden.is_empty(), found) {
                *cell = Cell::Sure(value);
            }
            found.is_some()
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Yes,
    No,
}

fn is_settled(cell: &Cell) -> bool {
    match cell {
        Cell::Sure(_) => true,
        Cell::Open(doubt) => doubt.is_settled(),
    }
}

/// A doubt with one value and nothing hidden is none.
fn open(doubt: Doubt) -> Cell {
    match doubt.allowed[..] {
        [Some(value)] if doubt.hidden.is_empty() => Cell::Sure(value),
        _ => Cell::Open(Box::new(doubt)),
    }
}

impl SeriesLedger {
    /// Whether a sample may be refused because another value is there.
    pub(crate) fn may_conflict(&self, time: i64, value: Value) -> bool {
        match self.cells.get(&time) {
            None => false,
            Some(Cell::Sure(found)) => *found != value,
            Some(Cell::Open(doubt)) => {
                doubt.allowed.iter().flatten().chain(&doubt.hidden).any(|found| *found != value)
            }
        }
    }
}

/// One tenant.
pub(crate) struct TenantLedger {
    pub(crate) id: TenantId,
    pub(crate) limits: TenantLimits,
    /// Samples before it may have expired: nothing is known of them.
    pub(crate) floor_ms: i64,
    /// No sample that was ever taken is newer.
    pub(crate) newest_ms: i64,
    /// By number.
    pub(crate) series: BTreeMap<u32, SeriesLedger>,
    by_labels: HashMap<Labels, u32>,
    unsettled: BTreeSet<u32>,
    /// Part of the labels of all series, if several ledgers share a tenant.
    owner: Option<usize>,
}

impl TenantLedger {
    pub(crate) fn new(id: TenantId, limits: TenantLimits, owner: Option<usize>) -> TenantLedger {
        TenantLedger {
            id,
            limits,
            floor_ms: i64::MIN,
            newest_ms: i64::MIN,
            series: BTreeMap::new(),
            by_labels: HashMap::default(),
            unsettled: BTreeSet::new(),
            owner,
        }
    }

    /// The labels of series `number`.
    pub(crate) fn labels(&self, number: u32) -> Labels {
        match self.series.get(&number) {
            Some(series) => series.labels.clone(),
            None => labels_of(self.owner, number),
        }
    }

    pub(crate) fn put(&mut self, number: u32, fate: Fate, time: i64, value: Value) {
        self.newest_ms = self.newest_ms.max(time);
        let owner = self.owner;
        let by_labels = &mut self.by_labels;
        let series = self.series.entry(number).or_insert_with(|| {
            let labels = labels_of(owner, number);
            by_labels.insert(labels.clone(), number);
            SeriesLedger { labels, cells: BTreeMap::new() }
        });
        if series.put(self.limits.duplicates, fate, time, value) == Settled::No {
            self.unsettled.insert(number);
        }
    }

    /// Number of the series with `labels`, if one was ever written.
    pub(crate) fn number_of(&self, labels: &Labels) -> Option<u32> {
        self.by_labels.get(labels).copied()
    }

    /// Numbers of the series that all of `matchers` fit.
    pub(crate) fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
    ) -> impl Iterator<Item = (u32, &'a SeriesLedger)> {
        let fits = |series: &SeriesLedger| matchers.iter().all(|m| m.matches_labels(&series.labels));
        self.series.iter().filter(move |(_, series)| fits(series)).map(|(number, series)| (*number, series))
    }

    /// Deletes what fits any of `selectors`.
    pub(crate) fn delete(&mut self, selectors: &[Vec<Matcher>], range: TimeRange, fate: Fate) {
        let range_of = || range.start..range.end.max(range.start);
        for (number, series) in &mut self.series {
            if !selectors.iter().any(|all| all.iter().all(|m| m.matches_labels(&series.labels))) {
                continue;
            }
            if fate == Fate::Acked {
                let gone: Vec<i64> = series.cells.range(range_of()).map(|(time, _)| *time).collect();
                gone.iter().for_each(|time| {
                    series.cells.remove(time);
                });
                continue;
            }
            for (_, cell) in series.cells.range_mut(range_of()) {
                let mut doubt = cell.doubt();
                doubt.allow(None);
                doubt.hidden.clone().into_iter().for_each(|value| doubt.allow(Some(value)));
                *cell = Cell::Open(Box::new(doubt));
                self.unsettled.insert(*number);
            }
        }
    }

    /// Series with something that is not certain.
    pub(crate) fn unsettled(&self) -> Vec<u32> {
        self.unsettled.iter().copied().collect()
    }

    /// Takes what was found of a series for what is.
    pub(crate) fn settle(&mut self, number: u32, found: &BTreeMap<i64, Value>) {
        if let Some(series) = self.series.get_mut(&number) {
            series.settle(found);
        }
        self.unsettled.remove(&number);
    }

    /// Forgets what may have expired at `now_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64) {
        if self.limits.retention_ms == 0 {
            return;
        }
        let floor_ms = now_ms.saturating_sub(self.limits.retention_ms);
        if floor_ms > self.floor_ms {
            self.floor_ms = floor_ms;
            for series in self.series.values_mut() {
                series.cells = series.cells.split_off(&floor_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The write of 1 failed, yet it was stored and went to a block; then 2 was taken, and 1 answers.
    #[test]
    fn a_value_behind_the_one_that_answers_is_not_forgotten() {
        let mut series = SeriesLedger { labels: labels_of(None, 0), cells: BTreeMap::new() };
        let [one, two, three] = [1, 2, 3].map(Value::Float);
        series.put(DuplicatePolicy::KeepFirst, Fate::InFlight, 10, one);
        series.put(DuplicatePolicy::KeepFirst, Fate::Acked, 10, two);
        series.settle(&BTreeMap::from([(10, one)]));
        assert!(series.cells[&10].allows(Some(one)) && !series.cells[&10].allows(Some(two)));
        assert!(series.may_conflict(10, one), "2 may be in the head");
        series.put(DuplicatePolicy::KeepFirst, Fate::Acked, 20, three);
        assert!(!series.may_conflict(20, three));
    }
}
