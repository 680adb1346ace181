//! Tenants and series that have left the head leave nothing behind, and come back when they are written to.

mod harness;

use std::path::Path;

use chronolith_base::Disk;
use chronolith_head::Head;
use chronolith_model::{Selector, TimeRange, WriteBatch};
use harness::{NOW_MS, World, batch, labels, read_all, read_once, tenant};

const TENANT_COUNT: u64 = 100;
const SERIES_PER_TENANT: u64 = 200;

fn of_tenant(time: i64) -> WriteBatch {
    let series: Vec<_> = (0..SERIES_PER_TENANT).map(|i| (labels(i), vec![(time, i as f64)])).collect();
    batch(&series)
}

fn name(idx: u64) -> String {
    format!("t{idx}")
}

/// Bytes of the head's parts whose size is not by design that of a buffer or of a spare page.
fn content_bytes(head: &Head) -> u64 {
    let is_spare = |part: &str| {
        ["wal_buffers", "append_scratch", "open_chunks", "sealed_places", "late_buffers"].contains(&part)
    };
    head.memory().iter().filter(|part| !is_spare(part.name)).map(|part| part.bytes).sum()
}

fn flush_all(head: &Head) {
    for window in head.windows() {
        let snapshot = head.snapshot_window(&window.tenant, window.range).expect("taken");
        head.drop_window(snapshot);
    }
    head.checkpoint().expect("written");
    head.forget_tenants();
}

/// 250 tenants of 4,000 series kept 369 MB after all had left: tables were built anew only beyond 4,096 dead
/// series of a tenant, and a tenant was never forgotten.
#[test]
fn memory_of_departed_series_and_tenants_is_given_back() {
    let world = World::new(1);
    let (head, _) = world.open();
    let empty_bytes = content_bytes(&head);
    for round in 0..3 {
        for idx in 0..TENANT_COUNT {
            world.write(&head, &tenant(&name(idx)), &of_tenant(NOW_MS + round)).expect("works");
        }
        assert_eq!(head.stats().series, TENANT_COUNT * SERIES_PER_TENANT);
        let full_bytes = content_bytes(&head);
        flush_all(&head);
        assert_eq!(head.stats().series, 0);
        assert!((0..TENANT_COUNT).all(|idx| !head.has_tenant(&tenant(&name(idx)))));
        let left_bytes = content_bytes(&head) - empty_bytes;
        assert!(left_bytes < full_bytes / 100, "{left_bytes} of {full_bytes}: {:?}", head.memory());
    }
}

/// The newest file of sealed chunks stayed, mapped and on disk, when nothing in it was referred to: 63 MB after a
/// million series had left.
#[test]
fn no_file_of_sealed_chunks_outlives_its_chunks() {
    let world = World::new(6);
    let (head, _) = world.open();
    for round in 0..4 {
        let samples =
            |idx: u64| (0..3000).map(move |k| (NOW_MS + k, ((k as u64 * 7919 + idx) % 8191) as f64 * 0.37));
        let series: Vec<_> = (0..200).map(|idx| (labels(idx), samples(idx).collect())).collect();
        world.write(&head, &tenant("a"), &batch(&series)).expect("works");
        assert_eq!(
            read_all(&world, &head, &["a"]).values().map(|samples| samples.len()).sum::<usize>(),
            200 * 3000,
            "{round}"
        );
        flush_all(&head);
        head.checkpoint().expect("written");
        let left = world.disk.list(Path::new("/data/chunks")).expect("listed");
        let left_bytes: u64 = left.iter().map(|entry| entry.len).sum();
        assert!(left_bytes < 1 << 20, "{left:?}");
    }
}

/// A third of the series of each tenant stays: the tables hold them and not much more.
#[test]
fn tables_of_small_tenants_are_built_anew_in_proportion() {
    let world = World::new(2);
    let (head, _) = world.open();
    let kept = TimeRange::window_of(NOW_MS, world.options.window_ms).end;
    for idx in 0..TENANT_COUNT {
        let tenant = tenant(&name(idx));
        world.write(&head, &tenant, &of_tenant(NOW_MS)).expect("works");
        let third: Vec<_> = (0..SERIES_PER_TENANT / 3).map(|i| (labels(i), vec![(kept, 1.0)])).collect();
        world.write(&head, &tenant, &batch(&third)).expect("works");
        let snapshot = head.snapshot_window(&tenant, TimeRange::window_of(NOW_MS, world.options.window_ms));
        head.drop_window(snapshot.expect("taken"));
    }
    let count = |part: &str| head.memory().iter().find(|p| p.name == part).map_or(0, |p| p.count);
    assert_eq!(count("series_index"), head.stats().series);
    assert_eq!(head.stats().series, TENANT_COUNT * (SERIES_PER_TENANT / 3));
}

/// A write that was refused made a tenant for good, and a million of them kept every further tenant out.
#[test]
fn a_refused_write_makes_no_lasting_tenant() {
    let mut world = World::new(3);
    world.limits.series_max = 0;
    let (head, _) = world.open();
    for idx in 0..50 {
        let outcome = world.write(&head, &tenant(&name(idx)), &of_tenant(NOW_MS)).expect("answered");
        assert_eq!((outcome.accepted_count, outcome.rejected_count()), (0, SERIES_PER_TENANT));
        assert!(!head.has_tenant(&tenant(&name(idx))));
    }
    assert!(head.memory_by_tenant(10).is_empty());
}

/// Numbers of tenants are used again, so slices, log and definitions name tenants by their own numbers or
/// texts: what is written under a number that was another tenant's is not taken for that one's, nor after a
/// kill.
#[test]
fn a_forgotten_tenant_comes_back_under_another_number() {
    let world = World::new(4);
    let (mut head, _) = world.open();
    let mut round = 0;
    let mut write = |head: &Head, idx: u64| {
        round += 1;
        let series = batch(&[(labels(idx), vec![(NOW_MS + round, round as f64)])]);
        world.write(head, &tenant(&name(idx)), &series).expect("works");
    };
    for step in 0..6 {
        (0..8).for_each(|idx| write(&head, idx));
        if step % 2 == 0 {
            head.checkpoint().expect("written");
        }
        // The even ones leave, and come back in another order beside new ones.
        for window in head.windows() {
            if window.tenant.as_str()[1..].parse::<u64>().is_ok_and(|idx| idx % 2 == 0) {
                head.drop_window(head.snapshot_window(&window.tenant, window.range).expect("taken"));
            }
        }
        head.checkpoint().expect("written");
        head.forget_tenants();
        [9, 8, 6, 4, 2, 0].into_iter().for_each(|idx| write(&head, idx));
        let names: Vec<String> = (0..10).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let before = read_all(&world, &head, &names);
        for one in &names {
            let selector = Selector { matchers: &[], range: TimeRange::ALL };
            let own = read_once(&world, &head, one, &selector);
            assert!(own.keys().all(|(_, series)| *series == labels(one[1..].parse().expect("a number"))));
        }
        drop(head);
        world.disk.crash();
        let (again, report) = world.open();
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        head = again;
        assert_eq!(read_all(&world, &head, &names), before);
    }
}
