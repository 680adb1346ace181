//! Cache of the partition's bounds: one request to the log per half second. A request after each read would
//! cost the broker as much as the read.
//!
//! Invariant: the end is at most [`AGE_MAX_NS`] old, so that a lag is short by no more than that.

use chronolith_replicated_log::Bounds;
use parking_lot::Mutex;

/// Age from which bounds are asked again, in nanoseconds.
const AGE_MAX_NS: u64 = 500_000_000;

/// Bounds, and when they were asked.
#[derive(Debug, Default)]
pub(super) struct RecentBounds(Mutex<Option<(u64, Bounds)>>);

impl RecentBounds {
    /// Returns bounds that contain offset `next`; asks for them if the last ones are too old.
    ///
    /// # Errors
    /// Errors of `ask`.
    pub(super) fn get<E>(
        &self,
        now_ns: u64,
        next: u64,
        ask: impl FnOnce() -> Result<Bounds, E>,
    ) -> Result<Bounds, E> {
        let mut last = self.0.lock();
        let recent = last.filter(|(asked_ns, _)| now_ns.saturating_sub(*asked_ns) < AGE_MAX_NS);
        let (asked_ns, mut bounds) = match recent {
            Some(recent) => recent,
            None => (now_ns, ask()?),
        };
        bounds.end = bounds.end.max(next);
        *last = Some((asked_ns, bounds));
        Ok(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_once_in_half_a_second_and_never_ends_before_the_records_that_were_read() {
        let bounds = RecentBounds::default();
        let of = |end| move || Ok::<_, ()>(Bounds { start: 0, end });
        let fails = || Err::<Bounds, _>("asked");
        assert_eq!(bounds.get(0, 5, || Err::<Bounds, _>("away")), Err("away"));
        assert_eq!(bounds.get(0, 5, of(10)), Ok(Bounds { start: 0, end: 10 }));
        assert_eq!(bounds.get(AGE_MAX_NS - 1, 12, fails), Ok(Bounds { start: 0, end: 12 }));
        assert_eq!(bounds.get(AGE_MAX_NS, 12, of(30)), Ok(Bounds { start: 0, end: 30 }));
    }
}
