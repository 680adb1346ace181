//! Fault injection for tests and simulations: a client that wraps another and delays, refuses, cuts and loses
//! answers, and ends its process at a request.
//!
//! Invariants: which request fails depends on the seed, its kind, its key and how often it was sent, not on
//! the order of requests for different keys; after [`Kill::EndsBefore`] and [`Kill::EndsAfter`] no request
//! has an effect.
//! Not here: retries (`store::attempts`).

pub mod answers;
mod body;
#[cfg(test)]
pub(crate) mod read_log;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chronolith_base::Rng;
use chronolith_base::hash::{HashMap, hash_bytes};
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::answers::AnswerFaults;
use self::body::{changed, status};
use crate::store::backend::Backend;

/// Objects in memory. They outlive the processes that use them.
#[derive(Debug, Default)]
pub struct MemoryBucket(Arc<InMemory>);

impl MemoryBucket {
    /// An empty bucket.
    #[must_use]
    pub fn new() -> MemoryBucket {
        MemoryBucket::default()
    }

    /// The client of one process, without faults at first.
    #[must_use]
    pub fn connect(&self, seed: u64) -> Arc<FaultStore> {
        Arc::new(FaultStore::new(self.0.clone(), FaultPlan::default(), seed))
    }

    /// The client of one process whose answers can be damaged; `older` are objects of an earlier time.
    #[must_use]
    pub fn connect_damaged(&self, older: BTreeMap<String, Bytes>) -> (Arc<FaultStore>, Arc<AnswerFaults>) {
        let answers = Arc::new(AnswerFaults::new(self.0.clone(), older));
        (Arc::new(FaultStore::new(answers.clone(), FaultPlan::default(), 0)), answers)
    }
}

/// Faults per 1000 requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// 503, nothing happens.
    pub unavailable: u64,
    /// Answers to reads that end early.
    pub cut: u64,
    /// Answers to reads, but of `meta.json`, with one wrong bit.
    pub flipped: u64,
    /// Writes that succeed and are reported as failed.
    pub lost_answer: u64,
    /// 409 to a creation that does not happen.
    pub conflict: u64,
    /// Requests that are delayed by up to `delay_ms`.
    pub delayed: u64,
    /// Longest of these delays, in milliseconds.
    pub delay_ms: u64,
    /// Reads that are answered after `stall_ms`, or when a plan without stalled reads is set.
    pub stalled: u64,
    /// Longest delay of a stalled read, in milliseconds.
    pub stall_ms: u64,
    /// Requests that are neither carried out nor answered.
    pub unanswered: u64,
}

/// End of a process at one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// The request is refused for good.
    Refused,
    /// The request is carried out, and answered as refused for good.
    RefusedAfter,
    /// The process dies before the request is carried out.
    DiesBefore,
    /// The process dies when the request was carried out.
    DiesAfter,
    /// As [`Kill::DiesBefore`], but this request and all later ones are refused, so that threads that wait
    /// for them end.
    EndsBefore,
    /// The request is carried out; then as [`Kill::EndsBefore`].
    EndsAfter,
}

impl Kill {
    /// Ends for tests that drop the future of the process.
    pub const ALL: [Kill; 4] = [Kill::Refused, Kill::RefusedAfter, Kill::DiesBefore, Kill::DiesAfter];
}

/// Kind of a fault, for the decision which requests it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Unavailable,
    Cut,
    Flipped,
    LostAnswer,
    Conflict,
    Delayed,
    Stalled,
    Unanswered,
}

/// A request: hash of its kind, key and range, and how often it was sent.
#[derive(Debug, Clone, Copy)]
struct RequestId(u64);

/// Code of a test that runs at an event.
type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Hooks {
    /// Called once when the process ends.
    on_end: Option<Hook>,
    /// Called before each creation of an object.
    on_create: Option<Hook>,
}

/// Faults of one request.
#[derive(Clone, Copy)]
struct Injected {
    plan: FaultPlan,
    kill: Option<Kill>,
    id: RequestId,
}

