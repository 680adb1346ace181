//! Cost of out-of-order samples of one series in hostile orders, and the latency of other writers and queries
//! meanwhile.
//!
//! Another tenant writes a sample to each of 16 pages of series and reads one of them in a loop; its p99 and
//! maximum are printed next to the CPU time of the hostile writes. Timestamps are one millisecond apart.
//! `cargo run --release -p chronolith-head --example hostile_order -- [samples] [samples per batch]
//! [order|all] [float|histogram]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::thread::spawn;
use chronolith_base::{Env, Rng};
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::{
    Columns, Histogram, IntHistogram, Labels, MatchOp, Matcher, ReadContext, Selector, StoreId, TenantId,
    TenantLimits, TimeRange, WriteBatch,
};

const START_MS: i64 = 1_699_999_200_000;
const SERIES_COUNT: usize = 16 * 1024;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    let count = number(0, 1_000_000);
    let batch_len = number(1, count);
    let is_histogram = args.get(3).is_some_and(|kind| kind == "histogram");
    let orders = match args.get(2).filter(|order| *order != "all") {
        Some(order) => vec![order.clone()],
        None => ["random", "descending", "interleaved", "sawtooth"].map(str::to_owned).to_vec(),
    };
    for order in orders {
        let dir = std::env::temp_dir().join(format!("hostile-order-{}", std::process::id()));
        run(&dir, &order, count, batch_len, is_histogram);
    }
}

fn times_of(order: &str, count: usize) -> Vec<i64> {
    let rng = Rng::from_seed(1);
    let mut times: Vec<i64> = (0..count as i64).collect();
    let half = (count as i64 + 1) / 2;
    match order {
        "random" => (1..count).rev().for_each(|i| times.swap(i, rng.below(i as u64 + 1) as usize)),
        "descending" => times.reverse(),
        "interleaved" => {
            times = (0..half).flat_map(|i| [i, half + i]).filter(|&t| t < count as i64).collect()
        }
        "sawtooth" => times = (0..17).flat_map(|tooth| (tooth..count as i64).step_by(17)).collect(),
        _ => {}
    }
    times
}

/// A histogram of eight buckets that grow with time.
fn histogram_at(time: i64) -> Arc<Histogram> {
    let counts: Vec<u64> = (0..8).map(|bucket| (time as u64 >> bucket) + bucket).collect();
    Arc::new(Histogram::Int(IntHistogram {
        count: counts.iter().sum(),
        sum: time as f64,
        positive: Buckets { spans: vec![Span { offset: 0, length: 8 }], counts },
        ..IntHistogram::default()
    }))
}

fn run(dir: &std::path::Path, order: &str, count: usize, batch_len: usize, is_histogram: bool) {
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.to_owned()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let (head, stops) = (Arc::new(head), Arc::new(AtomicBool::new(false)));
    let neighbour = {
        let (head, env, stops) = (head.clone(), env.clone(), stops.clone());
        spawn("neighbour", move || be_neighbour(&head, &env, &stops)).expect("spawns")
    };
    let (tenant, limits) = (StoreId::from(TenantId::new("hostile").expect("valid")), TenantLimits::default());
    let labels = Labels::from_pairs([("__name__", "m")]);
    let times = times_of(order, count);
    let (mut append_ns, start_ns) = (0, env.clock.mono_ns());
    for part in times.chunks(batch_len) {
        let samples: Vec<(i64, f64)> = part.iter().map(|&t| (START_MS + t, (t % 977) as f64)).collect();
        let mut batch = WriteBatch::from_labels();
        batch.push_labels(&labels, &samples);
        if is_histogram {
            batch.histograms = (0..).zip(part.iter().map(|&time| histogram_at(time))).collect();
        }
        let before = cpu_ns(&env);
        let (outcome, position) =
            head.append(&tenant, &limits, START_MS + count as i64, &batch).expect("appended");
        append_ns += cpu_ns(&env) - before;
        assert_eq!(outcome.accepted_count, part.len() as u64);
        head.wait(position).expect("written");
    }
    let wall_ms = (env.clock.mono_ns() - start_ns) / 1_000_000;
    stops.store(true, Ordering::Relaxed);
    let (mut writes, mut reads) = neighbour.join().expect("no panic");
    let ctx = ReadContext::unlimited(env.clock.clone());
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut columns = Columns::default();
    let found = head.reader().select(&tenant, &selector, &ctx).expect("selects");
    found[0].samples.read(TimeRange::ALL, &mut columns).expect("reads");
    assert_eq!(columns.len(), count, "all are there");
    let moves = head.statistics().stats().samples.ooo_sealed as f64 / count as f64;
    let _ = env.disk.remove_dir_all(dir);
    let kind = if is_histogram { "histograms" } else { "samples" };
    println!(
        "{order}, {count} {kind}, {batch_len} per batch: {:.0} ms CPU, {wall_ms} ms, each sample encoded {moves:.1} times; \
         neighbour: writes p99 {:.2} max {:.2} ms, reads p99 {:.2} max {:.2} ms",
        append_ns as f64 / 1e6,
        percentile(&mut writes, 0.99),
        percentile(&mut writes, 1.0),
        percentile(&mut reads, 0.99),
        percentile(&mut reads, 1.0),
    );
}

/// Durations of writes and reads, in nanoseconds.
fn be_neighbour(head: &Head, env: &Env, stops: &AtomicBool) -> (Vec<u64>, Vec<u64>) {
    let (tenant, limits) =
        (StoreId::from(TenantId::new("neighbour").expect("valid")), TenantLimits::default());
    let labels: Vec<Labels> = (0..SERIES_COUNT)
        .map(|i| Labels::from_pairs([("__name__", "up"), ("instance", &*format!("host-{i}"))]))
        .collect();
    let write = |time: i64, step: usize| {
        let mut batch = WriteBatch::from_labels();
        labels.iter().step_by(step).for_each(|one| batch.push_labels(one, &[(time, 1.0)]));
        let before = env.clock.mono_ns();
        let (_, position) = head.append(&tenant, &limits, START_MS, &batch).expect("appended");
        head.wait(position).expect("written");
        env.clock.mono_ns() - before
    };
    write(START_MS, 1);
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let ctx = ReadContext::unlimited(env.clock.clone());
    let matchers = [Matcher::new("instance", MatchOp::Equal, "host-77").expect("compiles")];
    let mut time = START_MS;
    while !stops.load(Ordering::Relaxed) {
        time += 1;
        writes.push(write(time, 1024));
        let before = env.clock.mono_ns();
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let found = head.reader().select(&tenant, &selector, &ctx).expect("selects");
        let mut columns = Columns::default();
        found[0].samples.read(TimeRange::ALL, &mut columns).expect("reads");
        reads.push(env.clock.mono_ns() - before);
        env.clock.sleep(std::time::Duration::from_micros(200));
    }
    (writes, reads)
}

fn percentile(ns: &mut [u64], share: f64) -> f64 {
    ns.sort_unstable();
    let at = ((ns.len() as f64 * share) as usize).min(ns.len().saturating_sub(1));
    ns.get(at).map_or(0.0, |&ns| ns as f64 / 1e6)
}

/// Returns the CPU time of this thread.
fn cpu_ns(env: &Env) -> u64 {
    let stat = env.disk.read("/proc/thread-self/schedstat".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
