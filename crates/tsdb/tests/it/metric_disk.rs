//! Bytes on disk by metric: sums over blocks, before and after they are merged.

use std::collections::BTreeMap;
use std::path::Path;

use chronolith_base::MemoryBudget;
use chronolith_base::disk::Disk as _;
use chronolith_model::{Labels, QueryError, ReadContext, StoreId, TenantId, WriteBatch};
use chronolith_tsdb::{MetricDiskBytes, MetricFilter, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS};

/// Bytes of the header of a chunk segment.
const SEGMENT_HEADER_BYTES: u64 = 8;

fn write_hour(machine: &Machine, tsdb: &Tsdb, hour: i64) {
    machine.clock.set_now_ms(START_MS + (hour + 1) * HOUR_MS);
    let mut batch = WriteBatch::from_labels();
    for metric in 0..5 {
        for series in 0..=metric {
            let (name, series) = (format!("m{metric}"), series.to_string());
            let labels = Labels::from_pairs([("__name__", name.as_str()), ("series", series.as_str())]);
            let samples: Vec<(i64, f64)> = (0..60)
                .map(|i| (START_MS + hour * HOUR_MS + i * 60_000, (i * metric) as f64 / 3.0))
                .collect();
            batch.push_labels(&labels, &samples);
        }
    }
    let outcome = tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
    assert_eq!(outcome.first_reject, None);
}

fn by_metric(found: &MetricDiskBytes) -> BTreeMap<String, u64> {
    found.iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// Bytes of the segments of all blocks, without their headers.
fn chunk_bytes(machine: &Machine) -> u64 {
    let blocks = Path::new("/data/tenants/anonymous");
    let mut sum = 0;
    for block in machine.disk.list(blocks).expect("a list").into_iter().filter(|entry| entry.is_dir) {
        let Ok(segments) = machine.disk.list(&blocks.join(&block.name).join("chunks")) else { continue };
        sum += segments.iter().map(|segment| segment.len - SEGMENT_HEADER_BYTES).sum::<u64>();
    }
    sum
}

#[test]
fn bytes_of_metrics_are_those_of_all_blocks() {
    let machine = Machine::new(1);
    let tsdb = machine.open();
    let tenant = StoreId::anonymous();
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let all = || {
        tsdb.statistics()
            .metric_disk_bytes(tenant.tenant().expect("a default store"), MetricFilter::All, &ctx)
            .expect("readable")
    };
    assert!(by_metric(&all()).is_empty());
    for hour in 0..12 {
        write_hour(&machine, &tsdb, hour);
    }
    tsdb.maintenance().flush_closed(START_MS + 30 * HOUR_MS).expect("flushes");
    let many = by_metric(&all());
    assert_eq!(many.keys().collect::<Vec<_>>(), ["m0", "m1", "m2", "m3", "m4"]);
    assert_eq!(many.values().sum::<u64>(), chunk_bytes(&machine));
    let named = tsdb
        .statistics()
        .metric_disk_bytes(
            tenant.tenant().expect("a default store"),
            MetricFilter::Named(&["m3", "none"]),
            &ctx,
        )
        .expect("readable");
    assert_eq!(by_metric(&named), BTreeMap::from([("m3".to_owned(), many["m3"])]));
    machine.clock.set_now_ms(START_MS + 60 * HOUR_MS);
    let block_count = tsdb.statistics().stats().blocks;
    tsdb.maintenance().run();
    assert!(tsdb.statistics().stats().blocks < block_count);
    let merged = by_metric(&all());
    assert_eq!(merged.values().sum::<u64>(), chunk_bytes(&machine));
    assert!(merged["m4"] < many["m4"], "{merged:?}, before {many:?}");
    let other = StoreId::from(TenantId::new("other").expect("valid"));
    let of_other = tsdb
        .statistics()
        .metric_disk_bytes(other.tenant().expect("a default store"), MetricFilter::All, &ctx)
        .expect("readable");
    assert_eq!(of_other.iter().count(), 0);
}

#[test]
fn names_count_in_the_budget() {
    let machine = Machine::new(2);
    let tsdb = machine.open();
    write_hour(&machine, &tsdb, 0);
    tsdb.maintenance().flush_closed(START_MS + 30 * HOUR_MS).expect("flushes");
    let budget = MemoryBudget::new("query", 300);
    let ctx = ReadContext::new(machine.env.clock.clone(), u64::MAX, budget.clone());
    let found = tsdb.statistics().metric_disk_bytes(&TenantId::anonymous(), MetricFilter::All, &ctx);
    assert!(matches!(found, Err(QueryError::Memory(_))));
    assert_eq!(budget.used_bytes(), 0);
    let two = MetricFilter::Named(&["m1", "m2"]);
    let found =
        tsdb.statistics().metric_disk_bytes(&TenantId::anonymous(), two, &ctx).expect("enough memory");
    assert!(budget.used_bytes() > 0);
    drop(found);
    assert_eq!(budget.used_bytes(), 0);
}