/// A client of one process with faults.
pub struct FaultStore {
    inner: Arc<dyn Backend>,
    plan: watch::Sender<FaultPlan>,
    seed: u64,
    /// Times each request was sent, by the hash of its kind, key and range.
    sent_counts: Mutex<HashMap<u64, u64>>,
    pub(crate) requests: AtomicU64,
    pub(crate) injected: AtomicU64,
    pub(crate) aborts: AtomicU64,
    /// Answers that may get a wrong bit.
    pub(crate) flips_left: AtomicU64,
    /// Listings that lack their first key and directory, as if a name had been damaged on its way.
    pub(crate) short_lists_left: AtomicU64,
    /// Reads that may stall.
    pub(crate) stalls_left: AtomicU64,
    /// Requests until the end, and how it ends.
    kill_at: Mutex<Option<(u64, Kill)>>,
    pub(crate) died: Arc<Notify>,
    has_ended: AtomicBool,
    hooks: Mutex<Hooks>,
    #[cfg(test)]
    pub(crate) reads: read_log::ReadLog,
}

impl FaultStore {
    pub(crate) fn new(inner: Arc<dyn Backend>, plan: FaultPlan, seed: u64) -> FaultStore {
        FaultStore {
            inner,
            plan: watch::Sender::new(plan),
            seed: seed ^ 0xfa17,
            sent_counts: Mutex::default(),
            requests: AtomicU64::new(0),
            injected: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
            flips_left: AtomicU64::new(u64::MAX),
            short_lists_left: AtomicU64::new(0),
            stalls_left: AtomicU64::new(u64::MAX),
            kill_at: Mutex::default(),
            died: Arc::default(),
            has_ended: AtomicBool::new(false),
            hooks: Mutex::default(),
            #[cfg(test)]
            reads: read_log::ReadLog::default(),
        }
    }

    /// Changes the faults of later requests. A plan without stalled reads ends the stalls of earlier ones.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.plan.send_replace(plan);
    }

    /// Requests up to here.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Faults that were injected up to here.
    #[must_use]
    pub fn injected_count(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// Ends the process at the request after `requests` others.
    pub fn kill_after(&self, requests: u64, kill: Kill) {
        *self.kill_at.lock() = Some((requests, kill));
    }

    /// Calls `on_end` when the process ends by [`Kill::EndsBefore`] or [`Kill::EndsAfter`].
    pub fn on_end(&self, on_end: impl Fn() + Send + Sync + 'static) {
        self.hooks.lock().on_end = Some(Arc::new(on_end));
    }

    /// Calls `on_create` before each creation of an object by create-if-absent: another process may win it.
    /// Must not send requests by this client.
    pub fn on_create(&self, on_create: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.hooks.lock().on_create = on_create;
    }

    /// Returns true after [`Kill::EndsBefore`] or [`Kill::EndsAfter`].
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Cancels a kill. Returns true if it has not come.
    pub fn is_alive(&self) -> bool {
        self.kill_at.lock().take().is_some()
    }

    /// The end that comes with this request.
    fn take_kill(&self) -> Option<Kill> {
        let mut kill_at = self.kill_at.lock();
        let (requests, kill) = (*kill_at)?;
        *kill_at = requests.checked_sub(1).map(|left| (left, kill));
        kill_at.is_none().then_some(kill)
    }

    /// Counts a request of `kind` for `key`.
    fn id_of(&self, kind: &str, key: &str, detail: u64) -> RequestId {
        let request = hash_bytes(kind.as_bytes()) ^ hash_bytes(key.as_bytes()).rotate_left(7) ^ mixed(detail);
        let mut counts = self.sent_counts.lock();
        let count = counts.entry(request).or_insert(0);
        *count += 1;
        RequestId(mixed(self.seed ^ request ^ mixed(*count)))
    }

    /// Number below `bound` that the request and the fault determine.
    fn draw(&self, id: RequestId, fault: Fault, bound: u64) -> u64 {
        mixed(id.0.wrapping_add(fault as u64 + 1)) % bound.max(1)
    }

    fn hits(&self, id: RequestId, fault: Fault, per_mille: u64) -> bool {
        let hits = self.draw(id, fault, 1000) < per_mille;
        self.injected.fetch_add(u64::from(hits), Ordering::Relaxed);
        hits
    }

    /// Returns true if this listing lacks its first key.
    fn is_short_list(&self) -> bool {
        let left =
            self.short_lists_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        left.is_ok()
    }

    fn end(&self) -> Error {
        let on_end = self.hooks.lock().on_end.clone();
        if !self.has_ended.swap(true, Ordering::SeqCst)
            && let Some(on_end) = on_end
        {
            on_end();
        }
        status(403)
    }

    /// Faults that come before the request has an effect.
    async fn before(&self, id: RequestId) -> Result<Injected> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.has_ended() {
            return Err(status(403));
        }
        let kill = self.take_kill();
        match kill {
            Some(Kill::Refused) => return Err(status(403)),
            Some(Kill::DiesBefore) => self.die().await,
            Some(Kill::EndsBefore) => return Err(self.end()),
            _ => {}
        }
        let plan = *self.plan.borrow();
        if self.hits(id, Fault::Unanswered, plan.unanswered) {
            std::future::pending::<()>().await;
        }
        if self.hits(id, Fault::Delayed, plan.delayed) {
            let delay_ms = self.draw(id, Fault::Delayed, (plan.delay_ms + 1) * 1000) / 1000;
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        if self.hits(id, Fault::Unavailable, plan.unavailable) {
            return Err(status(503));
        }
        // A request that waited must not have an effect after the end of its process.
        if self.has_ended() { Err(status(403)) } else { Ok(Injected { plan, kill, id }) }
    }

    async fn after<T>(&self, injected: Injected, done: T) -> Result<T> {
        self.end_after(injected).await?;
        if self.hits(injected.id, Fault::LostAnswer, injected.plan.lost_answer) {
            let source = Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            return Err(Error::Generic { store: "faults", source });
        }
        Ok(done)
    }

    /// Ends the process whose request was carried out, if `injected` kills it then.
    async fn end_after(&self, injected: Injected) -> Result<()> {
        match injected.kill {
            Some(Kill::RefusedAfter) => return Err(status(403)),
            Some(Kill::DiesAfter) => self.die().await,
            Some(Kill::EndsAfter) => return Err(self.end()),
            _ => {}
        }
        Ok(())
    }

    async fn stall(&self, longest: Duration) {
        let mut plans = self.plan.subscribe();
        // Too late or the end of the store: both end the stall.
        let _ = tokio::time::timeout(longest, plans.wait_for(|plan| plan.stalled == 0)).await;
    }

    /// Waits forever, as a dead process does nothing; the test drops the future.
    async fn die(&self) {
        self.died.notify_one();
        std::future::pending().await
    }
}

