//! Multipart upload of a file: parts of [`PART_BYTES`], a few at once, aborted on failure.
//!
//! Invariants: at most [`PARTS_AT_ONCE`] parts are in memory; an upload that fails or is dropped is aborted;
//! after success the object has the size of the file.
//! Not here: checksums of the content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::DiskFile;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::MultipartId;
use object_store::multipart::PartId;
use object_store::path::Path;

pub use super::local::PART_BYTES;

use super::attempts::Answer;
use super::backend::Backend;
use super::request::{Operation, RequestContext};
use crate::error::BucketError;
use crate::store::Store;

/// Parts in memory and in flight at once.
pub const PARTS_AT_ONCE: usize = 3;
/// Parts that S3 allows.
const PARTS_MAX: u64 = 10_000;
/// Time for the abort of a failed upload.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

impl Store {
    /// Writes a file as an object, replacing an existing one; small files in one request.
    ///
    /// Cost: memory of [`PARTS_AT_ONCE`] parts; two requests more than there are parts.
    ///
    /// # Errors
    /// As [`Store::put`]; [`BucketError::SourceFile`] if the file cannot be read.
    pub async fn put_multipart(
        &self,
        context: &RequestContext,
        key: &str,
        file: Arc<dyn DiskFile>,
    ) -> Result<(), BucketError> {
        let unreadable = |detail: String| BucketError::SourceFile { key: key.to_owned(), detail };
        let len = file.len().map_err(|error| unreadable(error.to_string()))?;
        if len <= PART_BYTES as u64 {
            let body = self.part(key, file, 0, len).await?;
            return self.put(context, key, body).await;
        }
        if len.div_ceil(PART_BYTES as u64) > PARTS_MAX {
            return Err(unreadable(format!("{len} bytes are more than {PARTS_MAX} parts of {PART_BYTES}")));
        }
        let location = self.location(key)?;
        let begin = || {
            let call = async { Ok(Answer::bare(self.backend.create_multipart(&location).await?)) };
            self.requests.once(context, Operation::Multipart, call)
        };
        let id = self.requests.retried(context, Operation::Multipart, key, begin).await?;
        let mut upload = Upload { store: self, location, id, is_done: false };
        let done = upload.run(context, key, file, len).await;
        upload.is_done = done.is_ok();
        if done.is_err() {
            upload.abort().await;
        }
        done
    }

    /// Reads a part of the file on a thread that may block.
    async fn part(
        &self,
        key: &str,
        file: Arc<dyn DiskFile>,
        start: u64,
        end: u64,
    ) -> Result<Bytes, BucketError> {
        let unreadable = |detail: String| BucketError::SourceFile { key: key.to_owned(), detail };
        assert!(start <= end && end - start <= PART_BYTES as u64, "a file is cut into parts");
        let len = usize::try_from(end - start).unwrap_or(PART_BYTES);
        let read = self.handle.spawn_blocking(move || {
            let mut part = vec![0; len];
            file.read_at(&mut part, start).map(|()| Bytes::from(part))
        });
        match read.await {
            Ok(part) => part.map_err(|error| unreadable(error.to_string())),
            Err(_) => Err(BucketError::Canceled { what: format!("upload of {key}") }),
        }
    }
}

/// A multipart upload that has begun.
struct Upload<'s> {
    store: &'s Store,
    location: Path,
    id: MultipartId,
    /// Set once nothing is left to abort.
    is_done: bool,
}

impl Upload<'_> {
    async fn run(
        &self,
        context: &RequestContext,
        key: &str,
        file: Arc<dyn DiskFile>,
        len: u64,
    ) -> Result<(), BucketError> {
        let part_bytes = PART_BYTES as u64;
        let starts = (0..len.div_ceil(part_bytes)).map(|idx| idx * part_bytes);
        let parts = stream::iter(starts.enumerate()).map(|(idx, start)| {
            let file = Arc::clone(&file);
            async move {
                let end = (start + part_bytes).min(len);
                let part = self.store.part(key, file, start, end).await?;
                self.put_part(context, key, idx, part).await
            }
        });
        let parts: Vec<PartId> = parts.buffered(PARTS_AT_ONCE).try_collect().await?;
        self.complete(context, key, &parts, len).await
    }

    async fn put_part(
        &self,
        context: &RequestContext,
        key: &str,
        idx: usize,
        part: Bytes,
    ) -> Result<PartId, BucketError> {
        let requests = &self.store.requests;
        let attempt = || {
            let call = async {
                let payload = part.clone().into();
                let id = self.store.backend.put_part(&self.location, &self.id, idx, payload).await?;
                Ok(Answer::sent(id, part.len()))
            };
            requests.once(context, Operation::Multipart, call)
        };
        requests.retried(context, Operation::Multipart, key, attempt).await
    }

    async fn complete(
        &self,
        context: &RequestContext,
        key: &str,
        parts: &[PartId],
        len: u64,
    ) -> Result<(), BucketError> {
        // The storage joins what it is given: a missing part would shift those after it.
        assert_eq!(parts.len() as u64, len.div_ceil(PART_BYTES as u64), "an upload has all its parts");
        let requests = &self.store.requests;
        let attempt_count = AtomicU32::new(0);
        let attempt = || {
            attempt_count.fetch_add(1, Ordering::Relaxed);
            let call = async {
                let parts = parts.to_vec();
                self.store.backend.complete_multipart(&self.location, &self.id, parts).await?;
                Ok(Answer::bare(()))
            };
            requests.once(context, Operation::Multipart, call)
        };
        let completed = requests.retried(context, Operation::Multipart, key, attempt).await;
        match completed {
            Ok(()) => {}
            // A completion whose answer was lost leaves no upload, so the next attempt does not find it. The
            // size of the object decides.
            Err(BucketError::NotFound { .. }) if attempt_count.load(Ordering::Relaxed) > 1 => {}
            Err(error) => return Err(error),
        }
        let found = self.store.head(context, key).await?;
        if found.object_bytes == len {
            return Ok(());
        }
        Err(BucketError::Corrupt {
            key: key.to_owned(),
            what: "size after upload",
            expected: format!("{len} bytes"),
            found: format!("{} bytes", found.object_bytes),
        })
    }

    async fn abort(&mut self) {
        self.is_done = true;
        let aborted = self.store.backend.abort_multipart(&self.location, &self.id);
        // Parts that stay are removed by the lifecycle rules of the bucket.
        let _ = tokio::time::timeout(ABORT_TIMEOUT, aborted).await;
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let backend: Arc<dyn Backend> = Arc::clone(&self.store.backend);
        let location = self.location.clone();
        let id = self.id.clone();
        self.store.handle.spawn(async move {
            let _ = tokio::time::timeout(ABORT_TIMEOUT, backend.abort_multipart(&location, &id)).await;
        });
    }
}
