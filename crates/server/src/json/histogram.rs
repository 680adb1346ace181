//! Native histograms as Prometheus's query API prints them.
//! Invariants: empty buckets are left out, and the list of buckets if there is none.

use std::sync::Arc;

use chronolith_model::FloatHistogram;

use super::{put_display, put_float, put_time};

/// Appends `[time, {"count": "3", "sum": "4", "buckets": [[0, "1", "2", "3"]]}]`; the first number of a
/// bucket says which of its ends belong to it.
pub(crate) fn put_histogram(out: &mut Vec<u8>, time_ms: i64, histogram: &FloatHistogram) {
    out.push(b'[');
    put_time(out, time_ms);
    out.extend_from_slice(b",{\"count\":");
    put_quoted(out, histogram.count);
    out.extend_from_slice(b",\"sum\":");
    put_quoted(out, histogram.sum);
    let mut buckets = Vec::new();
    histogram.all_buckets(&mut buckets);
    let mut opened = false;
    for bucket in buckets.iter().filter(|bucket| bucket.count != 0.0) {
        out.extend_from_slice(if opened { b"," } else { b",\"buckets\":[" });
        opened = true;
        put_display(out, format_args!("[{}", bucket.boundary_rule()));
        for value in [bucket.lower, bucket.upper, bucket.count] {
            out.push(b',');
            put_quoted(out, value);
        }
        out.push(b']');
    }
    out.extend_from_slice(if opened { b"]}]" } else { b"}]" });
}

fn put_quoted(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    put_float(out, value);
    out.push(b'"');
}

/// Appends a list of histograms with their times.
pub(crate) fn put_histograms(out: &mut Vec<u8>, histograms: &[(i64, Arc<FloatHistogram>)]) {
    out.push(b'[');
    for (idx, (time_ms, histogram)) in histograms.iter().enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        put_histogram(out, *time_ms, histogram);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use chronolith_model::Span;
    use chronolith_model::histogram::Buckets;

    use super::*;

    #[test]
    fn ends_of_buckets_are_told_by_number() {
        let one = |counts: &[f64]| Buckets {
            spans: vec![Span { offset: 0, length: counts.len() as u32 }],
            counts: counts.to_vec(),
        };
        let histogram = FloatHistogram {
            count: 7.5,
            sum: -1.0,
            zero_count: 1.0,
            zero_threshold: 0.25,
            positive: one(&[3.0, 0.0, 2.0]),
            negative: one(&[1.5]),
            ..FloatHistogram::default()
        };
        let mut out = Vec::new();
        put_histograms(&mut out, &[(1500, Arc::new(histogram)), (2000, Arc::default())]);
        let want = concat!(
            r#"[[1.500,{"count":"7.5","sum":"-1","buckets":[[1,"-1","-0.5","1.5"],[3,"-0.25","0.25","1"],"#,
            r#"[0,"0.5","1","3"],[0,"2","4","2"]]}],[2,{"count":"0","sum":"0"}]]"#
        );
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
