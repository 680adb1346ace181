//! Bucket in a local directory over `base::Disk`: one file per object, at the path of its key.
//!
//! Invariants: an object appears under its name complete and durable, or not at all: temporary file, sync,
//! rename or hard link, directory sync; create-if-absent is the hard link, which fails if the name exists;
//! keys never escape the directory; temporary files lie in a directory that no key names.
//! Not here: counting, limits (`store::attempts`).

mod files;
mod walk;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use chronolith_base::{DiskFile, Env};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartId,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult,
};
use tokio::runtime::Handle;

use self::files::Files;

/// Bytes of a part of a multipart upload; only the last one may be shorter.
pub const PART_BYTES: usize = 16 * 1024 * 1024;

const STORE: &str = "local directory";
/// Bytes of one piece of a streamed body.
const PIECE_BYTES: u64 = 1024 * 1024;

/// Objects below one directory.
#[derive(Clone)]
pub(crate) struct LocalDir {
    files: Arc<Files>,
    handle: Handle,
}

impl LocalDir {
    /// Objects below `root`, which must exist. Temporary files that a crash has left are removed by the first
    /// write.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    pub(crate) fn open(env: &Env, root: PathBuf, handle: Handle) -> io::Result<LocalDir> {
        Ok(LocalDir { files: Arc::new(Files::open(env, root)?), handle })
    }

    /// Fills `out` from `offset` of the object by one positional read. The file stays open for later reads,
    /// so a read may return the bytes of an object that was removed or replaced meanwhile.
    ///
    /// Cost: blocks the thread; no allocation if the file is open.
    ///
    /// # Errors
    /// `NotFound`, or `UnexpectedEof` if the object ends before the range does.
    pub(crate) fn read_at(&self, key: &str, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.files.read_at(key, offset, out)
    }

    /// Bytes of an object.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn len(&self, key: &str) -> io::Result<u64> {
        self.files.open_key(key)?.len()
    }

    /// Runs file operations on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Files) -> io::Result<T> + Send + 'static,
    ) -> object_store::Result<T> {
        let files = Arc::clone(&self.files);
        let done = self.handle.spawn_blocking(move || work(&files)).await?;
        done.map_err(|error| store_error(error, key))
    }
}

impl fmt::Debug for LocalDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalDir({})", self.files.root().display())
    }
}

impl fmt::Display for LocalDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE} {}", self.files.root().display())
    }
}

pub(crate) fn store_error(error: io::Error, key: &str) -> Error {
    let path = key.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            Error::NotFound { path, source: Box::new(error) }
        }
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: Box::new(error) },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: Box::new(error) },
        _ => Error::Generic { store: STORE, source: Box::new(error) },
    }
}

/// An object that is open for reading.
struct OpenObject {
    file: Arc<dyn DiskFile>,
    meta: ObjectMeta,
    range: std::ops::Range<u64>,
}

fn open_object(files: &Files, key: &Path, options: &GetOptions) -> io::Result<Result<OpenObject, Error>> {
    let file = files.open_key(key.as_ref())?;
    let found = file.stat()?;
    let modified_ms = found.modified_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    let meta = ObjectMeta {
        location: key.clone(),
        last_modified: (SystemTime::UNIX_EPOCH + Duration::from_millis(modified_ms)).into(),
        size: found.len,
        e_tag: Some(format!("{:016x}-{:x}", found.version, found.len)),
        version: None,
    };
    if let Err(error) = options.check_preconditions(&meta) {
        return Ok(Err(error));
    }
    let beyond_end = || io::Error::new(io::ErrorKind::InvalidInput, "range beyond the end of the object");
    let range = match &options.range {
        None => 0..found.len,
        Some(GetRange::Bounded(range)) if range.start < found.len && range.start < range.end => {
            range.start..range.end.min(found.len)
        }
        Some(GetRange::Offset(start)) if *start < found.len => *start..found.len,
        Some(GetRange::Suffix(len)) if *len > 0 => found.len.saturating_sub(*len)..found.len,
        Some(_) => return Err(beyond_end()),
    };
    Ok(Ok(OpenObject { file, meta, range }))
}

