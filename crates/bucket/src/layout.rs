//! Layout of a bucket: keys of blocks, and of catalogues, leases and the stores of retention policies.
//!
//! Invariants: in Thanos's layout the folders of blocks of default stores lie at the top level; all other
//! keys of a writer lie in `chronolith/<its external labels>/`, which Thanos skips, as it looks only into
//! folders that are named by a ULID. Writers with different labels share no key.
//! Not here: requests (`store`), whose blocks are read (`catalog`).

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::BlockFolder;

use crate::external_labels::ExternalLabels;
use crate::folder::{Folder, STORES_FOLDER};

/// Folder of the writers of a bucket in Thanos's layout.
pub(crate) const WRITERS_FOLDER: &str = "chronolith";
/// Prefix of the names of tombstones that were made after the upload.
const TOMBSTONES_PREFIX: &str = "tombstones-";
const TOMBSTONES_DIGITS: usize = 16;

/// Arrangement of the blocks in a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BucketLayout {
    /// `<tenant>/<ULID>/`, with a catalogue or without.
    #[default]
    Mimir,
    /// `<ULID>/`, as Thanos has it. There are no tenants.
    Thanos {
        /// External labels of the server that uploads: its catalogue has its own blocks alone, and their
        /// series are as it has stored them. `None` for a process that reads: it sees the blocks of all
        /// writers, and series have the external labels of their block.
        writer: Option<ExternalLabels>,
    },
}

impl BucketLayout {
    /// External labels of the server that uploads, in Thanos's layout.
    #[must_use]
    pub fn writer(&self) -> Option<&ExternalLabels> {
        match self {
            BucketLayout::Mimir => None,
            BucketLayout::Thanos { writer } => writer.as_ref(),
        }
    }

    /// Returns true if the blocks of `folder` lie at the top level, next to blocks of other writers.
    #[must_use]
    pub fn is_flat(&self, folder: &Folder) -> bool {
        matches!(self, BucketLayout::Thanos { .. }) && folder.store().is_none()
    }

    /// Prefix of the catalogue, the databases and the leases of `folder`, without a slash at its end.
    pub(crate) fn folder_key(&self, folder: &Folder) -> String {
        match (self.writer(), folder.store()) {
            (None, _) => folder.to_string(),
            (Some(writer), None) => format!("{WRITERS_FOLDER}/{}", writer.folder_name()),
            (Some(writer), Some(id)) => {
                format!("{WRITERS_FOLDER}/{}/{STORES_FOLDER}/{id}", writer.folder_name())
            }
        }
    }

    /// Keys of the blocks of `folder`.
    #[must_use]
    pub fn block_keys(&self, folder: &Folder) -> BlockKeys {
        let parent = if self.is_flat(folder) { String::new() } else { self.folder_key(folder) };
        BlockKeys { parent }
    }

    /// Position of the blocks of `folder` for their records.
    pub(crate) fn block_folder(&self, folder: &Folder) -> BlockFolder {
        if self.is_flat(folder) { BlockFolder::Thanos } else { BlockFolder::Mimir }
    }
}

/// Keys of the blocks of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockKeys {
    /// Empty if they lie at the top level.
    parent: String,
}

impl BlockKeys {
    /// Prefix of all keys for a listing.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.parent
    }

    /// Prefix of the objects of a block, without a slash at its end.
    #[must_use]
    pub fn of_block(&self, ulid: Ulid) -> String {
        if self.parent.is_empty() { ulid.to_string() } else { format!("{}/{ulid}", self.parent) }
    }

    /// Returns the key below the prefix; `None` for a key elsewhere.
    #[must_use]
    pub fn below<'k>(&self, key: &'k str) -> Option<&'k str> {
        if self.parent.is_empty() { Some(key) } else { key.strip_prefix(&self.parent)?.strip_prefix('/') }
    }

    /// Returns the block of an object and its name within the folder of the block; `None` if it belongs to
    /// no block.
    #[must_use]
    pub fn split<'k>(&self, key: &'k str) -> Option<(Ulid, &'k str)> {
        let (folder, name) = self.below(key)?.split_once('/')?;
        Some((folder.parse().ok()?, name))
    }
}

/// Returns the name of the writer's folder in which a key lies that begins with the folder of catalogues;
/// `None` for other keys.
pub(crate) fn writer_of_catalogue<'k>(key: &'k str, catalogue: &str) -> Option<&'k str> {
    let (writer, name) = key.strip_prefix(WRITERS_FOLDER)?.strip_prefix('/')?.split_once('/')?;
    name.starts_with(catalogue).then_some(writer)
}

/// Returns true for the name of tombstones that were made after the upload.
pub(crate) fn is_later_tombstones(name: &str) -> bool {
    let digits = name.strip_prefix(TOMBSTONES_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == TOMBSTONES_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use chronolith_model::TenantId;
    use chronolith_model::databases::BucketStoreId;

    use super::*;

    fn keys(layout: &BucketLayout) -> [String; 4] {
        let ulid = Ulid::new(1_700_000_000_000, 7);
        let own = Folder::of_tenant(&TenantId::anonymous());
        let store = Folder::of_store(&TenantId::anonymous(), BucketStoreId::from_bytes([7; 16]));
        let of = |folder: &Folder| [layout.folder_key(folder), layout.block_keys(folder).of_block(ulid)];
        let ([catalogue, block], [of_store, block_of_store]) = (of(&own), of(&store));
        [catalogue, block, of_store, block_of_store]
    }

    #[test]
    fn only_blocks_of_default_stores_are_at_the_top_level_in_thanos_layout() {
        let ulid = Ulid::new(1_700_000_000_000, 7);
        let id = "07070707070707070707070707070707";
        let stores = format!("anonymous/stores/{id}");
        let mimir = ["anonymous", &format!("anonymous/{ulid}"), &stores, &format!("{stores}/{ulid}")];
        assert_eq!(keys(&BucketLayout::Mimir), mimir);
        let labels = ExternalLabels::parse(r#"replica="a", cluster="eu""#).unwrap();
        let writer = "chronolith/cluster=eu,replica=a";
        let stores = format!("{writer}/stores/{id}");
        let thanos = [writer, &ulid.to_string(), &stores, &format!("{stores}/{ulid}")];
        assert_eq!(keys(&BucketLayout::Thanos { writer: Some(labels) }), thanos);
    }

    #[test]
    fn keys_are_taken_apart() {
        let ulid = Ulid::new(1_700_000_000_000, 7);
        let folder = Folder::of_tenant(&TenantId::anonymous());
        let flat = BucketLayout::Thanos { writer: None }.block_keys(&folder);
        assert_eq!(flat.split(&format!("{ulid}/chunks/000001")), Some((ulid, "chunks/000001")));
        assert_eq!(flat.split("chronolith/a=b/catalog/00000000000000000001"), None);
        let of_tenant = BucketLayout::Mimir.block_keys(&folder);
        assert_eq!(of_tenant.split(&format!("anonymous/{ulid}/index")), Some((ulid, "index")));
        assert_eq!(of_tenant.split(&format!("{ulid}/index")), None);
        assert_eq!(writer_of_catalogue("chronolith/a=b/catalog/latest", "catalog/"), Some("a=b"));
        assert_eq!(writer_of_catalogue("chronolith/a=b/lease/1", "catalog/"), None);
        assert_eq!(writer_of_catalogue("chronolith/a=b/stores/7/catalog/1", "catalog/"), None);
    }
}
