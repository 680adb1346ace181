//! `sim`: simulates seeds until one fails or a number of operations is reached.
//!
//! Invariants: the seed of a failure is printed, and for one thread a shrunk list of operations that fails,
//! too.
//! Not here: the checks (the library).

use std::process::ExitCode;

use chronolith_base::Rng;
use chronolith_sim::{
    Budget, Failure, Mix, Mode, Setup, Tally, draw_ops, run_bucket_crash_points,
    run_bucket_maintenance_points, run_bucket_seeds, run_cluster_ends, run_cluster_seeds, run_concurrent,
    run_crash_points, run_cut_scenarios, run_graphite_seeds, run_seam, run_seeds, shrink,
};
use clap::Parser;

/// Runs the store on a simulated disk and clock and compares its answers with a ledger.
#[derive(Parser)]
struct Args {
    /// First seed; random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Operations of all seeds: written samples and control operations.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// Operations per seed.
    #[arg(long, default_value_t = 100_000)]
    seed_ops: u64,
    /// Number of seeds, instead of operations.
    #[arg(long)]
    seeds: Option<u64>,
    /// Runs a script of this many operations per seed, with a crash at each of its disk operations.
    #[arg(long)]
    crash_points: Option<usize>,
    /// Runs several threads, for this many rounds per seed.
    #[arg(long)]
    concurrent: Option<u64>,
    /// Runs with a Graphite store with roll-ups.
    #[arg(long)]
    graphite: bool,
    /// Runs with a bucket, whose requests fail and in which the process ends.
    #[arg(long)]
    bucket: bool,
    /// Runs a cluster: gateways, a replicated log, owners and query nodes.
    #[arg(long)]
    cluster: bool,
    /// Runs a cluster until its log has this many cuts, with a query node that is asked all the time.
    #[arg(long)]
    cluster_seam: Option<u64>,
    /// Runs scenarios around the publication of cuts, and a script of a cluster with an end of an owner at
    /// each of its records, disk operations and requests.
    #[arg(long)]
    cluster_ends: bool,
    /// Runs a script of this many operations per seed with a bucket, with an end of the process before and
    /// after each of its requests.
    #[arg(long)]
    bucket_crash_points: Option<usize>,
    /// Runs a script in which a bucket is maintained, with an end of the process before and after each of its
    /// requests.
    #[arg(long)]
    bucket_maintenance_points: bool,
    /// Does not shrink the list of operations that fails.
    #[arg(long)]
    no_shrink: bool,
    /// Prints the log of the database while the shrunk list of operations runs.
    #[arg(long)]
    log: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| Rng::from_os().next_u64() >> 32);
    println!("first seed: {seed}");
    let seeds = args.seeds.unwrap_or(1);
    let done = if let Some(op_count) = args.crash_points {
        run_each(seed, seeds, |seed| {
            let done = run_crash_points(seed, op_count)?;
            println!("seed {seed}: {} crash points", done.crash_points);
            Ok(done.tally)
        })
    } else if let Some(op_count) = args.bucket_crash_points {
        run_each(seed, seeds, |seed| {
            let done = run_bucket_crash_points(seed, op_count, 1)?;
            println!("seed {seed}: {} ends at requests", done.crash_points);
            Ok(done.tally)
        })
    } else if let Some(cut_count) = args.cluster_seam {
        run_each(seed, seeds, |seed| run_seam(seed, cut_count))
    } else if args.cluster_ends {
        run_each(seed, seeds, |seed| {
            run_cut_scenarios(seed)?;
            let (tally, end_count) = run_cluster_ends(seed, 1)?;
            println!("seed {seed}: {end_count} ends of an owner");
            Ok(tally)
        })
    } else if args.bucket_maintenance_points {
        run_each(seed, seeds, |seed| {
            let done = run_bucket_maintenance_points(seed, 1)?;
            println!("seed {seed}: {} ends at requests", done.crash_points);
            Ok(done.tally)
        })
    } else if let Some(rounds) = args.concurrent {
        run_each(seed, seeds, |seed| run_concurrent(seed, rounds))
    } else {
        let ops = args.seeds.map_or(args.ops, |seeds| seeds.saturating_mul(args.seed_ops));
        let budget = Budget { ops, seed_ops: args.seed_ops.min(ops) };
        let progress = |seed, tally: &Tally| {
            println!("seed {seed}: {} operations, {} starts", tally.ops(), tally.starts)
        };
        match (args.cluster, args.bucket, args.graphite) {
            (true, ..) => run_cluster_seeds(seed, budget, progress),
            (false, true, _) => run_bucket_seeds(seed, budget, progress),
            (false, false, true) => run_graphite_seeds(seed, budget, progress),
            (false, false, false) => run_seeds(seed, budget, progress),
        }
    };
    match done {
        Ok(tally) => {
            println!("{} operations: {tally:?}", tally.ops());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            if !args.no_shrink {
                print_shrunk(&failure, args.log);
            }
            ExitCode::FAILURE
        }
    }
}

fn run_each(
    seed: u64,
    seed_count: u64,
    run: impl Fn(u64) -> Result<Tally, Failure>,
) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    for seed in seed..seed + seed_count {
        all.add(&run(seed)?);
    }
    Ok(all)
}

fn print_shrunk(failure: &Failure, is_logged: bool) {
    let (setup, mix, seed_ops) = match failure.mode {
        Mode::Single { seed_ops } => (Setup::from_seed(failure.seed), Mix::Usual, seed_ops),
        Mode::Graphite { seed_ops } => (Setup::with_graphite(failure.seed), Mix::Graphite, seed_ops),
        Mode::Bucket { seed_ops } => (Setup::with_bucket(failure.seed), Mix::Bucket, seed_ops),
        _ => return,
    };
    std::panic::set_hook(Box::new(|_| {}));
    let ops = draw_ops(&setup, mix, (seed_ops as usize).min(failure.op_idx.saturating_add(1)));
    let short = shrink(&setup, &ops, &failure.text, 1500);
    println!("{} of {} operations fail, too:", short.len(), ops.len());
    short.iter().for_each(|op| println!("    Op::{op:?},"));
    let run = || chronolith_sim::run_ops(&setup, &short, u64::MAX);
    let log = || tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time().finish();
    let result = if is_logged { tracing::subscriber::with_default(log(), run) } else { run() };
    if let Err((_, text)) = result {
        println!("{text}");
    }
}
