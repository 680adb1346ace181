//! Claim of the folder of a block in Thanos's layout, in which all writers share the top level of the bucket:
//! a mark that names the writer, and that Thanos's compactor obeys.
//!
//! Invariants: the mark is the first object of an upload, so that a folder whose upload died has an
//! owner; no object is written to a folder that another writer or program has begun.
//! Not here: removal of folders whose upload died (`maintenance::leftovers`).

use bytes::Bytes;
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::mimir::{NO_COMPACT_MARK, NoCompactMark, ThanosMeta};

use super::Uploader;
use super::local::{LocalBlock, META};
use crate::external_labels::ExternalLabels;
use crate::meta::decode_meta;
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext};

/// Body of the mark of a block that the server with the labels `writer` uploads.
pub(crate) fn claim_of(ulid: Ulid, writer: &ExternalLabels) -> Bytes {
    let details = format!("uploaded and compacted by Chronolith with the external labels {writer}");
    let mut body = Vec::new();
    NoCompactMark::of_upload(ulid, details).encode(&mut body);
    body.into()
}

/// Returns true if the server with the labels `writer` uploaded the block of this section.
pub(crate) fn is_upload_of(thanos: Option<&ThanosMeta>, writer: &ExternalLabels) -> bool {
    thanos.is_some_and(|thanos| thanos.is_of_chronolith() && thanos.labels == writer.to_map())
}

/// Checks that a local block has no external labels but the labels of `writer`.
fn check_labels(local: &LocalBlock, writer: &ExternalLabels) -> Result<(), BucketError> {
    let labels = local.thanos.as_ref().and_then(|thanos| ExternalLabels::new(&thanos.labels));
    match labels.filter(|labels| labels != writer) {
        None => Ok(()),
        Some(other) => Err(BucketError::SourceFile {
            key: local.meta.ulid.to_string(),
            detail: format!("{META} has the external labels {other}, expected none or {writer}"),
        }),
    }
}

impl Uploader {
    /// Claims the folder of a block for the server with the labels `writer`. `present_bytes` has the sizes of
    /// its objects, `has_objects` is false for a folder without any.
    pub(super) async fn claim(
        &self,
        request: &RequestContext,
        local: &LocalBlock,
        writer: &ExternalLabels,
        present_bytes: &impl Fn(&str) -> Option<u64>,
        has_objects: bool,
    ) -> Result<(), BucketError> {
        check_labels(local, writer)?;
        let ulid = local.meta.ulid;
        let key = format!("{ulid}/{NO_COMPACT_MARK}");
        let body = claim_of(ulid, writer);
        let is_free = match present_bytes(NO_COMPACT_MARK) {
            Some(_) => self.is_equal(request, &key, ReadRange::Whole, &body).await?.is_some(),
            None if !has_objects => true,
            None => {
                let thanos = self.thanos_section(request, &ulid.to_string(), ulid).await?;
                is_upload_of(thanos.as_ref(), writer)
            }
        };
        if !is_free {
            let detail = format!(
                "the folder has a block of another program, or of a server with other external labels than \
                 {writer}; a data directory keeps its labels"
            );
            return Err(BucketError::Refused { what: format!("upload of block {ulid}"), detail });
        }
        self.send_body(request, &key, body, present_bytes(NO_COMPACT_MARK)).await
    }

    /// Returns the time at which the `meta.json` in the bucket was uploaded, which a repeated upload keeps;
    /// `None` if it does not have one.
    pub(super) async fn recorded_upload_time(
        &self,
        request: &RequestContext,
        folder: &str,
        ulid: Ulid,
    ) -> Result<Option<String>, BucketError> {
        let thanos = self.thanos_section(request, folder, ulid).await?;
        Ok(thanos.map(|thanos| thanos.upload_time).filter(|time| !time.is_empty()))
    }

    /// Section `thanos` of the `meta.json` in the bucket; `None` without a readable one.
    async fn thanos_section(
        &self,
        request: &RequestContext,
        folder: &str,
        ulid: Ulid,
    ) -> Result<Option<ThanosMeta>, BucketError> {
        match self.store.read(request, &format!("{folder}/{META}"), ReadRange::Whole, None).await {
            Ok(read) => Ok(decode_meta(ulid, &read.bytes).ok().and_then(|(_, thanos)| thanos)),
            Err(BucketError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
