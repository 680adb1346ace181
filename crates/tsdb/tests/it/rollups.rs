//! Windows of roll-ups against the samples that they are made of: over random points of any age, updates,
//! deletions, flushes, compactions, damaged files, restarts and power cuts. A failure prints its seed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_format::store_name;
use chronolith_model::databases::CatalogChange;
use chronolith_model::query::SelectRequest;
use chronolith_model::rollup::{
    RolledWindows, RollupArchive, RollupMethod, RollupMethods, RollupRead, RollupRules, RollupSpan,
};
use chronolith_model::{
    Columns, Labels, Matcher, Queryable, ReadContext, Selector, StoreId, TenantId, TimeRange,
};
use chronolith_tsdb::check::check_dir;
use chronolith_tsdb::{SnapshotHead, Tsdb};

use crate::fixture::{HOUR_MS, Machine, write};

const SEEDS: u64 = 8;
const OPS: u64 = 160;
const NAMES: u64 = 4;
const SLOT_MS: i64 = 10_000;
/// Two divide the windows of blocks, one does not.
const SPANS_MS: [i64; 3] = [60_000, HOUR_MS, 7 * 60_000];
/// Age of points at most.
const AGE_MS: u64 = 20 * HOUR_MS.unsigned_abs();

/// Value of each series and time.
pub(crate) type Model = BTreeMap<String, BTreeMap<i64, u64>>;

/// Rules without an end of retention.
pub(crate) struct Rules;

impl RollupRules for Rules {
    fn archives_of(&self, _: &Labels, out: &mut Vec<RollupArchive>) {
        out.extend(SPANS_MS.map(archive));
    }
}

fn archive(span_ms: i64) -> RollupArchive {
    RollupArchive::new(span_ms, SLOT_MS, RollupMethods::of(&RollupMethod::ALL))
        .expect("a multiple of the slot")
}

/// The source of queries of the tenant.
fn view(tsdb: &Arc<Tsdb>) -> Arc<dyn Queryable> {
    tsdb.reader().queryable(&TenantId::anonymous())
}

/// A store with rules, and its Graphite store.
fn open(machine: &Machine) -> (Arc<Tsdb>, StoreId) {
    let tsdb = machine.open();
    let tenant = StoreId::anonymous();
    tsdb.databases()
        .change(tenant.tenant().expect("a default store"), &CatalogChange::CreateGraphiteStore)
        .expect("created");
    tsdb.settings().set_rollup_rules(Some(Arc::new(Rules)));
    let catalog = tsdb.databases().catalog();
    let policy = catalog
        .of(tenant.tenant().expect("a default store"))
        .and_then(|own| own.graphite.as_ref())
        .expect("a Graphite store");
    (tsdb.clone(), policy.store.clone())
}

/// Whole slots mostly, as a schema rounds times; newer ones more often.
fn random_time(rng: &Rng, now_ms: i64) -> i64 {
    let age_ms = if rng.below(4) == 0 { rng.below(AGE_MS) } else { rng.below(1_800_000) };
    let time_ms = now_ms - i64::try_from(age_ms).expect("fits");
    if rng.below(10) == 0 { time_ms } else { time_ms - time_ms.rem_euclid(SLOT_MS) }
}

pub(crate) fn random_write(rng: &Rng, machine: &Machine, tsdb: &Tsdb, store: &StoreId, model: &mut Model) {
    let now_ms = machine.env.clock.now_ms();
    let name = format!("s{}", rng.below(NAMES));
    let value = |rng: &Rng| match rng.below(3000) {
        0 => f64::NAN,
        1..100 => f64::INFINITY,
        _ => rng.below(100_000) as f64 / 100.0 - 300.0,
    };
    let samples: Vec<(i64, f64)> =
        (0..=rng.below(200)).map(|_| (random_time(rng, now_ms), value(rng))).collect();
    write(tsdb, store, &name, &samples).expect("stored");
    let known = model.entry(name).or_default();
    known.extend(samples.iter().map(|(time, value)| (*time, value.to_bits())));
}

pub(crate) fn random_delete(rng: &Rng, machine: &Machine, tsdb: &Tsdb, store: &StoreId, model: &mut Model) {
    let name = format!("s{}", rng.below(NAMES));
    let start_ms = random_time(rng, machine.env.clock.now_ms());
    let range = TimeRange::new(start_ms, start_ms + i64::try_from(rng.below(5_000_000)).expect("fits"));
    tsdb.admin().delete_series(store, &[vec![Matcher::equal("__name__", &name)]], range).expect("deleted");
    if let Some(known) = model.get_mut(&name) {
        known.retain(|time, _| !range.contains(*time));
    }
}

