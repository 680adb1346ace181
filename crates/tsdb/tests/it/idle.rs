//! Series that take no samples any more go to blocks: nothing is lost, shown twice or out of sight meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_model::{Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

/// Stored samples, by tenant and name.
type Model = BTreeMap<(String, String), BTreeMap<i64, u64>>;

const IDLE_AFTER_MS: i64 = 900_000;

fn tenant(name: &str) -> StoreId {
    StoreId::from(TenantId::new(name).expect("legal"))
}

fn machine(seed: u64) -> Machine {
    let mut machine = Machine::new(seed);
    machine.options.idle.series_min = 1;
    machine.options.idle.after_ms = IDLE_AFTER_MS;
    machine
}

/// Runs maintenance once, so that a generation of series ends.
fn age(machine: &Machine, tsdb: &Tsdb) {
    machine.clock.advance(Duration::from_millis(IDLE_AFTER_MS as u64 / 2));
    tsdb.maintenance().run();
}

fn row(count: i32) -> Vec<(i64, f64)> {
    (0..count).map(|i| (START_MS - HOUR_MS / 2 + i64::from(i) * 1000, f64::from(i))).collect()
}

fn bits(samples: &[(i64, f64)]) -> Vec<(i64, u64)> {
    samples.iter().map(|(time, value)| (*time, value.to_bits())).collect()
}

fn names(machine: &Machine, tsdb: &Tsdb, tenant: &StoreId) -> Vec<String> {
    let context = ReadContext::unlimited(machine.env.clock.clone());
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    tsdb.reader()
        .queryable(tenant.tenant().expect("a default store"))
        .label_values("__name__", &selector, 0, &context)
        .expect("names")
}

/// A tenant with two series of which one has gone silent.
fn with_a_silent_series(machine: &Machine) -> std::sync::Arc<Tsdb> {
    let tsdb = machine.open();
    tsdb.maintenance().run();
    write(&tsdb, &tenant("t"), "silent", &row(300)).expect("works");
    write(&tsdb, &tenant("t"), "busy", &row(300)).expect("works");
    for i in 0..2 {
        age(machine, &tsdb);
        write(&tsdb, &tenant("t"), "busy", &[(START_MS + i, 1.0)]).expect("works");
    }
    tsdb
}

#[test]
fn an_idle_series_leaves_the_head_and_stays_readable() {
    let machine = machine(1);
    let t = tenant("t");
    let tsdb = with_a_silent_series(&machine);
    assert_eq!(
        (tsdb.statistics().stats().blocks, tsdb.statistics().stats().head.series),
        (0, 2),
        "idle for one generation only"
    );
    age(&machine, &tsdb);
    assert_eq!((tsdb.statistics().stats().blocks, tsdb.statistics().stats().head.series), (1, 1));
    assert_eq!(machine.read(&tsdb, &t, "silent"), bits(&row(300)));
    assert_eq!(machine.read(&tsdb, &t, "busy").len(), 302);
    assert_eq!(names(&machine, &tsdb, &t), ["busy", "silent"]);

    // The series comes back: a further sample, one that the block has, and a late one.
    let back = [(START_MS + 1, 7.0), (row(300)[5].0, 5.0), (START_MS - HOUR_MS, 8.0)];
    write(&tsdb, &t, "silent", &back).expect("works");
    let mut want: BTreeMap<i64, u64> = bits(&row(300)).into_iter().collect();
    want.extend(bits(&back));
    let want: Vec<_> = want.into_iter().collect();
    assert_eq!(machine.read(&tsdb, &t, "silent"), want);
    assert_eq!(tsdb.statistics().stats().head.series, 2);
    drop(tsdb);
    machine.disk.crash();
    let tsdb = machine.open();
    assert_eq!(machine.read(&tsdb, &t, "silent"), want);

    // The block of idle series waits for the block of the whole window, then they are compacted.
    assert!(tsdb.statistics().stats().blocks == 1);
    machine.clock.set_now_ms(START_MS + 6 * HOUR_MS);
    for _ in 0..4 {
        tsdb.maintenance().run();
        machine.clock.advance(Duration::from_secs(31));
    }
    let stats = tsdb.statistics().stats();
    assert_eq!((stats.blocks, stats.head.series), (2, 0), "one block a window");
    assert_eq!(machine.read(&tsdb, &t, "silent"), want);
}

/// A series that receives duplicates only is in use: if it were flushed, its samples would be stored again
/// and again.
#[test]
fn duplicates_and_out_of_order_samples_keep_a_series_busy() {
    let machine = machine(2);
    let t = tenant("t");
    let tsdb = with_a_silent_series(&machine);
    for round in 0..6 {
        let sample = if round % 2 == 0 { row(300)[299] } else { (START_MS - 3 * HOUR_MS - round, 1.0) };
        write(&tsdb, &t, "silent", &[sample]).expect("works");
        write(&tsdb, &t, "busy", &[(START_MS + round, 1.0)]).expect("works");
        age(&machine, &tsdb);
        assert_eq!(tsdb.statistics().stats().head.series, 2, "round {round}");
    }
}

