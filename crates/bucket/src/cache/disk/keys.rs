//! Names of objects in the cache directory.
//!
//! Invariant: two objects have one key only if they are the same version of the same object of the same
//! tenant and bucket; an object of which no version is known has no key, and is not cached on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::crc::Crc32c;
use chronolith_block::source::BlockFile;
use chronolith_format::bucket::cache_segment::KEY_BYTES_MAX;
use chronolith_format::bucket::catalogue::{BucketBlock, EtagSums, etag_sum};
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
    /// Length and CRC-32C of whole files.
    sums: BTreeMap<BlockFile, (u64, u32)>,
    /// Sums of the ETags of objects, by the catalogue or a listing.
    etags: BTreeMap<BlockFile, u32>,
}

impl FileVersions {
    /// Adds a file whose contents have this checksum.
    pub(crate) fn add_checksum(&mut self, file: BlockFile, len: u64, crc: u32) {
        self.texts.insert(file, format!("crc {len} {crc:08x}"));
        self.sums.insert(file, (len, crc));
    }

    /// Adds a file with the ETag of its object, if it has one.
    pub(crate) fn add_etag(&mut self, file: BlockFile, len: u64, etag: Option<&str>) {
        if let Some(etag) = etag {
            self.texts.insert(file, format!("etag {len} {etag}"));
            self.etags.insert(file, etag_sum(etag));
        }
    }

    /// Adds the ETag of an object, which is no version of its file.
    pub(crate) fn add_etag_alone(&mut self, file: BlockFile, etag: Option<&str>) {
        self.etags.extend(etag.map(|etag| (file, etag_sum(etag))));
    }

    /// Adds the ETags that the catalogue records for the objects of a block.
    pub(crate) fn add_recorded_etags(&mut self, record: &BucketBlock) {
        let EtagSums { index, segments, rollups, sidecar } = &record.etags;
        let segments = (0..).zip(segments).map(|(idx, sum)| (BlockFile::Segment(idx), *sum));
        let rollups = record.files.rollups.iter().zip(rollups);
        let rollups = rollups.map(|(object, sum)| (BlockFile::Rollup(object.span), *sum));
        let one = [(BlockFile::Index, *index), (BlockFile::Sidecar, *sidecar)];
        self.etags.extend(segments.chain(rollups).chain(one).filter(|(_, sum)| *sum != 0));
    }

    /// Adds the ETags of `other`, in place of own ones of the same files.
    pub(crate) fn add_etags_of(&mut self, other: &FileVersions) {
        self.etags.extend(other.etags.iter().map(|(file, sum)| (*file, *sum)));
    }

    /// Sums of the ETags of objects that have a known one.
    pub(crate) fn etags(&self) -> &BTreeMap<BlockFile, u32> {
        &self.etags
    }

    /// Length and CRC-32C of whole files, where both are known.
    pub(crate) fn sums(&self) -> &BTreeMap<BlockFile, (u64, u32)> {
        &self.sums
    }

    /// Adds a file of a block in the catalogue, which records its length: files of a block never change.
    pub(crate) fn add_recorded(&mut self, file: BlockFile, len: u64, record: &BucketBlock) {
        self.texts.insert(file, format!("uploaded {len} {}", record.uploaded_ms));
    }

    /// Adds the sidecar that is made of the index. The versions of all files that it describes make up its
    /// version; without one of them it is not added.
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
