//! Benchmark of out-of-order samples: `Head::append` with a share of them, then reading everything, before
//! and after the windows are flushed.
//!
//! A round is one sample of all series. Out-of-order samples replace random ones. Kinds: `old` ones have any
//! millisecond of the last 24 hours; `slight` ones are two neighbours in the wrong order; `withheld` ones
//! arrive in any later round instead, after the others of it; `shuffled` ones arrive like `withheld` ones,
//! but with in-order timestamps: the cost of the series order alone.
//! `cargo bench -p chronolith-head --bench late_speed -- [series] [rounds] [late percent] [kind] [step ms]`;
//! `cargo test` runs a few small rounds.

use chronolith_base::{Env, Rng};
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::{
    Columns, Labels, Matcher, ReadContext, Selector, StoreId, TenantLimits, TimeRange, WriteBatch,
};

const BATCH: usize = 5000;
const STEP_MS: u64 = 15_000;
const DAY_MS: u64 = 86_400_000;
/// Start of a window, so that rounds and windows begin together.
const START_MS: i64 = 1_699_999_200_000;

/// Kind of out-of-order samples.
#[derive(Clone, Copy, PartialEq)]
enum Lateness {
    Old,
    Slight,
    Withheld,
    /// As `Withheld` with in-order timestamps: the cost of the series order alone.
    Shuffled,
}

struct Fleet {
    late_percent: u64,
    lateness: Lateness,
    /// Series whose next sample arrived before its neighbour.
    swapped: Vec<bool>,
    rng: Rng,
    batches: Vec<WriteBatch>,
    step_ms: i64,
    labels: Vec<Labels>,
    /// Timestamp of the newest sample, for `Shuffled`.
    newest: Vec<i64>,
    /// Series and round of withheld samples, by the round in which they arrive.
    withheld: Vec<Vec<(u32, i64)>>,
}

/// CPU time and samples of all rounds.
#[derive(Default)]
struct Cost {
    append_ns: u64,
    write_ns: u64,
    sample_count: u64,
    ooo_count: u64,
}

fn main() {
    // `cargo bench` passes the flag, `cargo test` does not.
    let (flags, args): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let is_measured = flags.iter().any(|flag| flag == "--bench");
    let defaults = if is_measured { (100_000, 130) } else { (200, 12) };
    let number = |at: usize, or: u64| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (series_count, rounds) = (number(0, defaults.0), number(1, defaults.1));
    let late_percent = number(2, 10);
    let lateness = match args.get(3).map(String::as_str) {
        Some("slight") => Lateness::Slight,
        Some("withheld") => Lateness::Withheld,
        Some("shuffled") => Lateness::Shuffled,
        _ => Lateness::Old,
    };
    let step_ms = number(4, STEP_MS) as i64;
    let dir = std::env::temp_dir().join(format!("late-speed-{}", std::process::id()));
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.clone()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let mut fleet = Fleet::new(series_count as usize, late_percent, lateness, step_ms);
    fleet.withhold(rounds as usize);
    let mut cost = Cost::default();
    for round in 0..rounds {
        let one = fleet.round(&env, &head, round as i64);
        // The first round creates the series.
        if round > 0 {
            cost.append_ns += one.append_ns;
            cost.write_ns += one.write_ns;
            cost.sample_count += one.sample_count;
            cost.ooo_count += one.ooo_count;
        }
    }
    let each = |ns: u64| ns as f64 / cost.sample_count as f64;
    let total_ns = cost.append_ns + cost.write_ns;
    println!(
        "out of order {:.1} %: {:.2} M samples/s/core; append {:.1} ns/sample, log write {:.1} ns/sample",
        100.0 * cost.ooo_count as f64 / cost.sample_count as f64,
        1000.0 * cost.sample_count as f64 / total_ns as f64,
        each(cost.append_ns),
        each(cost.write_ns),
    );
    for part in head.statistics().memory() {
        println!("bytes per series: {} {:.1}", part.name, part.bytes as f64 / series_count as f64);
    }
    let end = START_MS + rounds as i64 * step_ms;
    read(&env, &head, "head", TimeRange::new(START_MS, end));
    cut(&env, &head);
    drop(head);
    env.disk.remove_dir_all(&dir).expect("removed");
}