#[test]
fn few_idle_series_are_not_worth_a_block() {
    let check = |idle_count_min: usize, busy_count: usize, idle_after_ms: i64, want_blocks: u64| {
        let mut machine = machine(3);
        machine.options.idle.series_min = idle_count_min;
        machine.options.idle.after_ms = idle_after_ms;
        let tsdb = with_a_silent_series(&machine);
        for i in 0..busy_count {
            write(&tsdb, &tenant("t"), &format!("more{i}"), &row(1)).expect("works");
        }
        age(&machine, &tsdb);
        assert_eq!(
            tsdb.statistics().stats().blocks,
            want_blocks,
            "{idle_count_min} {busy_count} {idle_after_ms}"
        );
    };
    check(1, 0, IDLE_AFTER_MS, 1);
    check(2, 0, IDLE_AFTER_MS, 0);
    check(1, 18, IDLE_AFTER_MS, 1);
    check(1, 60, IDLE_AFTER_MS, 0);
    check(1, 0, 0, 0);
}

/// Idle series of a tenant that has fewer than a block is worth stayed in the head until their window ended,
/// with `--idle-after 3s` for hours: 224 to 346 series. They wait for eight times `--idle-after`.
#[test]
fn few_idle_series_leave_the_head_after_a_longer_time() {
    let check = |series_min: usize, silent_count: usize, busy_count: usize, is_many: bool| {
        let what = format!("{series_min} {silent_count} {busy_count}");
        let mut machine = machine(6);
        machine.options.idle.series_min = series_min;
        machine.options.idle.after_ms = 3_000;
        let tsdb = machine.open();
        tsdb.maintenance().run();
        let tenant = tenant("t");
        for number in 0..silent_count {
            write(&tsdb, &tenant, &format!("silent{number}"), &row(5)).expect("works");
        }
        let mut flushed_at = Vec::new();
        for generation in 0..40 {
            for number in 0..busy_count {
                let sample = [(START_MS + generation, 1.0)];
                write(&tsdb, &tenant, &format!("busy{number}"), &sample).expect("works");
            }
            machine.clock.advance(Duration::from_millis(1_500));
            tsdb.maintenance().run();
            if tsdb.statistics().stats().blocks > flushed_at.len() as u64 {
                flushed_at.push(generation);
            }
        }
        // Two generations until a series is idle, then sixteen of waiting.
        let want = if is_many { 1..=2 } else { 17..=19 };
        assert!(flushed_at.len() == 1 && want.contains(&flushed_at[0]), "{what}: {flushed_at:?}");
        assert_eq!(tsdb.statistics().stats().head.series, busy_count as u64, "{what}");
        for number in 0..silent_count {
            assert_eq!(machine.read(&tsdb, &tenant, &format!("silent{number}")), bits(&row(5)), "{what}");
        }
    };
    check(1_000, 1, 0, false);
    check(1_000, 20, 0, false);
    check(1_000, 20, 5, false);
    check(1_000, 346, 0, false);
    check(1_000, 224, 30, false);
    check(2, 1, 3, false);
    check(1, 1, 60, false);
    check(10, 9, 0, false);
    check(10, 10, 0, true);
    check(1, 1, 18, true);
}

/// Small tenants with series that come and go have one block per eight times `--idle-after`, not one per
/// generation.
#[test]
fn few_idle_series_make_few_blocks() {
    let mut machine = machine(7);
    machine.options.idle.series_min = 1_000;
    machine.options.idle.after_ms = 3_000;
    let tsdb = machine.open();
    tsdb.maintenance().run();
    for generation in 0..100_i64 {
        let name = format!("job{generation}");
        write(&tsdb, &tenant("t"), &name, &[(START_MS - HOUR_MS / 2 + generation, 1.0)]).expect("works");
        machine.clock.advance(Duration::from_millis(1_500));
        tsdb.maintenance().run();
    }
    let stats = tsdb.statistics().stats();
    assert!((4..=6).contains(&stats.blocks), "{} blocks of 100 generations", stats.blocks);
    assert!(stats.head.series <= 20, "{} series", stats.head.series);
}

/// Flushed samples must not come back from the WAL after they were deleted from their block.
#[test]
fn a_deleted_idle_series_does_not_come_back() {
    let machine = machine(4);
    let t = tenant("t");
    let tsdb = with_a_silent_series(&machine);
    age(&machine, &tsdb);
    assert_eq!(tsdb.statistics().stats().blocks, 1);
    let selectors = [vec![Matcher::equal("__name__", "silent")]];
    tsdb.admin().delete_series(&t, &selectors, TimeRange::ALL).expect("deleted");
    assert!(machine.read(&tsdb, &t, "silent").is_empty());
    drop(tsdb);
    machine.disk.crash();
    let tsdb = machine.open();
    assert!(machine.read(&tsdb, &t, "silent").is_empty());
    assert_eq!(machine.read(&tsdb, &t, "busy").len(), 302);
}

