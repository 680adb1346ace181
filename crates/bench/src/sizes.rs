//! Sizes of what a server keeps for good, by kind of file, and when it has finished merging.
//! Invariants: lengths of files, not allocated blocks; logs, caches and locks do not count.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::http;
use crate::server::{Kind, Server};

const POLL: Duration = Duration::from_millis(500);
const COMPACTION_WAIT: Duration = Duration::from_secs(300);
/// Bytes by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Times and values.
    pub(super) chunk_bytes: u64,
    /// Names, postings, places.
    pub(super) index_bytes: u64,
    /// Bytes of `meta.json` and tombstones.
    pub(super) other_bytes: u64,
    /// Number of files.
    pub(super) file_count: u64,
}

impl Sizes {
    /// As they are now.
    pub(crate) fn of(server: &Server) -> Sizes {
        let mut sizes = Sizes::default();
        for dir in kept_dirs(server) {
            sizes.add_dir(&dir, server.kind());
        }
        sizes
    }

    pub(crate) fn total(&self) -> f64 {
        (self.chunk_bytes + self.index_bytes + self.other_bytes) as f64
    }

    fn add_dir(&mut self, dir: &Path, kind: Kind) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => self.add_dir(&path, kind),
                Ok(meta) => self.add_file(&path, meta.len(), kind),
                // The server removes files of its own while this looks.
                Err(_) => {}
            }
        }
    }

    fn add_file(&mut self, path: &Path, bytes: u64, kind: Kind) {
        let name = path.file_name().unwrap_or_default();
        let in_chunks = path.parent().is_some_and(|parent| parent.ends_with("chunks"));
        let (chunk, index) = match kind {
            Kind::VictoriaMetrics => {
                let in_indexdb = path.components().any(|part| part.as_os_str() == "indexdb");
                let chunk = !in_indexdb && (name == "timestamps.bin" || name == "values.bin");
                (chunk, in_indexdb || name == "index.bin" || name == "metaindex.bin")
            }
            _ => (in_chunks, name == "index"),
        };
        let part = match (chunk, index) {
            (true, _) => &mut self.chunk_bytes,
            (_, true) => &mut self.index_bytes,
            _ => &mut self.other_bytes,
        };
        *part += bytes;
        self.file_count += 1;
    }
}

/// Directories whose files are kept for good.
fn kept_dirs(server: &Server) -> Vec<PathBuf> {
    let data_dir = server.data_dir();
    match server.kind() {
        Kind::VictoriaMetrics => vec![data_dir.join("data"), data_dir.join("indexdb")],
        _ => block_dirs(server),
    }
}

fn block_dirs(server: &Server) -> Vec<PathBuf> {
    let parent = match server.kind() {
        Kind::Chronolith => server.data_dir().join("tenants/anonymous"),
        _ => server.data_dir(),
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("meta.json").is_file()).collect()
}

/// Waits until blocks hold `sample_count` samples (Chronolith, Prometheus) or merging is done
/// (VictoriaMetrics), and files have not changed for `quiet`, which should be longer than the server pauses
/// between two looks for something to merge.
pub(crate) fn wait_compacted(server: &mut Server, sample_count: usize, quiet: Duration) -> Result<()> {
    if server.kind() == Kind::VictoriaMetrics {
        server.make_visible()?;
        let (status, body) = http::get(server.port, "/internal/force_merge")?;
        ensure!(status == 200, "force_merge: HTTP {status}: {body}");
    }
    let start = Instant::now();
    let mut before = Sizes::default();
    let mut quiet_since = start;
    while start.elapsed() < COMPACTION_WAIT {
        std::thread::sleep(POLL);
        server.check_alive()?;
        let sizes = Sizes::of(server);
        if sizes != before || !is_complete(server, sample_count)? {
            (before, quiet_since) = (sizes, Instant::now());
        }
        if quiet_since.elapsed() >= quiet {
            return Ok(());
        }
    }
    bail!("blocks still change after {} s, {:?}", COMPACTION_WAIT.as_secs(), block_samples(server))
}

fn is_complete(server: &Server, sample_count: usize) -> Result<bool> {
    Ok(match server.kind() {
        Kind::VictoriaMetrics => {
            let (_, metrics) = http::get(server.port, "/metrics")?;
            let active = metrics.lines().find_map(|line| line.strip_prefix("vm_active_force_merges "));
            active.context("no vm_active_force_merges")?.trim() == "0"
        }
        _ => block_samples(server).iter().sum::<u64>() == sample_count as u64,
    })
}

/// Samples of each block.
fn block_samples(server: &Server) -> Vec<u64> {
    let samples = |dir: PathBuf| {
        let text = std::fs::read_to_string(dir.join("meta.json")).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["stats"]["numSamples"].as_u64()
    };
    block_dirs(server).into_iter().filter_map(samples).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Kind, Sizes};

    #[test]
    fn files_count_for_what_they_hold() {
        let of = |kind, path: &str| {
            let mut sizes = Sizes::default();
            sizes.add_file(Path::new(path), 7, kind);
            (sizes.chunk_bytes, sizes.index_bytes, sizes.other_bytes)
        };
        for kind in [Kind::Chronolith, Kind::Prometheus] {
            assert_eq!(of(kind, "d/01ABC/chunks/000001"), (7, 0, 0));
            assert_eq!(of(kind, "d/01ABC/index"), (0, 7, 0));
            assert_eq!(of(kind, "d/01ABC/meta.json"), (0, 0, 7));
        }
        let victoria = |path| of(Kind::VictoriaMetrics, path);
        assert_eq!(victoria("d/data/small/2026_01/1_1_A/values.bin"), (7, 0, 0));
        assert_eq!(victoria("d/data/big/2026_01/1_1_A/index.bin"), (0, 7, 0));
        assert_eq!(victoria("d/indexdb/1/2_2_B/items.bin"), (0, 7, 0));
        assert_eq!(victoria("d/data/small/2026_01/1_1_A/min_dedup_interval"), (0, 0, 7));
    }
}
