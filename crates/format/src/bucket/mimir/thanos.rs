//! Section `thanos` of `meta.json`: external labels, resolution, source and files of a block.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::file::MimirError;
use crate::block::meta::BlockMeta;

const FILE: &str = "meta.json";
const FIELD: &str = "thanos";
const VERSION: i64 = 1;
/// Program that uploaded a block.
const SOURCE: &str = "chronolith";

/// Content of the section.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThanosMeta {
    /// 1, or 0 where the first programs left it out.
    version: i64,
    /// External labels of the program that uploaded the block; in Mimir also its shard.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Distance of its samples.
    #[serde(deserialize_with = "null_as_default")]
    pub downsample: ThanosDownsample,
    /// Program that uploaded it, as `sidecar` or `compactor`.
    pub source: String,
    /// Names of its segments; earlier versions have these in place of `files`.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub segment_files: Vec<String>,
    /// Files of the block, by name.
    #[serde(deserialize_with = "null_as_default")]
    pub files: Vec<ThanosFile>,
    /// Time at which `meta.json` was uploaded, RFC 3339; empty in blocks of programs that do not record it.
    /// Thanos's consistency delay counts from it, without a request for the attributes of the object.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub upload_time: String,
}

/// Resolution of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThanosDownsample {
    /// Milliseconds between two samples; 0 for samples as they were scraped.
    pub resolution: i64,
}

/// A file of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThanosFile {
    /// Name within the folder of the block.
    pub rel_path: String,
    /// Bytes of the file; 0 for `meta.json`, which cannot have its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub size_bytes: u64,
}

fn is_zero(size: &u64) -> bool {
    *size == 0
}

fn null_as_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl ThanosMeta {
    /// The section of a block of scraped samples without external labels, with the sizes of its files.
    #[must_use]
    pub fn of_upload(files: Vec<ThanosFile>) -> ThanosMeta {
        ThanosMeta { version: VERSION, source: SOURCE.to_owned(), files, ..ThanosMeta::default() }
    }

    /// Names Chronolith as the program that uploads the block, for the producer with these external labels.
    pub fn set_producer(&mut self, labels: BTreeMap<String, String>) {
        self.version = VERSION;
        self.source = SOURCE.to_owned();
        self.labels = labels;
    }

    /// Returns true if Chronolith uploaded the block.
    #[must_use]
    pub fn is_of_chronolith(&self) -> bool {
        self.source == SOURCE
    }

    /// Sets the section of a `meta.json`, in place of one that it has.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    pub fn put_into(&self, meta: &mut BlockMeta) {
        let section = serde_json::to_value(self).expect("the section has a JSON form");
        meta.unknown.insert(FIELD.to_owned(), section);
    }

    /// Returns the section of a `meta.json`; `None` if it has none.
    ///
    /// # Errors
    /// [`MimirError`] if it is not of the expected form, or of a later version.
    pub fn of(meta: &BlockMeta) -> Result<Option<ThanosMeta>, MimirError> {
        let Some(section) = meta.unknown.get(FIELD) else { return Ok(None) };
        let thanos: ThanosMeta =
            ThanosMeta::deserialize(section).map_err(|error| MimirError::Json { file: FILE, error })?;
        if ![0, VERSION].contains(&thanos.version) {
            let expected = "1 in section thanos";
            return Err(MimirError::Version { file: FILE, expected, found: thanos.version });
        }
        Ok(Some(thanos))
    }

    /// Returns true if the samples of the block are aggregates of scraped ones.
    #[must_use]
    pub fn is_downsampled(&self) -> bool {
        self.downsample.resolution != 0
    }

    /// Size of a file of the block, if it is recorded.
    #[must_use]
    pub fn size_of(&self, rel_path: &str) -> Option<u64> {
        let file = self.files.iter().find(|file| file.rel_path == rel_path)?;
        (file.size_bytes > 0).then_some(file.size_bytes)
    }
}
