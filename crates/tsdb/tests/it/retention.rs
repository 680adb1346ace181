//! Blocks leave by age and by size; samples beyond the retention are refused.

use chronolith_model::{Reject, TenantId};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

#[test]
fn old_blocks_leave_and_old_samples_are_refused() {
    let mut machine = Machine::new(3);
    machine.options.limits.retention_ms = 24 * HOUR_MS;
    let tenant = TenantId::anonymous();
    let tsdb = machine.open();
    write(&tsdb, &tenant, "old", &[(START_MS - HOUR_MS, 1.0)]).expect("works");
    let outcome = write(&tsdb, &tenant, "old", &[(START_MS - 25 * HOUR_MS, 1.0)]).expect("works");
    assert_eq!(outcome.first_reject.expect("a reject").0, Reject::TooOld);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    tsdb.tick();
    assert_eq!(tsdb.stats().blocks, 1);
    machine.clock.set_now_ms(START_MS + 30 * HOUR_MS);
    tsdb.tick();
    assert_eq!((tsdb.stats().blocks, tsdb.stats().retention_removed_count), (0, 1));
    assert!(machine.read(&tsdb, &tenant, "old").is_empty());
}

#[test]
fn the_size_limit_takes_the_oldest_first() {
    let mut machine = Machine::new(4);
    machine.options.retention_bytes = 1;
    let tenant = TenantId::anonymous();
    let tsdb = machine.open();
    for day in [3, 2] {
        write(&tsdb, &tenant, &format!("day{day}"), &[(START_MS - day * 24 * HOUR_MS, 1.0)]).expect("works");
    }
    tsdb.flush_closed(START_MS).expect("two blocks");
    assert_eq!(tsdb.stats().blocks, 2);
    machine.options.retention_bytes = tsdb.stats().block_bytes / 2 + 10;
    tsdb.close().expect("closes");
    drop(tsdb);
    let tsdb = machine.open();
    tsdb.tick();
    assert_eq!(tsdb.stats().blocks, 1);
    assert!(machine.read(&tsdb, &tenant, "day3").is_empty());
    assert_eq!(machine.read(&tsdb, &tenant, "day2").len(), 1);
}

#[test]
fn samples_of_1970_are_kept_when_there_is_no_retention() {
    let machine = Machine::new(5);
    let tenant = TenantId::anonymous();
    let tsdb = machine.open();
    write(&tsdb, &tenant, "ancient", &[(0, 1.0), (-5, 2.0), (60_000, 3.0)]).expect("works");
    tsdb.flush_closed(START_MS).expect("flushes");
    assert_eq!(tsdb.stats().head_series, 0);
    let times: Vec<_> = machine.read(&tsdb, &tenant, "ancient").into_iter().map(|s| s.0).collect();
    assert_eq!(times, [-5, 0, 60_000]);
}
