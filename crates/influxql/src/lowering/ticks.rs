//! Nanoseconds of statements in the unit of a store.

use chronolith_model::time::TimeUnit;

/// Nanoseconds in ticks of `unit`, rounded up: the first tick at or after that time.
pub(super) fn first_tick(ns: i64, unit: TimeUnit) -> i64 {
    let ns_per_tick = ns_per_tick(unit);
    ns.div_euclid(ns_per_tick) + i64::from(ns.rem_euclid(ns_per_tick) > 0)
}

fn ns_per_tick(unit: TimeUnit) -> i64 {
    TimeUnit::Nano.ticks_per_ms() / unit.ticks_per_ms()
}

/// A span in ticks of `unit`, at least one.
pub(super) fn span(ns: i64, unit: TimeUnit) -> i64 {
    (ns / ns_per_tick(unit)).max(1)
}

/// An offset of windows in ticks of `unit`.
pub(super) fn offset(ns: i64, unit: TimeUnit) -> i64 {
    ns / ns_per_tick(unit)
}
