//! Series keys of protocols with fields: the raw key is shared by the fields of a line.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::batch::LabelSource;
use chronolith_model::kind::{FIELD_LABEL, KIND_LABEL};
use chronolith_model::{
    BatchSeries, LabelsBuilder, METRIC_NAME, Reject, SeriesKey, TimeRange, WordKind, WriteBatch,
};

use crate::harness::{NOW_MS, TestEnv, read, tenant};

static PARSED_COUNT: AtomicU64 = AtomicU64::new(0);

fn parse(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    PARSED_COUNT.fetch_add(1, Ordering::Relaxed);
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Reject::InvalidUtf8);
    out.push(METRIC_NAME, text(key.raw)?);
    out.push(FIELD_LABEL, text(key.field)?);
    if key.kind != WordKind::Float {
        out.push(KIND_LABEL, key.kind.label_value());
    }
    Ok(())
}

/// Adds a line: fields with their kinds, all 1.0.
fn push_line(batch: &mut WriteBatch, name: &str, fields: &[(&str, WordKind)], time_ms: i64) {
    let mut put = |text: &str| {
        let start = batch.raw.len() as u32;
        batch.raw.extend_from_slice(text.as_bytes());
        start..batch.raw.len() as u32
    };
    let raw = put(name);
    let fields: Vec<_> = fields.iter().map(|(field, kind)| (put(field), *kind)).collect();
    for (field, kind) in fields {
        let at = batch.times.len() as u32;
        batch.series.push(BatchSeries { raw: raw.clone(), samples: at..at + 1 });
        batch.kinds.push(kind);
        batch.fields.push(field);
        batch.push_sample(time_ms, 1.0, 0);
    }
}

fn batch(time_ms: i64) -> WriteBatch {
    let mut batch = WriteBatch::new(LabelSource { protocol: 9, parse, is_typed: true });
    let (float, boolean) = (WordKind::Float, WordKind::Boolean);
    push_line(&mut batch, "m", &[("a", float), ("b", float), ("c", boolean)], time_ms);
    push_line(&mut batch, "ma", &[("b", float)], time_ms);
    push_line(&mut batch, "m", &[("ab", float), ("d", boolean)], time_ms);
    batch
}

/// Fields and kinds of one raw key are series of their own, and are parsed only once, also after a restart.
#[test]
fn fields_and_kinds_are_keys() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let outcome = test_env.write(&head, &tenant("a"), &batch(NOW_MS)).unwrap();
    assert_eq!((outcome.accepted_count, outcome.series_created_count), (6, 6));
    let parsed_count = PARSED_COUNT.load(Ordering::Relaxed);
    test_env.write(&head, &tenant("a"), &batch(NOW_MS + 1)).unwrap();
    drop(head);
    let (head, _) = test_env.open();
    let outcome = test_env.write(&head, &tenant("a"), &batch(NOW_MS + 2)).unwrap();
    assert_eq!((outcome.accepted_count, outcome.series_created_count), (6, 0));
    assert_eq!(PARSED_COUNT.load(Ordering::Relaxed), parsed_count, "the keys are known by their hashes");
    let found = read(&test_env, &head, "a", &[], TimeRange::ALL);
    assert_eq!(found.len(), 6);
    assert!(found.values().all(|samples| samples.len() == 3));
}