impl Fleet {
    fn new(series_count: usize, late_percent: u64, lateness: Lateness, step_ms: i64) -> Fleet {
        let labels: Vec<Labels> = (0..series_count).map(labels_of).collect();
        let batches = labels.chunks(BATCH).map(|part| make_batch(part.iter())).collect();
        let (swapped, rng) = (vec![false; series_count], Rng::from_seed(1));
        Fleet {
            late_percent,
            lateness,
            swapped,
            rng,
            batches,
            step_ms,
            labels,
            newest: vec![0; series_count],
            withheld: Vec::new(),
        }
    }

    /// Selects the withheld samples of `rounds`, and the rounds in which they arrive.
    fn withhold(&mut self, rounds: usize) {
        self.withheld = vec![Vec::new(); rounds];
        if !matches!(self.lateness, Lateness::Withheld | Lateness::Shuffled) {
            return;
        }
        for round in 1..rounds.saturating_sub(1) {
            for series in 0..self.labels.len() as u32 {
                if self.rng.below(100) < self.late_percent {
                    let later = round + 1 + self.rng.below((rounds - round - 1) as u64) as usize;
                    self.withheld[later].push((series, round as i64));
                }
            }
        }
    }

    fn round(&mut self, env: &Env, head: &Head, round: i64) -> Cost {
        if matches!(self.lateness, Lateness::Withheld | Lateness::Shuffled) {
            return self.round_withheld(env, head, round);
        }
        let now = START_MS + self.step_ms * round;
        let mut cost = Cost::default();
        for (batch_idx, batch) in self.batches.iter_mut().enumerate() {
            let at_first = batch_idx * BATCH;
            for at in 0..batch.times.len() {
                let (time, is_out_of_order) = match self.lateness {
                    Lateness::Slight => {
                        let swapped = &mut self.swapped[at_first + at];
                        slight_time(&self.rng, self.late_percent, round, now, self.step_ms, swapped)
                    }
                    _ => old_time(&self.rng, self.late_percent, round, now),
                };
                batch.times[at] = time;
                cost.ooo_count += u64::from(is_out_of_order);
                batch.values[at] = if at % 2 == 0 {
                    batch.values[at] + self.rng.below(100) as f64
                } else {
                    self.rng.below(10_000) as f64 / 100.0
                };
            }
            append(env, head, now, batch, &mut cost);
        }
        cost
    }

    /// Appends the in-order samples of the round, then the withheld ones that arrive in it.
    fn round_withheld(&mut self, env: &Env, head: &Head, round: i64) -> Cost {
        // Withheld samples are listed under the round in which they arrive.
        let mut is_out_of_order = vec![false; self.labels.len()];
        let later = self.withheld.iter().flatten().filter(|(_, of)| *of == round);
        later.for_each(|&(series, _)| is_out_of_order[series as usize] = true);
        let in_time = (0..self.labels.len() as u32).filter(|&series| !is_out_of_order[series as usize]);
        let mut arrivals: Vec<(u32, i64)> = in_time.map(|series| (series, round)).collect();
        let mut cost = Cost { ooo_count: self.withheld[round as usize].len() as u64, ..Cost::default() };
        arrivals.append(&mut self.withheld[round as usize]);
        for part in arrivals.chunks(BATCH) {
            let mut batch = make_batch(part.iter().map(|(series, _)| &self.labels[*series as usize]));
            for (at, &(series, of)) in part.iter().enumerate() {
                batch.times[at] = START_MS + self.step_ms * of;
                if self.lateness == Lateness::Shuffled {
                    let newest = &mut self.newest[series as usize];
                    *newest = (START_MS + self.step_ms * round).max(*newest + 1);
                    batch.times[at] = *newest;
                }
                batch.values[at] = (of * 50) as f64 + f64::from(series % 100);
            }
            append(env, head, START_MS + self.step_ms * round, &batch, &mut cost);
        }
        cost
    }
}

