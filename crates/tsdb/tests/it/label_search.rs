//! Searches in the values of a label, over blocks and a head whose series leave it meanwhile.

use std::collections::BTreeSet;

use chronolith_base::Rng;
use chronolith_model::query::{LabelValueCursor, SoleLabelValues};
use chronolith_model::{Labels, ReadContext, StoreId, TenantId, TimeRange, WriteBatch};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, Machine, START_MS};

fn write(tsdb: &Tsdb, labels: &Labels, time_ms: i64) {
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(labels, &[(time_ms, 1.0)]);
    let outcome = tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
    assert_eq!(outcome.first_reject, None);
}

fn cursor(machine: &Machine, tsdb: &Tsdb, range: TimeRange) -> Box<dyn LabelValueCursor> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let search = SoleLabelValues { name: "__name__", range };
    let source = tsdb.reader().queryable(&TenantId::anonymous());
    source.sole_label_values(&search, &ctx).expect("searches").expect("a local store")
}

fn check(rng: &Rng, values: &mut dyn LabelValueCursor, known: &BTreeSet<String>, context: &str) {
    for _ in 0..60 {
        let start = format!("p{}", rng.below(80));
        let want = known.iter().find(|name| **name >= start).map(String::as_str);
        assert_eq!(values.seek(&start).expect("read"), want, "{context}, from {start}");
    }
}

#[test]
fn values_of_head_and_blocks_are_found() {
    for seed in 0..6 {
        let machine = Machine::new(seed);
        let rng = Rng::from_seed(seed);
        let tsdb = machine.open();
        let mut known = BTreeSet::new();
        for hours in 0..8 {
            let time_ms = START_MS + hours * HOUR_MS;
            machine.clock.set_now_ms(time_ms);
            for _ in 0..12 {
                let name = format!("p{}", rng.below(80));
                write(&tsdb, &Labels::from_pairs([("__name__", name.as_str())]), time_ms);
                known.insert(name);
                // Neither the same name with a tag, nor one that has no series without tags.
                let tagged = format!("p{}", rng.below(200));
                write(&tsdb, &Labels::from_pairs([("__name__", tagged.as_str()), ("tag", "a")]), time_ms);
            }
            let mut before = cursor(&machine, &tsdb, TimeRange::ALL);
            check(&rng, &mut *before, &known, &format!("seed {seed}, hour {hours}"));
            if hours % 3 == 2 {
                tsdb.maintenance().flush_closed(time_ms + 30 * HOUR_MS).expect("flushes");
                check(&rng, &mut *before, &known, &format!("seed {seed}, hour {hours}, flushed since"));
            }
        }
        let after_all = TimeRange::new(START_MS + 100 * HOUR_MS, START_MS + 101 * HOUR_MS);
        assert_eq!(cursor(&machine, &tsdb, after_all).seek("").expect("read"), None);
    }
}