/// Spreads the bits of a number.
fn mixed(number: u64) -> u64 {
    Rng::from_seed(number).next_u64()
}

/// `kept_bytes` of the body arrive.
fn cut(answer: GetResult, kept_bytes: u64) -> GetResult {
    let kept_bytes = usize::try_from(kept_bytes).unwrap_or(0);
    changed(answer, move |body| body.truncate(kept_bytes))
}

/// Bit `bit_idx` of the body is wrong.
fn flipped(answer: GetResult, bit_idx: u64) -> GetResult {
    let at = usize::try_from(bit_idx / 8).unwrap_or(0);
    changed(answer, move |body| {
        if let Some(byte) = body.get_mut(at) {
            *byte ^= 1 << (bit_idx % 8);
        }
    })
}

/// Number that tells apart the ranges of an object.
fn range_hash(options: &GetOptions) -> u64 {
    hash_bytes(format!("{:?}", options.range).as_bytes())
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({:?})", self.inner)
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let kind = if options.mode == PutMode::Create { "create" } else { "put" };
        let injected = self.before(self.id_of(kind, location.as_ref(), 0)).await?;
        if options.mode == PutMode::Create && self.hits(injected.id, Fault::Conflict, injected.plan.conflict)
        {
            return Err(Error::AlreadyExists { path: location.to_string(), source: "409".into() });
        }
        let on_create = self.hooks.lock().on_create.clone();
        if options.mode == PutMode::Create
            && let Some(on_create) = on_create
        {
            on_create();
        }
        let done = self.inner.put_opts(location, payload, options).await?;
        self.after(injected, done).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        #[cfg(test)]
        let _logged = self.reads.begin(location.as_ref());
        self.answer(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let refused = |locations: BoxStream<'static, Result<Path>>, code: u16| {
            locations.map(move |_| Err(status(code))).boxed()
        };
        if self.has_ended() {
            return refused(locations, 403);
        }
        match self.take_kill() {
            Some(Kill::Refused) => return refused(locations, 403),
            Some(Kill::RefusedAfter) => return refused(self.inner.delete_stream(locations), 403),
            Some(Kill::EndsBefore) => {
                self.end();
                return refused(locations, 403);
            }
            Some(Kill::EndsAfter) => {
                self.end();
                return refused(self.inner.delete_stream(locations), 403);
            }
            Some(Kill::DiesBefore) => {
                self.died.notify_one();
                return stream::pending().boxed();
            }
            Some(Kill::DiesAfter) => {
                let died = self.died.clone();
                let dies = move |_| {
                    died.notify_one();
                    std::future::pending()
                };
                return self.inner.delete_stream(locations).then(dies).boxed();
            }
            None => {}
        }
        let id = self.id_of("delete", "", 0);
        let plan = *self.plan.borrow();
        if self.hits(id, Fault::Unavailable, plan.unavailable) {
            return refused(locations, 503);
        }
        if self.hits(id, Fault::LostAnswer, plan.lost_answer) {
            return refused(self.inner.delete_stream(locations), 503);
        }
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let refused = |status: Error| stream::once(async { Err(status) }).boxed();
        if self.has_ended() {
            return refused(status(403));
        }
        match self.take_kill() {
            Some(Kill::Refused | Kill::RefusedAfter) => return refused(status(403)),
            Some(Kill::DiesBefore | Kill::DiesAfter) => {
                self.died.notify_one();
                return stream::pending().boxed();
            }
            Some(Kill::EndsBefore | Kill::EndsAfter) => return refused(self.end()),
            None => {}
        }
        let id = self.id_of("list", prefix.map_or("", AsRef::as_ref), 0);
        let unavailable = self.plan.borrow().unavailable;
        if self.hits(id, Fault::Unavailable, unavailable) {
            return refused(status(503));
        }
        let left_out = usize::from(self.is_short_list());
        self.inner.list(prefix).skip(left_out).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let injected = self.before(self.id_of("list", prefix.map_or("", AsRef::as_ref), 1)).await?;
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        self.end_after(injected).await?;
        if self.is_short_list() {
            listed.common_prefixes.drain(..listed.common_prefixes.len().min(1));
            listed.objects.drain(..listed.objects.len().min(1));
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for FaultStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let injected = self.before(self.id_of("begin", path.as_ref(), 0)).await?;
        let id = self.inner.create_multipart(path).await?;
        self.end_after(injected).await?;
        Ok(id)
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, idx: usize, part: PutPayload) -> Result<PartId> {
        let injected = self.before(self.id_of("part", path.as_ref(), idx as u64)).await?;
        let done = self.inner.put_part(path, id, idx, part).await?;
        self.after(injected, done).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let injected = self.before(self.id_of("complete", path.as_ref(), 0)).await?;
        let done = self.inner.complete_multipart(path, id, parts).await?;
        self.after(injected, done).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.aborts.fetch_add(1, Ordering::Relaxed);
        self.inner.abort_multipart(path, id).await
    }
}

