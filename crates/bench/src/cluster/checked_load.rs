//! Load on a cluster whose answers are compared with a ledger of acknowledged samples.
//!
//! Invariants: each value is unique and exact, so that count and sum of a range tell a lost, a doubled and a
//! changed sample; a sender repeats a request until it is acknowledged, and one in 40 after that; an answer
//! that is neither the ledger's nor an error is a fault.
//! Not here: what happens to the processes meanwhile (`campaign`, `elasticity`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use super::nodes::Nodes;
use crate::body::Body;
use crate::driver::Run;
use crate::http::{self, QueryConnection, WriteConnection};
use crate::latency::{at, largest};
use crate::traffic::{POD_SERIES, STEP_MS, labels, mix, pods_selector};

/// Values of a series are `index * VALUES_PER_SERIES + step`, which a float holds exactly.
const VALUES_PER_SERIES: u64 = 1_000_000;
/// Acknowledged requests of which one is sent again.
const REPEAT_ONE_IN: u64 = 40;
/// Pause after a request that was not acknowledged.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Texts of errors that the report has.
const ERRORS_MAX: usize = 5;
/// For everything to be readable after the last fault.
pub(super) const SETTLE_LIMIT: Duration = Duration::from_secs(180);

/// Senders, and answers that are compared.
#[derive(clap::Args)]
pub(crate) struct LoadOptions {
    /// Threads that write, each to all series of its own.
    #[arg(long, default_value_t = 4)]
    senders: usize,
    /// Series of a sender, a multiple of 500.
    #[arg(long, default_value_t = 5_000)]
    series: usize,
    /// Milliseconds between the requests of a sender.
    #[arg(long, default_value_t = 0)]
    write_pause_ms: u64,
    /// Waits for the ends of the log, so that an answer has to have each acknowledged sample.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    strong: bool,
    /// Age of an acknowledgement from which an answer has to have its samples without that.
    #[arg(long, default_value_t = 10)]
    lag_seconds: u64,
    /// Milliseconds between two answers.
    #[arg(long, default_value_t = 200)]
    read_pause_ms: u64,
    /// Seed of the repeats, and of faults.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

impl LoadOptions {
    /// Fails if series are not whole pods.
    pub(super) fn check(&self) -> Result<()> {
        let is_whole = self.series > 0 && self.series.is_multiple_of(POD_SERIES);
        ensure!(is_whole && self.senders > 0, "--series: a multiple of 500, --senders: at least 1");
        Ok(())
    }

    /// Series of all senders.
    pub(super) fn series_count(&self) -> usize {
        self.senders * self.series
    }

    /// Age of acknowledgements that answers have to have.
    fn lag(&self) -> Duration {
        Duration::from_secs(if self.strong { 0 } else { self.lag_seconds })
    }
}

/// Acknowledged steps of the requests of one sender.
struct Ledger {
    /// First series of each request.
    first_series: usize,
    /// Steps that were acknowledged, the oldest ones first.
    acked: AtomicU64,
}

/// Counts of a load.
#[derive(Default)]
struct Counts {
    retries: AtomicUsize,
    /// Most attempts of one request.
    attempts_max: AtomicUsize,
    repeats: AtomicUsize,
    answers_equal: AtomicUsize,
    /// Errors after which another node had an answer.
    answers_of_others: AtomicUsize,
    answers_refused: AtomicUsize,
}

/// A load that runs.
pub(super) struct CheckedLoad<'a> {
    options: &'a LoadOptions,
    nodes: &'a Nodes,
    ledgers: Vec<Ledger>,
    counts: Counts,
    start_ms: i64,
    is_over: AtomicBool,
    /// Milliseconds from the first attempt of a request to its acknowledgement.
    ack_ms: Mutex<Vec<f64>>,
    /// Differences between answers and the ledger.
    faults: Mutex<Vec<String>>,
    /// First different errors of writes and queries.
    errors: Mutex<Vec<String>>,
}

