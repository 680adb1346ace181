//! Upload of local blocks: files, sidecar, `meta.json` last, then the catalogue.
//!
//! Invariants: `meta.json` is written once all other objects have the bytes of the local files, so a block
//! without it is incomplete; an upload can be repeated after it died anywhere, and does not send again what
//! is there; at most [`PARTS_AT_ONCE`](crate::store::multipart::PARTS_AT_ONCE) parts of a file, or a small
//! file twice, are in memory.
//! Not here: which blocks to upload and when, removal of the local copy (`tsdb`).

mod counters;
mod local;
mod publish;
mod send;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::{
    Ancestry, BlockCounts, BlockFiles, BlockFolder, BucketBlock, TombstonesObject,
};
use chronolith_format::bucket::mimir::{ThanosFile, ThanosMeta};
use tokio::runtime::Handle;

pub use self::counters::{UploadOutcome, UploadSnapshot};
pub use self::publish::Published;

use self::counters::UploadCounters;
use self::local::{LocalBlock, LocalFile};
use crate::snapshots::Snapshots;
use crate::store::list::ListOptions;
use crate::{BucketError, RequestContext, Store};

const META: &str = "meta.json";
const TOMBSTONES: &str = "tombstones";
/// Object of the sidecar in the folder of a block.
const SIDECAR: &str = "chronolith.sidecar";

/// Sidecar of a block, in a local file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarFile {
    /// The file, which need not lie in the directory of the block.
    pub path: PathBuf,
    /// Bytes of its head, which are its last ones.
    pub head_bytes: u32,
}

/// Uploads blocks and records them in the catalogue.
pub struct Uploader {
    store: Arc<Store>,
    env: Env,
    handle: Handle,
    snapshots: Snapshots,
    counters: UploadCounters,
}

impl Uploader {
    /// An uploader of files on the disk of `env`, which are read on blocking threads of `handle`.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, handle: Handle) -> Uploader {
        let snapshots = Snapshots::new(store.clone(), env);
        Uploader { store, env: env.clone(), handle, snapshots, counters: UploadCounters::default() }
    }

    /// Copies all counters.
    #[must_use]
    pub fn counters(&self) -> UploadSnapshot {
        self.counters.snapshot()
    }

    /// Uploads the block in `dir` to the folder of the tenant of `request`, and returns its record for the
    /// catalogue. The files must not change meanwhile.
    ///
    /// Each object is compared with its file after it was sent: one of at most
    /// [`PART_BYTES`](crate::store::multipart::PART_BYTES) as a whole, a larger one by its size and some bytes
    /// of each part. Checksums of the storage are not used: they differ between storages, and S3 has none for
    /// objects in parts.
    ///
    /// Cost: a listing of the folder; per object, its parts, and as many reads. An object that is there is
    /// compared, and not sent again.
    ///
    /// # Errors
    /// [`BucketError::SourceFile`] if a local file cannot be read or is damaged, [`BucketError::Corrupt`] if
    /// an object differs from its file after it was sent again. After an error, or when the future is dropped, part of the
    /// objects are in the bucket: repeat the upload.
    pub async fn upload(
        &self,
        request: &RequestContext,
        dir: &Path,
        sidecar: Option<SidecarFile>,
    ) -> Result<BucketBlock, BucketError> {
        let started = self.counters.start(&self.env);
        let uploaded = self.upload_files(request, dir, sidecar).await;
        started.finish(if uploaded.is_ok() { UploadOutcome::Completed } else { UploadOutcome::Failed });
        uploaded
    }

    async fn upload_files(
        &self,
        request: &RequestContext,
        dir: &Path,
        sidecar: Option<SidecarFile>,
    ) -> Result<BucketBlock, BucketError> {
        let local = self.local_block(dir, sidecar.as_ref()).await?;
        let folder = format!("{}/{}", request.tenant, local.meta.ulid);
        let present = self.present(request, &folder).await?;
        let present_bytes = |name: &str| present.get(name).copied();
        for file in &local.files {
            let key = format!("{folder}/{}", file.name);
            self.send_file(request, &key, file, present_bytes(&file.name)).await?;
        }
        for (name, body) in local.tombstones.iter().map(|tombstones| (TOMBSTONES, tombstones)) {
            self.send_body(request, &format!("{folder}/{name}"), body.clone(), present_bytes(name)).await?;
        }
        let meta = meta_in_bucket(&local);
        self.send_body(request, &format!("{folder}/{META}"), meta.clone(), present_bytes(META)).await?;
        Ok(record(&local, meta.len() as u64, self.env.clock.now_ms()))
    }

    /// Sizes of the objects of the block that are there, by name.
    async fn present(
        &self,
        request: &RequestContext,
        folder: &str,
    ) -> Result<BTreeMap<String, u64>, BucketError> {
        let options = ListOptions { prefix: folder.to_owned(), ..ListOptions::default() };
        let page = self.store.list(request, &options).await?;
        let sized = page.objects.into_iter().filter_map(|object| {
            let name = object.key.strip_prefix(folder)?.strip_prefix('/')?.to_owned();
            Some((name, object.object_bytes))
        });
        Ok(sized.collect())
    }
}

