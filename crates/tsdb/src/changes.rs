//! Change log per tenant, for result caches: ranges written and latest time removed since a generation.
//!
//! Invariants: a generation starts with each query of a cache, so there are never more entries than queries;
//! beyond [`ENTRIES_MAX`] the oldest are joined, which only makes more times count as changed. A tenant
//! without queries costs one map lookup per batch.
//! Not here: the callers (`tsdb` after each batch, `maintenance::retention` after each removed block).

use std::collections::VecDeque;
use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_model::change::{Changed, ChangedRanges};
use chronolith_model::{StoreId, TimeRange, WriteBatch};
use parking_lot::{Mutex, RwLock};

/// Entries of a list of times of one tenant.
const ENTRIES_MAX: usize = 1024;
/// Entries of the list of ranges of one tenant, each of up to [`ChangedRanges::COUNT_MAX`].
const RANGE_ENTRIES_MAX: usize = 256;
/// Tenants that are watched; of others everything counts as changed. Bounds the memory that queries with
/// arbitrary tenant names take.
const WATCHED_MAX: usize = 1 << 17;
/// Change of a tenant that is not watched because of [`WATCHED_MAX`].
const EVERYTHING: Changed = Changed::EVERYTHING;

/// Origin of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A client, by any protocol.
    Client,
    /// A continuous query: its points are no reason to run one again, unless it reads what they are of.
    ContinuousQuery,
    /// A recording or alerting rule: its caller knows which rules read its series.
    Rule,
}

/// Changes of all tenants that are watched.
#[derive(Default)]
pub(crate) struct Changes(RwLock<Watched>);

#[derive(Default)]
struct Watched {
    by_tenant: HashMap<StoreId, Arc<Mutex<TenantChanges>>>,
    /// Greater than the generations of all forgotten tenants; 0 if none was forgotten.
    generation_first: u64,
}

#[derive(Default)]
struct TenantChanges {
    generation: u64,
    /// Ranges written, in ms.
    written: RangeLog,
    /// Ranges written by others than rules, in ms.
    written_to_rules: RangeLog,
    /// Earliest times written by others than continuous queries.
    sent: Minima,
    /// Latest times removed, negated so that the greatest time is the least value.
    removed: Minima,
}

impl Changes {
    pub(crate) fn generation(&self, store: &StoreId) -> u64 {
        let Some(watched) = self.of(store).or_else(|| self.watch(store)) else { return 0 };
        let mut changes = watched.lock();
        let now = changes.generation;
        changes.generation += 1;
        now
    }

    pub(crate) fn since(&self, store: &StoreId, generation: u64) -> Changed {
        let Some(watched) = self.of(store) else {
            let all = self.0.read();
            let was_watched = all.generation_first == 0 && all.by_tenant.len() < WATCHED_MAX;
            return if was_watched { Changed::NOTHING } else { EVERYTHING };
        };
        let changes = watched.lock();
        let removed = changes.removed.since(generation).map_or(i64::MIN, |negated| -negated);
        Changed { removed_before_ms: removed, written: changes.written.since(generation) }
    }

    /// Returns the earliest time in milliseconds that others than continuous queries have written since a
    /// generation; `i64::MAX` if there is none.
    pub(crate) fn sent_since(&self, store: &StoreId, generation: u64) -> i64 {
        let Some(watched) = self.of(store) else {
            return self.since(store, generation).written.next_from(i64::MIN).unwrap_or(i64::MAX);
        };
        watched.lock().sent.since(generation).unwrap_or(i64::MAX)
    }

    /// Returns the ranges in milliseconds that others than rules have written since a generation.
    pub(crate) fn written_to_rules_since(&self, store: &StoreId, generation: u64) -> ChangedRanges {
        let Some(watched) = self.of(store) else { return self.since(store, generation).written };
        watched.lock().written_to_rules.since(generation)
    }

    /// Records a batch that is in memory.
    pub(crate) fn note_batch(&self, store: &StoreId, batch: &WriteBatch, writer: Writer) {
        if let Some(watched) = self.of(store)
            && let Some(&from) = batch.times.iter().min()
            && let Some(&to) = batch.times.iter().max()
        {
            let unit = store.time_unit();
            let from_ms = unit.to_ms(from);
            let to_ms = unit.to_ms(to).saturating_add(1);
            watched.lock().note(from_ms, to_ms, writer);
        }
    }

    /// Records a change of samples in `range`, in the unit of the tenant, by another way than a batch: a
    /// deletion, an import.
    pub(crate) fn note_range(&self, store: &StoreId, range: TimeRange) {
        self.note_range_by(store, range, Writer::Client);
    }

