//! A head on a fake machine, and a model of its expected content.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of it")]

pub mod fault_disk;
pub mod kinds;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::{Env, ManualClock, MemDisk};
use chronolith_head::{
    DeleteProgress, Head, HeadError, HeadOptions, ReplayProgress, ReplayReport, SyncMode, WriteError,
};
use chronolith_model::query::{PresenceHints, Projection, SampleNeed};
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, Labels, MatchOp, Matcher, ReadContext, Selector, SeriesRead, StoreId, TenantId, TenantLimits,
    TimeRange, WriteBatch, WriteOutcome,
};

/// Current time of the fake clock.
pub const NOW_MS: i64 = 1_700_000_000_000;
/// Windows of the tests: short, so that chunks often meet their borders.
pub const WINDOW_MS: i64 = 100_000;

/// Samples by tenant and series.
pub type Model = BTreeMap<(String, Labels), BTreeMap<i64, u64>>;

/// Positions of a file of `len` bytes that tests damage one by one: before a merge every ninth, with another
/// first one per file, so that neighbours in different files differ; all with `CHRONOLITH_EVERY_BYTE=1`, as
/// in the step `every-byte` of `cargo xtask ci --all`.
pub fn damaged_positions(file_idx: usize, len: usize) -> impl Iterator<Item = usize> {
    let is_release = std::env::var_os("CHRONOLITH_EVERY_BYTE").is_some();
    let (first, step) = if is_release { (0, 1) } else { (file_idx % 9, 9) };
    (first..len).step_by(step)
}

/// A fake machine.
pub struct TestEnv {
    pub env: Env,
    pub clock: Arc<ManualClock>,
    pub disk: Arc<MemDisk>,
    pub options: HeadOptions,
    pub limits: TenantLimits,
}

impl TestEnv {
    pub fn new(seed: u64) -> TestEnv {
        let (env, clock, disk) = Env::fake(NOW_MS, seed);
        let options = HeadOptions {
            window_ms: WINDOW_MS,
            free_bytes_min: 0,
            wal_segment_bytes: 16 << 10,
            sealed_file_bytes: 8 << 10,
            sync: SyncMode::Fsync,
            ooo_lookups_min: u32::MAX,
            ..HeadOptions::new(PathBuf::from("/data"))
        };
        TestEnv { env, clock, disk, options, limits: TenantLimits::default() }
    }

    pub fn open(&self) -> (Head, ReplayReport) {
        self.try_open().expect("the head opens")
    }

    pub fn try_open(&self) -> Result<(Head, ReplayReport), HeadError> {
        Head::open(&self.env, self.options.clone(), &ReplayProgress::default())
    }

    pub fn write(
        &self,
        head: &Head,
        tenant: &StoreId,
        batch: &WriteBatch,
    ) -> Result<WriteOutcome, WriteError> {
        let (outcome, position) = head.append(tenant, &self.limits, NOW_MS, batch)?;
        head.wait(position)?;
        Ok(outcome)
    }

    pub fn context(&self) -> ReadContext {
        ReadContext::unlimited(self.env.clock.clone())
    }
}

/// Deletes durably; returns the number of deleted samples.
pub fn delete(head: &Head, name: &str, selectors: &[Vec<Matcher>], range: TimeRange) -> u64 {
    let progress = DeleteProgress::default();
    let (stats, position) = head.delete(&tenant(name), selectors, range, &progress).expect("deleted");
    head.wait(position).expect("durable");
    let (done, total) = (progress.series_done, progress.series_total);
    assert_eq!((done.into_inner(), total.into_inner()), (stats.matched_count, stats.matched_count));
    stats.sample_count
}

pub fn tenant(name: &str) -> StoreId {
    StoreId::from(TenantId::new(name).expect("a valid tenant"))
}

pub fn labels(idx: u64) -> Labels {
    let (instance, job) = (format!("host-{idx}"), format!("job-{}", idx % 3));
    Labels::from_pairs([("__name__", "up"), ("instance", &*instance), ("job", &*job)])
}

