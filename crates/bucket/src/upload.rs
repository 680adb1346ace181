//! Upload of local blocks: files, sidecar, `meta.json` last, then the catalogue. In Thanos's layout the claim
//! of the folder comes first.
//!
//! Invariants: `meta.json` is written once all other objects have the bytes of the local files, so a block
//! without it is incomplete; an upload can be repeated after it died anywhere, and does not send uploaded
//! bytes again; at most [`PARTS_AT_ONCE`](crate::store::multipart::PARTS_AT_ONCE) parts of a file, or a small
//! file twice, are in memory.
//! Not here: which blocks to upload and when, removal of the local copy (`tsdb`).

pub(crate) mod claim;
mod counters;
mod cut;
mod first_catalogue;
mod local;
mod publish;
pub mod rebuild;
mod record;
mod send;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_base::utc::rfc3339_ms;
use chronolith_format::bucket::catalogue::{BucketBlock, EtagSums, TombstonesObject};
use tokio::runtime::Handle;

pub use self::counters::{UploadOutcome, UploadSnapshot};
pub use self::cut::{PublishedCut, catalogue_for_cuts, publish_cut};
pub use self::local::SidecarFile;
pub use self::publish::{Published, Publisher};

use self::counters::UploadCounters;
use self::local::{META, TOMBSTONES, open_local};
use self::record::{etag_sums, meta_in_bucket, record};
use crate::external_labels::ExternalLabels;
use crate::folder::Folder;
use crate::store::list::ListOptions;
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext, Store};

/// Uploads blocks and records them in the catalogue.
pub struct Uploader {
    store: Arc<Store>,
    env: Env,
    handle: Handle,
    publisher: Publisher,
    counters: Arc<UploadCounters>,
}

impl Uploader {
    /// An uploader of files on the disk of `env`, which are read on blocking threads of `handle`.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, handle: Handle) -> Uploader {
        let counters = Arc::new(UploadCounters::default());
        let publisher = Publisher::new(store.clone(), env, counters.clone());
        Uploader { store, env: env.clone(), handle, publisher, counters }
    }

    /// Records uploaded blocks in the catalogue.
    #[must_use]
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
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
    /// [`PART_BYTES`](crate::store::multipart::PART_BYTES) as a whole, a larger one by its size and some
    /// bytes of each part. Checksums of the storage are not used: they differ between storages, and S3 has
    /// none for objects in parts.
    ///
    /// Cost: a listing of the folder; per object, its parts, and as many reads. An object that is there is
    /// compared, and not sent again.
    ///
    /// # Errors
    /// [`BucketError::SourceFile`] if a local file cannot be read or is damaged, [`BucketError::Corrupt`] if
    /// an object differs from its file after it was sent again. After an error, or when the future is
    /// dropped, part of the objects are in the bucket: repeat the upload.
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
        let writer = self.writer_of(&request.folder)?;
        let local = open_local(&self.env, &self.handle, dir, sidecar.as_ref()).await?;
        let layout = self.store.layout();
        let folder = layout.block_keys(&request.folder).of_block(local.meta.ulid);
        let present = self.present(request, &folder).await?;
        let present_bytes = |name: &str| present.get(name).copied();
        if let Some(writer) = writer {
            self.claim(request, &local, writer, &present_bytes, !present.is_empty()).await?;
        }
        let is_meta = |name: &str| name == META || name == TOMBSTONES;
        assert!(
            local.files.iter().all(|file| !is_meta(&file.name)),
            "{META} is sent after all other objects"
        );
        let mut etags = BTreeMap::new();
        for file in &local.files {
            let key = format!("{folder}/{}", file.name);
            let etag = self.send_file(request, &key, file, present_bytes(&file.name)).await?;
            let replaced = etags.insert(file.name.as_str(), etag);
            assert!(replaced.is_none(), "each object of a block is sent from one file");
        }
        let tombstones = match &local.tombstones {
            Some(body) => Some(self.send_tombstones(request, &folder, body, &present_bytes).await?),
            None => None,
        };
        let now_ms = self.env.clock.now_ms();
        let uploaded = match present_bytes(META) {
            Some(_) => self.recorded_upload_time(request, &folder, local.meta.ulid).await?,
            None => None,
        };
        let meta = meta_in_bucket(&local, writer, uploaded.unwrap_or_else(|| rfc3339_ms(now_ms)));
        self.send_body(request, &format!("{folder}/{META}"), meta.clone(), present_bytes(META)).await?;
        let record = record(&local, meta.len() as u64, now_ms);
        // A copy of a local directory has other ETags, and its readers do not compare them.
        let etags = if self.store.is_local() { EtagSums::default() } else { etag_sums(&local, &etags) };
        Ok(BucketBlock { folder: layout.block_folder(&request.folder), etags, tombstones, ..record })
    }

    /// External labels that the blocks of `folder` get; `None` in folders that no other writer shares.
    fn writer_of(&self, folder: &Folder) -> Result<Option<&ExternalLabels>, BucketError> {
        let layout = self.store.layout();
        match (layout.is_flat(folder), layout.writer()) {
            (false, _) => Ok(None),
            (true, Some(writer)) => Ok(Some(writer)),
            (true, None) => Err(BucketError::Config {
                setting: "bucket.external-labels",
                expected: "at least one label, to upload in the layout thanos".to_owned(),
                found: "none".to_owned(),
            }),
        }
    }

    /// Sends tombstones. Later ones get a name of their own, as readers may have a catalogue that names the
    /// earlier ones.
    async fn send_tombstones(
        &self,
        request: &RequestContext,
        folder: &str,
        body: &Bytes,
        present_bytes: &impl Fn(&str) -> Option<u64>,
    ) -> Result<TombstonesObject, BucketError> {
        let crc = chronolith_base::crc::crc32c(body);
        let first = format!("{folder}/{TOMBSTONES}");
        let has_others = present_bytes(TOMBSTONES).is_some()
            && self.is_equal(request, &first, ReadRange::Whole, body).await?.is_none();
        let name = match has_others {
            false => TOMBSTONES.to_owned(),
            true => format!("{TOMBSTONES}-{:08x}{crc:08x}", body.len()),
        };
        self.send_body(request, &format!("{folder}/{name}"), body.clone(), present_bytes(&name)).await?;
        Ok(TombstonesObject { name, len: body.len() as u64, crc })
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
