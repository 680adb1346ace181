//! Offsets against the offsets of Prometheus 3.16; missed rounds, and rounds that are made up.

use super::*;
use crate::testing::group_of;

const SECOND: i64 = 1_000_000_000;

fn schedule(interval_ns: i64, offset_ns: i64) -> Schedule {
    Schedule { interval_ns, offset_ns }
}

fn key(file: &str, name: &str) -> GroupKey {
    GroupKey { file: file.to_owned(), name: name.to_owned() }
}

#[test]
fn hashes_are_those_of_prometheus() {
    // `labels.FromStrings("name", NAME, "file", FILE).Hash()` of prometheus/prometheus v0.316.0.
    let long = "x".repeat(300);
    let hashes = [
        hash(&key("/etc/prometheus/rules.yml", "node")),
        hash(&key("rules.yml", "Größe")),
        hash(&key(&long, "g")),
        hash(&key(&"y".repeat(254), &"z".repeat(255))),
    ];
    let want = [9818755009374647345, 10393332581152536176, 3205501712680515156, 2275944154818253213];
    assert_eq!(hashes, want);
}

#[test]
fn the_offset_is_the_hash_within_the_interval() {
    let schedule = Schedule::of(&group_of("groups:\n- name: g\n  interval: 15s\n  rules: []\n"));
    assert_eq!(schedule.interval_ns(), 15 * SECOND);
    let hash = hash(&key("rules.yml", "g"));
    assert_eq!(schedule.offset_ns.unsigned_abs(), hash % (15 * SECOND.unsigned_abs()));
    let now_ns = 1_700_000_000 * SECOND + 123;
    let last_ns = schedule.last_before(now_ns);
    assert!(last_ns <= now_ns && now_ns - last_ns < 15 * SECOND);
    assert_eq!((last_ns - schedule.offset_ns) % (15 * SECOND), 0);
}

#[test]
fn a_round_is_at_or_before_now() {
    let schedule = schedule(60, 7);
    for (now, want) in [(67, 67), (66, 7), (126, 67), (127, 127), (7, 7)] {
        assert_eq!(schedule.last_before(now), want, "{now}");
        assert_eq!(schedule.first_after(now), want + 60, "{now}");
    }
}

#[test]
fn missed_rounds_are_counted_and_the_newest_is_due() {
    let schedule = schedule(60, 7);
    assert_eq!(schedule.due(67, 126), None);
    assert_eq!(schedule.due(67, 127), Some(Due { time_ns: 127, missed_count: 0 }));
    assert_eq!(schedule.due(67, 186), Some(Due { time_ns: 127, missed_count: 0 }));
    assert_eq!(schedule.due(67, 250), Some(Due { time_ns: 247, missed_count: 2 }));
    // A clock that was set back.
    assert_eq!(schedule.due(247, 70), None);
    // The interval was another one in the last round.
    assert_eq!(schedule.due(100, 126), None);
    assert_eq!(schedule.due(100, 127), Some(Due { time_ns: 127, missed_count: 0 }));
}

#[test]
fn rounds_of_an_outage_are_made_up_in_order_back_to_the_horizon() {
    let schedule = schedule(60, 7);
    let times = |last, now, horizon| {
        let catch_up = schedule.catch_up(last, now, horizon);
        let lost = catch_up.lost_count;
        (catch_up.collect::<Vec<_>>(), lost)
    };
    assert_eq!(times(67, 250, 1000), (vec![127, 187, 247], 0));
    assert_eq!(times(67, 250, 123), (vec![127, 187, 247], 0));
    assert_eq!(times(67, 250, 122), (vec![187, 247], 1));
    assert_eq!(times(67, 250, 0), (vec![], 3));
    assert_eq!(times(67, 247, 0), (vec![247], 2));
    assert_eq!(times(67, 126, 1000), (vec![], 0));
    assert_eq!(times(247, 70, 1000), (vec![], 0));
}

proptest::proptest! {
    #[test]
    fn made_up_and_lost_rounds_are_all_rounds_between(
        interval in 1i64..100, offset in 0i64..100, last in 1000i64..2000, gap in 0i64..2000, horizon in 0i64..3000,
    ) {
        let schedule = schedule(interval, offset % interval);
        let now = last + gap;
        let all: Vec<i64> = (last + 1..=now).filter(|time| schedule.last_before(*time) == *time).collect();
        let catch_up = schedule.catch_up(last, now, horizon);
        let lost = catch_up.lost_count;
        let made_up: Vec<i64> = catch_up.collect();
        proptest::prop_assert!(made_up.iter().all(|time| *time >= now - horizon));
        proptest::prop_assert_eq!(made_up.len() as u64 + lost, all.len() as u64);
        proptest::prop_assert_eq!(&all[all.len() - made_up.len()..], &made_up[..]);
        let due = schedule.due(last, now);
        proptest::prop_assert_eq!(due.map(|due| due.time_ns), all.last().copied());
        proptest::prop_assert_eq!(due.map_or(0, |due| due.missed_count + 1), all.len() as u64);
    }
}
