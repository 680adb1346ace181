//! Families and clocks are what their descriptions say.

use super::{ClockKind, Draws, Family, Walk, samples};

const START_MS: i64 = 1_767_225_600_000;

fn values(family: Family, series_idx: usize) -> Vec<f64> {
    samples(family, ClockKind::Regular, series_idx, START_MS, 5760).into_iter().map(|s| s.1).collect()
}

#[test]
fn the_parts_of_the_mix_are_all() {
    assert_eq!(Family::ALL.iter().map(|family| family.percent()).sum::<u64>(), 100);
    let constant = (0..10_000).filter(|idx| Family::of_mix(*idx) == Family::Constant).count();
    assert!((3800..4200).contains(&constant), "{constant}");
}

#[test]
fn a_series_is_the_same_each_time() {
    for family in Family::ALL {
        assert_eq!(values(family, 7), values(family, 7));
        assert_ne!(values(family, 7), values(family, 8), "{family:?}");
    }
}

#[test]
fn values_are_those_of_their_family() {
    for idx in 0..20 {
        assert!(values(Family::Gauge, idx).iter().all(|v| *v == (v * 100.0).round() / 100.0));
        assert!(values(Family::Pages, idx).iter().all(|v| v % 4096.0 == 0.0 && *v >= 0.0));
        assert!(
            values(Family::SmallInteger, idx).iter().all(|v| (0.0..23.0).contains(v) && v.fract() == 0.0)
        );
        let counter = values(Family::Counter, idx);
        assert!(counter.windows(2).all(|pair| pair[0] <= pair[1] || pair[1] == 0.0));
        assert!(values(Family::FloatSum, idx).is_sorted());
    }
    let constant = (0..100).filter(|idx| values(Family::Constant, *idx).windows(2).all(|p| p[0] == p[1]));
    assert!((55..85).contains(&constant.count()));
}

#[test]
fn clocks_ascend_and_stay_near_their_steps() {
    for idx in 0..20 {
        let regular = samples(Family::Constant, ClockKind::Regular, idx, START_MS, 5760);
        assert!((5700..5760).contains(&regular.len()), "{}", regular.len());
        assert!(regular.iter().all(|s| s.0 % 15_000 == 0));
        let jittered = samples(Family::Constant, ClockKind::Jittered, idx, START_MS, 5760);
        assert_eq!(jittered.len(), 5760);
        assert!(jittered.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let far = jittered.iter().enumerate().map(|(step, s)| s.0 - START_MS - step as i64 * 15_000);
        assert!(far.clone().all(|ms| (-20..200).contains(&ms)) && far.clone().any(|ms| ms > 50));
    }
}

#[test]
fn a_poisson_draw_has_its_mean() {
    for mean in [0.1, 5.0, 29.0, 400.0] {
        let mut draws = Draws(1);
        let found = (0..20_000).map(|_| draws.poisson(mean)).sum::<f64>() / 20_000.0;
        assert!((found - mean).abs() < 0.05 * mean, "{found} for {mean}");
    }
    assert!(Walk::new(Family::Counter, 1).next() >= 0.0);
}

#[test]
fn series_of_a_pod_share_the_times_of_a_scrape() {
    let times = |clock, idx| -> Vec<i64> {
        samples(Family::Gauge, clock, idx, START_MS, 500).into_iter().map(|s| s.0).collect()
    };
    assert_eq!(times(ClockKind::Scraped, 0), times(ClockKind::Scraped, 499));
    assert_ne!(times(ClockKind::Scraped, 0), times(ClockKind::Scraped, 500));
    assert_ne!(times(ClockKind::Jittered, 0), times(ClockKind::Jittered, 499));
}
