//! Makes whisper files and imports them into an empty store, for measurements and profilers:
//! `cargo bench -p chronolith-import --bench whisper_speed -- make DIR COUNT`, then `-- import DIR TARGET`.
//! `cargo test` makes and imports a few.
//!
//! Invariants: the target must not exist. Not here: CPU time (run it under `perf stat` or `time`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_import::whisper::{
    self, Comparison, FileBuilder, TimeSelection, WhisperOptions, WhisperReport, WhisperSource,
};
use chronolith_ingest::carbon::{AggregationMethod, Archive};

/// 10 s for 2 hours, a minute for a day, 10 minutes for 10 days.
const ARCHIVES: [Archive; 3] = [
    Archive { step_s: 10, point_count: 720 },
    Archive { step_s: 60, point_count: 1440 },
    Archive { step_s: 600, point_count: 1440 },
];
/// Nodes of a host: files of one directory.
const FILES_PER_DIR: u32 = 100;

fn main() {
    // `cargo bench` passes the flag, `cargo test` does not.
    let (flags, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let is_measured = flags.iter().any(|flag| flag == "--bench");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        _ if !is_measured => {
            let dir = std::env::temp_dir().join(format!("whisper-speed-{}", std::process::id()));
            make(&dir.join("whisper"), 3);
            assert!(import(&dir.join("whisper"), &dir.join("target")) > 0, "points are imported");
            Env::real().disk.remove_dir_all(&dir).expect("removed");
        }
        ["make", dir, count] => make(Path::new(dir), count.parse().expect("a number of files")),
        ["import", dir, target] => {
            import(Path::new(dir), Path::new(target));
        }
        _ => {
            eprintln!("usage: whisper_speed make DIR COUNT | import DIR TARGET");
            std::process::exit(2);
        }
    }
}

/// Makes full files whose newest point is of this minute: counters, noisy decimals and constants.
fn make(dir: &Path, count: u32) {
    let env = Env::real();
    let now_s = u32::try_from(env.clock.now_ms() / 1000).expect("before 2106");
    for idx in 0..count {
        let mut builder = FileBuilder::new(AggregationMethod::Average, 0.5, &ARCHIVES).expect("a method");
        for (archive_idx, archive) in ARCHIVES.iter().enumerate() {
            let last_s = now_s - now_s % archive.step_s;
            let points = (0..archive.point_count).map(|back| {
                let time_s = last_s - (archive.point_count - 1 - back) * archive.step_s;
                (time_s, value(idx, time_s))
            });
            builder.put_points(archive_idx, points);
        }
        let host = idx / FILES_PER_DIR;
        let file_dir = dir.join(format!("load/dc{}/host{host:05}", host % 5));
        env.disk.create_dir_all(&file_dir).expect("a directory");
        let path = file_dir.join(format!("metric{:02}.wsp", idx % FILES_PER_DIR));
        let file = env.disk.create(&path).expect("a file");
        file.write_at(&builder.into_bytes(), 0).expect("written");
    }
}

fn value(series: u32, time_s: u32) -> f64 {
    let mixed = (u64::from(series) << 32 | u64::from(time_s)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match series % 4 {
        0 => f64::from(time_s % 1_000_000) * 7.0,
        1 => (mixed % 10_000) as f64 / 100.0,
        2 => f64::from(series),
        _ => (mixed % 1000) as f64,
    }
}

/// Imports the files below `dir` into `target`; returns the number of points.
fn import(dir: &Path, target: &Path) -> u64 {
    let env = Env::real();
    assert!(!env.disk.exists(target), "{} exists", target.display());
    env.disk.create_dir_all(target).expect("a directory");
    let options = WhisperOptions {
        blocks_dir: target.join("blocks"),
        state_path: PathBuf::from(target).join("import.json"),
        selection: TimeSelection::ALL,
        comparison: Comparison::All,
        rules: std::sync::Arc::default(),
        worker_count: whisper::default_worker_count(),
    };
    let start_ns = env.clock.mono_ns();
    let mut report = WhisperReport::default();
    let source = WhisperSource::list(&env, dir, &mut report).expect("files");
    let listed_ns = env.clock.mono_ns();
    let imported = whisper::run(&env, &source, &options, &mut |_| {}).expect("the import succeeds");
    report.add(imported);
    let end_ns = env.clock.mono_ns();
    let seconds = (end_ns - start_ns) as f64 / 1e9;
    let points = report.slots.taken;
    println!(
        "{points} points ({} covered) of {} files in {} blocks, {seconds:.2} s ({:.2} s of it listing), \
         {:.2} M points/s, {} differences, {} damages",
        report.slots.covered,
        report.files,
        report.blocks,
        (listed_ns - start_ns) as f64 / 1e9,
        points as f64 / seconds / 1e6,
        report.differences.len(),
        report.damages.len()
    );
    points
}
