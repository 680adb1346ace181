//! Imports a Prometheus data directory into an empty store, for profilers:
//! `cargo bench -p chronolith-import --bench import_speed -- SOURCE TARGET`. `cargo test` imports a small
//! one.
//!
//! Invariants: the target must not exist. Not here: a WAL to import (`cargo xtask bench load-wal-large` makes
//! one), CPU time (run it under `perf stat` or `time`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_import::ImportOptions;
use chronolith_model::BlockEncoding;

fn main() {
    // `cargo bench` passes the flag, `cargo test` does not.
    let (flags, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let is_measured = flags.iter().any(|flag| flag == "--bench");
    match &paths[..] {
        _ if !is_measured => {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/prometheus-2.42");
            let target = std::env::temp_dir().join(format!("import-speed-{}", std::process::id()));
            assert!(measure(source, target.clone()) > 0, "samples are imported");
            Env::real().disk.remove_dir_all(&target).expect("removed");
        }
        [source, target] => drop(measure(source.into(), target.into())),
        _ => {
            eprintln!("usage: import_speed SOURCE TARGET");
            std::process::exit(2);
        }
    }
}

/// Imports `source` into `target`; returns the number of samples.
fn measure(source: PathBuf, target: PathBuf) -> u64 {
    let env = Env::real();
    assert!(!env.disk.exists(&target), "{} exists", target.display());
    let options = ImportOptions {
        source,
        blocks_dir: target.join("blocks"),
        state_path: target.join("import.json"),
        encoding: BlockEncoding::Dense,
    };
    let start_ns = env.clock.mono_ns();
    let report = chronolith_import::run(&env, &options, &mut |_| {}).expect("the import succeeds");
    let seconds = (env.clock.mono_ns() - start_ns) as f64 / 1e9;
    let samples = report.head.samples;
    println!("{samples} samples, {seconds:.2} s, {} damages", report.damages.len());
    samples
}