fn read_piece(file: &dyn DiskFile, start: u64, end: u64) -> io::Result<Bytes> {
    let len = (end - start).min(PIECE_BYTES);
    let mut piece = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?];
    file.read_at(&mut piece, start)?;
    Ok(piece.into())
}

#[async_trait]
impl ObjectStore for LocalDir {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let is_create = match options.mode {
            PutMode::Overwrite => false,
            PutMode::Create => true,
            PutMode::Update(_) => {
                let source = "update by ETag in a local directory".into();
                return Err(Error::NotSupported { source });
            }
        };
        let key = location.to_string();
        let done = self.blocking(location.as_ref(), move |files| {
            let temporary = files.new_temporary()?;
            let written = files.write_temporary(&temporary, payload.iter());
            let placed = written.and_then(|()| {
                if is_create { files.create(&temporary, &key) } else { files.replace(&temporary, &key) }
            });
            files.discard(&temporary);
            placed
        });
        done.await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Err(Error::NotSupported { source: "use MultipartStore".into() })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let key = location.clone();
        let head = options.head;
        let opened = self.blocking(location.as_ref(), move |files| open_object(files, &key, &options));
        let OpenObject { file, meta, range } = opened.await??;
        let end = if head { range.start } else { range.end };
        let this = self.clone();
        let pieces = stream::try_unfold((this, file, range.start), move |(this, file, start)| async move {
            if start >= end {
                return Ok(None);
            }
            let reader = Arc::clone(&file);
            let piece = this.blocking("", move |_| read_piece(&*reader, start, end)).await?;
            let next = start + piece.len() as u64;
            Ok(Some((piece, (this, file, next))))
        });
        Ok(GetResult {
            payload: GetResultPayload::Stream(pieces.boxed()),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let this = self.clone();
        let removed = locations.then(move |location| {
            let this = this.clone();
            async move {
                let location = location?;
                let key = location.to_string();
                this.blocking(location.as_ref(), move |files| files.remove(&key)).await?;
                Ok(location)
            }
        });
        removed.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.list_with_offset(prefix, &Path::default())
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let prefix = prefix.map(|prefix| prefix.to_string()).unwrap_or_default();
        let first = Some(offset.to_string());
        let pages = stream::try_unfold((self.clone(), first), move |(this, after)| {
            let prefix = prefix.clone();
            async move {
                let Some(after) = after else { return Ok::<_, Error>(None) };
                let shown = prefix.clone();
                let page = this.blocking(&shown, move |files| walk::page(files, &prefix, &after)).await?;
                Ok(Some((stream::iter(page.objects.into_iter().map(Ok)), (this, page.next_after))))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        let prefix = prefix.map(|prefix| prefix.to_string()).unwrap_or_default();
        self.blocking(&prefix.clone(), move |files| walk::directory(files, &prefix)).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        Err(Error::NotSupported { source: "copy in a local directory".into() })
    }
}

#[async_trait]
impl MultipartStore for LocalDir {
    async fn create_multipart(&self, path: &Path) -> object_store::Result<MultipartId> {
        self.blocking(path.as_ref(), |files| {
            let temporary = files.new_temporary()?;
            files.write_temporary(&temporary, [].iter())?;
            Ok(temporary)
        })
        .await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part_idx: usize,
        payload: PutPayload,
    ) -> object_store::Result<PartId> {
        let id = id.clone();
        let len = payload.content_length();
        let offset = (part_idx as u64).saturating_mul(PART_BYTES as u64);
        self.blocking(path.as_ref(), move |files| files.write_part(&id, offset, payload.iter())).await?;
        Ok(PartId { content_id: len.to_string() })
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        _: Vec<PartId>,
    ) -> object_store::Result<PutResult> {
        let id = id.clone();
        let key = path.to_string();
        let done = self.blocking(path.as_ref(), move |files| {
            files.sync_temporary(&id)?;
            files.replace(&id, &key)
        });
        done.await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> object_store::Result<()> {
        let id = id.clone();
        self.blocking(path.as_ref(), move |files| {
            files.discard(&id);
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests;
