//! Damaged answers for tests: a client of objects in memory that changes the answers to chosen reads and
//! listings on their way, headers included.
//!
//! Invariants: objects stay as they are; a damage depends on its seed and on the number of answers that it
//! hit before; requests that do not match are answered as without it.
//! Not here: faults that the client library reports (`store::faults`), damaged objects (tests of `tsdb`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use chronolith_base::Rng;
use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use super::body::{changed, status};

/// Damage of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerWay {
    /// One bit is wrong: of the body, of a size, of a listed key.
    Bit,
    /// The end is missing, in the body alone or as if the object were shorter.
    Cut,
    /// Nothing is left, of the body alone or as if the object were empty.
    Empty,
    /// The answer comes from another object or folder.
    Other,
    /// There is more, in the body alone or as if the object were longer; a listed object that is none.
    Longer,
    /// The answer is of an earlier time, at which the object may have been absent.
    Older,
    /// An error in the middle; of a listing also one without an error, in which keys are missing.
    Broken,
}

impl AnswerWay {
    /// All ways.
    pub const ALL: [AnswerWay; 7] = [
        AnswerWay::Bit,
        AnswerWay::Cut,
        AnswerWay::Empty,
        AnswerWay::Other,
        AnswerWay::Longer,
        AnswerWay::Older,
        AnswerWay::Broken,
    ];
}

/// A read or listing, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentRead {
    /// `get`, `head`, `list`, or `list-directory` for one with a delimiter.
    pub operation: &'static str,
    /// Object, or prefix of the listing.
    pub key: String,
    /// Range of a `get`, as the library shows it; empty for the whole object.
    pub range: String,
}

/// Decides which reads are hit.
type Matches = Box<dyn Fn(&SentRead) -> bool + Send + Sync>;

/// Damage of the answers to some reads.
pub struct AnswerDamage {
    /// Kind of the damage.
    pub way: AnswerWay,
    /// Reads that are hit.
    pub matches: Matches,
    /// Answers that are hit at most.
    pub count_max: u64,
    /// Determines positions and other objects.
    pub seed: u64,
}

/// Damage of one answer.
struct Hit {
    way: AnswerWay,
    /// Random numbers of its own.
    rng: Rng,
}

/// A client of objects in memory whose answers can be damaged.
pub struct AnswerFaults {
    inner: Arc<InMemory>,
    /// Objects at an earlier time.
    older: BTreeMap<String, Bytes>,
    damage: Mutex<Option<AnswerDamage>>,
    hit_count: AtomicU64,
    sent: Mutex<Vec<SentRead>>,
}

impl AnswerFaults {
    pub(super) fn new(inner: Arc<InMemory>, older: BTreeMap<String, Bytes>) -> AnswerFaults {
        let hit_count = AtomicU64::new(0);
        AnswerFaults { inner, older, damage: Mutex::default(), hit_count, sent: Mutex::default() }
    }

    /// Damages later answers; `None` ends it. Forgets the reads that were sent.
    pub fn set(&self, damage: Option<AnswerDamage>) {
        *self.damage.lock() = damage;
        self.hit_count.store(0, Ordering::Relaxed);
        self.sent.lock().clear();
    }

    /// Answers that the current damage has hit.
    #[must_use]
    pub fn hit_count(&self) -> u64 {
        self.hit_count.load(Ordering::Relaxed)
    }

    /// Reads and listings since the last [`AnswerFaults::set`].
    #[must_use]
    pub fn sent(&self) -> Vec<SentRead> {
        self.sent.lock().clone()
    }

    /// Damage of the answer to this read.
    fn damage_of(&self, operation: &'static str, key: &str, range: String) -> Option<Hit> {
        let read = SentRead { operation, key: key.to_owned(), range };
        let damage = self.damage.lock();
        let matching = damage.as_ref().filter(|damage| (damage.matches)(&read));
        self.sent.lock().push(read);
        let damage = matching?;
        if self.hit_count.load(Ordering::Relaxed) >= damage.count_max {
            return None;
        }
        let hit_count = self.hit_count.fetch_add(1, Ordering::Relaxed);
        Some(Hit { way: damage.way, rng: Rng::from_seed(damage.seed ^ hit_count.rotate_left(32)) })
    }

