//! Power loss at every disk operation of a life that replaces and deletes: what was acknowledged last is what is
//! there, and what was not acknowledged is there whole or not at all.

mod harness;

use std::collections::BTreeMap;

use chronolith_head::{DeleteProgress, Head};
use chronolith_model::{DuplicatePolicy, Labels, Matcher, TimeRange};
use harness::{NOW_MS, WINDOW_MS, World, batch, labels, read_all, tenant};

/// What may be found for a series and time: the last acknowledged state, or one that was asked for since.
#[derive(Default)]
struct Told {
    allowed: BTreeMap<(Labels, i64), Vec<Option<u64>>>,
}

impl Told {
    fn set(&mut self, key: (Labels, i64), state: Option<u64>, is_acked: bool) {
        let states = self.allowed.entry(key).or_insert_with(|| vec![None]);
        if is_acked {
            states.clear();
        }
        states.push(state);
    }

    fn write(&mut self, world: &World, head: &Head, idx: u64, samples: &[(i64, f64)]) {
        let one = batch(&[(labels(idx), samples.to_vec())]);
        let written = world.write(head, &tenant("a"), &one);
        if let Ok(outcome) = &written {
            assert_eq!(outcome.rejected_count(), 0);
        }
        for (time, value) in samples {
            self.set((labels(idx), *time), Some(value.to_bits()), written.is_ok());
        }
    }

    fn delete(&mut self, head: &Head, idx: u64, range: TimeRange) {
        let selectors = [vec![Matcher::equal("instance", &format!("host-{idx}"))]];
        let deleted = head.delete(&tenant("a"), &selectors, range, &DeleteProgress::default());
        let is_acked = deleted.is_ok_and(|(_, ticket)| head.wait(ticket).is_ok());
        let keys: Vec<_> =
            self.allowed.keys().filter(|k| k.0 == labels(idx) && range.contains(k.1)).collect();
        for key in keys.into_iter().cloned().collect::<Vec<_>>() {
            self.set(key, None, is_acked);
        }
    }

    fn check(&self, world: &World, head: &Head, what: &str) {
        let found = read_all(world, head, &["a"]);
        for ((labels, time), allowed) in &self.allowed {
            let state = found.get(&("a".to_owned(), labels.clone())).and_then(|s| s.get(time)).copied();
            assert!(allowed.contains(&state), "{what}: {labels} at {time}: {state:?}, not {allowed:?}");
        }
        let count: usize = found.values().map(BTreeMap::len).sum();
        let known = self.allowed.values().filter(|allowed| allowed.iter().any(Option::is_some)).count();
        assert!(count <= known, "{what}: samples that nobody sent");
    }
}

fn script(world: &World, told: &mut Told) {
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 4 * WINDOW_MS;
    let row = |from: i64, value: f64| -> Vec<(i64, f64)> {
        (0..50).map(|i| (base + (from + i) * 1000, value + (i % 3) as f64)).collect()
    };
    let Ok((head, _)) = world.try_open() else { return };
    for idx in 0..3 {
        told.write(world, &head, idx, &row(0, 1.0));
        told.write(world, &head, idx, &row(60, 2.0));
    }
    told.write(world, &head, 0, &row(40, 3.0));
    told.write(world, &head, 1, &[(base - 7, 4.0), (base + 2500, 4.0), (base + 109_000, 4.0)]);
    told.delete(&head, 1, TimeRange::new(base + 2000, base + 70_500));
    let _ = head.checkpoint();
    told.write(world, &head, 1, &row(0, 5.0));
    told.delete(&head, 2, TimeRange::ALL);
    told.write(world, &head, 0, &row(100, 6.0));
    drop(head);
    let Ok((head, _)) = world.try_open() else { return };
    told.write(world, &head, 2, &row(20, 7.0));
    told.delete(&head, 0, TimeRange::new(base + 99_000, base + 200_000));
    told.write(world, &head, 0, &[(base + 99_000, 8.0), (base + 149_000, 8.0)]);
    told.write(world, &head, 0, &[(base + 99_000, 9.0)]);
    let _ = head.close();
}

/// Samples that are not in order are judged behind the others of their batch: of three values for one time the first and the
/// last were equal, which was taken for a repeat of the first before the second had replaced it. The last one counts.
#[test]
fn the_last_of_several_values_in_one_batch_stays() {
    let mut world = World::new(1);
    world.limits.duplicates = DuplicatePolicy::LastWins;
    let (head, _) = world.open();
    let mut told = Told::default();
    for values in [[1.0, 2.0, 1.0], [1.0, 1.0, 2.0], [2.0, 1.0, 1.0]] {
        let rows: Vec<(i64, f64)> = values.iter().map(|value| (NOW_MS, *value)).collect();
        told.write(&world, &head, 0, &rows);
        told.check(&world, &head, &format!("{values:?}"));
    }
}

#[test]
fn a_crash_at_any_disk_operation_keeps_the_last_word() {
    let mut op_count = 0;
    loop {
        let mut world = World::new(op_count);
        world.options.wal_segment_bytes = 8 << 10;
        world.limits.duplicates = DuplicatePolicy::LastWins;
        let mut told = Told::default();
        world.disk.fail_after(op_count);
        script(&world, &mut told);
        let ended = world.disk.op_count() <= op_count;
        world.disk.crash();
        let (head, _) = world.open();
        told.check(&world, &head, &format!("op {op_count}"));
        // Life goes on, and survives the next power loss.
        told.write(&world, &head, 1, &[(NOW_MS, 1.0), (NOW_MS - 4 * WINDOW_MS, 2.0)]);
        told.delete(&head, 0, TimeRange::new(NOW_MS - 4 * WINDOW_MS, NOW_MS));
        drop(head);
        world.disk.crash();
        let (head, report) = world.open();
        told.check(&world, &head, &format!("op {op_count}, second start"));
        assert_eq!(report.notes, Vec::<String>::new(), "op {op_count}: the second start is clean");
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 50, "the script has many crash points, found {op_count}");
}