/// Flips a bit of a roll-up file, as a disk may.
fn damage(rng: &Rng, machine: &Machine, store: &StoreId) {
    let disk = &machine.env.disk;
    let dir = machine.options.data_dir.join("tenants").join(&*store_name(store));
    let blocks = disk.list(&dir).unwrap_or_default();
    let files = blocks.iter().flat_map(|block| {
        let rollups = dir.join(&block.name).join("rollups");
        disk.list(&rollups).unwrap_or_default().into_iter().map(move |file| rollups.join(file.name))
    });
    let files: Vec<_> = files.collect();
    if files.is_empty() {
        return;
    }
    let path = &files[rng.below(files.len() as u64) as usize];
    let mut bytes = disk.read(path).expect("read");
    let at = rng.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << rng.below(8);
    disk.create(path).expect("created").write_at(&bytes, 0).expect("written");
}

/// Compares all windows of all series; returns how many came from roll-ups.
pub(crate) fn compare(machine: &Machine, source: &dyn Queryable, model: &Model, context: &str) -> usize {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let rollups = SPANS_MS.map(|span_ms| RollupSpan { span_ms, slot_ms: SLOT_MS });
    let mut rolled_up = 0;
    for (name, samples) in model {
        let (Some(first), Some(last)) = (samples.keys().next(), samples.keys().next_back()) else { continue };
        let matchers = [Matcher::equal("__name__", name)];
        let all = TimeRange::inclusive(first - 1_000_000, last + 1_000_000);
        let selector = Selector { matchers: &matchers, range: all };
        let request = SelectRequest { rollups: rollups.to_vec(), ..SelectRequest::new(&selector) };
        let mut batches = source.open_series(request, &ctx).expect("selects");
        let mut found = Vec::new();
        while batches.next_batch(&mut found).expect("a batch") {}
        assert_eq!(found.len(), 1, "{context}: {name}");
        let mut stored = Columns::default();
        samples.iter().for_each(|(time, bits)| stored.push(*time, f64::from_bits(*bits)));
        let mut raw = Columns::default();
        found[0].samples.read(all, &mut raw).expect("reads");
        let raw_bits: Vec<u64> = raw.values.iter().map(|value| value.to_bits()).collect();
        let stored_bits: Vec<u64> = samples.values().copied().collect();
        assert!(raw.times == stored.times && raw_bits == stored_bits, "{context}: samples of {name}");
        for archive in SPANS_MS.map(archive) {
            let mut want = RolledWindows::new(archive.methods);
            archive.roll_up(&stored, &mut want);
            let range = archive.widened(all);
            let mut read = RollupRead::new(archive.methods);
            found[0].samples.read_rollup(&archive, range, &mut read).expect("no error");
            let read = RollupRead::merged(&archive, vec![read]);
            rolled_up += read.windows.len();
            let got = completed(&archive, &*found[0].samples, read);
            assert!(got.starts() == want.starts(), "{context}: windows of {name}, {archive:?}");
            for method in RollupMethod::ALL {
                let bits = |windows: &RolledWindows| {
                    windows
                        .column(method)
                        .expect("all methods")
                        .iter()
                        .map(|v| v.to_bits())
                        .collect::<Vec<_>>()
                };
                let differs = bits(&got).iter().zip(&bits(&want)).position(|(got, want)| got != want);
                let first = differs.map(|at| got.starts()[at]);
                assert_eq!(first, None, "{context}: {name}, {method:?}, {archive:?}");
            }
        }
    }
    rolled_up
}

/// Adds the windows of the raw ranges.
fn completed(
    archive: &RollupArchive,
    samples: &dyn chronolith_model::SampleSource,
    read: RollupRead,
) -> RolledWindows {
    let mut parts = vec![read.windows];
    for raw in &read.raw {
        let mut columns = Columns::default();
        let mut windows = RolledWindows::new(archive.methods);
        samples.read(*raw, &mut columns).expect("reads");
        archive.roll_up(&columns, &mut windows);
        parts.push(windows);
    }
    let order = parts
        .iter()
        .enumerate()
        .flat_map(|(at, part)| part.starts().iter().enumerate().map(move |(idx, start)| (*start, at, idx)));
    let mut order: Vec<(i64, usize, usize)> = order.collect();
    order.sort_unstable();
    let mut all = RolledWindows::new(archive.methods);
    order.into_iter().for_each(|(_, at, idx)| all.extend_from(&parts[at], idx..idx + 1));
    all
}

/// Events of a run.
#[derive(Debug, Default)]
struct Counts {
    windows: usize,
    blocks: u64,
    damaged: u64,
}

fn add(counts: &mut Counts, tsdb: &Tsdb) {
    let stats = tsdb.statistics().stats();
    counts.blocks += stats.metric("rollup_blocks_total").expect("is there") as u64;
    counts.damaged += stats.metric("rollup_damaged_total").expect("is there") as u64;
}

