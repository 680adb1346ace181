//! Blocks in a bucket answer as the store that wrote them: floats, histograms and integers, merged over
//! blocks, dense and in Prometheus's encodings. A failure prints its seed.

use std::path::Path;
use std::sync::Arc;

use chronolith_base::{Env, Rng};
use chronolith_model::kind::word_of_integer;
use chronolith_model::query::TenantSources;
use chronolith_model::{
    Columns, FIELD_LABEL, Labels, MatchOp, Matcher, Queryable, ReadContext, Selector, StoreId, TenantId,
    TimeRange, WordKind, WriteBatch,
};
use chronolith_tsdb::{BlockEncoding, BucketOptions, BucketSources, Tsdb};
use tokio::runtime::Runtime;

use crate::fixture::{HOUR_MS, Machine, START_MS};
use crate::kinds::{push, random_sample, texts};

const SERIES: u64 = 40;
const HOURS: i64 = 30;

fn labels(idx: u64) -> Labels {
    let (name, pod) = (format!("s{}", idx % 4), format!("pod-{idx}"));
    Labels::from_pairs([("__name__", name.as_str()), ("pod", pod.as_str())])
}

/// A day of samples of all kinds, some out of order, in blocks of several levels.
fn filled(machine: &Machine, rng: &Rng) -> Arc<Tsdb> {
    let tsdb = machine.open();
    for hour in 0..HOURS {
        machine.clock.set_now_ms(START_MS + (hour + 1) * HOUR_MS);
        let mut batch = WriteBatch::from_labels();
        for idx in 0..SERIES {
            let ago_ms = if rng.below(6) == 0 { 3 * HOUR_MS } else { 0 };
            let start = START_MS + hour * HOUR_MS - ago_ms + i64::try_from(rng.below(900)).unwrap();
            let sample = |k: i64| {
                let time = start + k * 60_000;
                let float = || crate::kinds::Sample::Float(rng.below(1000) as f64 / 8.0);
                (
                    time,
                    if idx % 3 == 0 {
                        random_sample(rng, time.unsigned_abs() / 60_000 % 1000)
                    } else {
                        float()
                    },
                )
            };
            let samples: Vec<_> = (0..50).map(sample).collect();
            push(&mut batch, &labels(idx), &samples);
        }
        for idx in 0..3 {
            let series = labels(idx).iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect::<Vec<_>>();
            let pairs = series.iter().map(|(n, v)| (n.as_str(), v.as_str())).chain([(FIELD_LABEL, "value")]);
            let integer = |k: i64| (START_MS + hour * HOUR_MS + k * 90_000, word_of_integer(k * 7 - hour));
            let words: Vec<(i64, u64)> = (0..30).map(integer).collect();
            batch.push_words(&Labels::from_pairs(pairs.collect::<Vec<_>>()), WordKind::Integer, &words);
        }
        tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
        if hour % 4 == 3 {
            tsdb.maintenance().run();
        }
    }
    for hour in 0..6 {
        machine.clock.set_now_ms(START_MS + (HOURS + 2 * hour) * HOUR_MS);
        tsdb.maintenance().run();
    }
    assert_eq!(tsdb.statistics().stats().head.series, 0, "everything is in blocks");
    tsdb
}

/// Copies the blocks of all tenants to a directory, which is then a bucket in Mimir's layout.
fn copy_blocks(machine: &Machine, to: &Path) {
    fn copy(from: &Env, to: &Env, source: &Path, target: &Path) {
        to.disk.create_dir_all(target).unwrap();
        for entry in from.disk.list(source).unwrap() {
            let (source, target) = (source.join(&entry.name), target.join(&entry.name));
            if entry.is_dir {
                copy(from, to, &source, &target);
            } else {
                let bytes = from.disk.read(&source).unwrap();
                to.disk.create(&target).unwrap().write_at(&bytes, 0).unwrap();
            }
        }
    }
    copy(&machine.env, &Env::real(), Path::new("/data/tenants"), to);
}

/// Series of a selection with the content of their samples.
fn read(
    source: &dyn Queryable,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Vec<(Labels, Vec<(i64, String)>)> {
    let mut batches = source.select(selector, ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let samples = |one: chronolith_model::SeriesRead| {
        let mut columns = Columns::default();
        one.samples.read(selector.range, &mut columns).expect("reads");
        (one.labels, texts(&columns))
    };
    let all: Vec<_> = series.into_iter().map(samples).collect();
    all.into_iter().filter(|(_, samples)| !samples.is_empty()).collect()
}

fn check(seed: u64, encoding: BlockEncoding) {
    let mut machine = Machine::new(seed);
    machine.options.limits.default.block_encoding = encoding;
    let tsdb = filled(&machine, &Rng::from_seed(seed));
    let dir = tempfile::tempdir().unwrap();
    copy_blocks(&machine, dir.path());
    let runtime = Runtime::new().unwrap();
    let env = Env::real();
    let options = BucketOptions::new(&format!("file://{}", dir.path().display()));
    let bucket = BucketSources::open(&options, &env, runtime.handle()).unwrap();
    let (remote, local) =
        (bucket.queryable(&TenantId::anonymous()), tsdb.reader().queryable(&TenantId::anonymous()));
    let ctx = ReadContext::unlimited(env.clock.clone());
    let regex = |name: &str, op, text: &str| Matcher::new(name, op, text).unwrap();
    let selections = [
        vec![],
        vec![Matcher::equal("__name__", "s1")],
        vec![Matcher::equal("__name__", "s0"), regex("pod", MatchOp::Regex, "pod-1.*")],
        vec![regex("pod", MatchOp::NotRegex, ".*[1-5]")],
        vec![regex(FIELD_LABEL, MatchOp::Equal, "value")],
        vec![Matcher::equal("pod", "none")],
    ];
    let ranges = [
        TimeRange::ALL,
        TimeRange::new(START_MS + 5 * HOUR_MS, START_MS + 7 * HOUR_MS),
        TimeRange::new(START_MS + HOURS * HOUR_MS / 2, START_MS + HOURS * HOUR_MS / 2 + 1),
    ];
    for range in ranges {
        for matchers in &selections {
            let selector = Selector { matchers, range };
            let (found, want) = (read(&*remote, &selector, &ctx), read(&*local, &selector, &ctx));
            assert!(found == want, "seed {seed}: {matchers:?}: {} of {} series", found.len(), want.len());
            let names = |source: &dyn Queryable| source.label_names(&selector, 0, &ctx).unwrap();
            assert_eq!(names(&*remote), names(&*local), "seed {seed}: {matchers:?}");
            let values = |source: &dyn Queryable| source.label_values("pod", &selector, 7, &ctx).unwrap();
            assert_eq!(values(&*remote), values(&*local), "seed {seed}: {matchers:?}");
        }
    }
    assert_eq!(ctx.budget.used_bytes(), 0);
    let other = bucket.queryable(&TenantId::new("other").unwrap());
    assert!(read(&*other, &Selector { matchers: &[], range: TimeRange::ALL }, &ctx).is_empty());
}

#[test]
fn a_bucket_answers_as_the_store_that_wrote_its_blocks() {
    for seed in 1..=3 {
        check(seed, BlockEncoding::Dense);
        check(seed, BlockEncoding::Prometheus);
    }
}
