//! Power loss at every disk operation of a script with replacements and deletions: the last acknowledged
//! state is recovered, and an unacknowledged operation is recovered completely or not at all.

use std::collections::BTreeMap;

use chronolith_head::{DeleteProgress, Head};
use chronolith_model::{DuplicatePolicy, Labels, Matcher, TimeRange};

use crate::harness::{NOW_MS, TestEnv, WINDOW_MS, batch, labels, read_all, tenant};

/// Allowed values of a series at a timestamp: the last acknowledged state, or one requested since.
#[derive(Default)]
struct Ledger {
    allowed: BTreeMap<(Labels, i64), Vec<Option<u64>>>,
}

impl Ledger {
    fn set(&mut self, key: (Labels, i64), state: Option<u64>, is_acked: bool) {
        let states = self.allowed.entry(key).or_insert_with(|| vec![None]);
        if is_acked {
            states.clear();
        }
        states.push(state);
    }

    fn write(&mut self, test_env: &TestEnv, head: &Head, idx: u64, samples: &[(i64, f64)]) {
        let one = batch(&[(labels(idx), samples.to_vec())]);
        let written = test_env.write(head, &tenant("a"), &one);
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
        let is_acked = deleted.is_ok_and(|(_, position)| head.wait(position).is_ok());
        let keys: Vec<_> =
            self.allowed.keys().filter(|k| k.0 == labels(idx) && range.contains(k.1)).collect();
        for key in keys.into_iter().cloned().collect::<Vec<_>>() {
            self.set(key, None, is_acked);
        }
    }

    fn check(&self, test_env: &TestEnv, head: &Head, what: &str) {
        let found = read_all(test_env, head, &["a"]);
        for ((labels, time), allowed) in &self.allowed {
            let state = found.get(&("a".to_owned(), labels.clone())).and_then(|s| s.get(time)).copied();
            assert!(allowed.contains(&state), "{what}: {labels} at {time}: {state:?}, not {allowed:?}");
        }
        let count: usize = found.values().map(BTreeMap::len).sum();
        let known = self.allowed.values().filter(|allowed| allowed.iter().any(Option::is_some)).count();
        assert!(count <= known, "{what}: samples that nobody sent");
    }
}

fn script(test_env: &TestEnv, ledger: &mut Ledger) {
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 4 * WINDOW_MS;
    let row = |from: i64, value: f64| -> Vec<(i64, f64)> {
        (0..50).map(|i| (base + (from + i) * 1000, value + (i % 3) as f64)).collect()
    };
    let Ok((head, _)) = test_env.try_open() else { return };
    for idx in 0..3 {
        ledger.write(test_env, &head, idx, &row(0, 1.0));
        ledger.write(test_env, &head, idx, &row(60, 2.0));
    }
    ledger.write(test_env, &head, 0, &row(40, 3.0));
    ledger.write(test_env, &head, 1, &[(base - 7, 4.0), (base + 2500, 4.0), (base + 109_000, 4.0)]);
    ledger.delete(&head, 1, TimeRange::new(base + 2000, base + 70_500));
    let _ = head.checkpointer().checkpoint();
    ledger.write(test_env, &head, 1, &row(0, 5.0));
    ledger.delete(&head, 2, TimeRange::ALL);
    ledger.write(test_env, &head, 0, &row(100, 6.0));
    drop(head);
    let Ok((head, _)) = test_env.try_open() else { return };
    ledger.write(test_env, &head, 2, &row(20, 7.0));
    ledger.delete(&head, 0, TimeRange::new(base + 99_000, base + 200_000));
    ledger.write(test_env, &head, 0, &[(base + 99_000, 8.0), (base + 149_000, 8.0)]);
    ledger.write(test_env, &head, 0, &[(base + 99_000, 9.0)]);
    let _ = head.close();
}

/// Regression: out-of-order samples are appended after the others of their batch: of three values at one
/// timestamp the first and the last were equal, which was taken for a duplicate of the first before the
/// second had replaced it. The last wins.
#[test]
fn the_last_of_several_values_in_one_batch_wins() {
    let mut test_env = TestEnv::new(1);
    test_env.limits.duplicates = DuplicatePolicy::LastWins;
    let (head, _) = test_env.open();
    let mut ledger = Ledger::default();
    for values in [[1.0, 2.0, 1.0], [1.0, 1.0, 2.0], [2.0, 1.0, 1.0]] {
        let rows: Vec<(i64, f64)> = values.iter().map(|value| (NOW_MS, *value)).collect();
        ledger.write(&test_env, &head, 0, &rows);
        ledger.check(&test_env, &head, &format!("{values:?}"));
    }
}

#[test]
fn a_crash_at_any_disk_operation_keeps_the_last_acknowledged_value() {
    let mut op_count = 0;
    loop {
        let mut test_env = TestEnv::new(op_count);
        test_env.options.wal_segment_bytes = 8 << 10;
        test_env.limits.duplicates = DuplicatePolicy::LastWins;
        let mut ledger = Ledger::default();
        test_env.disk.fail_after(op_count);
        script(&test_env, &mut ledger);
        let ended = test_env.disk.op_count() <= op_count;
        test_env.disk.crash();
        let (head, _) = test_env.open();
        ledger.check(&test_env, &head, &format!("op {op_count}"));
        // The recovered head accepts writes, and survives the next power loss.
        ledger.write(&test_env, &head, 1, &[(NOW_MS, 1.0), (NOW_MS - 4 * WINDOW_MS, 2.0)]);
        ledger.delete(&head, 0, TimeRange::new(NOW_MS - 4 * WINDOW_MS, NOW_MS));
        drop(head);
        test_env.disk.crash();
        let (head, report) = test_env.open();
        ledger.check(&test_env, &head, &format!("op {op_count}, second start"));
        assert_eq!(report.notes, Vec::<String>::new(), "op {op_count}: the second start is clean");
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 50, "the script has many crash points, found {op_count}");
}