fn append(env: &Env, head: &Head, now: i64, batch: &WriteBatch, cost: &mut Cost) {
    let start = cpu_ns(env);
    let (outcome, position) =
        head.append(&StoreId::anonymous(), &TenantLimits::default(), now, batch).expect("taken");
    let middle = cpu_ns(env);
    head.wait(position).expect("written");
    cost.append_ns += middle - start;
    cost.write_ns += cpu_ns(env) - middle;
    cost.sample_count += outcome.accepted_count;
}

/// Returns the timestamp of a sample; the flag is set if it is out of order.
fn old_time(rng: &Rng, late_percent: u64, round: i64, now: i64) -> (i64, bool) {
    if round == 0 || rng.below(100) >= late_percent {
        return (now, false);
    }
    (now - 1 - rng.below(DAY_MS) as i64, true)
}

/// As [`old_time`]: in even rounds the sample of the next one may arrive instead.
fn slight_time(
    rng: &Rng,
    late_percent: u64,
    round: i64,
    now: i64,
    step_ms: i64,
    swapped: &mut bool,
) -> (i64, bool) {
    if round % 2 == 0 {
        *swapped = rng.below(100) < 2 * late_percent;
        return (if *swapped { now + step_ms } else { now }, false);
    }
    if std::mem::take(swapped) { (now - step_ms, true) } else { (now, false) }
}

/// Reads all series of `range` from the head.
fn read(env: &Env, head: &Head, what: &str, range: TimeRange) {
    let matchers = [Matcher::equal("__name__", "http_requests_total")];
    let ctx = ReadContext::unlimited(env.clock.clone());
    let selector = Selector { matchers: &matchers, range };
    let start = cpu_ns(env);
    let found = head.reader().select(&StoreId::anonymous(), &selector, &ctx).expect("selected");
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

/// Takes a snapshot of every window and decodes its chunks as a flush to blocks would.
fn cut(env: &Env, head: &Head) {
    let (mut cut_ns, mut decode_ns, mut sample_count, mut chunk_count) = (0, 0, 0, 0);
    let mut columns = Columns::default();
    for window in head.windows().list() {
        let start = cpu_ns(env);
        let snapshot = head.windows().snapshot(&window.tenant, window.range).expect("a snapshot");
        let series: Vec<_> = snapshot.series().map(|s| s.expect("readable").chunks).collect();
        let middle = cpu_ns(env);
        for chunk in series.iter().flatten() {
            columns.clear();
            chronolith_format::chunk::kinds::decode(
                chunk.encoding,
                &chunk.bytes,
                TimeRange::ALL,
                &mut columns,
            )
            .expect("decodes");
            sample_count += columns.len();
            chunk_count += 1;
        }
        cut_ns += middle - start;
        decode_ns += cpu_ns(env) - middle;
        head.windows().drop(snapshot);
    }
    println!(
        "flush: {sample_count} samples in {chunk_count} chunks; {:.1} ns/sample to read, {:.1} ns/sample to decode after",
        cut_ns as f64 / sample_count as f64,
        decode_ns as f64 / sample_count as f64
    );
}

/// Returns the CPU time of this thread if the system reports it, so that load of the machine does not count;
/// else the clock.
fn cpu_ns(env: &Env) -> u64 {
    let stat = env.disk.read("/proc/thread-self/schedstat".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_else(|| env.clock.mono_ns())
}

fn make_batch<'a>(series: impl Iterator<Item = &'a Labels>) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    series.for_each(|labels| batch.push_labels(labels, &[(0, 0.0)]));
    batch
}

fn labels_of(series: usize) -> Labels {
    let (instance, path) = (format!("host-{}:9100", series / 500), format!("/api/v1/{}", series % 500));
    Labels::from_pairs([
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
    ])
}
