//! Short scripts whose process ends at each of its requests to the bucket, before and after the request is
//! carried out.
//!
//! Invariants: every request of uploads, of the catalogue, of deletions and of the maintenance of the bucket
//! (compaction and its lease, retention, removal of blocks) is a crash point, also during starts; the next
//! process finishes the work, and at the end everything is in the bucket once.
//! Not here: ends at random requests of long runs (`op`), crashes at disk operations (`crash_points`).

use chronolith_bucket::store::faults::Kill;

use crate::bucket::RequestKill;
use crate::crash_points::CrashPointTally;
use crate::failure::{Failure, Mode, catch_panic};
use crate::op::{CrashKind, Mix, Op, Shape, draw_ops};
use crate::setup::{BucketSetup, HOUR_MS, Setup};
use crate::test_env::TestEnv;

/// Runs the script of `seed`, `op_count` operations long, and ends its process at every request, twice:
/// before and after it is carried out. With `step` above 1, only at each `step`th request.
///
/// # Errors
/// The first failure.
pub fn run_bucket_crash_points(seed: u64, op_count: usize, step: u64) -> Result<CrashPointTally, Failure> {
    let setup = small_setup(seed);
    let ops = draw_ops(&setup, Mix::BucketShort, op_count);
    end_at_requests(&setup, &ops, Some(op_count), step)
}

/// As [`run_bucket_crash_points`], with a script in which the bucket is maintained: blocks without a local
/// copy are rewritten for their deletions, expire, and are removed.
///
/// # Errors
/// The first failure.
pub fn run_bucket_maintenance_points(seed: u64, step: u64) -> Result<CrashPointTally, Failure> {
    let mut setup = small_setup(seed);
    setup.options.compaction.block_bytes_max = 2 << 30;
    let write = |seed| Op::Write { tenant: 0, shape: Shape::Run, seed };
    // Beyond the age of local copies, and the delay of a removal.
    let day = Op::AdvanceClock { ms: (36 * HOUR_MS).unsigned_abs(), rounds: 3 };
    let delay = Op::AdvanceClock { ms: (3 * HOUR_MS).unsigned_abs(), rounds: 1 };
    let mut ops = Vec::new();
    for round in 0..3 {
        ops.extend([
            write(seed + round),
            Op::UploadEverything,
            day,
            Op::Delete { tenant: 0, seed: seed + round },
        ]);
        ops.extend([Op::MaintainBucket, delay, Op::MaintainBucket, Op::ReadBucket { seed: round }]);
    }
    end_at_requests(&setup, &ops, None, step)
}

/// One tenant with few series, whose local copies go soon.
fn small_setup(seed: u64) -> Setup {
    let mut setup = Setup::with_bucket(seed);
    setup.series_count = setup.series_count.min(6);
    setup.tenants.truncate(1);
    setup.options.sync = chronolith_tsdb::SyncMode::Fsync;
    setup.bucket = Some(BucketSetup { local_retention_ms: HOUR_MS });
    // Else a clock that jumps is not followed.
    setup.options.retention.clock_guard_ms = 0;
    setup
}

/// Runs `ops` without a kill, then with one at each request.
fn end_at_requests(
    setup: &Setup,
    ops: &[Op],
    op_count: Option<usize>,
    step: u64,
) -> Result<CrashPointTally, Failure> {
    let seed = setup.seed;
    let run = |kill: Option<RequestKill>| {
        catch_panic(|| {
            let mut env = TestEnv::new(setup.clone(), None).map_err(|text| (0, text))?;
            if let (Some(bucket), Some(kill)) = (&mut env.bucket, kill) {
                bucket.set_kill(kill);
            }
            env.run(ops, u64::MAX)?;
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
