//! Names of objects in the cache directory.
//!
//! Invariant: two objects have one key only if they are the same version of the same object of the same
//! tenant and bucket; an object of which no version is known has no key, and is not cached on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::crc::Crc32c;
use chronolith_block::source::BlockFile;
use chronolith_format::bucket::cache_segment::KEY_BYTES_MAX;
use chronolith_format::bucket::catalogue::BucketBlock;
use chronolith_format::bucket::sidecar::FileSum;
use chronolith_model::TenantId;

/// Ends each part of a key; neither tenants nor keys of blocks have it.
const SEPARATOR: char = '\n';

/// Ascends when other bytes are made of equal files.
const LOCAL_SIDECAR_VERSION: u32 = 1;

/// Versions of the files of a block.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileVersions {
    texts: BTreeMap<BlockFile, String>,
    /// ETags of the objects that a listing names with one.
    etags: BTreeMap<BlockFile, String>,
}

impl FileVersions {
    /// Adds a file whose contents have this checksum.
    pub(crate) fn add_checksum(&mut self, file: BlockFile, len: u64, crc: u32) {
        self.texts.insert(file, format!("crc {len} {crc:08x}"));
    }

    /// Adds a file with the ETag of its object, if it has one.
    pub(crate) fn add_etag(&mut self, file: BlockFile, len: u64, etag: Option<&str>) {
        if let Some(etag) = etag {
            self.texts.insert(file, format!("etag {len} {etag}"));
            self.etags.insert(file, etag.to_owned());
        }
    }

    /// ETags of the objects that have a known one.
    pub(crate) fn etags(&self) -> &BTreeMap<BlockFile, String> {
        &self.etags
    }

    /// Adds a file of a block in the catalogue, which records its length: files of a block never change.
    pub(crate) fn add_recorded(&mut self, file: BlockFile, len: u64, record: &BucketBlock) {
        self.texts.insert(file, format!("uploaded {len} {}", record.uploaded_ms));
    }

    /// Adds the sidecar that is made of the index, whose version is that of all files that it describes.
    /// There is none if one of their versions is not known.
    pub(crate) fn add_local_sidecar(&mut self, segment_count: usize) {
        let Some(index) = self.texts.get(&BlockFile::Index) else { return };
        let mut sum = Crc32c::new();
        for idx in (0u32..).take(segment_count) {
            let Some(version) = self.texts.get(&BlockFile::Segment(idx)) else { return };
            sum.update(version.as_bytes());
            sum.update(&[0]);
        }
        let version =
            format!("local {LOCAL_SIDECAR_VERSION} of {index} {segment_count} {:08x}", sum.finish());
        self.texts.insert(BlockFile::Sidecar, version);
    }

    /// Adds a file as the head of the sidecar describes it, or else as the catalogue records it.
    pub(crate) fn add_sum(&mut self, file: BlockFile, sum: &FileSum, record: Option<&BucketBlock>) {
        match (sum.crc, record) {
            (Some(crc), _) => self.add_checksum(file, sum.len, crc),
            (None, Some(record)) => self.add_recorded(file, sum.len, record),
            (None, None) => {}
        }
    }
}

/// Objects of one tenant and folder in a bucket.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFolder {
    prefix: String,
}

impl ObjectFolder {
    /// The folder `key` of `tenant` in `bucket`.
    pub(crate) fn new(tenant: &TenantId, bucket: &str, key: &str) -> ObjectFolder {
        ObjectFolder { prefix: format!("{tenant}{SEPARATOR}{bucket}{SEPARATOR}{key}/") }
    }

    /// Beginning of the keys of all its objects.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Keys of the files of which a version is known.
    pub(crate) fn keys(
        &self,
        versions: &FileVersions,
        name: impl Fn(BlockFile) -> String,
    ) -> BTreeMap<BlockFile, Arc<str>> {
        let key_of = |file: &BlockFile, version: &String| {
            let key = format!("{}{}{SEPARATOR}{version}", self.prefix, name(*file));
            (key.len() <= KEY_BYTES_MAX).then(|| (*file, Arc::from(key)))
        };
        versions.texts.iter().filter_map(|(file, version)| key_of(file, version)).collect()
    }
}

/// Tenant of an object.
pub(super) fn tenant_of(key: &str) -> &str {
    key.split(SEPARATOR).next().unwrap_or_default()
}
