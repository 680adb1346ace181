//! Start timestamps of the WAL are imported: in-order and out-of-order samples and histograms, in both block
//! encodings.

use std::collections::BTreeMap;
use std::path::Path;

use crate::test_env::TestEnv;
use crate::test_env::log::{Packing, histograms_with_start, samples, samples_with_start, segment, series};
use chronolith_block::precedence;
use chronolith_model::{BlockEncoding, Columns, Queryable as _, ReadContext, Selector, TimeRange};

const TIME: i64 = 1_700_000_000_000;

/// Value and start timestamp by metric name and time.
type Stored = BTreeMap<(String, i64), (f64, i64)>;

fn stored(test: &TestEnv) -> Stored {
    let (mut blocks, damaged) = chronolith_block::open_dir(&test.env, Path::new(crate::test_env::BLOCKS));
    assert!(damaged.is_empty(), "{damaged:?}");
    blocks.sort_by_key(|block| precedence(block.meta()));
    let ctx = ReadContext::unlimited(test.env.clock.clone());
    let mut out = Stored::new();
    for block in blocks {
        assert_eq!(block.verify(), []);
        let mut batches = block.select(&Selector { matchers: &[], range: TimeRange::ALL }, &ctx).unwrap();
        let mut found = Vec::new();
        while batches.next_batch(&mut found).unwrap() {}
        for series in found {
            let mut columns = Columns::default();
            series.samples.read(TimeRange::ALL, &mut columns).unwrap();
            let name = series.labels.get("__name__").unwrap().to_owned();
            for at in 0..columns.len() {
                let sample = (columns.values[at], columns.start_time_at(at));
                out.entry((name.clone(), columns.times[at])).or_insert(sample);
            }
        }
    }
    out
}

#[test]
fn samples_keep_their_start_timestamps() {
    for encoding in [BlockEncoding::Dense, BlockEncoding::Prometheus] {
        let mut records = vec![
            series(1, &[("__name__", "counter")]),
            series(2, &[("__name__", "delta")]),
            series(3, &[("__name__", "plain")]),
            series(4, &[("__name__", "histogram")]),
        ];
        let mut want = Stored::new();
        let mut put = |name: &str, time: i64, value: f64, start_ms: i64| {
            want.entry((name.to_owned(), time)).or_insert((value, start_ms));
        };
        for step in 0..400i64 {
            let (time, value) = (TIME + step * 15_000, step as f64);
            if (100..110).contains(&step) {
                // Records of a Prometheus without start timestamps.
                records.push(samples(&[(1, time, value), (2, time, value), (3, time, value)]));
                ["counter", "delta", "plain"].iter().for_each(|name| put(name, time, value, 0));
                continue;
            }
            let restart = TIME - 500 + step / 150 * 2_250_000;
            records.push(samples_with_start(&[
                (1, time, value, restart),
                (3, time, value, 0),
                (2, time, value, time - 15_000),
            ]));
            put("counter", time, value, restart);
            put("plain", time, value, 0);
            put("delta", time, value, time - 15_000);
            if step % 7 == 0 {
                records
                    .push(histograms_with_start(&[(4, time, value, restart), (4, time + 1, value, restart)]));
                put("histogram", time, value, restart);
                put("histogram", time + 1, value, restart);
            }
            if step % 50 == 20 {
                // Out of order; the second one is a conflict.
                records
                    .push(samples_with_start(&[(1, time - 100_007, 1.5, 77), (1, time - 100_007, 2.5, 78)]));
                put("counter", time - 100_007, 1.5, 77);
            }
        }
        let test = TestEnv { encoding, ..TestEnv::new() };
        test.put(Path::new("wal/00000000"), &segment(&records, Packing::Snappy));
        let last = segment(&[series(9, &[("__name__", "last")])], Packing::None);
        test.put(Path::new("wal/00000001"), &last);
        let report = test.import().unwrap();
        assert_eq!(report.damages, []);
        assert_eq!(report.head.skipped.conflicting, 8, "{:?}", report.head);
        let found = stored(&test);
        for (key, sample) in &want {
            assert_eq!(found.get(key), Some(sample), "{key:?}");
        }
        assert_eq!(found.len(), want.len());
    }
}
