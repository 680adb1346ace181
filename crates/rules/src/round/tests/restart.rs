//! State over restarts and reloads.

use chronolith_format::rules::StoredGroup;

use super::environment::{Environment, SECOND};
use crate::alert::{Alert, AlertState};
use crate::round::{ActiveGroup, Notifications};
use crate::schedule::Schedule;
use crate::testing::group_of_rules;

const RULES: &str = "  - alert: A\n    expr: x\n    for: 2m\n    keep_firing_for: 3m\n    annotations: {s: '{{value}}'}\n  - alert: A\n    \
                     expr: y\n  - record: r\n    expr: z\n";

/// The group after its state was stored, read and restored at `now_s`.
fn restarted(group: &ActiveGroup, now_s: i64) -> ActiveGroup {
    let mut bytes = Vec::new();
    group.state().encode(&mut bytes);
    let stored = StoredGroup::decode(&bytes).expect("whole");
    let mut after = ActiveGroup::new(group.group().clone());
    after.restore(&stored, now_s * SECOND, 3600 * SECOND);
    after
}

fn alert(group: &ActiveGroup, rule_idx: usize) -> Option<Alert> {
    group.alerts(rule_idx).and_then(|alerts| alerts.iter().next()).map(|(_, alert)| alert.clone())
}

#[test]
fn alerts_continue_after_a_restart() {
    let mut group = ActiveGroup::new(group_of_rules(RULES));
    let mut env = Environment::default();
    env.answer("x", &[("x", 1.0)]);
    env.round(&mut group, 60);
    let mut group = restarted(&group, 100);
    assert_eq!(group.last_round_ns(), Some(60 * SECOND));
    env.round(&mut group, 120);
    assert_eq!(alert(&group, 0).map(|alert| alert.state), Some(AlertState::Pending));
    let mut group = restarted(&group, 150);
    assert_eq!(env.round(&mut group, 180).notifications.len(), 1, "the clock of `for` went on");
    env.answer("x", &[]);
    env.round(&mut group, 240);
    let mut group = restarted(&group, 260);
    for time_s in [300, 360] {
        assert!(
            env.round(&mut group, time_s)
                .notifications
                .iter()
                .all(|sent| sent.alert.resolved_at_ns.is_none())
        );
    }
    let resolved = env.round(&mut group, 420);
    assert_eq!(resolved.notifications[0].alert.resolved_at_ns, Some(420 * SECOND), "3m after 240");
    let group = restarted(&group, 430);
    assert_eq!(alert(&group, 0).and_then(|alert| alert.last_sent_at_ns), Some(420 * SECOND));
}

#[test]
fn a_long_outage_restarts_pending_alerts_alone() {
    let mut group = ActiveGroup::new(group_of_rules(RULES));
    let mut env = Environment::default();
    env.answer("x", &[("x", 1.0)]);
    env.answer("y", &[("y", 1.0)]);
    env.round(&mut group, 60);
    let state = |group: &ActiveGroup, rule_idx| alert(group, rule_idx).map(|alert| alert.state);
    let short = restarted(&group, 60 + 3600);
    assert_eq!((state(&short, 0), state(&short, 1)), (Some(AlertState::Pending), Some(AlertState::Firing)));
    let long = restarted(&group, 60 + 3601);
    assert_eq!((state(&long, 0), state(&long, 1)), (None, Some(AlertState::Firing)));
}

#[test]
fn rounds_of_an_outage_are_made_up_at_their_own_times() {
    let mut group = ActiveGroup::new(group_of_rules(RULES));
    let schedule = Schedule::of(group.group());
    let first_ns = schedule.first_after(1_700_000_000 * SECOND);
    let mut env = Environment::default();
    env.answer("x", &[("x", 1.0)]);
    env.answer("z", &[("z", 3.0)]);
    env.round_at(&mut group, first_ns, Notifications::Send);
    let minutes = |count: i64| first_ns + count * 60 * SECOND;
    let now_ns = minutes(4) + 1;
    let mut group = restarted(&group, now_ns / SECOND);
    env.store.writes.clear();
    let last_ns = group.last_round_ns().expect("a state");
    let times: Vec<i64> = schedule.catch_up(last_ns, now_ns, 3600 * SECOND).collect();
    assert_eq!(times, [1, 2, 3, 4].map(minutes));
    let mut sent = Vec::new();
    for &time_ns in &times {
        let is_newest = schedule.last_before(now_ns) == time_ns;
        let notifications = if is_newest { Notifications::Send } else { Notifications::Hold };
        sent.extend(env.round_at(&mut group, time_ns, notifications).notifications);
    }
    let fired: Vec<Option<i64>> = sent.iter().map(|sent| sent.alert.fired_at_ns).collect();
    assert_eq!(fired, [Some(minutes(2))], "sent once, with the time at which it fired");
    let recorded: Vec<String> = env.written().into_iter().filter(|sample| sample.starts_with("r ")).collect();
    let want = times.iter().map(|time_ns| format!("r 3 @{}", time_ns / 1_000_000));
    assert_eq!(recorded, want.collect::<Vec<_>>());
}

#[test]
fn alerts_of_other_rules_are_not_restored() {
    let mut group = ActiveGroup::new(group_of_rules(RULES));
    let mut env = Environment::default();
    env.answer("y", &[("y", 1.0)]);
    env.round(&mut group, 60);
    // The second rule of this name.
    assert_eq!(group.state().rules.iter().map(|rule| rule.ordinal).collect::<Vec<_>>(), [1]);
    let one = "  - alert: A\n    expr: y\n";
    for (rules, want) in [
        (one.to_owned(), [false, false]),
        (format!("{one}{one}"), [false, true]),
        (format!("{one}  - alert: B\n    expr: y\n"), [false, false]),
        (format!("{one}  - alert: A\n    expr: y\n    labels: {{l: '1'}}\n"), [false, false]),
    ] {
        let mut after = ActiveGroup::new(group_of_rules(&rules));
        after.restore(&group.state(), 60 * SECOND, 0);
        assert_eq!([0, 1].map(|idx| alert(&after, idx).is_some()), want, "{rules}");
    }
}

