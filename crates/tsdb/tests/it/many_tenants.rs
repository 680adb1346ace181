//! Many small tenants: their windows wait for each other, and what waits is as safe and visible as the rest.

use std::time::Duration;

use chronolith_model::{StoreId, TenantId};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const TENANT_COUNT: usize = 40;

fn tenants() -> impl Iterator<Item = StoreId> {
    (0..TENANT_COUNT).map(|idx| StoreId::from(TenantId::new(&format!("t{idx:02}")).expect("legal")))
}

fn gauge(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metrics.iter().find(|metric| metric.name == name).expect("a metric").value
}

/// Writes to all tenants for `hours`, one sample in five minutes, with a maintenance run each time.
fn run_for(machine: &Machine, tsdb: &Tsdb, hours: i64) {
    for _ in 0..hours * 12 {
        machine.clock.advance(Duration::from_secs(300));
        let now_ms = machine.env.clock.now_ms();
        for tenant in tenants() {
            write(tsdb, &tenant, "m", &[(now_ms, 1.0)]).expect("works");
        }
        tsdb.maintenance().run();
    }
}

fn waiting_machine() -> Machine {
    let mut machine = Machine::new(31);
    machine.options.flush.small_window_bytes = 1 << 20;
    machine.options.compaction.block_bytes_max = 0;
    machine
}

/// Each window of each tenant became a block of its own: 12 a day and tenant, 120,000 for 10,000 tenants.
/// Small windows of a day share one.
#[test]
fn small_tenants_make_one_block_a_day() {
    let machine = waiting_machine();
    let tsdb = machine.open();
    run_for(&machine, &tsdb, 24);
    assert_eq!(
        (tsdb.statistics().stats().blocks, gauge(&tsdb, "flush_waiting_windows") as usize),
        (0, 11 * TENANT_COUNT)
    );
    run_for(&machine, &tsdb, 24);
    assert_eq!(
        tsdb.statistics().stats().maintenance.flush_count,
        TENANT_COUNT as u64,
        "a block each for the first day"
    );
    for tenant in tenants() {
        assert_eq!(
            machine.read(&tsdb, &tenant, "m").len(),
            48 * 12,
            "queries see blocks and waiting windows"
        );
    }
}

/// Windows that wait are in the log and the checkpoint alone: neither a kill nor a power cut nor an orderly
/// stop loses them, and each start goes on waiting where the last one was.
#[test]
fn waiting_windows_survive_restarts_and_go_when_they_are_due() {
    let machine = waiting_machine();
    let tenant = tenants().next().expect("one");
    let mut tsdb = machine.open();
    run_for(&machine, &tsdb, 8);
    let want = machine.read(&tsdb, &tenant, "m");
    for round in 0..3 {
        if round == 1 {
            tsdb.close().expect("closes");
        }
        drop(tsdb);
        if round == 2 {
            machine.disk.crash();
        }
        tsdb = machine.open();
        assert_eq!(machine.read(&tsdb, &tenant, "m"), want);
        tsdb.maintenance().run();
        assert_eq!(tsdb.statistics().stats().blocks, 0);
        assert_eq!(gauge(&tsdb, "flush_waiting_windows") as usize, 3 * TENANT_COUNT);
    }
    machine.clock.advance(Duration::from_secs(17 * 3600));
    tsdb.maintenance().run();
    assert_eq!((tsdb.statistics().stats().blocks, gauge(&tsdb, "flush_waiting_windows") as usize), (40, 0));
    assert_eq!(machine.read(&tsdb, &tenant, "m"), want);
}

#[test]
fn out_of_order_samples_of_a_waiting_window_go_to_its_block() {
    let machine = waiting_machine();
    let tenant = tenants().next().expect("one");
    let tsdb = machine.open();
    run_for(&machine, &tsdb, 8);
    let late = START_MS + HOUR_MS + 7;
    assert_eq!(write(&tsdb, &tenant, "m", &[(late, 5.0)]).expect("works").accepted_count, 1);
    machine.clock.advance(Duration::from_secs(17 * 3600));
    tsdb.maintenance().run();
    let found = machine.read(&tsdb, &tenant, "m");
    assert!(found.contains(&(late, 5f64.to_bits())));
    assert_eq!(
        (found.len(), tsdb.statistics().stats().blocks, tsdb.statistics().stats().head.series),
        (8 * 12 + 1, 40, 0)
    );
}

/// Memory of what waits is bounded, however many tenants there are: the largest are flushed beyond it.
#[test]
fn waiting_windows_are_flushed_when_they_take_too_much_memory() {
    let mut machine = waiting_machine();
    machine.options.flush.waiting_bytes_max = 40 * 3 * 32;
    let tsdb = machine.open();
    run_for(&machine, &tsdb, 48);
    assert!(gauge(&tsdb, "flush_waiting_bytes") <= machine.options.flush.waiting_bytes_max as f64);
    assert!(
        tsdb.statistics().stats().blocks > 2 * TENANT_COUNT as u64,
        "{} blocks",
        tsdb.statistics().stats().blocks
    );
    for tenant in tenants() {
        assert_eq!(machine.read(&tsdb, &tenant, "m").len(), 48 * 12);
    }
}
