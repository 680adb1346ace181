//! Counts by outcome and tenant, estimates of reads.

use std::time::Duration;

use chronolith_base::ManualClock;

use super::*;

fn meter() -> (Arc<ManualClock>, Meter) {
    let clock = Arc::new(ManualClock::new(0));
    (Arc::clone(&clock), Meter::new(clock))
}

fn read(meter: &Meter, clock: &ManualClock, tenant: &TenantId, first_byte_ms: u64, len: u64, body_ms: u64) {
    let record = meter.start(Operation::Get, tenant);
    clock.advance(Duration::from_millis(first_byte_ms + body_ms));
    let first_byte_ns = first_byte_ms * 1_000_000;
    record.finish(Outcome::Ok, Transfer { sent_bytes: 0, received_bytes: len, first_byte_ns });
}

#[test]
fn requests_are_counted_by_operation_outcome_and_tenant() {
    let (clock, meter) = meter();
    let tenant = TenantId::new("a").unwrap();
    read(&meter, &clock, &tenant, 3, 100, 0);
    let record = meter.start(Operation::Put, &tenant);
    assert_eq!(meter.snapshot(0).in_flight, 1);
    record.finish(Outcome::Throttled, Transfer { sent_bytes: 7, ..Transfer::default() });
    drop(meter.start(Operation::Get, &tenant));
    let snapshot = meter.snapshot(5);
    assert_eq!(snapshot.requests(Operation::Get, Outcome::Ok), 1);
    assert_eq!(snapshot.requests(Operation::Get, Outcome::Canceled), 1, "dropped by its caller");
    assert_eq!(snapshot.requests(Operation::Put, Outcome::Throttled), 1);
    assert_eq!((snapshot.in_flight, snapshot.waits), (0, 5));
    let counters = TenantCounters { requests: 3, sent_bytes: 7, received_bytes: 100 };
    assert_eq!(snapshot.tenants, [(tenant, counters)]);
    let latency = snapshot.operations[Operation::Get.idx()].latency;
    assert_eq!((latency.counts[2], latency.sum_ns), (1, 3_000_000), "3 ms, at most 5 ms");
}

#[test]
fn tenants_above_the_limit_share_an_entry() {
    let (_, meter) = meter();
    for i in 0..TENANTS_MAX + 5 {
        drop(meter.start(Operation::Head, &TenantId::new(&format!("t{i}")).unwrap()));
    }
    let snapshot = meter.snapshot(0);
    assert_eq!((snapshot.tenants.len(), snapshot.other_tenants.requests), (TENANTS_MAX, 5));
}

#[test]
fn estimates_follow_recent_reads() {
    let (clock, meter) = meter();
    let tenant = TenantId::anonymous();
    assert_eq!(meter.estimates(), Estimates::default());
    for i in 0..200 {
        let first_byte_ms = if i % 20 == 0 { 100 } else { 10 };
        read(&meter, &clock, &tenant, first_byte_ms, 1 << 20, 10);
    }
    let estimates = meter.estimates();
    assert_eq!(estimates.first_byte_p99_ns, Some(100_000_000));
    assert_eq!(estimates.bytes_per_second, Some((1 << 20) * 100));
    assert_eq!(estimates.slow_after_ns(1 << 20), Some(120_000_000));
    for _ in 0..300 {
        read(&meter, &clock, &tenant, 5, 10, 0);
    }
    let estimates = meter.estimates();
    assert_eq!(estimates.first_byte_p99_ns, Some(5_000_000), "old reads are forgotten");
    let mean_ns = estimates.first_byte_ns.unwrap();
    assert!((5_000_000..5_200_000).contains(&mean_ns), "{mean_ns}");
}
