//! Windows of a block with roll-ups equal windows from its samples, with deletions and damage.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::rollup::{
    RolledWindows, RollupArchive, RollupMethod, RollupMethods, RollupRead, RollupRules,
};
use chronolith_model::{Columns, Labels, MatchOp, Matcher, Queryable as _, Selector, TimeRange};

use crate::compact::Pace;
use crate::tests::{Bits, Unhurried, WINDOW, context, fake_block, labels};
use crate::{Block, CompactError, has_rollups, write_rollups};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

/// Gives series with a label `rolled` two archives.
struct Rules(RollupMethods);

impl RollupRules for Rules {
    fn archives_of(&self, labels: &Labels, out: &mut Vec<RollupArchive>) {
        if labels.get("rolled").is_some() {
            out.extend([archive(MINUTE_MS, self.0), archive(HOUR_MS, self.0)]);
        }
    }
}

fn archive(span_ms: i64, methods: RollupMethods) -> RollupArchive {
    RollupArchive::new(span_ms, 10_000, methods).expect("a multiple of the slot")
}

fn all_methods() -> RollupMethods {
    RollupMethods::of(&RollupMethod::ALL)
}

/// Stops after the first series.
struct Stopping;

impl Pace for Stopping {
    fn spend(&self, _bytes: u64) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// Three series every 10 s, with gaps and second samples of a slot; one without archives.
fn series() -> Bits {
    let samples = |i: i64| {
        let times = (0..720).filter(move |s| (s * 7 + i) % 40 > 3).map(|s| WINDOW.start + s * 10_000);
        let with_second =
            times.flat_map(move |time| [Some(time), (time % 90_000 == 0).then_some(time + 4000)]);
        with_second.flatten().map(move |time| (time, ((time / 1000 * (i + 1) % 997) as f64 / 10.0).to_bits()))
    };
    let one = |i: i64| (labels(&[("__name__", &format!("m{i}")), ("rolled", "yes")]), samples(i).collect());
    let other = (labels(&[("__name__", "other")]), samples(5).collect());
    (0..3).map(one).chain([other]).collect()
}

/// Windows of each series of a block, and how many of them roll-ups had.
fn windows(
    env: &Env,
    block: &Block,
    archive: &RollupArchive,
    range: TimeRange,
) -> (Vec<RolledWindows>, usize) {
    let mut batches = block.select(&Selector { matchers: &[], range }, &context(env)).expect("selected");
    let mut found = Vec::new();
    while batches.next_batch(&mut found).expect("read") {}
    let mut rolled_up = 0;
    let of_series = found.iter().map(|series| {
        let mut read = RollupRead::new(archive.methods);
        series.samples.read_rollup(archive, range, &mut read).expect("no error");
        let read = RollupRead::merged(archive, vec![read]);
        rolled_up += read.windows.len();
        let mut parts = vec![read.windows];
        for raw in &read.raw {
            let (mut samples, mut windows) = (Columns::default(), RolledWindows::new(archive.methods));
            series.samples.read(*raw, &mut samples).expect("read");
            archive.roll_up(&samples, &mut windows);
            parts.push(windows);
        }
        let mut order: Vec<(i64, usize, usize)> = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            order.extend(part.starts().iter().enumerate().map(|(idx, start)| (*start, at, idx)));
        }
        order.sort_unstable();
        let mut all = RolledWindows::new(archive.methods);
        order.into_iter().for_each(|(_, at, idx)| all.extend_from(&parts[at], idx..idx + 1));
        all
    });
    (of_series.collect(), rolled_up)
}

/// A block with roll-ups of all methods, and the same without.
fn rolled_block(methods: RollupMethods) -> (Env, Arc<Block>, Arc<Block>) {
    let (env, dir) = fake_block(&series());
    let raw = Block::open(&env, &dir).expect("a block");
    assert!(!has_rollups(&env, &dir));
    let written = write_rollups(&env, &raw, &Rules(methods), &Unhurried).expect("written");
    assert_eq!(written.files, 2);
    assert!(has_rollups(&env, &dir));
    let block = Block::open(&env, &dir).expect("a block");
    assert_eq!((block.rollup_bytes(), block.verify_rollups()), (written.bytes, Vec::new()));
    (env, raw, block)
}

#[test]
fn windows_are_those_of_the_samples() {
    let (env, raw, block) = rolled_block(all_methods());
    // The block begins and ends within a window.
    assert_ne!((WINDOW.start % HOUR_MS, WINDOW.end % MINUTE_MS), (0, 0));
    for span_ms in [MINUTE_MS, HOUR_MS] {
        for methods in [all_methods(), RollupMethods::of(&[RollupMethod::Sum, RollupMethod::Count])] {
            let archive = archive(span_ms, methods);
            for range in [WINDOW, TimeRange::new(WINDOW.start + HOUR_MS, WINDOW.end)] {
                let range = archive.widened(range);
                let (want, without) = windows(&env, &raw, &archive, range);
                let (got, rolled_up) = windows(&env, &block, &archive, range);
                assert_eq!(got, want, "{archive:?} {range:?}");
                assert_eq!(without, 0);
                assert!(rolled_up > 0 || span_ms == HOUR_MS, "{archive:?} {range:?}");
            }
        }
    }
    // Spans and slots that are not kept.
    for other in [
        RollupArchive::new(MINUTE_MS, 20_000, all_methods()),
        RollupArchive::new(120_000, 10_000, all_methods()),
    ] {
        let other = other.expect("a multiple of the slot");
        let (got, rolled_up) = windows(&env, &block, &other, WINDOW);
        assert_eq!((got, rolled_up), windows(&env, &raw, &other, WINDOW));
        assert_eq!(rolled_up, 0);
    }
}