impl<'a> CheckedLoad<'a> {
    pub(super) fn new(options: &'a LoadOptions, nodes: &'a Nodes) -> CheckedLoad<'a> {
        let steps_max = i64::try_from(VALUES_PER_SERIES).expect("small");
        let ledgers = (0..options.senders)
            .map(|sender| Ledger { first_series: sender * options.series, acked: AtomicU64::new(0) });
        // Times are in the past: windows of two hours end after 480 steps, not after two hours.
        let now_ms = SystemClock::new().now_ms();
        let start_ms = (now_ms - (steps_max * STEP_MS).min(20 * 24 * 3_600_000)) / STEP_MS * STEP_MS;
        CheckedLoad {
            options,
            nodes,
            ledgers: ledgers.collect(),
            counts: Counts::default(),
            start_ms,
            is_over: AtomicBool::new(false),
            ack_ms: Mutex::default(),
            faults: Mutex::default(),
            errors: Mutex::default(),
        }
    }

    /// Writes and reads while `disturb` runs on this thread, which may start processes; waits then until all
    /// nodes are ready, and compares all acknowledged samples on each query node.
    pub(super) fn run(&self, disturb: impl FnOnce() -> Result<()>) -> Result<()> {
        std::thread::scope(|scope| {
            let senders: Vec<_> =
                self.ledgers.iter().map(|ledger| scope.spawn(move || self.send(ledger))).collect();
            scope.spawn(|| self.read());
            let disturbed = disturb();
            self.is_over.store(true, Ordering::Release);
            senders.into_iter().try_for_each(|sender| sender.join().expect("a sender does not panic"))?;
            disturbed
        })?;
        self.nodes.wait_ready(SETTLE_LIMIT)?;
        self.verify()
    }

    /// Fails with the faults that were found.
    pub(super) fn check_faults(&self) -> Result<()> {
        let faults = self.faults.lock().expect("no panic");
        ensure!(faults.is_empty(), "{} faults: {}", faults.len(), faults.join("; "));
        Ok(())
    }

    pub(super) fn acked_samples(&self) -> u64 {
        let steps: u64 = self.ledgers.iter().map(|ledger| ledger.acked.load(Ordering::Acquire)).sum();
        steps * self.options.series as u64
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Sends step after step until the campaign is over; each until it is acknowledged.
    fn send(&self, ledger: &Ledger) -> Result<()> {
        let series = ledger.first_series..ledger.first_series + self.options.series;
        let mut body = Body::new(series.clone().map(labels));
        let mut random = mix(self.options.seed ^ ledger.first_series as u64);
        let mut to = ledger.first_series / self.options.series;
        for step in 0..VALUES_PER_SERIES {
            if self.is_over() {
                return Ok(());
            }
            let time_ms = self.start_ms + step as i64 * STEP_MS;
            body.set(time_ms, series.clone().map(|idx| value(idx, step)));
            let first = Instant::now();
            self.send_until_acked(body.bytes(), &mut to)?;
            ledger.acked.store(step + 1, Ordering::Release);
            self.ack_ms.lock().expect("no panic").push(first.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(self.options.write_pause_ms));
            random = mix(random);
            if random.is_multiple_of(REPEAT_ONE_IN) {
                self.counts.repeats.fetch_add(1, Ordering::Relaxed);
                self.send_until_acked(body.bytes(), &mut to)?;
            }
        }
        bail!("a sender has no values left, --samples is too high")
    }

    /// Sends a body to one gateway after the other, as a load balancer would.
    fn send_until_acked(&self, body: &[u8], to: &mut usize) -> Result<()> {
        let give_up = Instant::now() + SETTLE_LIMIT;
        for attempt in 1.. {
            self.counts.attempts_max.fetch_max(attempt, Ordering::Relaxed);
            let port = self.nodes.gateway_ports[*to % self.nodes.gateway_ports.len()];
            let sent = WriteConnection::open(port).and_then(|mut connection| connection.post(body));
            let Err(error) = sent else { return Ok(()) };
            self.note_error(format!("a write: {error:#}"));
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
            ensure!(Instant::now() < give_up, "no gateway takes a request for {SETTLE_LIMIT:?}: {error:#}");
            *to += 1;
            std::thread::sleep(RETRY_PAUSE);
        }
        bail!("more attempts than can be counted")
    }

    /// Compares answers of query nodes with the ledger.
    fn read(&self) {
        let lag = self.options.lag();
        // Acknowledged steps of each sender, the oldest first.
        let mut past: VecDeque<(Instant, Vec<u64>)> = VecDeque::new();
        let mut turn = 0;
        while !self.is_over() {
            std::thread::sleep(Duration::from_millis(self.options.read_pause_ms));
            turn += 1;
            let acked = self.ledgers.iter().map(|ledger| ledger.acked.load(Ordering::Acquire)).collect();
            past.push_back((Instant::now(), acked));
            while past.get(1).is_some_and(|(at, _)| at.elapsed() >= lag) {
                past.pop_front();
            }
            let Some((_, old)) = past.front().filter(|(at, _)| at.elapsed() >= lag) else { continue };
            let ledger = &self.ledgers[turn % self.ledgers.len()];
            let steps = old[turn % self.ledgers.len()];
            if steps == 0 {
                continue;
            }
            let first = ledger.first_series;
            // Another query node each time all senders had their turn.
            self.ask(turn / self.ledgers.len(), first..first + POD_SERIES, steps);
        }
    }

    /// Compares an answer; asks another query node after an error, as a load balancer does.
    fn ask(&self, turn: usize, series: Range<usize>, steps: u64) {
        let ports = &self.nodes.query_ports;
        let port = ports[turn % ports.len()];
        let compared = match self.compare(port, series.clone(), steps) {
            Err(error) if ports.len() > 1 => {
                self.note_error(format!("{error:#}"));
                self.counts.answers_of_others.fetch_add(1, Ordering::Relaxed);
                self.compare(ports[(turn + 1) % ports.len()], series, steps)
            }
            compared => compared,
        };
        match compared {
            Ok(None) => drop(self.counts.answers_equal.fetch_add(1, Ordering::Relaxed)),
            Ok(Some(difference)) => self.fault(difference),
            Err(error) => {
                self.counts.answers_refused.fetch_add(1, Ordering::Relaxed);
                self.note_error(format!("{error:#}"));
            }
        }
    }

    fn note_error(&self, text: String) {
        let mut errors = self.errors.lock().expect("no panic");
        let is_new = errors.iter().all(|one| one.get(..40) != text.get(..40));
        if is_new && errors.len() < ERRORS_MAX {
            errors.push(text);
        }
    }

    /// Compares count and sum of the first `steps` samples of series, all of them; returns the difference.
    fn compare(&self, port: u16, series: Range<usize>, steps: u64) -> Result<Option<String>> {
        let selector = pods_selector(series.start, series.end);
        let end_ms = self.start_ms + (steps as i64 - 1) * STEP_MS;
        let range_s = steps as i64 * STEP_MS / 1000;
        let number = |function: &str| -> Result<f64> {
            let query = format!("sum({function}({selector}[{range_s}s]))");
            let mut connection = QueryConnection::open(port)?;
            if self.options.strong {
                connection.set_strong();
            }
            let (status, body) = connection.get(&http::query_path(&query, end_ms))?;
            http::number_of(status, &body)
        };
        let found_count = number("count_over_time")?;
        let found_sum = number("sum_over_time")?;
        let count = (steps * series.len() as u64) as f64;
        let sum = series.clone().map(|idx| sum_of(idx, steps)).sum::<f64>();
        let is_equal = found_count == count && (found_sum - sum).abs() <= sum * 1e-12;
        Ok((!is_equal).then(|| {
            format!(
                "series from {} on, port {port}: {found_count} samples with sum {found_sum}, the ledger has \
                 {count} with {sum}",
                series.start
            )
        }))
    }

    /// Compares all acknowledged samples of all series on each query node.
    fn verify(&self) -> Result<()> {
        for port in &self.nodes.query_ports {
            for ledger in &self.ledgers {
                let steps = ledger.acked.load(Ordering::Acquire);
                let all = ledger.first_series..ledger.first_series + self.options.series;
                for first in all.step_by(POD_SERIES) {
                    if let Some(difference) = self.compare(*port, first..first + POD_SERIES, steps)? {
                        bail!("at the end: {difference}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes a fault.
    pub(super) fn fault(&self, text: String) {
        eprintln!("FAULT: {text}");
        self.faults.lock().expect("no panic").push(text);
    }

    /// Waits, until the load is over at most.
    pub(super) fn pause(&self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.is_over() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Most attempts of one request until it was acknowledged.
    pub(super) fn attempts_max(&self) -> usize {
        self.counts.attempts_max.load(Ordering::Relaxed)
    }

    pub(super) fn answers_equal(&self) -> usize {
        self.counts.answers_equal.load(Ordering::Acquire)
    }

    pub(super) fn answers_refused(&self) -> usize {
        self.counts.answers_refused.load(Ordering::Acquire)
    }

    pub(super) fn fault_count(&self) -> usize {
        self.faults.lock().expect("no panic").len()
    }

    /// Figures of a report.
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let of = |count: &AtomicUsize| count.load(Ordering::Acquire) as f64;
        let ack_ms = self.ack_ms.lock().expect("no panic");
        vec![
            ("samples acknowledged", self.acked_samples() as f64),
            ("requests without an acknowledgement, sent again", of(&self.counts.retries)),
            ("most attempts of a request", self.attempts_max() as f64),
            ("acknowledged requests sent again", of(&self.counts.repeats)),
            ("answers equal to the ledger", self.answers_equal() as f64),
            ("answers of another node, after an error", of(&self.counts.answers_of_others)),
            ("answers that were an error", self.answers_refused() as f64),
            ("faults", self.fault_count() as f64),
            ("ack p50, ms", at(&ack_ms, 0.5)),
            ("ack p99, ms", at(&ack_ms, 0.99)),
            ("longest ack, ms", largest(&ack_ms)),
        ]
    }

    /// Adds the errors of writes and queries to a report.
    pub(super) fn report_errors(&self, run: &mut Run) {
        for error in self.errors.lock().expect("no panic").iter() {
            run.note(format!("an error: {error}"));
        }
    }
}

fn value(series_idx: usize, step: u64) -> f64 {
    (series_idx as u64 * VALUES_PER_SERIES + step) as f64
}

/// Sum of the first `steps` values of a series.
fn sum_of(series_idx: usize, steps: u64) -> f64 {
    let steps = steps as f64;
    (series_idx as u64 * VALUES_PER_SERIES) as f64 * steps + steps * (steps - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::{sum_of, value};

    #[test]
    fn sums_of_the_ledger_are_sums_of_the_values() {
        for steps in [0, 1, 2, 500] {
            let sum: f64 = (0..steps).map(|step| value(7, step)).sum();
            assert_eq!(sum_of(7, steps), sum);
        }
    }
}
