//! `sim`: runs worlds from a seed until something is wrong or enough was done.
//! Holds: prints the seed of whatever fails, and for one thread a short list of operations that fails too.
//! Not here: what is checked (the library).

use std::process::ExitCode;

use chronolith_base::Rng;
use chronolith_sim::{
    Budget, Failure, Mix, Mode, Setup, Tally, draw_ops, run_crowd, run_points, run_worlds, shrink,
};
use clap::Parser;

/// Runs the store in a fake world and compares it with a ledger.
#[derive(Parser)]
struct Args {
    /// First seed; a random one if it is left out.
    #[arg(long)]
    seed: Option<u64>,
    /// Operations of all worlds: one a sample written, one a control operation.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// Operations of one world; the next one has the next seed.
    #[arg(long, default_value_t = 100_000)]
    world_ops: u64,
    /// Worlds instead of operations.
    #[arg(long)]
    worlds: Option<u64>,
    /// Cuts scripts of this many operations at every disk operation, as many scripts as worlds.
    #[arg(long)]
    points: Option<usize>,
    /// Several threads in one world, for so many rounds.
    #[arg(long)]
    crowd: Option<u64>,
    /// Does not look for a short list of operations that fails.
    #[arg(long)]
    no_shrink: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| Rng::from_os().next_u64() >> 32);
    println!("first seed: {seed}");
    let worlds = args.worlds.unwrap_or(1);
    let done = if let Some(op_count) = args.points {
        each(seed, worlds, |seed| {
            let done = run_points(seed, op_count)?;
            println!("seed {seed}: {} points", done.points);
            Ok(done.tally)
        })
    } else if let Some(rounds) = args.crowd {
        each(seed, worlds, |seed| run_crowd(seed, rounds))
    } else {
        let ops = args.worlds.map_or(args.ops, |worlds| worlds.saturating_mul(args.world_ops));
        let budget = Budget { ops, world_ops: args.world_ops.min(ops) };
        run_worlds(seed, budget, |seed, tally| {
            println!("seed {seed}: {} operations, {} starts", tally.ops(), tally.starts)
        })
    };
    match done {
        Ok(tally) => {
            println!("{} operations: {tally:?}", tally.ops());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            if !args.no_shrink {
                print_short(&failure);
            }
            ExitCode::FAILURE
        }
    }
}

fn each(seed: u64, worlds: u64, run: impl Fn(u64) -> Result<Tally, Failure>) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    for seed in seed..seed + worlds {
        all.add(&run(seed)?);
    }
    Ok(all)
}

fn print_short(failure: &Failure) {
    let Mode::Single { world_ops } = failure.mode else { return };
    std::panic::set_hook(Box::new(|_| {}));
    let setup = Setup::from_seed(failure.seed);
    let ops = draw_ops(&setup, Mix::Usual, (world_ops as usize).min(failure.op_idx.saturating_add(1)));
    let short = shrink(&setup, &ops, &failure.text, 1500);
    println!("{} of {} operations fail as well:", short.len(), ops.len());
    short.iter().for_each(|op| println!("    Op::{op:?},"));
    if let Err((_, text)) = chronolith_sim::run_ops(&setup, &short, u64::MAX) {
        println!("{text}");
    }
}