    /// As [`Changes::note_range`], for a change that `writer` made.
    pub(crate) fn note_range_by(&self, store: &StoreId, range: TimeRange, writer: Writer) {
        if let Some(watched) = self.of(store) {
            let unit = store.time_unit();
            let from_ms = unit.to_ms(range.start);
            // The time of a nanosecond is rounded down: the next millisecond is a change too many at most.
            let to_ms = unit.to_ms(range.end).saturating_add(1).max(from_ms);
            watched.lock().note(from_ms, to_ms, writer);
        }
    }

    /// Records that samples before `end_ms` may be gone: retention.
    pub(crate) fn note_removed(&self, store: &StoreId, end_ms: i64) {
        if let Some(watched) = self.of(store) {
            let mut changes = watched.lock();
            let generation = changes.generation;
            changes.removed.push(generation, end_ms.saturating_neg());
        }
    }

    /// Records that all results of the tenants for which `fits` holds may change: a setting that selects
    /// samples.
    pub(crate) fn note_all(&self, fits: impl Fn(&StoreId) -> bool) {
        for (_, watched) in self.0.read().by_tenant.iter().filter(|(tenant, _)| fits(tenant)) {
            let mut changes = watched.lock();
            let generation = changes.generation;
            changes.written.push(generation, i64::MIN, i64::MAX);
            changes.sent.push(generation, i64::MIN);
        }
    }

    fn watch(&self, store: &StoreId) -> Option<Arc<Mutex<TenantChanges>>> {
        let mut all = self.0.write();
        let has_room = all.by_tenant.len() < WATCHED_MAX || all.by_tenant.contains_key(store);
        let generation = all.generation_first;
        let fresh = || Arc::new(Mutex::new(TenantChanges::since(generation)));
        has_room.then(|| all.by_tenant.entry(store.clone()).or_insert_with(fresh).clone())
    }

    /// Stops watching the tenants for which `is_gone` holds. All their data counts as changed
    /// since any earlier generation.
    pub(crate) fn forget(&self, is_gone: impl Fn(&StoreId) -> bool) {
        if !self.0.read().by_tenant.keys().any(&is_gone) {
            return;
        }
        let mut all = self.0.write();
        let mut first = all.generation_first;
        all.by_tenant.retain(|tenant, watched| {
            // A thread that is about to use the entry has a reference.
            let stays = !is_gone(tenant) || Arc::strong_count(watched) > 1;
            if !stays {
                first = first.max(watched.lock().generation + 1);
            }
            stays
        });
        all.generation_first = first;
        all.by_tenant.shrink_to_fit();
    }

    fn of(&self, store: &StoreId) -> Option<Arc<Mutex<TenantChanges>>> {
        self.0.read().by_tenant.get(store).cloned()
    }
}

impl TenantChanges {
    /// An entry without knowledge of changes before `generation`.
    fn since(generation: u64) -> TenantChanges {
        let mut changes = TenantChanges { generation, ..TenantChanges::default() };
        if generation > 0 {
            changes.written.push(generation, i64::MIN, i64::MAX);
            changes.written_to_rules.push(generation, i64::MIN, i64::MAX);
            changes.sent.push(generation, i64::MIN);
            changes.removed.push(generation, i64::MIN + 1);
        }
        changes
    }

    fn note(&mut self, from_ms: i64, to_ms: i64, writer: Writer) {
        self.written.push(self.generation, from_ms, to_ms);
        if writer != Writer::Rule {
            self.written_to_rules.push(self.generation, from_ms, to_ms);
        }
        if writer != Writer::ContinuousQuery {
            self.sent.push(self.generation, from_ms);
        }
    }
}

/// Ranges by generation, ascending. An entry that a later one covers is redundant.
#[derive(Default)]
struct RangeLog(VecDeque<(u64, ChangedRanges)>);

impl RangeLog {
    /// Records a range of `generation`, which is none before the last one.
    fn push(&mut self, generation: u64, first_ms: i64, last_ms: i64) {
        let mut ranges = ChangedRanges::EMPTY;
        if let Some((last, known)) = self.0.back() {
            assert!(*last <= generation, "generation {generation} after {last}");
            if *last == generation {
                ranges = *known;
                self.0.pop_back();
            }
        }
        ranges.add(first_ms, last_ms);
        while self.0.back().is_some_and(|(_, earlier)| ranges.covers(earlier)) {
            self.0.pop_back();
        }
        self.0.push_back((generation, ranges));
        if self.0.len() > RANGE_ENTRIES_MAX
            && let Some((_, oldest)) = self.0.pop_front()
            && let Some(next) = self.0.front_mut()
        {
            next.1.add_all(&oldest);
        }
    }

