//! What late samples cost: `Head::append` with a share of late ones, then reading all of it, before and after the
//! windows are cut.
//!
//! A round is one sample of all series, 15 s apart. Late samples take the place of random ones: `old` ones of any
//! millisecond of the last 24 hours; of `slight` ones two neighbours come in the wrong order.
//! `cargo run --release -p chronolith-head --example late_speed -- [series] [rounds] [late percent] [old|slight]`

use chronolith_base::{Env, Rng};
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::{
    Columns, Labels, Matcher, ReadContext, Selector, TenantId, TenantLimits, TimeRange, WriteBatch,
};

const BATCH: usize = 5000;
const STEP_MS: i64 = 15_000;
const DAY_MS: u64 = 86_400_000;
/// The start of a window, so that rounds and windows begin together.
const START_MS: i64 = 1_699_999_200_000;

/// How late.
#[derive(Clone, Copy, PartialEq)]
enum Lateness {
    Old,
    Slight,
}

struct Fleet {
    late_percent: u64,
    lateness: Lateness,
    /// Series whose next sample came before its neighbour.
    swapped: Vec<bool>,
    rng: Rng,
    batches: Vec<WriteBatch>,
}

/// CPU time and samples of all rounds.
#[derive(Default)]
struct Cost {
    append_ns: u64,
    write_ns: u64,
    sample_count: u64,
    late_count: u64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (series_count, rounds, late_percent) = (number(0, 100_000), number(1, 130), number(2, 10));
    let lateness = if args.get(3).is_some_and(|a| a == "slight") { Lateness::Slight } else { Lateness::Old };
    let dir = std::env::temp_dir().join(format!("late-speed-{}", std::process::id()));
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.clone()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let mut fleet = Fleet::new(series_count as usize, late_percent, lateness);
    let mut cost = Cost::default();
    for round in 0..rounds {
        let one = fleet.round(&env, &head, round as i64);
        // The first round makes the series.
        if round > 0 {
            cost.append_ns += one.append_ns;
            cost.write_ns += one.write_ns;
            cost.sample_count += one.sample_count;
            cost.late_count += one.late_count;
        }
    }
    let each = |ns: u64| ns as f64 / cost.sample_count as f64;
    let total_ns = cost.append_ns + cost.write_ns;
    println!(
        "late {:.1} %: {:.2} M samples/s/core; append {:.1} ns/sample, log write {:.1} ns/sample",
        100.0 * cost.late_count as f64 / cost.sample_count as f64,
        1000.0 * cost.sample_count as f64 / total_ns as f64,
        each(cost.append_ns),
        each(cost.write_ns),
    );
    for part in head.memory() {
        println!("bytes a series: {} {:.1}", part.name, part.bytes as f64 / series_count as f64);
    }
    let end = START_MS + rounds as i64 * STEP_MS;
    read(&env, &head, "head", TimeRange::new(START_MS, end));
    cut(&env, &head);
    drop(head);
    env.disk.remove_dir_all(&dir).expect("removed");
}

impl Fleet {
    fn new(series_count: usize, late_percent: u64, lateness: Lateness) -> Fleet {
        let batches =
            (0..series_count.div_ceil(BATCH)).map(|b| make_batch(b * BATCH, series_count)).collect();
        let swapped = vec![false; series_count];
        Fleet { late_percent, lateness, swapped, rng: Rng::from_seed(1), batches }
    }

    fn round(&mut self, env: &Env, head: &Head, round: i64) -> Cost {
        let now = START_MS + STEP_MS * round;
        let mut cost = Cost::default();
        let tenant = TenantId::anonymous();
        for (batch_idx, batch) in self.batches.iter_mut().enumerate() {
            let at_first = batch_idx * BATCH;
            for at in 0..batch.times.len() {
                let (time, is_late) = match self.lateness {
                    Lateness::Old => old_time(&self.rng, self.late_percent, round, now),
                    Lateness::Slight => {
                        let swapped = &mut self.swapped[at_first + at];
                        slight_time(&self.rng, self.late_percent, round, now, swapped)
                    }
                };
                batch.times[at] = time;
                cost.late_count += u64::from(is_late);
                batch.values[at] = if at % 2 == 0 {
                    batch.values[at] + self.rng.below(100) as f64
                } else {
                    self.rng.below(10_000) as f64 / 100.0
                };
            }
            let start = cpu_ns(env);
            let (outcome, ticket) =
                head.append(&tenant, &TenantLimits::default(), now, batch).expect("taken");
            let middle = cpu_ns(env);
            head.wait(ticket).expect("written");
            cost.append_ns += middle - start;
            cost.write_ns += cpu_ns(env) - middle;
            cost.sample_count += outcome.accepted_count;
        }
        cost
    }
}

