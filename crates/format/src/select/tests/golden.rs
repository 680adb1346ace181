//! Golden files: nodes of other processes read these bytes.

use super::*;

const CALL: &[u8] = include_bytes!("../../../testdata/select/version-1.call");
const SERIES: &[u8] = include_bytes!("../../../testdata/select/version-1.series");
const FAILURES: &[u8] = include_bytes!("../../../testdata/select/version-1.failures");
const CHANGED: &str = "the bytes that are written have changed: that needs a version";

fn series() -> Vec<u8> {
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    encoder.start_series(&labels(1), ColumnType::Float).expect("short");
    encoder.put_columns(&mixed()).expect("ascends");
    let mut chunks = Vec::new();
    kinds::encode(&floats(40..50), &mut chunks);
    let stored = StoredChunk {
        min_time: chunks[0].min_time,
        max_time: chunks[0].max_time,
        sample_count: 10,
        encoding: chunks[0].encoding,
        bytes: &chunks[0].bytes,
    };
    encoder.put_chunk(&stored).expect("ascends");
    encoder.put_columns(&floats(60..61)).expect("ascends");
    encoder.end_series();
    encoder.start_series(&labels(2), ColumnType::Text).expect("short");
    let texts: Vec<Arc<[u8]>> = vec![Arc::from(&b"a"[..]), Arc::from(&b"b"[..]), Arc::from(&b"a"[..])];
    encoder.put_texts(&[1, 2, 5], &texts).expect("ascends");
    encoder.end_series();
    encoder.put_warnings(&AnswerWarnings { is_partial: false, texts: vec!["w".to_owned()] });
    encoder.finish()
}

fn all_failures() -> Vec<u8> {
    let failed = |failure| AnswerEncoder::new(header(AnswerForm::List)).fail(failure);
    failures().iter().flat_map(failed).collect()
}

#[test]
fn golden_files_read_as_ever() {
    assert_eq!(encode_call(&call()), CALL, "{CHANGED}");
    assert_eq!(decode_call(CALL), Ok(call()));
    assert_eq!(series(), SERIES, "{CHANGED}");
    let found = decode(SERIES).expect("an answer");
    let mut want = mixed();
    let later = (40..50).chain(60..61).flat_map(|time| samples_of(&floats(time..time + 1)));
    later.for_each(|(time, bits, ..)| want.push(time, f64::from_bits(bits)));
    assert_eq!(found.series[0].samples, samples_of(&want));
    let texts = [(1, b"a".to_vec()), (2, b"b".to_vec()), (5, b"a".to_vec())];
    assert_eq!((found.series[1].labels.clone(), &found.series[1].texts[..]), (labels(2), &texts[..]));
    assert_eq!(found.end, Some(AnswerCounts { series: 2, samples: want.len() as u64 + 3 }));
    assert_eq!(all_failures(), FAILURES, "{CHANGED}");
}
