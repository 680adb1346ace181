//! Short scripts whose process ends at each of its requests to the bucket, before and after the request is
//! carried out.
//!
//! Invariants: every request of uploads, of the catalogue and of deletions is such a point, those of starts
//! included; the next process finishes the work, and at the end everything is in the bucket once.
//! Not here: ends at random requests of long runs (`op`), crashes at disk operations (`crash_points`).

use chronolith_bucket::store::faults::Kill;

use crate::bucket::RequestKill;
use crate::crash_points::CrashPointTally;
use crate::failure::{Failure, Mode, catch_panic};
use crate::op::{CrashKind, Mix, draw_ops};
use crate::setup::Setup;
use crate::test_env::TestEnv;

/// Runs the script of `seed`, `op_count` operations long, and ends its process at every request, twice:
/// before and after it is carried out. With `step` above 1, only at each `step`th request.
///
/// # Errors
/// The first failure.
pub fn run_bucket_crash_points(seed: u64, op_count: usize, step: u64) -> Result<CrashPointTally, Failure> {
    let mut setup = Setup::with_bucket(seed);
    setup.series_count = setup.series_count.min(6);
    setup.tenants.truncate(1);
    setup.options.sync = chronolith_tsdb::SyncMode::Fsync;
    let ops = draw_ops(&setup, Mix::BucketShort, op_count);
    let run = |kill: Option<RequestKill>| {
        catch_panic(|| {
            let mut env = TestEnv::new(setup.clone(), None).map_err(|text| (0, text))?;
            if let (Some(bucket), Some(kill)) = (&mut env.bucket, kill) {
                bucket.set_kill(kill);
            }
            env.run(&ops, u64::MAX)?;
            Ok(env.tally)
        })
    };
    let failure = |(op_idx, text): (usize, String), at| {
        let mode = Mode::BucketCrashPoints { op_count, at };
        Failure { seed, op_idx, text, mode }
    };
    let calm = run(None).map_err(|error| failure(error, None))?;
    let mut done = CrashPointTally { tally: calm, ..CrashPointTally::default() };
    for at in (0..calm.bucket.requests).step_by(usize::try_from(step.max(1)).unwrap_or(usize::MAX)) {
        for (kill, is_carried_out) in [(Kill::EndsBefore, false), (Kill::EndsAfter, true)] {
            let crashes = [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutPartly];
            let crash = crashes[(at + u64::from(is_carried_out)) as usize % crashes.len()];
            let point = RequestKill { at, kill, crash, seed: seed ^ at };
            let tally = run(Some(point)).map_err(|error| failure(error, Some((at, is_carried_out))))?;
            done.tally.add(&tally);
            done.crash_points += 1;
        }
    }
    Ok(done)
}
