//! Nanoseconds a sample of `Head::append`, without waiting for a sync, and bytes of memory a series.
//!
//! `cargo run --release -p chronolith-head --example append_speed -- [series] [rounds] [0 = no checkpoint]`

use chronolith_base::Env;
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::{Labels, TenantId, TenantLimits, WriteBatch};

const BATCH: usize = 5000;

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (series, rounds) = (args.next().unwrap_or(100_000), args.next().unwrap_or(20));
    let with_checkpoint = args.next() != Some(0);
    let dir = std::env::temp_dir().join(format!("append-speed-{}", std::process::id()));
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.clone()) };
    let (head, _) = Head::open(&env, options.clone(), &ReplayProgress::default()).expect("opens");
    let (tenant, limits) = (TenantId::anonymous(), TenantLimits::default());
    let now = 1_700_000_000_000;
    let mut batches: Vec<WriteBatch> =
        (0..series.div_ceil(BATCH)).map(|b| make_batch(b * BATCH, series)).collect();
    for round in 0..rounds {
        let (mut append_ns, mut wait_ns) = (0, 0);
        for batch in &mut batches {
            for (i, time) in batch.times.iter_mut().enumerate() {
                *time = now + 15_000 * round as i64;
                batch.values[i] = if i % 3 == 0 { 1.0 } else { (round * 7 + i) as f64 * 0.5 };
            }
            let start = cpu_ns(&env);
            let (outcome, ticket) =
                head.append(&tenant, &limits, now + 15_000 * round as i64, batch).expect("taken");
            let middle = cpu_ns(&env);
            head.wait(ticket).expect("written");
            assert_eq!(outcome.rejected_count(), 0);
            append_ns += middle - start;
            wait_ns += cpu_ns(&env) - middle;
        }
        let each = |ns: u64| ns as f64 / series as f64;
        println!(
            "round {round}: append {:.1} ns/sample, log write {:.1} ns/sample",
            each(append_ns),
            each(wait_ns)
        );
    }
    let stats = head.stats();
    println!("{:?}", stats.memory);
    if with_checkpoint {
        let start = cpu_ns(&env);
        let checkpoint = head.checkpoint().expect("checkpoint");
        println!("checkpoint: {} bytes, {} ms", checkpoint.bytes, (cpu_ns(&env) - start) / 1_000_000);
    }
    drop(head);
    let start = cpu_ns(&env);
    let (head, report) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    println!("open: {} ms of CPU in this thread", (cpu_ns(&env) - start) / 1_000_000);
    println!(
        "open: {} ms, {} series, {} samples",
        report.duration_ns / 1_000_000,
        report.series,
        report.samples
    );
    drop(head);
    env.disk.remove_dir_all(&dir).expect("removed");
}

/// CPU time of this thread where the system tells it, so that a busy machine does not show; else the clock.
fn cpu_ns(env: &Env) -> u64 {
    let stat = env.disk.read("/proc/thread-self/schedstat".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_else(|| env.clock.mono_ns())
}

fn make_batch(first: usize, series: usize) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for i in first..(first + BATCH).min(series) {
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
