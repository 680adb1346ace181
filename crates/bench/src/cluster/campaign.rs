//! Campaign `cluster-campaign`: processes of a cluster are killed at random while senders write and readers
//! compare answers with a ledger of acknowledged samples.
//!
//! Invariants: each value is unique and exact, so that count and sum of a range tell a lost, a doubled and a
//! changed sample; a sender repeats a request until it is acknowledged, and one in 40 after that; an answer
//! that is neither within the ledger's bounds nor an error ends the campaign with a failure.
//! Not here: figures of speed (`cluster`).

mod options;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use super::brokers::Brokers;
use super::nodes::{NodeSetup, Nodes};
use crate::body::Body;
use crate::driver::{Benchmark, Run};
use crate::http::{self, QueryConnection, WriteConnection};
use crate::latency::{at, largest};
use crate::report::Table;
use crate::server::Kind;
use crate::traffic::{POD_SERIES, STEP_MS, labels, mix, pods_selector};
pub(crate) use options::Options;
use options::Size;

/// Values of a series are `index * VALUES_PER_SERIES + step`, which a float holds exactly.
const VALUES_PER_SERIES: u64 = 1_000_000;
/// Acknowledged requests of which one is sent again.
const REPEAT_ONE_IN: u64 = 40;
/// Pause after a request that was not acknowledged.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Texts of errors that the report has.
const ERRORS_MAX: usize = 5;
/// For everything to be readable after the last kill.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);

/// Acknowledged and sent steps of the requests of one sender.
struct Ledger {
    /// First series of each request.
    first_series: usize,
    /// Steps that were acknowledged, the oldest ones first.
    acked: AtomicU64,
    /// Steps that were sent at least once.
    sent: AtomicU64,
}

/// Counts of a campaign.
#[derive(Default)]
struct Counts {
    kills: AtomicUsize,
    broker_kills: AtomicUsize,
    retries: AtomicUsize,
    repeats: AtomicUsize,
    answers_equal: AtomicUsize,
    answers_refused: AtomicUsize,
    /// Blocks that owners have published.
    blocks: AtomicUsize,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(
            self.size.series > 0 && self.size.series.is_multiple_of(POD_SERIES),
            "--series: a multiple of 500"
        );
        let brokers = Mutex::new(Brokers::start(&self.kafka, self.size.brokers)?);
        let addresses = brokers.lock().expect("no panic").addresses()?.to_owned();
        let setup = NodeSetup {
            log: format!("kafka://{addresses}/campaign"),
            partition_count: self.size.partitions,
            replication_factor: self.size.brokers.min(3),
            compression: "lz4".to_owned(),
            series_count: self.size.series * self.size.senders,
            owners_per_partition: self.size.owners,
            gateway_count: self.size.gateways,
            query_count: self.size.queries,
            owner_flags: vec![
                format!("--flush-delay={}s", self.cuts.cut_seconds),
                format!("--bucket.poll={}s", self.cuts.poll_seconds),
            ],
            query_polls: (1..=self.size.queries).map(|number| self.query_poll(number)).collect(),
        };
        let nodes = Nodes::start(run.data(), setup)?;
        let campaign = Campaign::new(self, nodes, brokers);
        let result = campaign.run();
        campaign.report(run);
        result.map_err(|error| error.context(campaign.nodes.log_tails()))
    }
}

/// A running campaign.
struct Campaign<'a> {
    options: &'a Options,
    nodes: Nodes,
    brokers: Mutex<Brokers>,
    ledgers: Vec<Ledger>,
    counts: Counts,
    start_ms: i64,
    is_over: AtomicBool,
    /// Milliseconds from the first attempt of a request to its acknowledgement.
    ack_ms: Mutex<Vec<f64>>,
    /// Differences between answers and the ledger.
    faults: Mutex<Vec<String>>,
    /// First different errors of queries.
    errors: Mutex<Vec<String>>,
    /// Summary of the check of the log against the bucket.
    verified_log: Mutex<String>,
}

