//! Writer to reader against a model; interruptions; directories.

use std::collections::BTreeSet;

use chronolith_model::MatchOp;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::{BlockError, open_dir, remove};

fn any_labels() -> impl Strategy<Value = Labels> {
    let pair = ("[abc]|__name__|ü", "[a-e]{0,2}|☃|\"\\\\\n");
    prop::collection::vec(pair, 1..5).prop_map(|pairs| {
        let pairs = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        Labels::from_pairs(pairs.chain([("z", "1")]))
    })
}

fn any_samples() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let times = prop::collection::btree_set(WINDOW.start..WINDOW.end, 1..300);
    (times, any::<u64>()).prop_map(|(times, seed)| {
        let value =
            |i: u64| if seed & 1 == 0 { (i % 5).wrapping_mul(seed) } else { ((i * 3) as f64).to_bits() };
        times.into_iter().zip((0..).map(value)).collect()
    })
}

fn fits(series: &Bits, matchers: &[Matcher], range: TimeRange) -> Bits {
    let in_range = |samples: &[(i64, u64)]| -> Vec<_> {
        samples.iter().copied().filter(|(t, _)| range.contains(*t)).collect()
    };
    let chosen = series.iter().filter(|(l, _)| matchers.iter().all(|m| m.matches_labels(l)));
    chosen.map(|(l, samples)| (l.clone(), in_range(samples))).filter(|(_, s)| !s.is_empty()).collect()
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_what_is_selected(
        series in prop::collection::btree_map(any_labels(), any_samples(), 1..60),
        segment_bytes in 4000u64..40_000,
        spool_bytes in 1usize..2000,
        (start, len) in (0i64..7_200_000, 0i64..7_200_000),
        (op, name, value) in (0usize..2, "[abc]", "[a-e]{0,2}"),
    ) {
        let (env, _, _) = Env::fake(WINDOW.end, 3);
        let writer = BlockWriter::create(&env, Path::new(DIR)).unwrap();
        let writer = add_all(writer.with_small_limits(segment_bytes, spool_bytes), &series);
        let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
        let block = Block::open(&env, &block_dir(&meta)).unwrap();
        prop_assert_eq!(block.meta(), &meta);
        prop_assert_eq!(block.verify(), []);
        prop_assert_eq!(&read_all(&env, &block).unwrap(), &series);
        let range = TimeRange::new(WINDOW.start + start, WINDOW.start + start + len);
        let op = [MatchOp::Equal, MatchOp::NotEqual][op];
        let matchers = [Matcher::new(&name, op, &value).unwrap()];
        let found = read_selected(&env, &block, &matchers, range).unwrap();
        prop_assert_eq!(found, fits(&series, &matchers, range));

        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let chosen = fits(&series, &matchers, TimeRange::ALL);
        let names: BTreeSet<&str> = chosen.keys().flat_map(|l| l.iter().map(|(n, _)| n)).collect();
        let found = label_names(&env, &block, &selector, 0).unwrap();
        prop_assert!(found.iter().eq(&names), "{:?} {:?}", found, names);
        for name in ["a", "z", "nothing", "__name__"] {
            let values: BTreeSet<&str> = chosen.keys().filter_map(|l| l.get(name)).collect();
            let found = label_values(&env, &block, name, &selector, 0).unwrap();
            prop_assert!(found.iter().eq(&values), "{:?} {:?}", found, values);
        }
    }
}

#[test]
fn label_queries_without_matchers_and_with_limits() {
    let (env, dir) = fake_block(&some_series(40, 2));
    let block = Block::open(&env, &dir).unwrap();
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let names = |limit| label_names(&env, &block, &all, limit).unwrap();
    assert_eq!(names(0), ["__name__", "even", "i"]);
    assert_eq!(names(2), ["__name__", "even"]);
    let values = |name, limit| label_values(&env, &block, name, &all, limit).unwrap();
    assert_eq!(values("i", 3), ["000", "001", "002"]);
    assert_eq!(values("i", 0).len(), 40);
    assert_eq!(values("", 0), [""; 0]);
    let elsewhere = Selector { matchers: &[], range: TimeRange::new(0, 5) };
    assert!(label_values(&env, &block, "i", &elsewhere, 0).unwrap().is_empty());
    assert!(read_selected(&env, &block, &[], TimeRange::new(0, 5)).unwrap().is_empty());
}

#[test]
fn nothing_added_leaves_nothing() {
    let (env, _, _) = Env::fake(5, 7);
    let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap();
    writer.add(&labels(&[("a", "b")]), &[]).unwrap();
    assert!(writer.finish(BlockSource::head(WINDOW)).unwrap().is_none());
    assert_eq!(env.disk.list(Path::new(DIR)).unwrap(), []);
}

#[test]
fn samples_outside_the_window_are_refused() {
    let (env, _, _) = Env::fake(5, 7);
    for range in
        [TimeRange::new(WINDOW.start + 1, WINDOW.end), TimeRange::new(WINDOW.start, WINDOW.start + 1000)]
    {
        let writer = add_all(BlockWriter::create(&env, Path::new(DIR)).unwrap(), &some_series(1, 2));
        let error = writer.finish(BlockSource::head(range)).unwrap_err();
        assert!(matches!(error, BlockError::OutsideRange { .. }), "{error}");
        assert_eq!(env.disk.list(Path::new(DIR)).unwrap(), []);
    }
}

