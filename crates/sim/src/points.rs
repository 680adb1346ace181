//! Short scripts that are cut at every disk operation, in each of the ways in which a process can end.
//! Holds: every write, sync, creation, rename, link and removal of the script is a point, those of its starts included.
//! Not here: random cuts of long runs (`op`).

use crate::op::{Ending, Mix, draw_ops};
use crate::runner::{Failure, Mode, catch};
use crate::setup::Setup;
use crate::world::{Cut, Tally, World};

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PointsTally {
    /// Disk operations at which the script was cut, ways to end counted one by one.
    pub points: u64,
    /// Of all runs.
    pub tally: Tally,
}

/// Runs the script of `seed`, `op_count` operations long, once for every disk operation that it does and way to end; every
/// third time the start that follows is cut as well.
///
/// # Errors
/// The first point at which something is wrong.
pub fn run_points(seed: u64, op_count: usize) -> Result<PointsTally, Failure> {
    let mut setup = Setup::from_seed(seed);
    setup.series_count = setup.series_count.min(6);
    setup.tenants.truncate(2);
    setup.options.sync = chronolith_tsdb::SyncMode::Fsync;
    let ops = draw_ops(&setup, Mix::Short, op_count);
    let mut done = PointsTally::default();
    let run = |cut: Option<Cut>| {
        catch(|| {
            let mut world = World::new(setup.clone(), cut).map_err(|text| (0, text))?;
            world.run(&ops, u64::MAX)?;
            Ok((world.tally, world.disk.op_count()))
        })
    };
    let failure = |(idx, text): (usize, String), at| Failure {
        seed,
        op_idx: idx,
        text,
        mode: Mode::Points { op_count, at },
    };
    let (_, disk_op_count) = run(None).map_err(|error| failure(error, None))?;
    for at in 0..disk_op_count {
        for ending in [Ending::Kill, Ending::PowerCut, Ending::PowerCutPartly] {
            let again_after = (at % 3 == 0).then_some(at / 3 % 40);
            let cut = Cut { at, ending, seed: seed ^ at, again_after };
            let (tally, _) = run(Some(cut)).map_err(|error| failure(error, Some((at, ending))))?;
            done.tally.add(&tally);
            done.points += 1;
        }
    }
    Ok(done)
}