pub fn batch(series: &[(Labels, Vec<(i64, f64)>)]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    series.iter().for_each(|(labels, samples)| batch.push_labels(labels, samples));
    batch
}

/// Reads all samples of a tenant in `range` with `select`; there must be no concurrent writes, since they are
/// read in other ways as well and compared.
pub fn read(test_env: &TestEnv, head: &Head, name: &str, matchers: &[Matcher], range: TimeRange) -> Model {
    let selector = Selector { matchers, range };
    let out = read_once(test_env, head, name, &selector);
    check_newest(test_env, head, name, &selector, &out);
    check_presence(test_env, head, name, &selector);
    check_some_labels(test_env, head, name, &selector);
    check_values(test_env, head, name, &selector, &out);
    out
}

/// Reads the samples of a selector.
pub fn read_once(test_env: &TestEnv, head: &Head, name: &str, selector: &Selector<'_>) -> Model {
    let range = selector.range;
    let found = head.reader().select(&tenant(name), selector, &test_env.context()).expect("select works");
    assert!(found.is_sorted_by(|a, b| a.labels < b.labels), "series come sorted, each once");
    let mut out = Model::new();
    for series in found {
        let mut columns = Columns::default();
        series.samples.read(range, &mut columns).expect("samples read");
        assert!(columns.times.is_sorted_by(|a, b| a < b), "times ascend");
        assert!(series.samples.sample_count_hint() >= columns.len());
        let samples = kinds::marks(&columns);
        if !samples.is_empty() {
            out.insert((name.to_owned(), series.labels), samples);
        }
    }
    out
}

/// Requires that `select_newest` returns the newest samples of `all`.
fn check_newest(test_env: &TestEnv, head: &Head, name: &str, selector: &Selector<'_>, all: &Model) {
    let found =
        head.reader().select_newest(&tenant(name), selector, &test_env.context()).expect("select works");
    assert!(found.is_sorted_by(|a, b| a.labels < b.labels), "series come sorted, each once");
    let mut newest = BTreeMap::new();
    for series in found {
        let mut columns = Columns::default();
        series.samples.read(selector.range, &mut columns).expect("samples read");
        if let Some(last) = kinds::marks(&columns).pop_last() {
            newest.insert((name.to_owned(), series.labels), last);
        }
    }
    let last = |samples: &BTreeMap<i64, u64>| samples.iter().next_back().map(|(time, bits)| (*time, *bits));
    let want: BTreeMap<_, _> = all.iter().filter_map(|(key, all)| Some((key.clone(), last(all)?))).collect();
    assert_eq!(newest, want, "the newest samples in {:?}", selector.range);
}

/// Timestamps and staleness of the samples of some series.
type Marks = Vec<Vec<(i64, bool)>>;

/// Requires that `select_presence` returns the groups of all series with their samples.
pub fn check_presence(test_env: &TestEnv, head: &Head, name: &str, selector: &Selector<'_>) {
    let all = head.reader().select(&tenant(name), selector, &test_env.context()).expect("select works");
    let choices: [(&[&str], bool); 5] =
        [(&[], true), (&["job"], true), (&["instance", "none"], true), (&["instance"], false), (&[], false)];
    for (names, include) in choices {
        for samples in [SampleNeed::All, SampleNeed::Newest] {
            let projection = Projection::new(names, include);
            let hints = PresenceHints { samples, projection: &projection };
            let ctx = test_env.context();
            let mut batches =
                head.reader().select_presence(&tenant(name), selector, &hints, &ctx).expect("select works");
            let mut found = Vec::new();
            while batches.next_batch(&mut found).expect("memory answers") {}
            let (groups, order) = groups_of(&found, selector.range, &hints);
            let (want, want_order) = groups_of(&all, selector.range, &hints);
            assert_eq!(groups, want, "{hints:?} in {:?}", selector.range);
            if samples == SampleNeed::Newest {
                assert_eq!(order, want_order, "{hints:?} in {:?}", selector.range);
            }
        }
    }
}

