//! Fault injection: a client that wraps another and delays, refuses, cuts and loses answers, by a seed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chronolith_base::Rng;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::backend::Backend;
use crate::store::http::StatusError;

/// Faults per 1000 requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FaultPlan {
    /// 503, nothing happens.
    pub(super) unavailable: u64,
    /// Answers to reads that end early.
    pub(super) cut: u64,
    /// Answers to reads, but of `meta.json`, with one wrong bit.
    pub(super) flipped: u64,
    /// Writes that succeed and are reported as failed.
    pub(super) lost_answer: u64,
    /// 409 to a creation that does not happen.
    pub(super) conflict: u64,
    /// Requests that are delayed by up to `delay_ms`.
    pub(super) delayed: u64,
    pub(super) delay_ms: u64,
    /// Reads that are answered after `stall_ms`.
    pub(super) stalled: u64,
    pub(super) stall_ms: u64,
}

/// End of a process at one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    /// The request is refused for good.
    Refused,
    /// The request is carried out, and answered as refused for good.
    RefusedAfter,
    /// The process dies before the request is carried out.
    DiesBefore,
    /// The process dies when the request was carried out.
    DiesAfter,
}

impl Kill {
    pub(super) const ALL: [Kill; 4] = [Kill::Refused, Kill::RefusedAfter, Kill::DiesBefore, Kill::DiesAfter];
}

/// Faults of one request.
#[derive(Clone, Copy)]
struct Injected {
    plan: FaultPlan,
    kill: Option<Kill>,
}

pub(super) struct FaultStore {
    inner: Arc<dyn Backend>,
    plan: Mutex<FaultPlan>,
    rng: Rng,
    pub(super) requests: AtomicU64,
    pub(super) injected: AtomicU64,
    pub(super) aborts: AtomicU64,
    /// Answers that may get a wrong bit.
    pub(super) flips_left: AtomicU64,
    /// Reads that may stall.
    pub(super) stalls_left: AtomicU64,
    /// Requests until the end, and how it ends.
    kill_at: Mutex<Option<(u64, Kill)>>,
    pub(super) died: Notify,
}

impl FaultStore {
    pub(super) fn new(inner: Arc<dyn Backend>, plan: FaultPlan, seed: u64) -> FaultStore {
        FaultStore {
            inner,
            plan: Mutex::new(plan),
            rng: Rng::from_seed(seed ^ 0xfa17),
            requests: AtomicU64::new(0),
            injected: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
            flips_left: AtomicU64::new(u64::MAX),
            stalls_left: AtomicU64::new(u64::MAX),
            kill_at: Mutex::default(),
            died: Notify::new(),
        }
    }

    pub(super) fn set_plan(&self, plan: FaultPlan) {
        *self.plan.lock() = plan;
    }

    fn hits(&self, per_mille: u64) -> bool {
        let hits = self.rng.below(1000) < per_mille;
        self.injected.fetch_add(u64::from(hits), Ordering::Relaxed);
        hits
    }

    /// Ends the process at the request after `requests` others.
    pub(super) fn kill_after(&self, requests: u64, kill: Kill) {
        *self.kill_at.lock() = Some((requests, kill));
    }

    /// Cancels a kill. Returns true if it has not come.
    pub(super) fn is_alive(&self) -> bool {
        self.kill_at.lock().take().is_some()
    }

    /// The end that comes with this request.
    fn take_kill(&self) -> Option<Kill> {
        let mut kill_at = self.kill_at.lock();
        let (requests, kill) = (*kill_at)?;
        *kill_at = requests.checked_sub(1).map(|left| (left, kill));
        kill_at.is_none().then_some(kill)
    }

    /// Faults that come before the request has an effect.
    async fn before(&self) -> Result<Injected> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let kill = self.take_kill();
        match kill {
            Some(Kill::Refused) => return Err(status(403)),
            Some(Kill::DiesBefore) => self.die().await,
            _ => {}
        }
        let plan = *self.plan.lock();
        if self.hits(plan.delayed) {
            tokio::time::sleep(Duration::from_millis(self.rng.below(plan.delay_ms + 1))).await;
        }
        if self.hits(plan.unavailable) { Err(status(503)) } else { Ok(Injected { plan, kill }) }
    }

    async fn after<T>(&self, injected: Injected, done: T) -> Result<T> {
        self.end_after(injected).await?;
        if self.hits(injected.plan.lost_answer) {
            let source = Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            return Err(Error::Generic { store: "faults", source });
        }
        Ok(done)
    }

    /// The end of a process whose request was carried out.
    async fn end_after(&self, injected: Injected) -> Result<()> {
        match injected.kill {
            Some(Kill::RefusedAfter) => return Err(status(403)),
            Some(Kill::DiesAfter) => self.die().await,
            _ => {}
        }
        Ok(())
    }

    /// Nothing is done from here on; the test drops the future.
    async fn die(&self) {
        self.died.notify_one();
        std::future::pending().await
    }
}

