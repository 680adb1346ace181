//! Benchmark of `Head::append`: nanoseconds per sample, without waiting for a sync, and bytes of memory per
//! series by part.
//!
//! Half of the series are counters, half are gauges with two decimals; a round is one scrape of all, 15 s
//! apart.
//! `cargo bench -p chronolith-head --bench append_speed -- [series] [rounds] [print every] [drop]`
//! If the last argument is not 0, the oldest window is dropped at the end while other threads measure their
//! waits. `cargo test` runs a few small rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::{Env, Rng};
use chronolith_head::{Head, HeadOptions, MemoryPart, ReplayProgress, SyncMode};
use chronolith_model::{Labels, Matcher, ReadContext, Selector, StoreId, TenantLimits, WriteBatch};

const BATCH: usize = 5000;
const STEP_MS: i64 = 15_000;
/// Start of a window, so that rounds and windows begin together.
const START_MS: i64 = 1_699_999_200_000;

/// The series of a fleet and their next values.
struct Fleet {
    batches: Vec<WriteBatch>,
    rng: Rng,
    series_count: usize,
}

/// CPU time of one round.
#[derive(Default)]
struct Cost {
    append_ns: u64,
    wait_ns: u64,
    /// Longest append of a batch.
    longest_ns: u64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` passes the flag, `cargo test` does not.
    let defaults = if args.iter().any(|arg| arg == "--bench") { [100_000, 20, 1, 0] } else { [600, 4, 2, 0] };
    let numbers: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let number = |idx: usize| numbers.get(idx).copied().unwrap_or(defaults[idx]);
    let (series_count, rounds, print_every) = (number(0), number(1), number(2).max(1));
    let with_drop = number(3) != 0;
    let dir = std::env::temp_dir().join(format!("append-speed-{}", std::process::id()));
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.clone()) };
    let mut fleet = Fleet::new(series_count);
    let before = rss_bytes(&env);
    let (head, _) = Head::open(&env, options.clone(), &ReplayProgress::default()).expect("opens");
    let mut total = Cost::default();
    for round in 0..rounds {
        let cost = fleet.round(&env, &head, round, series_count);
        if round == 0 {
            println!("longest append of {BATCH} new series: {} us", cost.longest_ns / 1000);
        } else {
            total.append_ns += cost.append_ns;
            total.wait_ns += cost.wait_ns;
        }
        if round % print_every == print_every - 1 || round + 1 == rounds {
            print_round(&env, &head, round, &cost, series_count, before);
        }
    }
    let samples = (rounds.max(2) - 1) * series_count;
    println!(
        "mean after round 0: append {:.1} ns/sample, log write {:.1} ns/sample",
        total.append_ns as f64 / samples as f64,
        total.wait_ns as f64 / samples as f64
    );
    let start = cpu_ns(&env);
    let checkpoint = head.checkpointer().checkpoint().expect("checkpoint");
    println!("checkpoint: {} bytes, {} ms", checkpoint.bytes, (cpu_ns(&env) - start) / 1_000_000);
    if with_drop {
        drop_oldest(&env, &head, &mut fleet);
        print_round(&env, &head, rounds, &Cost::default(), series_count, before);
    }
    drop(head);
    let before = rss_bytes(&env);
    let (head, report) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    println!(
        "open: {} ms, {} series, {} samples",
        report.duration_ns / 1_000_000,
        report.series,
        report.samples
    );
    print_round(&env, &head, rounds, &Cost::default(), series_count, before);
    drop(head);
    env.disk.remove_dir_all(&dir).expect("removed");
}

impl Fleet {
    fn new(series_count: usize) -> Fleet {
        let batches =
            (0..series_count.div_ceil(BATCH)).map(|b| make_batch(b * BATCH, series_count)).collect();
        Fleet { batches, rng: Rng::from_seed(1), series_count }
    }

    /// Sends one scrape of the first `series_count` series, rounded up to whole batches.
    fn round(&mut self, env: &Env, head: &Head, round: usize, series_count: usize) -> Cost {
        let now = START_MS + STEP_MS * round as i64;
        let mut cost = Cost::default();
        for batch in self.batches.iter_mut().take(series_count.div_ceil(BATCH)) {
            for (i, time) in batch.times.iter_mut().enumerate() {
                *time = now;
                batch.values[i] = if i % 2 == 0 {
                    batch.values[i] + self.rng.below(100) as f64
                } else {
                    (self.rng.below(10_000) as f64) / 100.0
                };
            }
            let start = cpu_ns(env);
            let (outcome, position) =
                head.append(&StoreId::anonymous(), &TenantLimits::default(), now, batch).expect("taken");
            let middle = cpu_ns(env);
            head.wait(position).expect("written");
            assert_eq!(outcome.accepted_count, batch.times.len() as u64);
            cost.append_ns += middle - start;
            cost.longest_ns = cost.longest_ns.max(middle - start);
            cost.wait_ns += cpu_ns(env) - middle;
        }
        cost
    }
}

fn print_round(env: &Env, head: &Head, round: usize, cost: &Cost, series_count: usize, rss_before: u64) {
    let each = |amount: u64| amount as f64 / series_count as f64;
    let start = env.clock.mono_ns();
    let stats = head.statistics().stats();
    let stats_us = (env.clock.mono_ns() - start) / 1000;
    let parts = head.statistics().memory();
    let of = |part: &MemoryPart| format!("{} {:.1}", part.name, each(part.bytes));
    println!(
        "round {round}: {:.1} + {:.1} ns/sample; {} chunks; stats {stats_us} us; per series: RSS {:.0} B, {}",
        each(cost.append_ns),
        each(cost.wait_ns),
        stats.chunks,
        each(rss_bytes(env).saturating_sub(rss_before)),
        parts.iter().map(of).collect::<Vec<_>>().join(", "),
    );
}

/// Continues with two fifths of the series in the next window, then drops the oldest one while other threads
/// append and query and measure how long that takes.
fn drop_oldest(env: &Env, head: &Head, fleet: &mut Fleet) {
    let Some(window) = head.windows().list().first().map(|w| w.range) else { return };
    let next = ((window.end - START_MS) / STEP_MS) as usize;
    fleet.round(env, head, next, fleet.series_count * 2 / 5);
    let stop = AtomicBool::new(false);
    let [known, fresh, query] = [(); 3].map(|()| AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = || {
            let mut series = fleet.series_count;
            let mut batch = make_batch(series, series + 1);
            while !stop.load(Ordering::Relaxed) {
                // A sleeping thread gets a core when it wakes, so that the waits are those for locks.
                std::thread::sleep(std::time::Duration::from_millis(1));
                batch.times[0] = batch.times[0].max(window.end) + 1;
                append_one(env, head, &batch, &known);
                series += 1;
                let mut batch = make_batch(series, series + 1);
                batch.times[0] = window.end;
                append_one(env, head, &batch, &fresh);
            }
        };
        let reader = || {
            let matchers = [Matcher::equal("instance", "host-1:9100")];
            while !stop.load(Ordering::Relaxed) {
                // A sleeping thread gets a core when it wakes, so that the waits are those for locks.
                std::thread::sleep(std::time::Duration::from_millis(1));
                let start = env.clock.mono_ns();
                let ctx = ReadContext::unlimited(env.clock.clone());
                let selector = Selector { matchers: &matchers, range: window };
                head.reader().select(&StoreId::anonymous(), &selector, &ctx).expect("selected");
                query.fetch_max(env.clock.mono_ns() - start, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().spawn_scoped(scope, writer).expect("a thread");
        std::thread::Builder::new().spawn_scoped(scope, reader).expect("a thread");
        let start = env.clock.mono_ns();
        let snapshot = head.windows().snapshot(&StoreId::anonymous(), window).expect("snapshot");
        let middle = env.clock.mono_ns();
        print_longest("snapshot", middle - start, [&known, &fresh, &query]);
        let dropped = head.windows().drop(snapshot);
        print_longest("drop", env.clock.mono_ns() - middle, [&known, &fresh, &query]);
        println!("{dropped:?}");
        stop.store(true, Ordering::Relaxed);
    });
}

fn append_one(env: &Env, head: &Head, batch: &WriteBatch, longest_ns: &AtomicU64) {
    let start = env.clock.mono_ns();
    let (_, position) =
        head.append(&StoreId::anonymous(), &TenantLimits::default(), batch.times[0], batch).expect("taken");
    longest_ns.fetch_max(env.clock.mono_ns() - start, Ordering::Relaxed);
    head.wait(position).expect("written");
}

/// Prints the longest calls of the other threads since the last time.
fn print_longest(what: &str, ns: u64, longest_ns: [&AtomicU64; 3]) {
    let [known, fresh, query] = longest_ns.map(|l| l.swap(0, Ordering::Relaxed) / 1000);
    println!(
        "{what} {} ms; longest meanwhile: append {known} us, of a new series {fresh} us, query of 500 series {query} us",
        ns / 1_000_000
    );
}

/// Returns the resident memory of this process; 0 if the system does not report it.
fn rss_bytes(env: &Env) -> u64 {
    let status = env.disk.read("/proc/self/status".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap_or("");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Returns the CPU time of this thread if the system reports it, so that load of the machine does not count;
/// else the clock.
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
