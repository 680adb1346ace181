//! Bound of the histograms of one record or part.

use chronolith_base::ByteReader;
use chronolith_model::histogram::{Buckets, HistogramOf};
use chronolith_model::{Histogram, Span};

use super::{BOUNDED_BYTES_MAX, BoundedHistogramDecoder, HistogramDecoder, HistogramEncoder};

/// A histogram whose spans have no bucket takes about 30 bytes where its layout is repeated.
#[test]
fn repeated_layouts_of_empty_spans_are_refused_beyond_the_bound() {
    let spans = vec![Span { offset: 1, length: 0 }; 30_000];
    let positive = Buckets { spans, counts: Vec::new() };
    let histogram = Histogram::Int(HistogramOf { positive, ..HistogramOf::default() });
    let count = BOUNDED_BYTES_MAX / histogram.memory_bytes() + 2;
    let mut bytes = Vec::new();
    let mut encoder = HistogramEncoder::new(&mut bytes);
    (0..count).for_each(|_| encoder.put(&histogram));
    assert!(bytes.len() < 200_000, "{} bytes", bytes.len());

    let mut reader = ByteReader::new(&bytes);
    let mut bounded = BoundedHistogramDecoder::default();
    for _ in 1..count {
        assert_eq!(*bounded.next(&mut reader).expect("within the bound"), histogram);
    }
    let error = bounded.next(&mut reader).expect_err("beyond the bound").to_string();
    assert!(error.contains("histograms of at most 64 MiB"), "{error}");

    let mut reader = ByteReader::new(&bytes);
    let mut decoder = HistogramDecoder::default();
    assert!((0..count).all(|_| decoder.next(&mut reader).is_ok()), "the bytes are intact");
}
