//! Benchmark of a restart after a kill: wall time, CPU time, and peak of resident memory before and after.
//!
//! `cargo bench -p chronolith-head --bench restart_speed -- [series] [rounds] [tail rounds] [unique]`
//! Writes `rounds` scrapes of all series, 10 labels each, in a separate process, which ends without closing
//! anything; a second process opens the directory. A checkpoint is written `tail rounds` before the end; set
//! it to `rounds` for a run without one. If the last argument is not 0, each series has a distinct label
//! value, some 250 bytes of text. `cargo test` restarts a small head.

use std::path::Path;

use chronolith_base::{Env, Rng};
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::{
    Labels, MatchOp, Matcher, ReadContext, Selector, StoreId, TenantLimits, TimeRange, WriteBatch,
};

const BATCH: usize = 5000;
const STEP_MS: i64 = 15_000;
/// Start of a window, so that rounds and windows begin together.
const START_MS: i64 = 1_699_999_200_000;

fn main() {
    // `cargo bench` passes the flag, `cargo test` does not.
    let (flags, args): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let is_measured = flags.iter().any(|flag| flag == "--bench");
    let (series_count, rounds) = if is_measured { (100_000, 20) } else { (2000, 6) };
    let number = |idx: usize, default| args.get(idx).and_then(|a| a.parse::<usize>().ok()).unwrap_or(default);
    match args.first().map(String::as_str) {
        Some("write") => {
            write(Path::new(&args[1]), number(2, 0), number(3, 0), number(4, 0), number(5, 0) != 0);
            // As after a kill: nothing is closed, no destructor runs.
            std::process::abort();
        }
        Some("open") => open(Path::new(&args[1])),
        _ => {
            let dir = std::env::temp_dir().join(format!("restart-speed-{}", std::process::id()));
            let dir_text = dir.display().to_string();
            let (series, rounds) = (number(0, series_count).to_string(), number(1, rounds).to_string());
            let (tail, unique) = (number(2, 2).to_string(), number(3, 0).to_string());
            run(&["write", &dir_text, &series, &rounds, &tail, &unique]);
            run(&["open", &dir_text]);
            run(&["open", &dir_text]);
            Env::real().disk.remove_dir_all(&dir).expect("removed");
        }
    }
}

fn run(args: &[&str]) {
    let program = std::env::current_exe().expect("a name");
    let status = std::process::Command::new(program).args(args).status().expect("a process");
    // The writer aborts, as if it was killed: it has no exit code.
    let expected = if args[0] == "write" { None } else { Some(0) };
    assert_eq!(status.code(), expected, "{args:?}: {status}");
}

fn options(dir: &Path) -> HeadOptions {
    HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.to_owned()) }
}

fn write(dir: &Path, series_count: usize, rounds: usize, tail_rounds: usize, unique: bool) {
    let env = Env::real();
    let rng = Rng::from_seed(1);
    let mut batches: Vec<WriteBatch> =
        (0..series_count).step_by(BATCH).map(|first| make_batch(first, series_count, unique)).collect();
    let before = status_bytes(&env, "VmRSS:");
    let (head, _) = Head::open(&env, options(dir), &ReplayProgress::default()).expect("opens");
    for round in 0..rounds {
        let now = START_MS + STEP_MS * round as i64;
        for batch in &mut batches {
            for (i, value) in batch.values.iter_mut().enumerate() {
                *value = if i % 2 == 0 {
                    *value + rng.below(100) as f64
                } else {
                    rng.below(10_000) as f64 / 100.0
                };
            }
            batch.times.fill(now);
            let (_, position) =
                head.append(&StoreId::anonymous(), &TenantLimits::default(), now, batch).expect("taken");
            head.wait(position).expect("written");
        }
        if round + 1 + tail_rounds == rounds && tail_rounds < rounds {
            let stats = head.checkpointer().checkpoint().expect("a checkpoint");
            println!("checkpoint: {} bytes, {} ms", stats.bytes, stats.duration_ns / 1_000_000);
        }
    }
    let stats = head.statistics().stats();
    println!(
        "{} series, {} chunks, {} bytes of WAL; RSS of the head {} MB",
        stats.series,
        stats.chunks,
        stats.wal.segment_bytes,
        status_bytes(&env, "VmRSS:").saturating_sub(before) >> 20,
    );
}

fn open(dir: &Path) {
    let env = Env::real();
    let start = env.clock.mono_ns();
    let (head, report) = Head::open(&env, options(dir), &ReplayProgress::default()).expect("opens");
    let opened = env.clock.mono_ns();
    let matchers = [Matcher::new("instance", MatchOp::Equal, "host-1:9100").expect("a pattern")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let found =
        head.reader().select(&StoreId::anonymous(), &selector, &ReadContext::unlimited(env.clock.clone()));
    let count = found.expect("selected").len();
    println!(
        "open: {} ms, first answer ({count} series) {} ms later; {} CPU ms; {} samples of the WAL; {} series; \
         RSS {} MB (anonymous {}), peak {} MB; notes {:?}",
        (opened - start) / 1_000_000,
        (env.clock.mono_ns() - opened) / 1_000_000,
        cpu_ms(&env),
        report.samples,
        report.series,
        status_bytes(&env, "VmRSS:") >> 20,
        status_bytes(&env, "RssAnon:") >> 20,
        status_bytes(&env, "VmHWM:") >> 20,
        report.notes,
    );
    assert!(report.notes.is_empty() && report.series > 0, "nothing is lost");
    std::process::exit(0);
}

fn make_batch(first: usize, series_count: usize, unique: bool) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    (first..(first + BATCH).min(series_count))
        .for_each(|i| batch.push_labels(&labels(i, unique), &[(0, 0.0)]));
    batch
}

fn labels(i: usize, unique: bool) -> Labels {
    let (instance, path) = (format!("host-{}:9100", i / 500), format!("/api/v1/{}", i % 500));
    let uid = format!("{:032x}-{i}", (i as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    Labels::from_pairs([
        ("__name__", "http_server_request_duration_seconds_count"),
        ("instance", &*instance),
        ("path", &*path),
        ("job", "kubernetes-service-endpoints"),
        ("cluster", "production-eu-west-1"),
        ("namespace", "default"),
        ("method", "GET"),
        ("code", "200"),
        ("pod", if unique { &*uid } else { "api-7c9f" }),
        ("container", "server"),
    ])
}

/// Returns a line of `/proc/self/status` in bytes; 0 if the system does not report it.
fn status_bytes(env: &Env, key: &str) -> u64 {
    let status = env.disk.read("/proc/self/status".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap_or("");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Returns the CPU time of the process, user and system; a clock tick is 10 ms.
fn cpu_ms(env: &Env) -> u64 {
    let stat = env.disk.read("/proc/self/stat".as_ref()).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |idx: usize| fields.get(idx).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10
}
