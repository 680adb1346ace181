//! Lists the blocks of a Prometheus data directory from their `meta.json`.
//!
//! Not here: copying blocks (`write::copy`), record of imported blocks (`write::state`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_format::block::meta::{BlockMeta, META_BYTES_MAX, Ulid};
use chronolith_model::TimeUnit;

use super::data_dir::DataDir;
use crate::write::report::ImportReport;

/// Compaction hints of blocks whose time range the head may cover as well.
const HINTS_BESIDE_HEAD: [&str; 3] = ["from-out-of-order", "from-stale-series", "from-selected-series"];

/// A block of the source.
pub(crate) struct SourceBlock {
    pub(crate) ulid: Ulid,
    pub(crate) path: PathBuf,
    pub(crate) sample_count: u64,
    /// Compacted into another block of the source.
    pub(crate) is_replaced: bool,
    /// End of the block's range if the block holds all in-order samples before it.
    pub(crate) head_min_time: Option<i64>,
}

/// Returns the blocks whose meta can be read; reports the others as damage.
pub(crate) fn list_blocks(env: &Env, source: &DataDir, report: &mut ImportReport) -> Vec<SourceBlock> {
    let mut blocks = Vec::new();
    let mut parents: Vec<Ulid> = Vec::new();
    for (ulid, path) in &source.blocks {
        let meta = match read_meta(env, path) {
            Ok(meta) => meta,
            Err(what) => {
                report.damage(path, 0, what);
                continue;
            }
        };
        // A parent is older than its child; anything else would be a cycle.
        parents
            .extend(meta.compaction.parents.iter().map(|parent| parent.ulid).filter(|parent| parent < ulid));
        let is_beside_head =
            meta.compaction.hints.iter().any(|hint| HINTS_BESIDE_HEAD.contains(&hint.as_str()));
        blocks.push(SourceBlock {
            ulid: *ulid,
            path: path.clone(),
            sample_count: meta.stats.num_samples,
            is_replaced: false,
            head_min_time: (!is_beside_head).then_some(meta.max_time),
        });
    }
    for block in &mut blocks {
        block.is_replaced = parents.contains(&block.ulid);
    }
    blocks
}

fn read_meta(env: &Env, dir: &Path) -> Result<BlockMeta, String> {
    let path = dir.join("meta.json");
    let file = env.disk.open_read(&path).map_err(|error| error.to_string())?;
    let len = file.len().map_err(|error| error.to_string())?;
    if len > META_BYTES_MAX as u64 {
        return Err(format!("meta.json has {len} bytes"));
    }
    let mut text = vec![0; len as usize];
    file.read_at(&mut text, 0).map_err(|error| error.to_string())?;
    let meta = BlockMeta::decode(&text).map_err(|error| error.to_string())?;
    if meta.time_unit() != TimeUnit::Milli {
        return Err("times are nanoseconds, expected a block in milliseconds".to_owned());
    }
    Ok(meta)
}
