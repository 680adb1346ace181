//! Runs of background tasks. Invariant: a panic in one run is counted and does not end the thread.

use std::time::Duration;

use super::stop::Stop;
use crate::web::Web;

/// Runs `round` again and again, `pause` apart, until the stop.
pub(super) fn repeat(web: &Web, stop: &Stop, thread: &'static str, pause: Duration, mut round: impl FnMut()) {
    loop {
        guarded(web, thread, &mut round);
        if stop.wait(pause) {
            return;
        }
    }
}

/// Runs one round of a background thread; a panic is counted and logged, and the next round follows.
pub(crate) fn guarded(web: &Web, thread: &'static str, round: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(round)).is_err() {
        web.metrics.background.thread_panics.add(1);
        tracing::error!(thread, "background task panicked, continuing with its next run");
    }
}

#[cfg(test)]
mod tests {
    use super::guarded;
    use crate::http::tests::Fixture;

    /// The thread that syncs in interval mode had no guard: one panic, and `--sync interval` never synced
    /// again.
    #[test]
    fn a_panic_in_a_round_is_counted_and_does_not_end_its_thread() {
        let fixture = Fixture::ready();
        guarded(&fixture.web, "wal-sync", || panic!("a bug"));
        let mut ran = false;
        guarded(&fixture.web, "wal-sync", || ran = true);
        assert_eq!((ran, fixture.web.metrics.background.thread_panics.get()), (true, 1));
    }
}