/// Requires that `select_labels` returns the series of `select` with the labels of the projection.
fn check_some_labels(test_env: &TestEnv, head: &Head, name: &str, selector: &Selector<'_>) {
    let ctx = test_env.context();
    let read = |one: &SeriesRead| {
        let mut columns = Columns::default();
        one.samples.prefetch();
        one.samples.read(selector.range, &mut columns).expect("samples read");
        kinds::marks(&columns)
    };
    let all = head.reader().select(&tenant(name), selector, &ctx).expect("select works");
    let choices: [(&[&str], bool); 4] =
        [(&[], true), (&["__name__", "job"], true), (&["instance"], false), (&[], false)];
    for (names, include) in choices {
        let projection = Projection::new(names, include);
        let found = head
            .reader()
            .select_labels(&tenant(name), selector, SampleNeed::All, Some(&projection), &ctx)
            .expect("select works");
        let labels = |one: &SeriesRead| one.labels.filtered(|name| projection.uses(name));
        let want: Vec<_> = all.iter().map(|one| (labels(one), read(one))).collect();
        let got: Vec<_> = found.iter().map(|one| (one.labels.clone(), read(one))).collect();
        assert_eq!(got, want, "{projection:?} in {:?}", selector.range);
    }
}

/// Returns the groups with the samples of their series, ordered by the first series of each whose newest
/// sample is not stale.
fn groups_of(
    all: &[SeriesRead],
    range: TimeRange,
    hints: &PresenceHints<'_>,
) -> (BTreeMap<Labels, Marks>, Vec<Labels>) {
    let (mut groups, mut order): (BTreeMap<Labels, Marks>, Vec<Labels>) = Default::default();
    for one in all {
        let mut columns = Columns::default();
        one.samples.read(range, &mut columns).expect("samples read");
        let mut marks: Vec<(i64, bool)> = columns
            .times
            .iter()
            .zip(&columns.values)
            .map(|(&time, &value)| (time, is_stale(value)))
            .collect();
        if hints.samples == SampleNeed::Newest {
            marks = marks.split_off(marks.len().saturating_sub(1));
        }
        let group = one.labels.filtered(|name| hints.projection.uses(name));
        if marks.last().is_some_and(|(_, stale)| !stale) && !order.contains(&group) {
            order.push(group.clone());
        }
        if !marks.is_empty() {
            groups.entry(group).or_default().push(marks);
        }
    }
    groups.values_mut().for_each(|series| series.sort());
    (groups, order)
}

/// Requires that label values are sorted and distinct, and include the values of all series with samples.
fn check_values(test_env: &TestEnv, head: &Head, name: &str, selector: &Selector<'_>, all: &Model) {
    let ctx = test_env.context();
    let list =
        |limit| head.reader().label_values(&tenant(name), "instance", selector, limit, &ctx).expect("listed");
    let values = list(0);
    assert!(values.is_sorted_by(|a, b| a < b), "{values:?}");
    for (_, labels) in all.keys() {
        if let Some(value) = labels.get("instance") {
            assert!(values.iter().any(|found| found == value), "{value} is missing");
        }
    }
    assert_eq!(list(2), values[..values.len().min(2)]);
}

pub fn read_all(test_env: &TestEnv, head: &Head, names: &[&str]) -> Model {
    let any = [Matcher::new("__name__", MatchOp::Regex, ".*").expect("a pattern")];
    names.iter().flat_map(|name| read(test_env, head, name, &any, TimeRange::ALL)).collect()
}

/// Returns the part of `model` in `range` that the matchers select.
pub fn part(model: &Model, name: &str, matchers: &[Matcher], range: TimeRange) -> Model {
    let fits = |key: &(String, Labels)| key.0 == name && matchers.iter().all(|m| m.matches_labels(&key.1));
    let mut out = Model::new();
    for (key, samples) in model.iter().filter(|(key, _)| fits(key)) {
        let samples: BTreeMap<i64, u64> =
            samples.iter().filter(|(t, _)| range.contains(**t)).map(|(t, v)| (*t, *v)).collect();
        if !samples.is_empty() {
            out.insert(key.clone(), samples);
        }
    }
    out
}
