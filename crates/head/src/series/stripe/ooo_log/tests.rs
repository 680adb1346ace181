//! The log against one list per series, and the memory that it frees.

use std::collections::BTreeMap;

use chronolith_base::Env;
use chronolith_model::IntHistogram;

use super::*;

fn histogram(count: u64) -> Arc<Histogram> {
    Arc::new(Histogram::Int(IntHistogram { count, ..IntHistogram::default() }))
}

#[test]
fn lists_return_their_samples_newest_first() {
    for seed in 0..10 {
        let (env, _, _) = Env::fake(0, seed);
        let mut log = OooLog::default();
        let mut lists: BTreeMap<u32, (OooList, Vec<OooSample>)> = BTreeMap::new();
        for at in 0..30_000i64 {
            let id = env.rng.below(50) as u32;
            let (list, want) = lists.entry(id).or_insert((OooList::EMPTY, Vec::new()));
            let value = match env.rng.below(5) {
                0 => SampleValue::Histogram(histogram(at as u64)),
                _ => SampleValue::Word(env.rng.next_u64()),
            };
            let policies = [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins];
            let duplicates = policies[env.rng.below(2) as usize];
            let start_ms = env.rng.below(3) as i64 * at;
            let sample = OooSample { time: at, value, start_ms, duplicates };
            let pushed = log.push(*list, id, sample.clone());
            want.insert(0, sample);
            assert_eq!(pushed.1, want.len().min(COUNT_MAX as usize));
            *list = pushed.0;
            if env.rng.below(60) == 0 || want.len() > 200 {
                log.free(*list);
                lists.remove(&id);
            }
            assert_eq!(log.list_count(), lists.len() as u64);
        }
        for (list, want) in lists.values() {
            assert_eq!(log.samples(*list).collect::<Vec<_>>(), *want, "seed {seed}");
            assert!(log.times(*list).eq(want.iter().map(|one| one.time)));
        }
        let with_histograms = |(_, (_, want)): &(&u32, &(OooList, Vec<OooSample>))| {
            want.iter().any(|one| matches!(one.value, SampleValue::Histogram(_)))
        };
        let want: Vec<u32> = lists.iter().filter(with_histograms).map(|(&id, _)| id).collect();
        assert_eq!(log.series_with_histograms(), want);
        lists.values().for_each(|(list, _)| log.free(*list));
        assert_eq!((log.heap_bytes(), log.histogram_bytes(), log.list_count()), (0, 0, 0));
    }
}

/// Limit of samples per series: it halves with each portion of memory, and is one before the log is full.
#[test]
fn a_large_log_is_full_sooner() {
    let mut log = OooLog::default();
    assert!(!log.is_full(OOO_COUNT_MAX - 1) && log.is_full(OOO_COUNT_MAX));
    let mut list = OooList::EMPTY;
    while log.heap_bytes() <= OOO_BYTES_STEP as u64 + 100_000 {
        let sample = OooSample::new(0, SampleValue::Word(0), 0, DuplicatePolicy::KeepFirst);
        list = log.push(list, 1, sample).0;
    }
    assert!(!log.is_full(OOO_COUNT_MAX / 2 - 1) && log.is_full(OOO_COUNT_MAX / 2));
}