/// `meta.json` with the Thanos section, by which other programs know the files of the block. External labels
/// that the block has stay.
fn meta_in_bucket(local: &LocalBlock) -> Bytes {
    let listed = |name: &str, size_bytes| ThanosFile { rel_path: name.to_owned(), size_bytes };
    let of_block = local.files.iter().filter(|file| file.name != SIDECAR);
    let mut files: Vec<ThanosFile> = of_block.map(|file| listed(&file.name, file.len)).collect();
    files.push(listed(META, 0));
    files.sort_by(|a, b| a.rel_path.cmp(&b.rel_path));
    let mut thanos = local.thanos.clone().unwrap_or_else(|| ThanosMeta::of_upload(Vec::new()));
    (thanos.files, thanos.segment_files) = (files, Vec::new());
    let mut meta = local.meta.clone();
    thanos.put_into(&mut meta);
    let mut text = Vec::new();
    meta.encode(&mut text);
    text.into()
}

fn record(local: &LocalBlock, meta_bytes: u64, uploaded_ms: i64) -> BucketBlock {
    let meta = &local.meta;
    let stats = &meta.stats;
    let len_of = |file: &LocalFile| file.len;
    BucketBlock {
        ulid: meta.ulid,
        folder: BlockFolder::Mimir,
        time_unit: meta.time_unit(),
        range: meta.range(),
        counts: BlockCounts {
            series: stats.num_series,
            chunks: stats.num_chunks,
            samples: stats.num_samples,
            tombstones: stats.num_tombstones,
        },
        files: BlockFiles {
            index: local.index().map_or(0, len_of),
            segments: local.segments().map(len_of).collect(),
            meta: meta_bytes,
        },
        sidecar: local.sidecar,
        tombstones: local.tombstones.as_ref().map(|body| TombstonesObject {
            name: TOMBSTONES.to_owned(),
            len: body.len() as u64,
            crc: chronolith_base::crc::crc32c(body),
        }),
        ancestry: ancestry(meta),
        uploaded_ms,
    }
}

fn ancestry(meta: &BlockMeta) -> Ancestry {
    let compaction = &meta.compaction;
    let mut sources = compaction.sources.clone();
    sources.sort_unstable();
    let parents: Vec<Ulid> = compaction.parents.iter().map(|parent| parent.ulid).collect();
    Ancestry {
        level: compaction.level,
        oldest_source: sources.first().copied().unwrap_or(meta.ulid),
        sources,
        parents,
        split_set: compaction.split_set,
        split_blocks: compaction.split_blocks.clone(),
        is_compaction_failed: compaction.failed,
    }
}
