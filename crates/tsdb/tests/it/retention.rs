//! Blocks leave by age and by size; samples beyond the retention are refused.

use chronolith_base::{Disk, Rng};
use chronolith_format::store_name;
use chronolith_model::{Reject, StoreId};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

#[test]
fn old_blocks_leave_and_old_samples_are_refused() {
    let mut machine = Machine::new(3);
    machine.options.limits.default.retention_ms = 24 * HOUR_MS;
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    write(&tsdb, &tenant, "old", &[(START_MS - HOUR_MS, 1.0)]).expect("works");
    let outcome = write(&tsdb, &tenant, "old", &[(START_MS - 25 * HOUR_MS, 1.0)]).expect("works");
    assert_eq!(outcome.first_reject.expect("a reject").0, Reject::TooOld);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    tsdb.maintenance().run();
    assert_eq!(tsdb.statistics().stats().blocks, 1);
    machine.clock.set_now_ms(START_MS + 30 * HOUR_MS);
    tsdb.maintenance().run();
    assert_eq!(
        (tsdb.statistics().stats().blocks, tsdb.statistics().stats().maintenance.retention_removed_count),
        (0, 1)
    );
    assert!(machine.read(&tsdb, &tenant, "old").is_empty());
}

#[test]
fn the_size_limit_takes_the_oldest_first() {
    let mut machine = Machine::new(4);
    machine.options.retention.bytes_max = 1;
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    for day in [3, 2] {
        write(&tsdb, &tenant, &format!("day{day}"), &[(START_MS - day * 24 * HOUR_MS, 1.0)]).expect("works");
    }
    tsdb.maintenance().flush_closed(START_MS).expect("two blocks");
    assert_eq!(tsdb.statistics().stats().blocks, 2);
    machine.options.retention.bytes_max = tsdb.statistics().stats().block_bytes / 2 + 10;
    tsdb.close().expect("closes");
    drop(tsdb);
    let tsdb = machine.open();
    tsdb.maintenance().run();
    assert_eq!(tsdb.statistics().stats().blocks, 1);
    assert!(machine.read(&tsdb, &tenant, "day3").is_empty());
    assert_eq!(machine.read(&tsdb, &tenant, "day2").len(), 1);
}

#[test]
fn samples_of_1970_are_kept_when_there_is_no_retention() {
    let machine = Machine::new(5);
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    write(&tsdb, &tenant, "ancient", &[(0, 1.0), (-5, 2.0), (60_000, 3.0)]).expect("works");
    tsdb.maintenance().flush_closed(START_MS).expect("flushes");
    assert_eq!(tsdb.statistics().stats().head.series, 0);
    let times: Vec<_> = machine.read(&tsdb, &tenant, "ancient").into_iter().map(|s| s.0).collect();
    assert_eq!(times, [-5, 0, 60_000]);
}

/// A block that alone was too large was taken out of the sum, so that older blocks after it were kept and
/// newer samples went before them. From the first block beyond the limit on, all go.
#[test]
fn the_size_limit_keeps_no_block_older_than_one_it_removes() {
    let mut machine = Machine::new(4);
    machine.options.compaction.block_bytes_max = 0;
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    let rng = Rng::from_seed(4);
    for (day, count) in [(9, 1), (6, 3000), (3, 500)] {
        let start = START_MS - day * 24 * HOUR_MS;
        let samples: Vec<_> = (0..count).map(|i| (start + i * 1000, (rng.next_u64() >> 12) as f64)).collect();
        write(&tsdb, &tenant, &format!("day{day}"), &samples).expect("works");
    }
    tsdb.maintenance().flush_closed(START_MS).expect("three blocks");
    assert_eq!(tsdb.statistics().stats().blocks, 3);
    machine.options.retention.bytes_max = tsdb.statistics().stats().block_bytes / 2;
    tsdb.close().expect("closes");
    drop(tsdb);
    let tsdb = machine.open();
    tsdb.maintenance().run();
    let found = [3, 6, 9].map(|day| !machine.read(&tsdb, &tenant, &format!("day{day}")).is_empty());
    assert_eq!(found, [true, false, false]);
}

/// An expired block whose files could not be removed was forgotten until the next start, which served it
/// again. Its removal is retried.
#[test]
fn files_of_an_expired_block_are_removed_when_the_disk_lets_them() {
    let mut machine = Machine::new(6);
    machine.options.limits.default.retention_ms = 24 * HOUR_MS;
    machine.options.compaction.block_bytes_max = 0;
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    write(&tsdb, &tenant, "old", &[(START_MS - HOUR_MS, 1.0)]).expect("works");
    tsdb.maintenance().flush_closed(START_MS).expect("a block");
    let block_count = || {
        let dir = machine.options.data_dir.join("tenants").join(&*store_name(&tenant));
        machine.disk.list(&dir).expect("a directory of blocks").len()
    };
    assert_eq!(block_count(), 1);
    machine.clock.set_now_ms(START_MS + 30 * HOUR_MS);
    machine.disk.fail_after(0);
    tsdb.maintenance().run();
    machine.disk.heal();
    assert_eq!((tsdb.statistics().stats().blocks, block_count()), (0, 1));
    assert!(tsdb.statistics().stats().maintenance.error_count > 0);
    machine.clock.advance(std::time::Duration::from_secs(61));
    tsdb.maintenance().run();
    assert_eq!(block_count(), 0);
}
