//! Test environment: a disk in memory with a Prometheus data directory and a directory for blocks.
#![allow(clippy::disallowed_methods, reason = "tests read their golden files")]

pub(crate) mod log;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_block::{Block, precedence};
use chronolith_import::{ImportError, ImportOptions, ImportReport};
use chronolith_model::{
    BlockEncoding, Columns, Labels, Queryable as _, ReadContext, Selector, SeriesRead, TimeRange,
};

/// Value bits by labels (as text) and time.
pub(crate) type Samples = BTreeMap<(String, i64), u64>;

/// Disk, clock and block encoding of a test.
pub(crate) struct TestEnv {
    pub(crate) env: Env,
    pub(crate) encoding: BlockEncoding,
}

pub(crate) const SOURCE: &str = "/prometheus";
pub(crate) const BLOCKS: &str = "/data/tenants/anonymous";
const STATE: &str = "/data/import/anonymous.json";

impl TestEnv {
    pub(crate) fn new() -> TestEnv {
        let (env, _, _) = Env::fake(1_800_000_000_000, 7);
        env.disk.create_dir_all(Path::new("/data/tenants")).unwrap();
        env.disk.create_dir_all(Path::new(SOURCE)).unwrap();
        TestEnv { env, encoding: BlockEncoding::Dense }
    }

    /// Copies a directory of the real disk to the source.
    pub(crate) fn copy_dir(&mut self, dir: &Path) {
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            self.env.disk.create_dir_all(&Path::new(SOURCE).join(&below)).unwrap();
            for entry in std::fs::read_dir(dir.join(&below)).unwrap() {
                let entry = entry.unwrap();
                let path = below.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    left.push(path);
                } else {
                    self.put(&path, &std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }

    /// Writes a file of the source.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) {
        let path = Path::new(SOURCE).join(path);
        self.env.disk.create_dir_all(path.parent().unwrap()).unwrap();
        self.env.disk.create(&path).unwrap().write_at(bytes, 0).unwrap();
    }

    pub(crate) fn import(&self) -> Result<ImportReport, ImportError> {
        let options = ImportOptions {
            source: SOURCE.into(),
            blocks_dir: BLOCKS.into(),
            state_path: STATE.into(),
            encoding: self.encoding,
        };
        chronolith_import::run(&self.env, &options, &mut |_| {})
    }

    /// Returns all samples of all blocks, merged in the order that queries use.
    pub(crate) fn samples(&self) -> Samples {
        let (mut blocks, damaged) = chronolith_block::open_dir(&self.env, Path::new(BLOCKS));
        assert!(damaged.is_empty(), "{damaged:?}");
        blocks.sort_by_key(|block| precedence(block.meta()));
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let mut samples = Samples::new();
        for block in blocks {
            assert_eq!(block.verify(), [], "{:?}", block.meta());
            read(&block, &ctx, &mut samples);
        }
        samples
    }
}

fn read(block: &Block, ctx: &ReadContext, samples: &mut Samples) {
    for_each_series(block, ctx, |series| {
        let mut columns = Columns::default();
        series.samples.read(TimeRange::ALL, &mut columns).unwrap();
        let labels = text(&series.labels);
        for (&time, value) in columns.times.iter().zip(&columns.values) {
            samples.entry((labels.clone(), time)).or_insert(value.to_bits());
        }
    });
}

/// Calls `visit` for each series of a block.
pub(crate) fn for_each_series(block: &Block, ctx: &ReadContext, mut visit: impl FnMut(SeriesRead)) {
    let mut batches = block.select(&Selector { matchers: &[], range: TimeRange::ALL }, ctx).unwrap();
    let mut batch = Vec::new();
    loop {
        let has_more = batches.next_batch(&mut batch).unwrap();
        batch.drain(..).for_each(&mut visit);
        if !has_more {
            return;
        }
    }
}

/// Formats labels as Go does.
fn text(labels: &Labels) -> String {
    let quote = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", quote(value))).collect();
    format!("{{{}}}", pairs.join(", "))
}