    /// Returns the ranges of generations after `generation`.
    fn since(&self, generation: u64) -> ChangedRanges {
        let at = self.0.partition_point(|(stamped, _)| *stamped <= generation);
        let mut all = ChangedRanges::EMPTY;
        self.0.range(at..).for_each(|(_, ranges)| all.add_all(ranges));
        all
    }
}

/// Monotonic queue: the least value since any generation. Generations and values both ascend, because an
/// entry makes earlier ones with a greater value redundant.
#[derive(Default)]
struct Minima(VecDeque<(u64, i64)>);

impl Minima {
    fn push(&mut self, generation: u64, value: i64) {
        while self.0.back().is_some_and(|&(_, last)| last >= value) {
            self.0.pop_back();
        }
        // `since` searches by generation.
        assert!(self.0.back().is_none_or(|&(last, _)| last <= generation), "generations ascend");
        if self.0.back().is_some_and(|&(last, _)| last == generation) {
            return;
        }
        self.0.push_back((generation, value));
        if self.0.len() > ENTRIES_MAX
            && let Some((_, least)) = self.0.pop_front()
            && let Some(next) = self.0.front_mut()
        {
            next.1 = least;
        }
    }

    /// Returns the least value of generations after `generation`.
    fn since(&self, generation: u64) -> Option<i64> {
        let at = self.0.partition_point(|&(stamped, _)| stamped <= generation);
        self.0.get(at).map(|&(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::{StoreId, TenantId};

    use super::*;
    use chronolith_base::Rng;

    #[test]
    fn only_what_came_after_a_generation_counts() {
        let (changes, tenant) = (Changes::default(), StoreId::anonymous());
        changes.note_removed(&tenant, 5);
        assert_eq!(changes.since(&tenant, 0), Changed::NOTHING, "nobody watches");
        let first = changes.generation(&tenant);
        changes.note_range(&tenant, TimeRange { start: 100, end: 200 });
        let second = changes.generation(&tenant);
        assert!(second > first);
        changes.note_range(&tenant, TimeRange { start: 150, end: 200 });
        changes.note_removed(&tenant, 30);
        let changed = |removed_before_ms, ranges: &[(i64, i64)]| {
            let mut written = ChangedRanges::EMPTY;
            ranges.iter().for_each(|range| written.add(range.0, range.1));
            Changed { removed_before_ms, written }
        };
        assert_eq!(changes.since(&tenant, first), changed(30, &[(100, 201)]));
        assert_eq!(changes.since(&tenant, second), changed(30, &[(150, 201)]));
        let third = changes.generation(&tenant);
        changes.note_all(|one| *one != tenant);
        assert_eq!(changes.since(&tenant, third), Changed::NOTHING);
        changes.note_all(|one| *one == tenant);
        assert_eq!(changes.since(&tenant, third).written, ChangedRanges::ALL);
        assert_eq!(
            changes.since(&StoreId::from(TenantId::new("b").expect("valid")), first),
            Changed::NOTHING
        );
    }

    /// A rule that corrects its samples would be reason to evaluate it again, for ever.
    #[test]
    fn what_rules_write_is_a_change_for_all_but_rules() {
        let (changes, store) = (Changes::default(), StoreId::anonymous());
        let first = changes.generation(&store);
        changes.note_range_by(&store, TimeRange { start: 100, end: 200 }, Writer::Rule);
        assert_eq!(changes.written_to_rules_since(&store, first), ChangedRanges::EMPTY);
        assert_eq!(changes.since(&store, first).written.as_slice(), [(100, 201)]);
        assert_eq!(changes.sent_since(&store, first), 100);
        changes.note_range_by(&store, TimeRange { start: 50, end: 60 }, Writer::ContinuousQuery);
        assert_eq!(changes.written_to_rules_since(&store, first).as_slice(), [(50, 61)]);
        assert_eq!(changes.sent_since(&store, first), 100);
        changes.forget(|_| true);
        assert_eq!(changes.written_to_rules_since(&store, first), ChangedRanges::ALL);
    }

    #[test]
    fn beyond_the_limit_everything_counts_as_changed() {
        let changes = Changes::default();
        let tenant = |i: usize| StoreId::from(TenantId::new(&format!("t{i}")).expect("legal"));
        for i in 0..WATCHED_MAX + 10 {
            changes.generation(&tenant(i));
        }
        assert_eq!(changes.0.read().by_tenant.len(), WATCHED_MAX);
        assert_eq!(changes.since(&tenant(0), 0), Changed::NOTHING);
        let unwatched = tenant(WATCHED_MAX);
        assert_eq!((changes.generation(&unwatched), changes.since(&unwatched, 0)), (0, EVERYTHING));
        assert!(!EVERYTHING.spares(i64::MAX - 1, i64::MAX) && !EVERYTHING.spares(i64::MIN, i64::MIN));
    }

    /// Against a list of everything that was pushed.
    #[test]
    fn ranges_agree_with_a_full_list() {
        let rng = Rng::from_seed(8);
        let (mut log, mut all) = (RangeLog::default(), Vec::new());
        let mut generation = 0;
        let mut exact_count = 0;
        for _ in 0..20_000 {
            generation += rng.next_u64() % 3;
            let first = (rng.next_u64() % 40) as i64 * 100 + generation as i64;
            let last = first + (rng.next_u64() % 50) as i64;
            log.push(generation, first, last);
            all.push((generation, first, last));
            let asked = generation - rng.next_u64() % generation.clamp(1, 8);
            let got = log.since(asked);
            let later = all.iter().rev().take_while(|(stamped, ..)| *stamped > asked);
            let mut want = ChangedRanges::EMPTY;
            for (_, first, last) in later {
                want.add(*first, *last);
                let mut one = ChangedRanges::EMPTY;
                one.add(*first, *last);
                assert!(got.covers(&one), "{first} to {last} is missing since {asked}: {got:?}");
            }
            exact_count += usize::from(got == want);
            assert!(log.0.len() <= RANGE_ENTRIES_MAX);
        }
        assert!(exact_count > 15_000, "{exact_count} answers without a time too many");
    }

    #[test]
    fn a_range_that_a_later_one_covers_takes_no_entry() {
        let mut log = RangeLog::default();
        for generation in 0..100 {
            log.push(generation, 1_000, 1_000 + generation as i64);
        }
        assert_eq!(log.0.len(), 1);
        assert_eq!(log.since(98).as_slice(), [(1_000, 1_099)]);
        log.push(100, 5_000, 6_000);
        assert_eq!(log.since(99).as_slice(), [(5_000, 6_000)], "late points elsewhere are no change here");
    }

    /// Against a list of everything that was pushed.
    #[test]
    fn minima_agree_with_a_full_list() {
        let rng = Rng::from_seed(7);
        let (mut minima, mut all) = (Minima::default(), Vec::new());
        let mut generation = 0;
        for _ in 0..20_000 {
            generation += rng.next_u64() % 3;
            let value = (rng.next_u64() % 1000) as i64 + generation as i64 / 4;
            minima.push(generation, value);
            all.push((generation, value));
            let asked = rng.next_u64() % (generation + 1);
            let want = all.iter().rev().take_while(|(g, _)| *g > asked).map(|(_, v)| *v).min();
            let got = minima.since(asked);
            // Joined entries may report more than changed, never less.
            assert!(got == want || (minima.0.len() >= ENTRIES_MAX && got <= want), "{got:?} {want:?}");
            assert!(minima.0.len() <= ENTRIES_MAX);
        }
        assert!(all.len() > minima.0.len());
    }

    #[test]
    fn joined_entries_report_more_and_never_less() {
        let mut minima = Minima::default();
        for generation in 0..3 * ENTRIES_MAX as u64 {
            minima.push(generation, generation as i64);
        }
        assert_eq!(minima.0.len(), ENTRIES_MAX);
        assert_eq!(minima.since(0), Some(0), "the least of all joined ones");
        let late = 3 * ENTRIES_MAX as u64 - 10;
        assert_eq!(minima.since(late), Some(late as i64 + 1));
    }

    /// A tenant that was asked about once was watched for the life of the process.
    #[test]
    fn a_forgotten_tenant_has_changed_since_every_question_before() {
        let (changes, tenant) = (Changes::default(), StoreId::anonymous());
        let questions = [changes.generation(&tenant), changes.generation(&tenant)];
        changes.forget(|_| false);
        assert_eq!(changes.since(&tenant, questions[1]), Changed::NOTHING);
        changes.forget(|_| true);
        assert_eq!(changes.0.read().by_tenant.len(), 0);
        let is_everything =
            |changed: Changed| changed.written == ChangedRanges::ALL && changed.removed_before_ms == i64::MAX;
        assert!(is_everything(changes.since(&tenant, questions[1])));
        let fresh = changes.generation(&tenant);
        assert!(questions.iter().all(|&asked| is_everything(changes.since(&tenant, asked))));
        assert_eq!(changes.since(&tenant, fresh), Changed::NOTHING);
    }

    #[test]
    #[should_panic(expected = "generations ascend")]
    fn changes_are_recorded_in_the_order_of_generations() {
        let mut minima = Minima::default();
        minima.push(2, 10);
        minima.push(1, 20);
    }
}
