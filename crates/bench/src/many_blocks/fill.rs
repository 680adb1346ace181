//! Writes the blocks of `many-blocks`: one series, one sample each, by the crate's writer on a disk that does
//! not sync.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use chronolith_base::{Env, RealDisk};
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_model::{Labels, TenantId, TimeRange};
use chronolith_tsdb::tenant_dir;

use super::{HOUR_MS, Shape};
use crate::observed_disk::ObservedDisk;

/// The tenant with blocks of two hours.
pub(super) const ONE: &str = "one";
const DAY_MS: i64 = 24 * HOUR_MS;
/// Samples lie this far after the start of their block.
const INTO_MS: i64 = HOUR_MS;

/// Name of tenant `n`.
pub(super) fn tenant(n: usize) -> String {
    format!("tenant-{n:05}")
}

/// The sample of tenant `n`'s block of day `day`.
pub(super) fn day_sample(shape: Shape, n: usize, day: usize) -> (i64, usize) {
    (day_range(shape, day).start + INTO_MS, n * 1000 + day)
}

/// The sample of window `window` of [`ONE`].
pub(super) fn window_sample(shape: Shape, window: usize) -> (i64, usize) {
    (window_range(shape, window).start + INTO_MS, window)
}

fn day_range(shape: Shape, day: usize) -> TimeRange {
    let today = TimeRange::window_of(shape.now_ms, DAY_MS).start;
    let start = today - (shape.days - day) as i64 * DAY_MS;
    TimeRange::new(start, start + DAY_MS)
}

fn window_range(shape: Shape, window: usize) -> TimeRange {
    let today = TimeRange::window_of(shape.now_ms, DAY_MS).start;
    let start = today - (shape.windows - window) as i64 * 2 * HOUR_MS;
    TimeRange::new(start, start + 2 * HOUR_MS)
}

/// Writes all blocks below the data directory.
pub(super) fn fill(data_dir: &Path, shape: Shape) -> Result<()> {
    // Blocks of a benchmark need not survive a power cut.
    let env = Env { disk: Arc::new(ObservedDisk::unsynced(RealDisk::new())), ..Env::real() };
    for n in 0..shape.tenants {
        let dir = tenant_dir(data_dir, &TenantId::new(&tenant(n))?.into());
        for day in 0..shape.days {
            put(&env, &dir, day_range(shape, day), day_sample(shape, n, day))?;
        }
    }
    let dir = tenant_dir(data_dir, &TenantId::new(ONE)?.into());
    for window in 0..shape.windows {
        put(&env, &dir, window_range(shape, window), window_sample(shape, window))?;
    }
    Ok(())
}

fn put(env: &Env, dir: &Path, range: TimeRange, (time_ms, value): (i64, usize)) -> Result<()> {
    let mut writer = BlockWriter::create(env, dir)?;
    let labels = Labels::from_pairs([("__name__", "m"), ("instance", "host-1"), ("job", "bench")]);
    writer.add_samples(&labels, &[time_ms], &[value as f64])?;
    writer.finish(BlockSource::head(range))?;
    Ok(())
}
