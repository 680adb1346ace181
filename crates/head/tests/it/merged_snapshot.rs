//! Out-of-order samples and deletions in a window while a snapshot of it is read.

use chronolith_format::chunk::kinds;
use chronolith_head::{HeadError, WindowSeries};
use chronolith_model::{Columns, TimeRange};

use crate::harness::{Model, NOW_MS, TestEnv, WINDOW_MS, batch, delete, labels, read_all, tenant};

fn samples_of(series: impl Iterator<Item = Result<WindowSeries, HeadError>>) -> Model {
    let mut out = Model::new();
    for series in series {
        let series = series.expect("readable");
        let mut samples = Columns::default();
        for chunk in &series.chunks {
            kinds::decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut samples).expect("decodes");
        }
        let values = samples.values.iter().map(|v| v.to_bits());
        out.insert(("a".to_owned(), series.labels), samples.times.iter().copied().zip(values).collect());
    }
    out
}

/// Regression: chunks that were encoded again after the snapshot had references after its end: a copy of the
/// window for a backup lacked samples that were acknowledged long before. A drop never removed them.
#[test]
fn a_window_copy_includes_chunks_encoded_after_the_snapshot() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let base = NOW_MS - NOW_MS % WINDOW_MS - WINDOW_MS;
    let window = TimeRange::new(base, base + WINDOW_MS);
    let row: Vec<(i64, f64)> = (0..400).map(|k| (base + k * 250, k as f64)).collect();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(1), row)])).expect("written");
    let mut before = read_all(&test_env, &head, &["a"]);
    let snapshot = head.windows().snapshot(&tenant("a"), window).expect("sealed");
    let late: Vec<(i64, f64)> = (0..300).map(|k| (base + k * 250 + 1, 0.5)).collect();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(1), late)])).expect("written");
    let has_all = |before: &Model, found: &Model| {
        before.iter().all(|(key, samples)| {
            let found = found.get(key);
            samples.iter().all(|(time, value)| found.is_some_and(|f| f.get(time) == Some(value)))
        })
    };
    assert!(has_all(&before, &samples_of(snapshot.series())), "out-of-order samples change no chunk");
    let erased = TimeRange::new(base + 1000, base + 1001);
    assert_eq!(delete(&head, "a", &[vec![]], erased), 1);
    before.values_mut().for_each(|samples| {
        samples.remove(&(base + 1000));
    });
    let cut = samples_of(snapshot.series());
    assert!(!has_all(&before, &cut), "the deletion has encoded chunks of the snapshot again");
    assert!(has_all(&before, &samples_of(snapshot.series_with_later())), "a copy lacks acknowledged samples");
    head.windows().drop(snapshot);
    let mut left = read_all(&test_env, &head, &["a"]);
    for (key, samples) in cut {
        left.entry(key).or_default().extend(samples);
    }
    assert!(has_all(&before, &left), "what is not in the block stays in the head");
}
