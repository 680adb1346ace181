//! Bodies unpack to the messages that they stand for.

use super::{Body, put_label};
use crate::traffic;

/// The message without compression and templates, as the protocol's description has it.
fn plain(series: &[usize], time_ms: u64, values: &[f64]) -> Vec<u8> {
    let mut message = Vec::new();
    for (idx, value) in series.iter().zip(values) {
        let mut inner = Vec::new();
        for (name, text) in traffic::labels(*idx) {
            put_label(&mut inner, name, &text);
        }
        let mut sample = vec![0x09];
        sample.extend_from_slice(&value.to_le_bytes());
        sample.push(0x10);
        super::put_varint(&mut sample, time_ms as usize);
        inner.push(0x12);
        super::put_varint(&mut inner, sample.len());
        inner.extend_from_slice(&sample);
        message.push(0x0a);
        super::put_varint(&mut message, inner.len());
        message.extend_from_slice(&inner);
    }
    message
}

#[test]
fn a_series_may_have_several_samples() {
    let samples = [(1_767_225_600_000, 1.5), (1_767_225_615_000, -2.0), (1_767_225_600_001, 3.0)];
    let mut body = Body::with_counts([(traffic::labels(3), 2), (traffic::labels(4), 1)].into_iter());
    body.set_each(samples.into_iter());
    assert_eq!(body.samples.len(), 3);
    let first = plain(&[3], samples[0].0 as u64, &[samples[0].1]);
    let second = plain(&[3], samples[1].0 as u64, &[samples[1].1]);
    // The second sample stands right after the first, within the same series.
    let mut expected = first;
    expected.extend_from_slice(&second[second.len() - super::SAMPLE_LEN..]);
    let inner_len = expected.len() - 3;
    expected[1] = (inner_len & 0x7f) as u8 | 0x80;
    expected[2] = (inner_len >> 7) as u8;
    expected.extend_from_slice(&plain(&[4], samples[2].0 as u64, &[samples[2].1]));
    let unpacked = snap::raw::Decoder::new().decompress_vec(body.bytes()).expect("snappy");
    assert_eq!(unpacked, expected);
}

#[test]
fn a_patched_body_unpacks_to_the_message() {
    let series: Vec<usize> = (480..1480).collect();
    let mut body = Body::new(series.iter().map(|idx| traffic::labels(*idx)));
    for time_ms in [1_767_225_600_000, 1_767_225_615_000] {
        let values: Vec<f64> = series.iter().map(|idx| *idx as f64 / 7.0 + time_ms as f64).collect();
        body.set(time_ms, values.iter().copied());
        let unpacked = snap::raw::Decoder::new().decompress_vec(body.bytes()).expect("snappy");
        assert_eq!(unpacked, plain(&series, time_ms as u64, &values));
    }
}

/// Real senders compress labels; a body that did not would flatter servers that copy less.
#[test]
fn labels_are_compressed_about_as_well_as_by_a_common_encoder() {
    let series: Vec<usize> = (0..5000).collect();
    let mut body = Body::new(series.iter().map(|idx| traffic::labels(*idx)));
    let values: Vec<f64> = series.iter().map(|idx| *idx as f64 * 1.1).collect();
    body.set(1_767_225_600_000, values.iter().copied());
    let message = plain(&series, 1_767_225_600_000, &values);
    let common = snap::raw::Encoder::new().compress_vec(&message).expect("snappy").len();
    let ours = body.bytes().len();
    assert!(ours < common * 3 / 2 && ours > common / 2, "{ours} against {common} of {}", message.len());
}