/// Time of a sample, and whether it is late.
fn old_time(rng: &Rng, late_percent: u64, round: i64, now: i64) -> (i64, bool) {
    if round == 0 || rng.below(100) >= late_percent {
        return (now, false);
    }
    (now - 1 - rng.below(DAY_MS) as i64, true)
}

/// As [`old_time`]: in even rounds the sample of the next one may come instead.
fn slight_time(rng: &Rng, late_percent: u64, round: i64, now: i64, swapped: &mut bool) -> (i64, bool) {
    if round % 2 == 0 {
        *swapped = rng.below(100) < 2 * late_percent;
        return (if *swapped { now + STEP_MS } else { now }, false);
    }
    if std::mem::take(swapped) { (now - STEP_MS, true) } else { (now, false) }
}

/// Reads all series of `range` from the head.
fn read(env: &Env, head: &Head, what: &str, range: TimeRange) {
    let matchers = [Matcher::equal("__name__", "http_requests_total")];
    let ctx = ReadContext::unlimited(env.clock.clone());
    let selector = Selector { matchers: &matchers, range };
    let start = cpu_ns(env);
    let found = head.select(&TenantId::anonymous(), &selector, &ctx).expect("selected");
    let middle = cpu_ns(env);
    let (mut columns, mut sample_count) = (Columns::default(), 0);
    for series in &found {
        columns.clear();
        series.samples.read(range, &mut columns).expect("read");
        sample_count += columns.len();
    }
    println!(
        "{what}: {sample_count} samples of {} series; select {:.1} ns/sample, decode {:.1} ns/sample",
        found.len(),
        (middle - start) as f64 / sample_count as f64,
        (cpu_ns(env) - middle) as f64 / sample_count as f64
    );
}

/// Takes every window out and decodes its chunks as a block would have them.
fn cut(env: &Env, head: &Head) {
    let (mut cut_ns, mut decode_ns, mut sample_count, mut chunk_count) = (0, 0, 0, 0);
    let mut columns = Columns::default();
    for window in head.windows() {
        let start = cpu_ns(env);
        let snapshot = head.snapshot_window(&window.tenant, window.range).expect("a snapshot");
        let series: Vec<_> = snapshot.series().map(|s| s.expect("readable").chunks).collect();
        let middle = cpu_ns(env);
        for chunk in series.iter().flatten() {
            columns.clear();
            chronolith_format::xor::decode(&chunk.bytes, TimeRange::ALL, &mut columns).expect("decodes");
            sample_count += columns.len();
            chunk_count += 1;
        }
        cut_ns += middle - start;
        decode_ns += cpu_ns(env) - middle;
        head.drop_window(snapshot);
    }
    println!(
        "cut: {sample_count} samples in {chunk_count} chunks; {:.1} ns/sample to cut, {:.1} ns/sample to decode after",
        cut_ns as f64 / sample_count as f64,
        decode_ns as f64 / sample_count as f64
    );
}

/// CPU time of this thread where the system tells it, so that a busy machine does not show; else the clock.
fn cpu_ns(env: &Env) -> u64 {
    let stat = env.disk.read("/proc/thread-self/schedstat".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_else(|| env.clock.mono_ns())
}

fn make_batch(first: usize, end: usize) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for i in first..(first + BATCH).min(end) {
        let (instance, path) = (format!("host-{}:9100", i / 500), format!("/api/v1/{}", i % 500));
        let labels = Labels::from_pairs([
            ("__name__", "http_requests_total"),
            ("instance", &*instance),
            ("path", &*path),
            ("job", "api"),
            ("cluster", "eu-west-1"),
            ("namespace", "default"),
            ("method", "GET"),
            ("code", "200"),
            ("pod", "api-7c9f"),
            ("container", "server"),
        ]);
        batch.push_labels(&labels, &[(0, 0.0)]);
    }
    batch
}