fn status(status: u16) -> Error {
    let source = Box::new(StatusError { status, body: "SlowDown".to_owned() });
    Error::Generic { store: "faults", source }
}

fn cut(answer: GetResult, rng: &Rng) -> GetResult {
    let len = answer.range.end - answer.range.start;
    let kept = usize::try_from(rng.below(len.max(1))).unwrap();
    changed(answer, move |body| body.truncate(kept))
}

fn flipped(answer: GetResult, rng: &Rng) -> GetResult {
    let len = answer.range.end - answer.range.start;
    let at = usize::try_from(rng.below(len.max(1))).unwrap();
    let bit = rng.below(8);
    changed(answer, move |body| body[at] ^= 1 << bit)
}

/// An answer with another body.
fn changed(answer: GetResult, change: impl FnOnce(&mut Vec<u8>) + Send + 'static) -> GetResult {
    let (meta, range, attributes) = (answer.meta.clone(), answer.range.clone(), answer.attributes.clone());
    let body = stream::once(async move {
        let mut body = answer.into_stream().try_collect::<Vec<Bytes>>().await?.concat();
        change(&mut body);
        Ok(Bytes::from(body))
    });
    let payload = GetResultPayload::Stream(body.boxed());
    GetResult { payload, meta, range, attributes, extensions: Default::default() }
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
        let injected = self.before().await?;
        if options.mode == PutMode::Create && self.hits(injected.plan.conflict) {
            return Err(Error::AlreadyExists { path: location.to_string(), source: "409".into() });
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
        let injected = self.before().await?;
        let plan = injected.plan;
        if self.stalls_left.load(Ordering::Relaxed) > 0 && self.hits(plan.stalled) {
            self.stalls_left.fetch_sub(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(plan.stall_ms)).await;
        }
        let is_head = options.head;
        // No checksum covers it.
        let is_checked = !location.as_ref().ends_with("/meta.json");
        let answer = self.inner.get_opts(location, options).await?;
        self.end_after(injected).await?;
        if !is_head && answer.range.start < answer.range.end && self.hits(plan.cut) {
            return Ok(cut(answer, &self.rng));
        }
        let has_body = is_checked && !is_head && answer.range.start < answer.range.end;
        if has_body
            && plan.flipped > 0
            && self.flips_left.load(Ordering::Relaxed) > 0
            && self.hits(plan.flipped)
        {
            self.flips_left.fetch_sub(1, Ordering::Relaxed);
            return Ok(flipped(answer, &self.rng));
        }
        Ok(answer)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let plan = *self.plan.lock();
        match self.take_kill() {
            Some(Kill::Refused | Kill::RefusedAfter) => {
                return stream::once(async { Err(status(403)) }).boxed();
            }
            Some(Kill::DiesBefore | Kill::DiesAfter) => {
                self.died.notify_one();
                return stream::pending().boxed();
            }
            None => {}
        }
        if self.hits(plan.unavailable) {
            return stream::once(async { Err(status(503)) }).boxed();
        }
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let injected = self.before().await?;
        let listed = self.inner.list_with_delimiter(prefix).await?;
        self.end_after(injected).await?;
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for FaultStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let injected = self.before().await?;
        let id = self.inner.create_multipart(path).await?;
        self.end_after(injected).await?;
        Ok(id)
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, idx: usize, part: PutPayload) -> Result<PartId> {
        let injected = self.before().await?;
        let done = self.inner.put_part(path, id, idx, part).await?;
        self.after(injected, done).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let injected = self.before().await?;
        let done = self.inner.complete_multipart(path, id, parts).await?;
        self.after(injected, done).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.aborts.fetch_add(1, Ordering::Relaxed);
        self.inner.abort_multipart(path, id).await
    }
}

impl FaultStore {
    /// Writes without faults.
    pub(super) async fn inner_put(&self, key: &str, body: Bytes) {
        let location = Path::parse(key).unwrap();
        self.inner.put_opts(&location, body.into(), PutOptions::default()).await.unwrap();
    }
}
