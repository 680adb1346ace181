//! The clock jumps ahead: stored samples must not be gone a few seconds later, for good.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Disk;
use chronolith_model::StoreId;
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const DAY_MS: i64 = 24 * HOUR_MS;

/// A store with a block an hour old, a retention of a week, and the guard of a day.
fn guarded() -> (Machine, Arc<Tsdb>) {
    let mut machine = Machine::new(41);
    machine.options.limits.default.retention_ms = 7 * DAY_MS;
    machine.options.retention.clock_guard_ms = DAY_MS;
    machine.options.compaction.block_bytes_max = 0;
    let tsdb = machine.open();
    write(&tsdb, &StoreId::anonymous(), "m", &[(START_MS - HOUR_MS, 1.0)]).expect("works");
    tsdb.maintenance().flush_closed(START_MS).expect("a block");
    tsdb.maintenance().run();
    (machine, tsdb)
}

fn pass(machine: &Machine, tsdb: &Tsdb, ms: i64) {
    for _ in 0..ms / 60_000 {
        machine.clock.advance(Duration::from_secs(60));
        tsdb.maintenance().run();
    }
}

fn jump(machine: &Machine, ms: i64) {
    machine.clock.set_now_ms(machine.env.clock.now_ms() + ms);
}

fn gauge(tsdb: &Tsdb, name: &str) -> i64 {
    tsdb.statistics().stats().metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        as i64
}

/// Six seconds after the clock had jumped 30 days ahead, all blocks were removed for good. They stay for a
/// day.
#[test]
fn a_jump_of_the_clock_removes_nothing_for_a_day() {
    let (machine, tsdb) = guarded();
    jump(&machine, 30 * DAY_MS);
    pass(&machine, &tsdb, DAY_MS - HOUR_MS);
    assert_eq!((tsdb.statistics().stats().blocks, gauge(&tsdb, "retention_held_blocks")), (1, 1));
    assert_eq!(gauge(&tsdb, "retention_clock_jumps_total"), 1);
    assert!((1..=3700).contains(&gauge(&tsdb, "retention_clock_wait_seconds")));
    pass(&machine, &tsdb, HOUR_MS + 120_000);
    assert_eq!((tsdb.statistics().stats().blocks, gauge(&tsdb, "retention_held_blocks")), (0, 0));
    assert_eq!(gauge(&tsdb, "retention_clock_wait_seconds"), 0);
}

#[test]
fn a_clock_that_steps_back_has_removed_nothing() {
    let (machine, tsdb) = guarded();
    jump(&machine, 30 * DAY_MS);
    pass(&machine, &tsdb, HOUR_MS);
    jump(&machine, -30 * DAY_MS);
    pass(&machine, &tsdb, 6 * DAY_MS);
    assert_eq!((tsdb.statistics().stats().blocks, gauge(&tsdb, "retention_clock_wait_seconds")), (1, 0));
    pass(&machine, &tsdb, DAY_MS);
    assert_eq!(tsdb.statistics().stats().blocks, 0, "expired as if nothing had happened");
}

/// A restart took the new time for granted: one with fresh samples at the wrong time, an orderly one, one
/// after a kill.
#[test]
fn restarts_after_a_jump_remove_nothing() {
    let (machine, mut tsdb) = guarded();
    jump(&machine, 30 * DAY_MS);
    pass(&machine, &tsdb, 120_000);
    let now_ms = machine.env.clock.now_ms();
    write(&tsdb, &StoreId::anonymous(), "m", &[(now_ms, 2.0)]).expect("works");
    for round in 0..4 {
        if round % 2 == 0 {
            tsdb.close().expect("closes");
        }
        drop(tsdb);
        if round == 3 {
            machine.disk.crash();
        }
        tsdb = machine.open();
        pass(&machine, &tsdb, 5 * HOUR_MS);
        assert_eq!(machine.read(&tsdb, &StoreId::anonymous(), "m").len(), 2, "round {round}");
    }
    pass(&machine, &tsdb, 5 * HOUR_MS);
    assert_eq!(machine.read(&tsdb, &StoreId::anonymous(), "m").len(), 1, "a day of running in all");
}

/// The clock jumped while the process was down.
#[test]
fn a_start_long_after_the_newest_sample_removes_nothing() {
    for has_file in [true, false] {
        let (machine, tsdb) = guarded();
        tsdb.close().expect("closes");
        drop(tsdb);
        if !has_file {
            machine.disk.remove_file(&machine.options.data_dir.join("retention-clock")).expect("was there");
        }
        jump(&machine, 30 * DAY_MS);
        let tsdb = machine.open();
        assert!(tsdb.statistics().stats().replay.notes.iter().any(|note| note.contains("clock")));
        pass(&machine, &tsdb, 23 * HOUR_MS);
        assert_eq!(tsdb.statistics().stats().blocks, 1, "file {has_file}");
        pass(&machine, &tsdb, HOUR_MS + 120_000);
        assert_eq!(tsdb.statistics().stats().blocks, 0, "file {has_file}");
    }
}

#[test]
fn a_damaged_file_is_named_and_the_newest_sample_tells_the_time() {
    let (machine, tsdb) = guarded();
    tsdb.close().expect("closes");
    drop(tsdb);
    let file = machine.disk.open(&machine.options.data_dir.join("retention-clock")).expect("is there");
    file.write_at(&[0xff], 8).expect("damaged");
    jump(&machine, 30 * DAY_MS);
    let tsdb = machine.open();
    assert!(tsdb.statistics().stats().replay.notes.iter().any(|note| note.contains("retention-clock: ")));
    pass(&machine, &tsdb, HOUR_MS);
    assert_eq!(tsdb.statistics().stats().blocks, 1);
}

#[test]
fn drift_expires_blocks_in_time() {
    let (machine, tsdb) = guarded();
    for _ in 0..7 * 24 + 2 {
        jump(&machine, 60_000);
        pass(&machine, &tsdb, HOUR_MS);
    }
    assert_eq!((tsdb.statistics().stats().blocks, gauge(&tsdb, "retention_clock_jumps_total")), (0, 0));
}
