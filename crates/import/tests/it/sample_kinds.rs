//! Series with floats and native histograms: both kinds go the same way, and of equal timestamps the first
//! one stays.

use std::path::Path;

use crate::test_env::log::{Packing, histograms_with_start, samples, segment, series};
use crate::test_env::{Samples, TestEnv};

const TIME: i64 = 1_700_000_000_000;

#[test]
fn out_of_order_floats_and_histograms_of_one_series() {
    let test = TestEnv::new();
    let labels = |time: i64| (r#"{__name__="a"}"#.to_owned(), TIME + time);
    let records = [
        series(1, &[("__name__", "a")]),
        histograms_with_start(&[(1, TIME, 1.0, 0), (1, TIME + 30, 2.0, 0)]),
        samples(&[(1, TIME + 40, 3.0)]),
        samples(&[(1, TIME + 10, 4.0), (1, TIME + 20, 5.0)]),
        // Conflicts with a histogram and with an out-of-order float, a duplicate of a histogram.
        samples(&[(1, TIME + 30, 9.0)]),
        histograms_with_start(&[(1, TIME + 10, 9.0, 0), (1, TIME, 1.0, 0)]),
    ];
    test.put(Path::new("wal/00000000"), &segment(&records, Packing::Snappy));
    let report = test.import().unwrap();
    assert_eq!(report.damages, []);
    // The value of a histogram is its sum.
    let want: Samples = [(0, 1.0f64), (10, 4.0), (20, 5.0), (30, 2.0), (40, 3.0)]
        .map(|(time, value)| (labels(time), value.to_bits()))
        .into();
    assert_eq!(test.samples(), want);
    let head = &report.head;
    assert_eq!((head.samples, head.out_of_order_samples, head.histograms_written), (5, 2, 2), "{head:?}");
    assert_eq!((head.skipped.conflicting, head.skipped.repeated), (2, 1), "{head:?}");
}