/// Every disk operation of the flush fails and all after it; then the process is killed, then the power goes.
#[test]
fn a_flush_of_idle_series_that_ends_anywhere_loses_and_doubles_nothing() {
    for op_count in 0..1000 {
        let machine = machine(5);
        let t = tenant("t");
        let tsdb = with_a_silent_series(&machine);
        write(&tsdb, &t, "silent2", &[(START_MS - 3 * HOUR_MS, 4.0)]).expect("works");
        write(&tsdb, &t, "silent", &[(START_MS - 3 * HOUR_MS, 4.0)]).expect("works");
        write(&tsdb, &t, "busy", &[(START_MS + 9, 4.0)]).expect("works");
        age(&machine, &tsdb);
        age(&machine, &tsdb);
        let all: Vec<_> = ["silent", "silent2", "busy"].map(|name| machine.read(&tsdb, &t, name)).into();
        let check = |tsdb: &Tsdb, what: &str| {
            for (name, want) in ["silent", "silent2", "busy"].iter().zip(&all) {
                assert_eq!(machine.read(tsdb, &t, name), *want, "{what} at operation {op_count}: {name}");
            }
        };
        machine.clock.advance(Duration::from_millis(IDLE_AFTER_MS as u64 / 2));
        machine.disk.fail_after(op_count);
        tsdb.maintenance().run();
        let stats = tsdb.statistics().stats();
        machine.disk.heal();
        check(&tsdb, "running on");
        drop(tsdb);
        check(&machine.open(), "killed");
        machine.disk.crash();
        check(&machine.open(), "power cut");
        if stats.maintenance.error_count == 0 {
            assert!(op_count > 20 && stats.head.series == 0, "the flush was complete");
            return;
        }
    }
    panic!("the flush never comes to its end");
}

fn check_model(machine: &Machine, tsdb: &Tsdb, model: &Model, what: &str) {
    for ((owner, name), want) in model {
        let want: Vec<_> = want.iter().map(|(time, bits)| (*time, *bits)).collect();
        assert_eq!(machine.read(tsdb, &tenant(owner), name), want, "{what}: {owner} {name}");
    }
}

/// Writes, flushes of idle series, flushes, restarts and power cuts in any order: always all of it is there,
/// once.
#[test]
fn flushes_of_idle_series_at_random_times_agree_with_a_model() {
    for seed in 0..30 {
        let rng = Rng::from_seed(900 + seed);
        let machine = machine(seed);
        let mut model = Model::new();
        let mut tsdb = machine.open();
        let mut cut_count = 0.0;
        for step in 0..60 {
            match rng.below(12) {
                0..=6 => {
                    let owner = if rng.below(2) == 0 { "a" } else { "b" };
                    let name = format!("m{}", rng.below(6));
                    let base = START_MS - 2 * HOUR_MS + step * 60_000 - rng.below(3) as i64 * HOUR_MS;
                    let times = (0..1 + rng.below(150) as i64).map(|k| base + k * 1000);
                    let samples: Vec<_> = times.map(|time| (time, (time % 977) as f64)).collect();
                    write(&tsdb, &tenant(owner), &name, &samples).expect("works");
                    model.entry((owner.to_owned(), name)).or_default().extend(bits(&samples));
                }
                7..=9 => (0..1 + rng.below(4)).for_each(|_| age(&machine, &tsdb)),
                10 => {
                    drop(tsdb);
                    if rng.below(2) == 0 {
                        machine.disk.crash();
                    }
                    tsdb = machine.open();
                    tsdb.maintenance().run();
                }
                _ => tsdb
                    .maintenance()
                    .flush_closed(START_MS - HOUR_MS * rng.below(4) as i64)
                    .expect("flushes"),
            }
            check_model(&machine, &tsdb, &model, &format!("seed {seed}, step {step}"));
            cut_count +=
                tsdb.statistics().stats().metric("head_idle_series_flushed_total").expect("a metric");
        }
        assert!(cut_count > 0.0, "seed {seed} cuts something");
    }
}

/// Readers and a writer of returning series run while every run flushes idle series.
#[test]
fn readers_see_all_while_idle_series_leave() {
    let machine = machine(6);
    let tsdb = machine.open();
    let mut model = Model::new();
    for i in 0..40 {
        let samples: Vec<_> = row(150).into_iter().map(|(time, value)| (time + i, value)).collect();
        write(&tsdb, &tenant("t"), &format!("m{i}"), &samples).expect("works");
        model.insert(("t".to_owned(), format!("m{i}")), bits(&samples).into_iter().collect());
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                check_model(&machine, &tsdb, &model, "meanwhile");
            }
        });
        for round in 0..30 {
            // Written samples are stored already: series come and go, and answers stay the same.
            for i in (round % 5..40).step_by(5) {
                write(&tsdb, &tenant("t"), &format!("m{i}"), &[(row(150)[0].0 + i, 0.0)]).expect("works");
            }
            age(&machine, &tsdb);
            if reader.is_finished() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(tsdb.statistics().stats().blocks > 0);
    check_model(&machine, &tsdb, &model, "afterwards");
}
