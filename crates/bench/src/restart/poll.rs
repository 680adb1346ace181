//! Asks a starting server until it answers correctly.
//! Invariants: the clock runs from before exec to after the answer that was correct.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::fleet::Probe;
use crate::http::query_number;
use crate::server::Server;
use crate::traffic;

const POLL: Duration = Duration::from_millis(2);
const ANSWER_WAIT: Duration = Duration::from_secs(600);
/// After the first correct answer the newest acknowledged sample may take this long; then it counts as lost.
const NEWEST_WAIT: Duration = Duration::from_secs(5);
/// A server that says that it is ready may take this long to its first correct answer; then all that is asked
/// for is lost.
const READY_WAIT: Duration = Duration::from_secs(30);
/// Summing in another order changes the last digits only.
const SUM_TOLERANCE: f64 = 1e-9;

/// Times of the first correct answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// From exec to the first correct answer about samples of any age; NaN if none is there.
    pub(super) first_seconds: f64,
    /// The same about samples that were acknowledged last; NaN if they do not appear.
    pub(super) newest_seconds: f64,
}

/// Asks until both are answered, or the newest does not come.
pub(super) fn first_answers(
    server: &mut Server,
    started: Instant,
    series: Range<usize>,
    older: &[Probe],
    newest: Probe,
) -> Result<Answered> {
    let (mut first, mut last): (Option<f64>, Option<f64>) = (None, None);
    let mut ready_at = None;
    loop {
        server.check_alive()?;
        if last.is_none() && is_answered(server.port, &series, newest) {
            last = Some(started.elapsed().as_secs_f64());
            first = first.or(last);
        }
        if first.is_none() && older.iter().any(|probe| is_answered(server.port, &series, *probe)) {
            first = Some(started.elapsed().as_secs_f64());
        }
        let elapsed = started.elapsed();
        if let Some(first_seconds) = first {
            let given_up = elapsed.as_secs_f64() > first_seconds + NEWEST_WAIT.as_secs_f64();
            if last.is_some() || given_up {
                return Ok(Answered { first_seconds, newest_seconds: last.unwrap_or(f64::NAN) });
            }
        }
        if ready_at.is_none() && server.is_ready() {
            ready_at = Some(elapsed);
        }
        // A server that lost everything answers, but never correctly.
        if first.is_none() && ready_at.is_some_and(|ready_at| elapsed > ready_at + READY_WAIT) {
            return Ok(Answered { first_seconds: f64::NAN, newest_seconds: f64::NAN });
        }
        if elapsed > ANSWER_WAIT {
            bail!("no correct answer after {} s", ANSWER_WAIT.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// Returns true if the answers about one series and about all series equal the sent samples. A server that
/// refuses, or cannot be reached, has not answered.
fn is_answered(port: u16, series: &Range<usize>, probe: Probe) -> bool {
    let ask = |query: &str| query_number(port, query, probe.time_ms).unwrap_or(f64::NAN);
    let pods = traffic::pods_selector(series.start, series.end);
    ask(&traffic::series_selector(series.start)) == probe.value
        && ask(&format!("count({pods})")) == series.len() as f64
        && (ask(&format!("sum({pods})")) - probe.sum).abs() <= probe.sum.abs() * SUM_TOLERANCE
}
