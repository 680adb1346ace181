//! Imports a Prometheus data directory into an empty store, for profilers: `import_speed SOURCE TARGET`.
//!
//! Invariants: the target must not exist. Not here: a WAL to import (`cargo xtask bench load-wal-large` makes
//! one), CPU time (run it under `perf stat` or `time`).

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_import::ImportOptions;
use chronolith_model::BlockEncoding;

fn main() {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (Some(source), Some(target)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: import_speed SOURCE TARGET");
        std::process::exit(2);
    };
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
}