#[test]
fn methods_that_are_not_kept_are_computed() {
    let (env, raw, block) = rolled_block(RollupMethods::of(&[RollupMethod::Max]));
    let kept = archive(MINUTE_MS, RollupMethods::of(&[RollupMethod::Max, RollupMethod::Count]));
    assert!(windows(&env, &block, &kept, WINDOW).1 > 0, "count is always kept");
    let archive = archive(MINUTE_MS, RollupMethods::of(&[RollupMethod::Max, RollupMethod::Min]));
    assert_eq!(windows(&env, &block, &archive, WINDOW), windows(&env, &raw, &archive, WINDOW));
}

#[test]
fn windows_with_deleted_samples_are_computed() {
    let (env, _, block) = rolled_block(all_methods());
    let of_one = vec![Matcher::new("__name__", MatchOp::Regex, "m1|other").expect("a regex")];
    let range = TimeRange::new(WINDOW.start + 1_234_567, WINDOW.start + 2_345_678);
    let deleted = block.delete(&env, &[of_one], range).expect("deleted").expect("samples");
    let archive = archive(MINUTE_MS, all_methods());
    let (got, rolled_up) = windows(&env, &deleted.block, &archive, WINDOW);
    let (before, before_count) = windows(&env, &block, &archive, WINDOW);
    assert!(rolled_up > 0 && rolled_up < before_count);
    assert_ne!(got, before);
    // Rolled up again, the block has windows without the deleted samples, and still does not use those.
    write_rollups(&env, &deleted.block, &Rules(all_methods()), &Unhurried).expect("written");
    let again = Block::open(&env, block.dir()).expect("a block");
    assert_eq!(windows(&env, &again, &archive, WINDOW), (got.clone(), rolled_up));
    env.disk.remove_dir_all(&block.dir().join("rollups")).expect("removed");
    let raw = Block::open(&env, block.dir()).expect("a block");
    assert_eq!(windows(&env, &raw, &archive, WINDOW), (got, 0));
}

fn overwrite(env: &Env, path: &Path, bytes: &[u8]) {
    env.disk.create(path).expect("created").write_at(bytes, 0).expect("written");
}

#[test]
fn damaged_files_cost_nothing_but_time() {
    let (env, raw, block) = rolled_block(RollupMethods::of(&[RollupMethod::Sum]));
    let archive = archive(MINUTE_MS, RollupMethods::of(&[RollupMethod::Sum]));
    let (want, _) = windows(&env, &raw, &archive, WINDOW);
    let (_, whole_count) = windows(&env, &block, &archive, WINDOW);
    let path = block.dir().join("rollups/60000-10000");
    let good = env.disk.read(&path).expect("a file");
    for at in (0..good.len()).step_by(7).chain(good.len() - 70..good.len()) {
        let mut damaged = good.clone();
        damaged[at] ^= 1 << (at % 8);
        for bytes in [&damaged[..], &good[..at]] {
            overwrite(&env, &path, bytes);
            let opened = Block::open(&env, block.dir()).expect("the block itself is whole");
            let (got, rolled_up) = windows(&env, &opened, &archive, WINDOW);
            assert_eq!(got, want, "byte {at}");
            assert!(rolled_up < whole_count && opened.has_damaged_rollups(), "byte {at} is found");
            assert!(!opened.verify_rollups().is_empty(), "byte {at} is named");
            assert!(opened.verify().is_empty(), "the block itself is whole");
        }
    }
    // Written again, it is whole.
    write_rollups(&env, &block, &Rules(RollupMethods::of(&[RollupMethod::Sum])), &Unhurried)
        .expect("written");
    let again = Block::open(&env, block.dir()).expect("a block");
    assert_eq!(env.disk.read(&path).expect("a file"), good);
    assert_eq!(windows(&env, &again, &archive, WINDOW), (want, whole_count));
}

#[test]
fn what_is_not_complete_is_not_there() {
    let (env, dir) = fake_block(&series());
    let block = Block::open(&env, &dir).expect("a block");
    let stopped = write_rollups(&env, &block, &Rules(all_methods()), &Stopping);
    assert!(matches!(stopped, Err(CompactError::Stopped)));
    assert!(!has_rollups(&env, &dir));
    let names: Vec<String> =
        env.disk.list(&dir).expect("listed").into_iter().map(|entry| entry.name).collect();
    assert!(names.iter().all(|name| !name.starts_with("rollups")), "{names:?}");
    // A process may end in the middle.
    env.disk.create_dir_all(&dir.join("rollups.tmp")).expect("created");
    overwrite(&env, &dir.join("rollups.tmp/5-5"), b"half");
    assert!(Block::open(&env, &dir).is_ok() && !has_rollups(&env, &dir));
    let written = write_rollups(&env, &block, &Rules(all_methods()), &Unhurried).expect("written");
    assert_eq!((written.files, env.disk.list(&dir.join("rollups")).expect("listed").len()), (2, 2));
    // A block none of whose series has an archive has an empty directory.
    struct None;
    impl RollupRules for None {
        fn archives_of(&self, _: &Labels, _: &mut Vec<RollupArchive>) {}
    }
    assert_eq!(write_rollups(&env, &block, &None, &Unhurried).expect("written").files, 0);
    assert!(has_rollups(&env, &dir));
}
