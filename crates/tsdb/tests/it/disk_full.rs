//! No space left: writes are refused, reads go on, writes come back by themselves.

use chronolith_model::StoreId;
use chronolith_tsdb::{WalError, WriteError};

use crate::fixture::{Machine, START_MS, write};

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_and_loses_nothing_acked() {
    let mut machine = Machine::new(1);
    machine.options.free_bytes_min = 0;
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    machine.clock.set_now_ms(START_MS + 60_000_000);
    let mut acked = Vec::new();
    // Room for the first segments only.
    machine.disk.set_capacity_bytes(12 << 20);
    let mut refused = None;
    for i in 0..400i64 {
        let samples: Vec<_> =
            (0..5000).map(|k| (START_MS + i * 5000 + k, (i * 7919 + k) as f64 * 0.37)).collect();
        match write(&tsdb, &tenant, "full", &samples) {
            Ok(outcome) => {
                assert_eq!(outcome.accepted_count, 5000);
                acked.extend(samples.iter().map(|s| (s.0, s.1.to_bits())));
            }
            Err(error) => {
                refused = Some((error, samples));
                break;
            }
        }
    }
    let (error, samples) = refused.expect("the disk fills up");
    assert_eq!(error, WriteError::Wal(WalError::DiskFull));
    assert!(tsdb.statistics().stats().head.wal.is_disk_full);
    let stored = machine.read(&tsdb, &tenant, "full");
    assert!(acked.iter().all(|s| stored.binary_search(s).is_ok()), "reads go on");

    machine.disk.set_capacity_bytes(u64::MAX);
    for _ in 0..5 {
        machine.clock.advance(std::time::Duration::from_secs(1));
        tsdb.wal_jobs().sync();
    }
    assert!(!tsdb.statistics().stats().head.wal.is_disk_full, "space is noticed without a restart");
    assert_eq!(write(&tsdb, &tenant, "full", &samples).expect("the retry works").accepted_count, 5000);
    acked.extend(samples.iter().map(|s| (s.0, s.1.to_bits())));
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    let stored = machine.read(&tsdb, &tenant, "full");
    assert!(acked.iter().all(|s| stored.binary_search(s).is_ok()), "everything acked survives a power cut");
}

#[test]
fn a_failed_sync_closes_the_log_for_writing() {
    let machine = Machine::new(2);
    let tenant = StoreId::anonymous();
    let tsdb = machine.open();
    write(&tsdb, &tenant, "x", &[(START_MS, 1.0)]).expect("works");
    machine.disk.fail_after(0);
    assert!(matches!(
        write(&tsdb, &tenant, "x", &[(START_MS + 1, 2.0)]),
        Err(WriteError::Wal(WalError::Poisoned(_)))
    ));
    machine.disk.heal();
    assert!(matches!(
        write(&tsdb, &tenant, "x", &[(START_MS + 2, 3.0)]),
        Err(WriteError::Wal(WalError::Poisoned(_)))
    ));
    assert!(tsdb.statistics().stats().head.wal.is_poisoned);
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    write(&tsdb, &tenant, "x", &[(START_MS + 3, 4.0)]).expect("a restart opens it again");
    let times: Vec<_> = machine.read(&tsdb, &tenant, "x").into_iter().map(|s| s.0).collect();
    assert!(times.contains(&START_MS) && times.contains(&(START_MS + 3)), "{times:?}");
}