fn run(seed: u64, counts: &mut Counts) {
    let machine = Machine::new(seed);
    let rng = Rng::from_seed(seed);
    let (mut tsdb, mut store) = open(&machine);
    let mut model = Model::new();
    for op in 0..OPS {
        match rng.below(100) {
            0..55 => random_write(&rng, &machine, &tsdb, &store, &mut model),
            55..60 => random_delete(&rng, &machine, &tsdb, &store, &mut model),
            60..75 => {
                for _ in 0..=rng.below(4) {
                    machine.clock.advance(Duration::from_secs(rng.below(900)));
                    tsdb.maintenance().run();
                }
            }
            75..80 => tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes"),
            80..85 => damage(&rng, &machine, &store),
            85..92 => {
                add(counts, &tsdb);
                machine.disk.crash();
                drop(tsdb);
                (tsdb, store) = open(&machine);
            }
            _ => {
                let context = format!("seed {seed}, operation {op}");
                counts.windows += compare(&machine, &*view(&tsdb), &model, &context);
            }
        }
    }
    counts.windows += compare(&machine, &*view(&tsdb), &model, &format!("seed {seed}, at the end"));
    add(counts, &tsdb);
    assert_eq!(tsdb.statistics().stats().maintenance.error_count, 0, "seed {seed}");
}

#[test]
fn windows_are_those_of_the_samples_whatever_happens() {
    let mut counts = Counts::default();
    (0..SEEDS).for_each(|seed| run(seed, &mut counts));
    assert!(counts.windows > 10_000 && counts.blocks > 50 && counts.damaged > 2, "{counts:?}");
}

/// A store with a block that has roll-ups.
fn rolled_up(machine: &Machine) -> (Arc<Tsdb>, StoreId) {
    let (tsdb, store) = open(machine);
    let now_ms = machine.env.clock.now_ms();
    let samples: Vec<(i64, f64)> = (1..700).map(|idx| (now_ms - idx * SLOT_MS, idx as f64)).collect();
    write(&tsdb, &store, "s0", &samples).expect("stored");
    tsdb.maintenance().flush_closed(now_ms).expect("flushes");
    (0..4).for_each(|_| tsdb.maintenance().run());
    (tsdb, store)
}

/// `chronolith check` reads the roll-ups, too.
#[test]
fn a_check_names_damaged_rollups() {
    let machine = Machine::new(2);
    let rng = Rng::from_seed(2);
    let (tsdb, store) = rolled_up(&machine);
    tsdb.close().expect("closes");
    let check = || check_dir(&machine.env, &machine.options.data_dir).expect("checks").damages;
    assert!(check().is_empty());
    damage(&rng, &machine, &store);
    let found = check();
    assert!(found.iter().any(|one| one.path.to_string_lossy().contains("/rollups/")), "{found:?}");
}

/// Files of roll-ups of a store, with their bytes.
fn rollup_files(machine: &Machine, store: &StoreId) -> Vec<(PathBuf, Vec<u8>)> {
    let disk = &machine.env.disk;
    let dir = machine.options.data_dir.join("tenants").join(&*store_name(store));
    let mut files = Vec::new();
    for block in disk.list(&dir).unwrap_or_default() {
        let rollups = dir.join(&block.name).join("rollups");
        for file in disk.list(&rollups).unwrap_or_default() {
            let path = rollups.join(file.name);
            let bytes = disk.read(&path).expect("read");
            files.push((path, bytes));
        }
    }
    files
}

/// Every byte of a file flipped, and the file cut before it: `check` names the file and an offset in it.
#[test]
fn a_check_names_every_damaged_byte_of_rollups() {
    let machine = Machine::new(4);
    let (tsdb, store) = rolled_up(&machine);
    tsdb.close().expect("closes");
    let files = rollup_files(&machine, &store);
    assert_eq!(files.len(), SPANS_MS.len());
    for (path, good) in files {
        for at in (0..good.len()).step_by(11).chain(good.len() - 33..good.len()) {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << (at % 8);
            for bytes in [&flipped[..], &good[..at]] {
                machine.env.disk.create(&path).expect("created").write_at(bytes, 0).expect("written");
                let found = check_dir(&machine.env, &machine.options.data_dir).expect("checks").damages;
                let is_named = !found.is_empty() && found.iter().all(|damage| damage.path == path);
                assert!(is_named, "byte {at} of {}: {found:?}", path.display());
                let is_in_file = found.iter().all(|damage| damage.offset <= good.len() as u64);
                assert!(is_in_file, "byte {at} of {}: {found:?}", path.display());
            }
        }
        machine.env.disk.create(&path).expect("created").write_at(&good, 0).expect("written");
    }
    assert!(check_dir(&machine.env, &machine.options.data_dir).expect("checks").damages.is_empty());
}