    /// Bytes of an object; `None` if there is none.
    async fn bytes_of(&self, location: &Path) -> Result<Option<Bytes>> {
        match self.inner.get(location).await {
            Ok(found) => Ok(Some(found.bytes().await?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Another object, of the same name in another folder if there is one.
    async fn other(&self, location: &Path, rng: &Rng) -> Result<Option<Path>> {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await?;
        let others = all.iter().map(|object| &object.location).filter(|other| *other != location);
        let (same, rest): (Vec<&Path>, Vec<&Path>) =
            others.partition(|other| other.filename() == location.filename());
        let from = if same.is_empty() || rng.below(4) == 0 { rest } else { same };
        if from.is_empty() {
            return Ok(None);
        }
        Ok(Some(from[rng.below(from.len() as u64) as usize].clone()))
    }

    /// The answer of the object `other`, with its headers.
    async fn served_as(&self, other: &Path, location: &Path, options: &GetOptions) -> Result<GetResult> {
        let mut answer = self.inner.get_opts(other, options.clone()).await.map_err(|_| status(416))?;
        answer.meta.location = location.clone();
        Ok(answer)
    }

    async fn damaged(&self, location: &Path, options: &GetOptions, hit: Hit) -> Result<GetResult> {
        let Hit { way, rng } = hit;
        let etag = self.inner.head(location).await.ok().and_then(|meta| meta.e_tag);
        let serve = |bytes: Bytes, location: &Path| served(location, bytes, options, etag.clone());
        let Some(bytes) = self.bytes_of(location).await? else {
            // An absent object: the answer comes from another one, or is an error.
            return match self.other(location, &rng).await? {
                Some(other) if way != AnswerWay::Broken => self.served_as(&other, location, options).await,
                _ => Err(reset()),
            };
        };
        // A damage of the body alone leaves the headers as they are.
        let is_body_alone = !options.head && rng.below(2) == 0;
        let real = serve(bytes.clone(), location)?;
        let body_bytes = real.range.end.saturating_sub(real.range.start).max(1);
        match way {
            AnswerWay::Bit if options.head => {
                let mut real = real;
                real.meta.size ^= 1 << rng.below(20);
                Ok(real)
            }
            AnswerWay::Bit => {
                let bit = rng.below(body_bytes * 8);
                Ok(changed(real, move |body| flip(body, bit)))
            }
            AnswerWay::Cut if is_body_alone => {
                let kept_bytes = rng.below(body_bytes) as usize;
                Ok(changed(real, move |body| body.truncate(kept_bytes)))
            }
            AnswerWay::Cut => serve(bytes.slice(..rng.below(bytes.len().max(1) as u64) as usize), location),
            AnswerWay::Empty if is_body_alone => Ok(changed(real, Vec::clear)),
            AnswerWay::Empty => serve(Bytes::new(), location),
            AnswerWay::Other => match self.other(location, &rng).await? {
                Some(other) => self.served_as(&other, location, options).await,
                None => Err(reset()),
            },
            AnswerWay::Longer => {
                let mut more = vec![0; 1 + rng.below(64) as usize];
                rng.fill(&mut more);
                match is_body_alone {
                    true => Ok(changed(real, move |body| body.extend_from_slice(&more))),
                    false => serve([&bytes[..], &more].concat().into(), location),
                }
            }
            AnswerWay::Older => match self.older.get(location.as_ref()) {
                Some(older) => serve(older.clone(), location),
                None => Err(Error::NotFound { path: location.to_string(), source: "older".into() }),
            },
            AnswerWay::Broken => Ok(broken(real, rng.below(body_bytes) as usize)),
        }
    }

    /// Entries of a listing, damaged, and whether it ends with an error. `foreign` are entries of another
    /// listing.
    fn damaged_list(&self, mut entries: Vec<Entry>, foreign: Vec<Entry>, hit: Hit) -> (Vec<Entry>, bool) {
        let Hit { way, rng } = hit;
        let idx = if entries.is_empty() { 0 } else { rng.below(entries.len() as u64) as usize };
        let is_broken = way == AnswerWay::Broken && rng.below(2) == 0;
        match way {
            AnswerWay::Bit => entries.iter_mut().skip(idx).take(1).for_each(|entry| entry.flip(&rng)),
            AnswerWay::Broken if !is_broken => drop(entries.splice(idx..entries.len().min(idx + 1), [])),
            AnswerWay::Cut | AnswerWay::Broken => entries.truncate(idx),
            AnswerWay::Empty => entries.clear(),
            AnswerWay::Other => entries = foreign,
            AnswerWay::Longer => {
                let mut more = entries.get(idx).cloned();
                more.iter_mut().for_each(|entry| entry.flip(&rng));
                entries.extend(more);
            }
            AnswerWay::Older => entries.retain(|entry| self.has_older(&entry.location)),
        }
        (entries, is_broken)
    }

    /// Returns true if the object, or one below the directory, was there at the earlier time.
    fn has_older(&self, location: &Path) -> bool {
        let key = location.as_ref();
        let below = |older: &str| {
            older.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.older.keys().any(|older| below(older))
    }

    /// Objects below `prefix`, or all others.
    async fn objects(&self, prefix: Option<&Path>, is_below: bool) -> Result<Vec<Entry>> {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await?;
        let is_in = |object: &ObjectMeta| prefix.is_none_or(|prefix| object.location.prefix_matches(prefix));
        let chosen = all.into_iter().filter(|object| is_in(object) == is_below);
        Ok(chosen.map(|object| Entry { location: object.location.clone(), object: Some(object) }).collect())
    }
}

/// Object or directory of a listing.
#[derive(Debug, Clone)]
struct Entry {
    location: Path,
    /// `None` for a directory.
    object: Option<ObjectMeta>,
}

impl Entry {
    /// Makes one of the last characters of its key wrong.
    fn flip(&mut self, rng: &Rng) {
        let mut key = self.location.to_string().into_bytes();
        let tail_bytes = key.len().clamp(1, 24) as u64;
        let at = key.len().saturating_sub(1 + rng.below(tail_bytes) as usize);
        // A bit that leaves it a character of keys.
        key.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
        if let Some(flipped) = String::from_utf8(key).ok().and_then(|key| Path::parse(key).ok()) {
            self.location = flipped;
        }
        if let Some(object) = &mut self.object {
            object.location = self.location.clone();
        }
    }
}

/// An answer as from an object with these bytes.
fn served(location: &Path, bytes: Bytes, options: &GetOptions, e_tag: Option<String>) -> Result<GetResult> {
    let size = bytes.len() as u64;
    let meta = ObjectMeta {
        location: location.clone(),
        last_modified: Default::default(),
        size,
        e_tag,
        version: None,
    };
    let range = match &options.range {
        None => 0..size,
        Some(range) => range.as_range(size).map_err(|_| status(416))?,
    };
    let body = bytes.slice(range.start as usize..range.end as usize);
    let payload = GetResultPayload::Stream(stream::once(async { Ok(body) }).boxed());
    Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
}

/// An answer that breaks off with an error after `kept_bytes`.
fn broken(answer: GetResult, kept_bytes: usize) -> GetResult {
    let meta = answer.meta.clone();
    let range = answer.range.clone();
    let attributes = answer.attributes.clone();
    let first = stream::once(async move {
        let mut body = answer.into_stream().try_collect::<Vec<Bytes>>().await?.concat();
        body.truncate(kept_bytes);
        Ok(Bytes::from(body))
    });
    let payload = GetResultPayload::Stream(first.chain(stream::once(async { Err(reset()) })).boxed());
    GetResult { payload, meta, range, attributes, extensions: Default::default() }
}

fn flip(body: &mut [u8], bit: u64) {
    if let Some(byte) = body.get_mut((bit / 8) as usize) {
        *byte ^= 1 << (bit % 8);
    }
}

fn reset() -> Error {
    let source = Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    Error::Generic { store: "faults", source }
}

impl fmt::Debug for AnswerFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerFaults")
    }
}

impl fmt::Display for AnswerFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("damaged answers")
    }
}

#[async_trait]
impl ObjectStore for AnswerFaults {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let operation = if options.head { "head" } else { "get" };
        let range = options.range.as_ref().map_or_else(String::new, ToString::to_string);
        match self.damage_of(operation, location.as_ref(), range) {
            None => self.inner.get_opts(location, options).await,
            Some(damage) => self.damaged(location, &options, damage).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let Some(damage) = self.damage_of("list", prefix.map_or("", AsRef::as_ref), String::new()) else {
            return self.inner.list(prefix);
        };
        // Listings of objects in memory are ready at once.
        let ready = |is_below| self.objects(prefix, is_below).now_or_never().unwrap_or_else(|| Err(reset()));
        let (entries, is_broken) = match ready(true).and_then(|real| Ok((real, ready(false)?))) {
            Ok((real, foreign)) => self.damaged_list(real, foreign, damage),
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let end = is_broken.then(|| Err(reset()));
        stream::iter(entries.into_iter().filter_map(|entry| entry.object).map(Ok).chain(end)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self.inner.list_with_delimiter(prefix).await?;
        let Some(damage) = self.damage_of("list-directory", prefix.map_or("", AsRef::as_ref), String::new())
        else {
            return Ok(listed);
        };
        let object = |object: ObjectMeta| Entry { location: object.location.clone(), object: Some(object) };
        let directories = listed.common_prefixes.into_iter().map(|location| Entry { location, object: None });
        let real: Vec<Entry> = listed.objects.into_iter().map(object).chain(directories).collect();
        let foreign = self.objects(prefix, false).await?;
        let (entries, is_broken) = self.damaged_list(real, foreign, damage);
        if is_broken {
            return Err(reset());
        }
        let (objects, directories): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|entry| entry.object.is_some());
        Ok(ListResult {
            objects: objects.into_iter().filter_map(|entry| entry.object).collect(),
            common_prefixes: directories.into_iter().map(|entry| entry.location).collect(),
            extensions: Default::default(),
        })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for AnswerFaults {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.inner.create_multipart(path).await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, idx: usize, part: PutPayload) -> Result<PartId> {
        self.inner.put_part(path, id, idx, part).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        self.inner.complete_multipart(path, id, parts).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.inner.abort_multipart(path, id).await
    }
}
