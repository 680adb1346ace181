//! Points of all inputs, rendered by series, and the counters of refused ones.

mod arbitrary;

use chronolith_model::LabelsBuilder;

use super::*;

pub(super) const NOW_MS: i64 = 1_234_567;

/// Outcome of an input.
pub(super) struct Decoded {
    /// Canonical path, value and time of each point.
    pub(super) points: Vec<String>,
    pub(super) refused: Refused,
}

/// Canonical path of a key by its labels, as the store would name it.
fn path_of_key(batch: &WriteBatch, idx: usize) -> String {
    let mut labels = LabelsBuilder::new();
    parse_key(batch.key_of(idx), &mut labels).expect("the decoder checks paths");
    labels.sort();
    assert_eq!(labels.repeated_name(), None);
    path_of_labels(&labels.finish())
}

pub(super) fn render(batch: &WriteBatch) -> Vec<String> {
    assert_eq!(batch.series.len(), batch.times.len());
    assert_eq!(batch.series.len(), batch.values.len());
    let of = |idx: usize| {
        assert_eq!(batch.series[idx].samples, idx as u32..idx as u32 + 1);
        let value = batch.values[idx];
        assert!(!value.is_nan(), "NaN is never stored");
        format!("{} {value} @{}", path_of_key(batch, idx), batch.times[idx])
    };
    (0..batch.series.len()).map(of).collect()
}

/// Decodes by `decode` into an empty batch.
pub(super) fn decode_with(decode: impl FnOnce(&mut PointWriter<'_>)) -> Decoded {
    let mut batch = new_batch();
    let mut refused = Refused::default();
    decode(&mut PointWriter::new(&mut batch, &mut refused, NOW_MS));
    Decoded { points: render(&batch), refused }
}

#[test]
fn refused_points_are_added_up_and_the_newest_is_kept() {
    let decode = |input: &[u8], now_ms: i64, refused: &mut Refused| {
        let mut batch = new_batch();
        let mut points = PointWriter::new(&mut batch, refused, now_ms);
        LineDecoder::new().decode(input, InputEnd::Closed, &mut points);
    };
    let mut first = Refused::default();
    decode(b"a x 1\nb y 1\nc\n", 5, &mut first);
    let mut second = Refused::default();
    decode(&[b"d ", &[b'z'; 300][..], b" 1"].concat(), 9, &mut second);
    first.add(second);
    assert_eq!(first.count(RefusedReason::BadValue), 3);
    assert_eq!(first.count(RefusedReason::MissingValue), 1);
    assert_eq!(first.total(), 4);
    let text = format!("d {}", "z".repeat(TEXT_BYTES_MAX - 2));
    assert_eq!(first.newest(RefusedReason::BadValue), Some(&RefusedLine { text, time_ms: 9 }));
    let kept = RefusedLine { text: "c".to_owned(), time_ms: 5 };
    assert_eq!(first.newest(RefusedReason::MissingValue), Some(&kept));
    assert_eq!(first.newest(RefusedReason::Nan), None);
    let labels: Vec<&str> = RefusedReason::ALL.iter().map(|reason| reason.label()).collect();
    assert!((0..RefusedReason::COUNT).all(|idx| RefusedReason::ALL[idx] as usize == idx));
    assert_eq!(labels.iter().collect::<std::collections::BTreeSet<_>>().len(), RefusedReason::COUNT);
}