/// Series of recording rules were forgotten at a restart, so that one that ended meanwhile went on for five
/// minutes of queries.
#[test]
fn a_series_that_ends_during_a_restart_is_marked_as_stale() {
    let recording = |labels: &str| format!("  - record: r\n    expr: z\n    labels: {{{labels}}}\n");
    let mut group = ActiveGroup::new(group_of_rules(&recording("l: '1'")));
    let mut env = Environment::default();
    env.answer("z", &[("z{a=1}", 1.0), ("z{b=2,l=x}", 2.0), ("z", 3.0)]);
    env.round(&mut group, 60);
    let mut group = restarted(&group, 100);
    env.answer("z", &[("z", 4.0)]);
    env.round(&mut group, 120);
    let marks = |series: &str| format!("{series} stale @120000");
    let ended = ["r{a=\"1\", l=\"1\"}", "r{b=\"2\", l=\"1\"}"].map(marks);
    let written = env.written();
    assert_eq!(
        written.iter().filter(|sample| sample.contains("stale")).collect::<Vec<_>>(),
        ended.each_ref()
    );
    assert_eq!(written.len(), 3, "{written:?}");
    // The rule has other labels after the next start: it is another one, whose series have ended.
    let mut after = ActiveGroup::new(group_of_rules(&recording("l: '2'")));
    after.restore(&group.state(), 130 * SECOND, 0);
    env.round(&mut after, 180);
    assert_eq!(env.written(), ["r{l=\"2\"} 4 @180000", "r{l=\"1\"} stale @180000"]);
}

#[test]
fn more_series_than_a_state_may_have_are_left_out_as_a_whole() {
    let rules = "  - record: r\n    expr: z\n  - record: s\n    expr: y\n";
    let stored = |of_r: usize, of_s: usize, label: &dyn Fn(usize) -> String| {
        let mut group = ActiveGroup::new(group_of_rules(rules));
        let mut env = Environment::default();
        for (expression, count) in [("z", of_r), ("y", of_s)] {
            let series: Vec<String> =
                (0..count).map(|idx| format!("{expression}{{{}}}", label(idx))).collect();
            let samples: Vec<(&str, f64)> = series.iter().map(|one| (one.as_str(), 1.0)).collect();
            env.answer(expression, &samples);
        }
        env.round(&mut group, 60);
        let state = group.state();
        if state.recordings.is_some() {
            assert_eq!(restarted(&group, 60).state(), state);
        }
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        (state.recordings.is_some(), bytes.len())
    };
    let instance = |idx: usize| format!("instance=host-{idx:05}:9100");
    let (is_stored, bytes) = stored(6000, 4000, &instance);
    assert!(is_stored);
    assert!(bytes < 10_000 * 17 + 100, "{bytes} bytes");
    assert!(!stored(6000, 4001, &instance).0);
    assert!(!stored(2000, 0, &|idx| format!("l{idx}=x")).0, "2,000 labels of 2,000 series");
    assert!(!stored(2, 0, &|idx| format!("l={}{idx}", "x".repeat(600_000))).0, "two long labels");
}

#[test]
fn a_state_of_the_future_gives_no_last_round() {
    let mut group = ActiveGroup::new(group_of_rules(RULES));
    Environment::default().round(&mut group, 600);
    assert_eq!(restarted(&group, 599).last_round_ns(), None);
    assert_eq!(restarted(&group, 600).last_round_ns(), Some(600 * SECOND));
}

#[test]
fn the_state_is_kept_with_each_round_and_a_failure_is_reported() {
    let mut group = ActiveGroup::new(group_of_rules(RULES));
    let mut env = Environment::default();
    env.answer("y", &[("y", 1.0)]);
    let report = env.round(&mut group, 60);
    // The notification counts as sent in the state, which was kept before.
    let saved = &env.states.saved[0].rules[0].alerts[0];
    assert_eq!((report.notifications.len(), saved.last_sent_at_ns), (1, Some(60 * SECOND)));
    env.states.failure = Some("disk full".to_owned());
    assert_eq!(env.round(&mut group, 120).state_error.as_deref(), Some("disk full"));
    assert_eq!(env.states.saved.len(), 2);
}

proptest::proptest! {
    #[test]
    fn restarts_change_neither_alerts_nor_their_samples(
        rounds in proptest::collection::vec(
            (proptest::prelude::any::<bool>(), proptest::prelude::any::<bool>(), proptest::prelude::any::<bool>()),
            1..40,
        )
    ) {
        let mut straight = ActiveGroup::new(group_of_rules(RULES));
        let mut broken = straight.clone();
        let mut env = Environment::default();
        for (idx, (has_x, has_y, restarts)) in rounds.into_iter().enumerate() {
            let time_s = 60 * (idx as i64 + 1);
            env.answer("x", if has_x { &[("x", 1.0)] } else { &[] });
            env.answer("y", if has_y { &[("y", 2.0)] } else { &[] });
            if restarts {
                broken = restarted(&broken, time_s - 1);
            }
            let sent = env.round(&mut straight, time_s).notifications;
            let written = env.written();
            env.store.writes.clear();
            let sent_again = env.round_at(&mut broken, time_s * SECOND, Notifications::Send);
            proptest::prop_assert_eq!(sent, sent_again.notifications);
            proptest::prop_assert_eq!(written, env.written());
            proptest::prop_assert_eq!(straight.state(), broken.state());
        }
    }
}