impl FaultStore {
    /// Answer to a read.
    async fn answer(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { "head" } else { "get" };
        let injected = self.before(self.id_of(kind, location.as_ref(), range_hash(&options))).await?;
        let Injected { plan, id, .. } = injected;
        if self.stalls_left.load(Ordering::Relaxed) > 0 && self.hits(id, Fault::Stalled, plan.stalled) {
            self.stalls_left.fetch_sub(1, Ordering::Relaxed);
            self.stall(Duration::from_millis(plan.stall_ms)).await;
        }
        let is_head = options.head;
        // No checksum covers it.
        let is_checked = !location.as_ref().ends_with("/meta.json");
        let answer = self.inner.get_opts(location, options).await?;
        self.end_after(injected).await?;
        let body_bytes = answer.range.end.saturating_sub(answer.range.start);
        if is_head || body_bytes == 0 {
            return Ok(answer);
        }
        if self.hits(id, Fault::Cut, plan.cut) {
            return Ok(cut(answer, self.draw(id, Fault::Cut, body_bytes * 1000) / 1000));
        }
        let may_flip = is_checked && self.flips_left.load(Ordering::Relaxed) > 0;
        if may_flip && self.hits(id, Fault::Flipped, plan.flipped) {
            self.flips_left.fetch_sub(1, Ordering::Relaxed);
            return Ok(flipped(answer, self.draw(id, Fault::Flipped, body_bytes * 8000) / 1000));
        }
        Ok(answer)
    }

    /// Writes without faults.
    #[cfg(test)]
    pub(crate) async fn inner_put(&self, key: &str, body: Bytes) {
        let location = Path::parse(key).unwrap();
        self.inner.put_opts(&location, body.into(), PutOptions::default()).await.unwrap();
    }
}