impl<'a> Campaign<'a> {
    fn new(options: &'a Options, nodes: Nodes, brokers: Mutex<Brokers>) -> Campaign<'a> {
        let steps_max = i64::try_from(VALUES_PER_SERIES).expect("small");
        let ledgers = (0..options.size.senders).map(|sender| Ledger {
            first_series: sender * options.size.series,
            acked: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        });
        // Times are in the past: windows of two hours end after 480 steps, not after two hours.
        let now_ms = SystemClock::new().now_ms();
        let start_ms = (now_ms - (steps_max * STEP_MS).min(20 * 24 * 3_600_000)) / STEP_MS * STEP_MS;
        Campaign {
            options,
            nodes,
            brokers,
            ledgers: ledgers.collect(),
            counts: Counts::default(),
            start_ms,
            is_over: AtomicBool::new(false),
            ack_ms: Mutex::default(),
            faults: Mutex::default(),
            errors: Mutex::default(),
            verified_log: Mutex::default(),
        }
    }

    fn run(&self) -> Result<()> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let senders: Vec<_> =
                self.ledgers.iter().map(|ledger| scope.spawn(move || self.send(ledger))).collect();
            scope.spawn(|| self.kill_brokers());
            scope.spawn(|| self.read());
            // On this thread: processes end with the thread that has started them.
            self.kill_nodes(start + Duration::from_secs(self.options.seconds));
            self.is_over.store(true, Ordering::Release);
            senders.into_iter().try_for_each(|sender| sender.join().expect("a sender does not panic"))
        })?;
        self.nodes.wait_ready(SETTLE_LIMIT)?;
        self.verify()?;
        *self.verified_log.lock().expect("no panic") = self.nodes.verify_log()?;
        let faults = self.faults.lock().expect("no panic");
        ensure!(faults.is_empty(), "{} faults: {}", faults.len(), faults.join("; "));
        Ok(())
    }

    fn acked_samples(&self) -> u64 {
        let steps: u64 = self.ledgers.iter().map(|ledger| ledger.acked.load(Ordering::Acquire)).sum();
        steps * self.options.size.series as u64
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Sends step after step until the campaign is over; each until it is acknowledged.
    fn send(&self, ledger: &Ledger) -> Result<()> {
        let series = ledger.first_series..ledger.first_series + self.options.size.series;
        let mut body = Body::new(series.clone().map(labels));
        let mut random = mix(self.options.seed ^ ledger.first_series as u64);
        let mut to = ledger.first_series / self.options.size.series;
        for step in 0..VALUES_PER_SERIES {
            if self.is_over() {
                return Ok(());
            }
            let time_ms = self.start_ms + step as i64 * STEP_MS;
            body.set(time_ms, series.clone().map(|idx| value(idx, step)));
            ledger.sent.store(step + 1, Ordering::Release);
            let first = Instant::now();
            self.send_until_acked(body.bytes(), &mut to)?;
            ledger.acked.store(step + 1, Ordering::Release);
            self.ack_ms.lock().expect("no panic").push(first.elapsed().as_secs_f64() * 1e3);
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
        loop {
            let port = self.nodes.gateway_ports[*to % self.nodes.gateway_ports.len()];
            let sent = WriteConnection::open(port).and_then(|mut connection| connection.post(body));
            let Err(error) = sent else { return Ok(()) };
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
            ensure!(Instant::now() < give_up, "no gateway takes a request for {SETTLE_LIMIT:?}: {error:#}");
            *to += 1;
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// Kills a node every 3 to 6 seconds and starts it at once, until `end`, until samples and blocks are
    /// there, or until a fault was found.
    fn kill_nodes(&self, end: Instant) {
        let mut random = mix(self.options.seed);
        while (Instant::now() < end || self.is_short()) && self.faults.lock().expect("no panic").is_empty() {
            random = mix(random);
            self.pause(Duration::from_millis(3_000 + random % 3_000));
            random = mix(random);
            if self.options.no_kills {
                continue;
            }
            match self.nodes.kill_and_start(random as usize) {
                Ok(blocks) => {
                    self.counts.blocks.fetch_add(blocks, Ordering::Relaxed);
                    self.counts.kills.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.fault(format!("a node does not start: {error:#}")),
            }
        }
    }

    /// Returns true if samples or blocks are missing.
    fn is_short(&self) -> bool {
        self.acked_samples() < self.options.samples || self.published_blocks() < self.options.blocks
    }

    fn published_blocks(&self) -> usize {
        self.counts.blocks.load(Ordering::Relaxed) + self.nodes.published_blocks()
    }

    /// Kills a broker every 15 seconds, if there are others, and starts it five seconds later.
    fn kill_brokers(&self) {
        let count = self.options.size.brokers;
        let mut number = 0;
        while count > 1 && !self.options.no_kills && !self.is_over() {
            self.pause(Duration::from_secs(10));
            number = number % count + 1;
            let told = self.tell_broker("kill", number).and_then(|()| {
                self.pause(Duration::from_secs(5));
                self.tell_broker("start", number)
            });
            match told {
                Ok(()) => drop(self.counts.broker_kills.fetch_add(1, Ordering::Relaxed)),
                Err(error) => self.fault(format!("broker {number}: {error:#}")),
            }
        }
    }

    fn tell_broker(&self, word: &str, number: usize) -> Result<()> {
        self.brokers.lock().expect("no panic").tell(&format!("{word} {number}"))
    }

    /// Compares answers of query nodes with the ledger.
    fn read(&self) {
        let lag = self.options.reads.lag();
        // Acknowledged steps of each sender, the oldest first.
        let mut past: VecDeque<(Instant, Vec<u64>)> = VecDeque::new();
        let mut turn = 0;
        while !self.is_over() {
            std::thread::sleep(Duration::from_millis(self.options.reads.read_pause_ms));
            turn += 1;
            let acked = self.ledgers.iter().map(|ledger| ledger.acked.load(Ordering::Acquire)).collect();
            past.push_back((Instant::now(), acked));
            while past.get(1).is_some_and(|(at, _)| at.elapsed() >= lag) {
                past.pop_front();
            }
            let Some((_, old)) = past.front().filter(|(at, _)| at.elapsed() >= lag) else { continue };
            let ledger = &self.ledgers[turn % self.ledgers.len()];
            // Another query node each time all senders had their turn.
            let port = self.nodes.query_ports[turn / self.ledgers.len() % self.nodes.query_ports.len()];
            let steps = old[turn % self.ledgers.len()];
            if steps == 0 {
                continue;
            }
            let first = ledger.first_series;
            match self.compare(port, first..first + POD_SERIES, steps) {
                Ok(None) => drop(self.counts.answers_equal.fetch_add(1, Ordering::Relaxed)),
                Ok(Some(difference)) => self.fault(difference),
                Err(error) => {
                    self.counts.answers_refused.fetch_add(1, Ordering::Relaxed);
                    self.note_error(format!("{error:#}"));
                }
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
            if self.options.reads.strong {
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
                let all = ledger.first_series..ledger.first_series + self.options.size.series;
                for first in all.step_by(POD_SERIES) {
                    if let Some(difference) = self.compare(*port, first..first + POD_SERIES, steps)? {
                        bail!("at the end: {difference}");
                    }
                }
            }
        }
        Ok(())
    }

    fn fault(&self, text: String) {
        eprintln!("FAULT: {text}");
        self.faults.lock().expect("no panic").push(text);
    }

    /// Waits, until the campaign is over at most.
    fn pause(&self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.is_over() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn report(&self, run: &mut Run) {
        let Size { brokers, partitions, owners, gateways, queries, .. } = self.options.size;
        run.note(format!(
            "{brokers} brokers, {partitions} partitions, {owners} owners each, {gateways} gateways, {queries} \
             query nodes, seed {}",
            self.options.seed
        ));
        let faults = self.faults.lock().expect("no panic").len() as f64;
        let mut table = Table::new("A cluster under kills", ["count"]);
        let of = |count: &AtomicUsize| count.load(Ordering::Acquire) as f64;
        let ack_ms = self.ack_ms.lock().expect("no panic");
        let figures = [
            ("samples acknowledged", self.acked_samples() as f64),
            ("processes killed", of(&self.counts.kills)),
            ("brokers killed", of(&self.counts.broker_kills)),
            ("requests without an acknowledgement, sent again", of(&self.counts.retries)),
            ("acknowledged requests sent again", of(&self.counts.repeats)),
            ("answers within the ledger", of(&self.counts.answers_equal)),
            ("answers that were an error", of(&self.counts.answers_refused)),
            ("blocks of cuts published", self.published_blocks() as f64),
            ("faults", faults),
            ("ack p50, ms", at(&ack_ms, 0.5)),
            ("ack p99, ms", at(&ack_ms, 0.99)),
            ("longest ack, ms", largest(&ack_ms)),
        ];
        for (label, figure) in figures {
            table.row(label, 0, [figure]);
        }
        run.table(table);
        for error in self.errors.lock().expect("no panic").iter() {
            run.note(format!("an answer that was an error: {error}"));
        }
        for line in self.verified_log.lock().expect("no panic").lines() {
            run.note(format!("cluster verify: {line}"));
        }
        run.at_most("faults", faults, 0.0);
        run.at_least("samples acknowledged", self.acked_samples() as f64, self.options.samples as f64);
        run.at_least("blocks of cuts published", self.published_blocks() as f64, self.options.blocks as f64);
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