#[test]
#[should_panic(expected = "series must ascend")]
fn series_out_of_order_are_a_bug_of_the_caller() {
    let (env, _, _) = Env::fake(5, 7);
    let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap();
    let chunks = xor::encode(&[WINDOW.start], &[1.0]);
    writer.add(&labels(&[("a", "b")]), &chunks).unwrap();
    writer.add(&labels(&[("a", "a")]), &chunks).unwrap();
}

#[test]
fn a_failure_at_any_operation_leaves_no_block_or_all_of_it() {
    let series = some_series(30, 250);
    for fuse in 0.. {
        let (env, _, disk) = Env::fake(WINDOW.end, 7);
        env.disk.create_dir_all(Path::new(DIR)).unwrap();
        env.disk.sync_dir(Path::new("/")).unwrap();
        disk.fail_after(fuse);
        let result = (|| {
            let mut writer = BlockWriter::create(&env, Path::new(DIR))?.with_small_limits(4000, 300);
            for (labels, samples) in &series {
                let (times, values): (Vec<i64>, Vec<f64>) =
                    samples.iter().map(|s| (s.0, f64::from_bits(s.1))).unzip();
                writer.add(labels, &xor::encode(&times, &values))?;
            }
            writer.finish(BlockSource::head(WINDOW))
        })();
        disk.crash();
        let (blocks, failed) = open_dir(&env, Path::new(DIR));
        assert!(failed.is_empty(), "after {fuse} operations: {failed:?}");
        for entry in env.disk.list(Path::new(DIR)).unwrap_or_default() {
            assert!(!entry.name.contains("tmp"), "leftover {}", entry.name);
        }
        for block in &blocks {
            assert_eq!(read_all(&env, block).unwrap(), series);
            assert_eq!(block.verify(), []);
            let files = env.disk.list(block.dir()).unwrap();
            let names: Vec<&str> = files.iter().map(|e| e.name.as_str()).collect();
            assert_eq!(names, ["chunks", "index", "meta.json", "tombstones"]);
        }
        if result.is_ok() {
            assert_eq!(blocks.len(), 1, "an acknowledged block survives");
            assert!(fuse > 20, "the loop covers the writer");
            return;
        }
    }
}

#[test]
fn a_directory_of_good_bad_and_foreign_entries() {
    let (env, dir) = fake_block(&some_series(3, 3));
    let in_dir = |name: &str| Path::new(DIR).join(name);
    let early = TimeRange::new(WINDOW.start, WINDOW.start + 10_000);
    let second = write(&env, Path::new(DIR), &some_series(2, 2), early).unwrap();
    let leftovers =
        ["01M7WK3E014HA48J5BYXZ0VZ3Q.tmp-for-creation", "01M7WK3E014HA48J5BYXZ0VZ3Q.tmp-for-deletion"];
    let kept = ["wal", "mine.tmp-for-creation", "01M7WK3E014HA48J5BYXZ0VZ3Q"];
    for name in leftovers.iter().chain(&kept) {
        env.disk.create_dir_all(&in_dir(name)).unwrap();
    }
    let (blocks, failed) = open_dir(&env, Path::new(DIR));
    assert_eq!(blocks.len(), 2);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, in_dir("01M7WK3E014HA48J5BYXZ0VZ3Q"));
    assert!(failed[0].1.to_string().contains("meta.json"), "{}", failed[0].1);
    assert!(leftovers.iter().all(|name| !env.disk.exists(&in_dir(name))));
    assert!(kept.iter().all(|name| env.disk.exists(&in_dir(name))));

    let block = blocks.iter().find(|b| b.dir() == dir).unwrap();
    remove(&env, &dir).unwrap();
    assert_eq!(read_all(&env, block).unwrap(), some_series(3, 3), "an open block stays readable");
    let (blocks, _) = open_dir(&env, Path::new(DIR));
    assert_eq!(blocks.iter().map(|b| b.meta().ulid).collect::<Vec<_>>(), [second.ulid]);
    let (blocks, failed) = open_dir(&env, Path::new("/not/there"));
    assert!(blocks.is_empty() && failed.is_empty());
}

#[test]
fn a_canceled_query_and_a_full_budget_stop() {
    let (env, dir) = fake_block(&some_series(300, 1));
    let block = Block::open(&env, &dir).unwrap();
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let ctx = context(&env);
    let mut batches = block.select(&all, &ctx).unwrap();
    ctx.cancel();
    assert!(matches!(batches.next_batch(&mut Vec::new()), Err(QueryError::Canceled)));
    assert!(!batches.next_batch(&mut Vec::new()).unwrap(), "at its end");
    let budget = chronolith_base::MemoryBudget::new("query", 100);
    let small = ReadContext::new(env.clock.clone(), u64::MAX, budget);
    assert!(matches!(block.select(&all, &small), Err(QueryError::Memory(_))));
}
