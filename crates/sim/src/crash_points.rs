//! Short scripts that crash at each of their disk operations, in each kind of crash.
//!
//! Invariants: every write, sync, creation, rename, link and removal is a crash point, also during starts.
//! Not here: crashes at random points of long runs (`op`).

use crate::failure::{Failure, Mode, catch_panic};
use crate::op::{CrashKind, Mix, draw_ops};
use crate::setup::Setup;
use crate::tally::Tally;
use crate::test_env::{CrashPoint, TestEnv};

/// Counts of a script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashPointTally {
    /// Runs with a crash: disk operations times kinds of crashes.
    pub crash_points: u64,
    /// Sum over all runs.
    pub tally: Tally,
}

/// Runs the script of `seed`, `op_count` operations long, once per disk operation and kind of crash. At every
/// third disk operation the start after the crash crashes as well.
///
/// # Errors
/// The first failure.
pub fn run_crash_points(seed: u64, op_count: usize) -> Result<CrashPointTally, Failure> {
    let mut setup = Setup::from_seed(seed);
    setup.series_count = setup.series_count.min(6);
    setup.tenants.truncate(2);
    setup.options.sync = chronolith_tsdb::SyncMode::Fsync;
    let ops = draw_ops(&setup, Mix::Short, op_count);
    let mut done = CrashPointTally::default();
    let run = |point: Option<CrashPoint>| {
        catch_panic(|| {
            let mut env = TestEnv::new(setup.clone(), point).map_err(|text| (0, text))?;
            env.run(&ops, u64::MAX)?;
            Ok((env.tally, env.disk.op_count()))
        })
    };
    let failure = |(idx, text): (usize, String), at| Failure {
        seed,
        op_idx: idx,
        text,
        mode: Mode::CrashPoints { op_count, at },
    };
    let (_, disk_op_count) = run(None).map_err(|error| failure(error, None))?;
    for at in 0..disk_op_count {
        for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutPartly] {
            let second_after = (at % 3 == 0).then_some(at / 3 % 40);
            let point = CrashPoint { at, kind, seed: seed ^ at, second_after };
            let (tally, _) = run(Some(point)).map_err(|error| failure(error, Some((at, kind))))?;
            done.tally.add(&tally);
            done.crash_points += 1;
        }
    }
    Ok(done)
}
