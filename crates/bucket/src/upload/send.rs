//! One object of a block: sent unless it is there, then compared with its file.

use std::sync::Arc;

use bytes::Bytes;
use chronolith_format::bucket::catalogue::etag_sum;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::local::LocalFile;
use super::{BucketError, Uploader};
use crate::RequestContext;
use crate::store::multipart::PART_BYTES;
use crate::store::read::ReadRange;

/// Times that an object is sent which then differs from its file.
const SENDS_MAX: u32 = 2;
/// Bytes of each part of a large object that are compared with the file.
const COMPARED_BYTES: u64 = 64 * 1024;
/// Ranges that are compared at the same time.
const COMPARISONS_AT_ONCE: usize = 4;

/// Sum of the ETag of an object as a catalogue records it; 0 without one.
pub(super) type EtagSum = u32;

/// The ETag of an object as a catalogue records it.
pub(super) fn sum_of(etag: Option<&str>) -> EtagSum {
    etag.map_or(0, etag_sum)
}

impl Uploader {
    /// Sends a file, unless an equal object is there. Returns the ETag of the object.
    pub(super) async fn send_file(
        &self,
        request: &RequestContext,
        key: &str,
        file: &LocalFile,
        present_bytes: Option<u64>,
    ) -> Result<EtagSum, BucketError> {
        if present_bytes == Some(file.len)
            && let Some(etag) = self.has_content(request, key, file).await?
        {
            self.counters.add_present(file.len);
            return Ok(etag);
        }
        for _ in 0..SENDS_MAX {
            self.store.put_multipart(request, key, file.file.clone()).await?;
            self.counters.add_sent(file.len);
            if let Some(etag) = self.has_content(request, key, file).await? {
                return Ok(etag);
            }
        }
        Err(differs(key))
    }

    /// As [`Uploader::send_file`], from memory.
    pub(super) async fn send_body(
        &self,
        request: &RequestContext,
        key: &str,
        body: Bytes,
        present_bytes: Option<u64>,
    ) -> Result<(), BucketError> {
        let len = body.len() as u64;
        if present_bytes == Some(len) && self.is_equal(request, key, ReadRange::Whole, &body).await?.is_some()
        {
            self.counters.add_present(len);
            return Ok(());
        }
        for _ in 0..SENDS_MAX {
            self.store.put(request, key, body.clone()).await?;
            self.counters.add_sent(len);
            if self.is_equal(request, key, ReadRange::Whole, &body).await?.is_some() {
                return Ok(());
            }
        }
        Err(differs(key))
    }

    /// Returns the ETag of the object if its compared parts have the content of the file.
    async fn has_content(
        &self,
        request: &RequestContext,
        key: &str,
        file: &LocalFile,
    ) -> Result<Option<EtagSum>, BucketError> {
        if file.len <= PART_BYTES as u64 {
            let expected = self.local_bytes(key, file, 0, file.len).await?;
            return self.is_equal(request, key, ReadRange::Whole, &expected).await;
        }
        let head = self.store.head(request, key).await?;
        if head.object_bytes != file.len {
            return Ok(None);
        }
        let part_bytes = PART_BYTES as u64;
        let starts = (0..file.len.div_ceil(part_bytes)).map(|idx| idx * part_bytes);
        let comparisons = stream::iter(starts).map(|start| async move {
            let end = (start + part_bytes).min(file.len);
            let compared_bytes = COMPARED_BYTES.min(end - start);
            let offset = start + self.env.rng.below(end - start - compared_bytes + 1);
            let expected = self.local_bytes(key, file, offset, compared_bytes).await?;
            let range = ReadRange::Exact(offset..offset + compared_bytes);
            self.is_equal(request, key, range, &expected).await
        });
        let comparisons = comparisons.buffer_unordered(COMPARISONS_AT_ONCE);
        let is_equal = comparisons.try_fold(true, |all, part| async move { Ok(all && part.is_some()) });
        Ok(is_equal.await?.then(|| sum_of(head.etag.as_deref())))
    }

    /// Returns the ETag of the object if its bytes are `expected`. They are read again if they differ, as
    /// they may have been damaged on their way.
    pub(super) async fn is_equal(
        &self,
        request: &RequestContext,
        key: &str,
        range: ReadRange,
        expected: &[u8],
    ) -> Result<Option<EtagSum>, BucketError> {
        for _ in 0..2 {
            match self.store.read(request, key, range.clone(), None).await {
                Ok(found) if found.bytes == expected => return Ok(Some(sum_of(found.etag.as_deref()))),
                Ok(_) | Err(BucketError::Corrupt { .. }) => {}
                Err(BucketError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn local_bytes(
        &self,
        key: &str,
        file: &LocalFile,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, BucketError> {
        let file = Arc::clone(&file.file);
        let len = usize::try_from(len).unwrap_or(PART_BYTES).min(PART_BYTES);
        let read = self.handle.spawn_blocking(move || {
            let mut bytes = vec![0; len];
            file.read_at(&mut bytes, offset).map(|()| bytes)
        });
        match read.await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(BucketError::SourceFile { key: key.to_owned(), detail: error.to_string() }),
            Err(_) => Err(BucketError::Canceled { what: format!("upload of {key}") }),
        }
    }
}

#[cold]
fn differs(key: &str) -> BucketError {
    BucketError::Corrupt {
        key: key.to_owned(),
        what: "content after upload",
        expected: "that of the local file".to_owned(),
        found: format!("other bytes after it was sent {SENDS_MAX} times"),
    }
}
