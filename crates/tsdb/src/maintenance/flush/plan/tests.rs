//! Times at which windows are flushed, by table.

use chronolith_format::store_name;
use chronolith_head::WindowStat;
use chronolith_model::{StoreId, TenantId, TimeRange};

use super::{FlushPlanner, FlushRules, Waiting, block_ranges_of};

const HOUR_MS: i64 = 3_600_000;
/// 2026-11-20 00:00 UTC.
const DAY_MS: i64 = 1_795_132_800_000;

/// A window of two hours that starts at `hour` of the day and came in `arrival` hours after the start of the
/// day.
fn window(tenant: &str, hour: i64, arrival: i64, sample_count: u64) -> WindowStat {
    let start = DAY_MS + hour * HOUR_MS;
    WindowStat {
        tenant: StoreId::from(TenantId::new(tenant).expect("legal")),
        range: TimeRange { start, end: start + 2 * HOUR_MS },
        sample_count,
        first_arrival_ms: DAY_MS + arrival * HOUR_MS,
    }
}

fn due_with(rules: FlushRules, tenants: &[Vec<WindowStat>]) -> (Vec<(String, i64, i64)>, Waiting) {
    let mut planner = FlushPlanner::new(rules);
    tenants.iter().for_each(|windows| planner.add_tenant(20, windows));
    let (due, waiting) = planner.finish();
    assert!(due.values().all(|flush| flush.due_ms <= rules.now_ms), "{due:?}");
    let hour = |ms: i64| (ms - DAY_MS) / HOUR_MS;
    (
        due.into_keys().map(|(t, r)| (store_name(&t).into_owned(), hour(r.start), hour(r.end))).collect(),
        waiting,
    )
}

fn rules(now_hour: i64) -> FlushRules {
    let now_ms = DAY_MS + now_hour * HOUR_MS;
    FlushRules { now_ms, delay_ms: HOUR_MS, small_bytes: 1 << 20, waiting_bytes_max: 1 << 30 }
}

/// Ranges of tenant `t` in hours of the day, at `now_hour`.
fn due(now_hour: i64, windows: Vec<WindowStat>) -> Vec<(i64, i64)> {
    due_with(rules(now_hour), &[windows]).0.into_iter().map(|(_, start, end)| (start, end)).collect()
}

fn day_of_small_windows() -> Vec<WindowStat> {
    (0..12).map(|i| window("t", 2 * i, 2 * i, 9600)).collect()
}

#[test]
fn small_windows_of_a_day_go_to_one_block_when_it_is_over() {
    assert_eq!(due(24, day_of_small_windows()), []);
    assert_eq!(due(25, day_of_small_windows()), [(0, 24)]);
}

#[test]
fn a_large_window_goes_after_the_delay_alone() {
    let windows = vec![window("t", 0, 0, 9600), window("t", 2, 2, 1 << 20), window("t", 4, 4, 9600)];
    assert_eq!(due(4, windows.clone()), []);
    assert_eq!(due(5, windows.clone()), [(2, 4)]);
    assert_eq!(due(25, windows), [(0, 6), (2, 4)]);
}

/// With a delay of a quarter of an hour a window waits six hours, and takes those with it that have ended.
#[test]
fn no_window_waits_longer_than_24_times_the_delay() {
    let at = |now_ms| {
        let rules = FlushRules { now_ms, delay_ms: HOUR_MS / 4, ..rules(0) };
        due_with(rules, &[day_of_small_windows()]).0
    };
    assert_eq!(at(DAY_MS + 8 * HOUR_MS - 1), []);
    assert_eq!(at(DAY_MS + 8 * HOUR_MS), [("t".to_owned(), 0, 6)]);
}

#[test]
fn without_a_delay_or_a_bound_for_small_nothing_waits() {
    let want = [("t".to_owned(), 0, 2)];
    let windows = [vec![window("t", 0, 0, 1)]];
    assert_eq!(due_with(FlushRules { small_bytes: 0, ..rules(3) }, &windows).0, want);
    assert_eq!(due_with(FlushRules { delay_ms: 0, ..rules(2) }, &windows).0, want);
}

/// A trickle of out-of-order samples made a block per hour and per day that it falls into.
#[test]
fn windows_of_out_of_order_samples_wait_for_more_of_them() {
    let late = |hour| window("t", hour - 72, hour, 5);
    assert_eq!(due(30, vec![late(10)]), []);
    assert_eq!(due(33, vec![late(10), window("t", -60, 12, 5)]), []);
    assert_eq!(due(34, vec![late(10), window("t", -60, 12, 5)]), [(-72, -48)], "the whole day, long over");
}

#[test]
fn windows_of_two_days_go_to_two_blocks() {
    let windows = vec![window("t", 22, 22, 5), window("t", 24, 24, 5), window("t", 26, 26, 5)];
    assert_eq!(due(25, windows.clone()), [(22, 24)]);
    assert_eq!(due(49, windows), [(0, 24), (24, 28)], "the first day is long over");
}

#[test]
fn a_flush_is_due_when_its_first_window_is_and_costs_what_all_of_them_have() {
    let mut planner = FlushPlanner::new(rules(25));
    planner.add_tenant(20, &[window("t", 0, 0, 100), window("t", 2, 2, 100), window("t", 4, 4, 1 << 20)]);
    let due: Vec<_> = planner.finish().0.into_values().map(|flush| (flush.due_ms, flush.bytes)).collect();
    assert_eq!(due, [(DAY_MS + 25 * HOUR_MS, 800), (DAY_MS + 7 * HOUR_MS, 4 << 20)]);
}

/// Waiting windows take memory, and the number of tenants has no bound.
#[test]
fn waiting_windows_have_a_bound_and_the_largest_go_first() {
    let tenants: Vec<_> = (0..100).map(|i| vec![window(&format!("t{i:03}"), 0, 0, 120 * i)]).collect();
    let (due, all) = due_with(rules(5), &tenants);
    assert_eq!((due.len(), all.window_count), (0, 100));
    let bound = FlushRules { waiting_bytes_max: all.heap_bytes - 1, ..rules(5) };
    let (due, rest) = due_with(bound, &tenants);
    assert!(rest.heap_bytes <= all.heap_bytes / 2 && rest.heap_bytes > all.heap_bytes / 3);
    assert_eq!(due.len() as u64 + rest.window_count, 100);
    assert!(due.contains(&("t099".to_owned(), 0, 2)) && !due.contains(&("t001".to_owned(), 0, 2)));
    assert!(due.is_sorted());
    let (due, rest) = due_with(FlushRules { waiting_bytes_max: 0, ..rules(5) }, &tenants);
    assert_eq!((due.len(), rest.window_count), (99, 1), "the one of no samples takes nothing");
}

#[test]
fn idle_series_of_small_windows_leave_in_one_block_a_day() {
    let hours = |windows: &[WindowStat], small_bytes| {
        let ranges = block_ranges_of(windows, small_bytes, DAY_MS + 27 * HOUR_MS);
        let hour = |ms: i64| (ms - DAY_MS) / HOUR_MS;
        ranges.into_iter().map(|r| (hour(r.start), hour(r.end))).collect::<Vec<_>>()
    };
    let mut windows = day_of_small_windows();
    windows.push(window("t", 24, 24, 5));
    assert_eq!(hours(&windows, 1 << 20), [(0, 24), (24, 26)]);
    windows[3].sample_count = 1 << 20;
    assert_eq!(hours(&windows, 1 << 20), [(0, 6), (6, 8), (8, 24), (24, 26)]);
    assert_eq!(hours(&windows, 0).len(), 13);
}