/// The scrub read samples alone: damage of a roll-up file that no query needed stayed for ever.
#[test]
fn the_scrub_names_damaged_rollups_and_maintenance_writes_them_again() {
    let machine = Machine::new(5);
    let (tsdb, store) = rolled_up(&machine);
    tsdb.close().expect("closes");
    drop(tsdb);
    let files = rollup_files(&machine, &store);
    for (idx, (path, good)) in files.iter().enumerate() {
        // In the header, within a section, and a cut.
        let mut damaged = good.clone();
        match idx {
            0 => damaged[9] ^= 4,
            1 => damaged[40] ^= 4,
            _ => damaged.truncate(good.len() - 5),
        }
        machine.env.disk.create(path).expect("created").write_at(&damaged, 0).expect("written");
        let (tsdb, _) = open(&machine);
        for _ in 0..8 {
            tsdb.maintenance().run();
            machine.clock.advance(Duration::from_secs(20));
        }
        let stats = tsdb.statistics().stats();
        let is_named = |note: &&String| note.contains(&path.display().to_string()) && note.contains("offset");
        assert_eq!(stats.replay.notes.iter().filter(is_named).count(), 1, "{:?}", stats.replay.notes);
        assert_eq!(stats.metric("blocks_damaged"), Some(0.0), "the samples are whole");
        assert_eq!(stats.metric("rollup_damaged_total"), Some(1.0));
        tsdb.close().expect("closes");
        drop(tsdb);
        assert!(rollup_files(&machine, &store) == files, "written again");
    }
}

#[test]
fn a_snapshot_has_the_rollups_of_its_blocks() {
    let machine = Machine::new(3);
    let (tsdb, store) = rolled_up(&machine);
    let name = tsdb.admin().snapshot(&[StoreId::anonymous()], SnapshotHead::Include).expect("a snapshot");
    let dir = machine.options.data_dir.join("snapshots").join(name);
    let (windows, checked) =
        (tsdb.statistics().stats().metric("rollup_windows_total"), check_dir(&machine.env, &dir));
    assert!(windows > Some(0.0) && checked.expect("checks").damages.is_empty());
    let blocks_dir = dir.join("tenants").join(&*store_name(&store));
    let disk = &machine.env.disk;
    let blocks = disk.list(&blocks_dir).expect("blocks");
    let files = |block: &str| disk.list(&blocks_dir.join(block).join("rollups")).unwrap_or_default().len();
    assert!(blocks.iter().any(|block| files(&block.name) == SPANS_MS.len()), "{blocks:?}");
}

/// Series whose names begin with `day` are kept for a day, those with `week` for a week.
struct Retentions;

impl RollupRules for Retentions {
    fn archives_of(&self, _: &Labels, _: &mut Vec<RollupArchive>) {}

    fn retention_ms(&self, labels: &Labels) -> Option<i64> {
        let name = labels.metric_name().unwrap_or_default();
        let days = [("day", 1), ("week", 7)].into_iter().find(|(prefix, _)| name.starts_with(prefix));
        days.map(|(_, days)| days * 24 * HOUR_MS)
    }

    fn shortest_retention_ms(&self) -> Option<i64> {
        Some(24 * HOUR_MS)
    }
}

#[test]
fn a_block_expires_with_the_longest_retention_of_its_series() {
    let machine = Machine::new(1);
    let (tsdb, store) = open(&machine);
    tsdb.settings().set_rollup_rules(Some(Arc::new(Retentions)));
    // A block of two hours each.
    let start_ms = machine.env.clock.now_ms();
    for (idx, names) in [vec!["day1"], vec!["day2", "week1"], vec!["day3", "other"]].into_iter().enumerate() {
        for name in names {
            let time_ms = start_ms + i64::try_from(idx).expect("fits") * 2 * HOUR_MS;
            write(&tsdb, &store, name, &[(time_ms, 1.0)]).expect("stored");
        }
    }
    tsdb.maintenance().flush_closed(start_ms + 12 * HOUR_MS).expect("flushed");
    let kept_after = |hours: i64| {
        machine.clock.set_now_ms(start_ms + hours * HOUR_MS);
        tsdb.maintenance().run();
        let names = ["day1", "day2", "week1", "day3", "other"];
        let is_kept = |name: &&str| !machine.read(&tsdb, &store, name).is_empty();
        names.into_iter().filter(is_kept).collect::<Vec<_>>()
    };
    assert_eq!(kept_after(20), ["day1", "day2", "week1", "day3", "other"]);
    // The end of the first block, and a day.
    assert_eq!(kept_after(25), ["day1", "day2", "week1", "day3", "other"]);
    assert_eq!(kept_after(27), ["day2", "week1", "day3", "other"]);
    assert_eq!(kept_after(7 * 24 + 3), ["day2", "week1", "day3", "other"]);
    assert_eq!(kept_after(7 * 24 + 5), ["day3", "other"]);
    assert_eq!(kept_after(10_000), ["day3", "other"]);
}
