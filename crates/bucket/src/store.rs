//! Requests to object storage: reads of ranges, writes, create-if-absent, listings, removal.
//!
//! Invariants: keys are relative to the prefix of the bucket; the only conditional write is create-if-absent,
//! and a refused or lost creation is settled by reading the object back; a read returns exactly the bytes
//! that were asked for, or an error.
//! Not here: keys of the layout (`layout`), caches.

pub mod config;
pub mod faults;
pub mod list;
pub mod meter;
pub mod multipart;
pub mod read;
pub mod request;
pub mod retry;

pub(crate) mod attempts;
pub(crate) mod backend;
pub(crate) mod hedge;
pub(crate) mod http;
pub(crate) mod limits;

pub(crate) mod local;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::{Handle, RuntimeFlavor};

use self::attempts::{Answer, Requests};
use self::backend::{Backend, known_time};
use self::config::StoreConfig;
use self::faults::FaultStore;
use self::hedge::HedgeBudget;
use self::limits::Limits;
use self::local::LocalDir;
use self::meter::{Estimates, Meter, MeterSnapshot, Transfer};
use self::read::{Fetched, Piece, ReadRange};
use self::request::{Operation, Purpose, RequestContext};
use self::retry::{Failure, Outcome, RetryBudget, classify};
use crate::error::BucketError;
use crate::layout::BucketLayout;

/// Time to the end of an answer in a simulation.
const SIMULATED_TIMEOUT: Duration = Duration::from_millis(250);
/// Longest backoff in a simulation.
const SIMULATED_BACKOFF_MAX: Duration = Duration::from_micros(200);

/// Reads of one object that are compared before a request fails.
const CONFIRMING_READS_MAX: u32 = 6;

/// Bytes that were read, and the object that they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectBytes {
    /// The bytes.
    pub bytes: Bytes,
    /// Offset of the first byte within the object.
    pub offset: u64,
    /// ETag of the object, if the storage has them.
    pub etag: Option<String>,
    /// Bytes of the whole object.
    pub object_bytes: u64,
}

/// Size, ETag and time of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHead {
    /// Bytes of the object.
    pub object_bytes: u64,
    /// ETag of the object, if the storage has them.
    pub etag: Option<String>,
    /// Time of the last write in milliseconds since 1970-01-01 UTC, if the storage has them.
    pub modified_ms: Option<i64>,
}

/// Result of a create-if-absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The object has the caller's body.
    Created,
    /// The object existed, with another body.
    Exists(ObjectBytes),
}

/// A bucket, or the part of it below a prefix.
pub struct Store {
    backend: Arc<dyn Backend>,
    local: Option<LocalDir>,
    url: String,
    layout: BucketLayout,
    prefix: String,
    requests: Requests,
    hedges: HedgeBudget,
    handle: Handle,
}

impl Store {
    /// Checks the settings and makes the client. Sends no request. Timers and connections belong to the
    /// runtime of `handle`, which must be entered where the futures of this store are polled.
    ///
    /// # Errors
    /// [`BucketError::Config`].
    pub fn open(config: &StoreConfig, env: &Env, handle: Handle) -> Result<Store, BucketError> {
        let opened = config.open(env, &handle)?;
        Ok(Store {
            local: opened.local,
            prefix: opened.prefix,
            ..Store::with_backend(opened.backend, config, env, handle)
        })
    }

    /// A store over a client with faults, for simulations: no request waits for an answer or between two
    /// attempts longer than a quarter of a second.
    #[must_use]
    pub fn simulated(client: Arc<FaultStore>, env: &Env, handle: Handle) -> Store {
        let mut config = StoreConfig::new("memory://");
        config.request_timeout = SIMULATED_TIMEOUT;
        let mut store = Store::with_backend(client, &config, env, handle);
        store.requests.backoff_max = SIMULATED_BACKOFF_MAX;
        store
    }

    /// The store with another arrangement of its blocks.
    #[must_use]
    pub fn with_layout(self, layout: BucketLayout) -> Store {
        Store { layout, ..self }
    }

    /// A store over a client, without a prefix.
    pub(crate) fn with_backend(
        backend: Arc<dyn Backend>,
        config: &StoreConfig,
        env: &Env,
        handle: Handle,
    ) -> Store {
        let requests = Requests {
            clock: Arc::clone(&env.clock),
            rng: Arc::clone(&env.rng),
            meter: Meter::new(Arc::clone(&env.clock)),
            limits: Limits::new(config.requests_max, config.tenant_requests_max),
            budget: RetryBudget::new(),
            request_timeout: config.request_timeout,
            backoff_max: retry::BACKOFF_MAX,
        };
        let hedges = HedgeBudget::default();
        Store {
            backend,
            local: None,
            url: config.url.clone(),
            layout: config.layout.clone(),
            prefix: String::new(),
            requests,
            hedges,
            handle,
        }
    }

    /// Reads bytes of an object. With `etag`, only of the object that has this ETag.
    ///
    /// Cost: one request, rarely a second one ahead of a slow first one, and retries.
    ///
    /// # Errors
    /// [`BucketError::Changed`] if the ETag differs, [`BucketError::Corrupt`] if the object ends before the
    /// range does.
    pub async fn read(
        &self,
        context: &RequestContext,
        key: &str,
        range: ReadRange,
        etag: Option<&str>,
    ) -> Result<ObjectBytes, BucketError> {
        let fetched = self.fetched(context, key, &range, etag).await?;
        let offset = fetched.offset;
        let object_bytes = fetched.object_bytes;
        let etag = fetched.etag.clone();
        Ok(ObjectBytes { bytes: fetched.joined(), offset, etag, object_bytes })
    }

    /// Reads an object that has no checksum as a whole, twice at the same time, then again until two answers
    /// are equal; `None` if two answers in a row and a request for its head find no object.
    ///
    /// # Errors
    /// [`BucketError::Unavailable`] if each answer differs from the one before; as [`Store::read`].
    pub async fn read_confirmed(
        &self,
        context: &RequestContext,
        key: &str,
    ) -> Result<Option<ObjectBytes>, BucketError> {
        let read = async || match self.read(context, key, ReadRange::Whole, None).await {
            Ok(found) => Ok(Some(found)),
            Err(BucketError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let (mut last, mut next) = futures_util::future::try_join(read(), read()).await?;
        let mut read_count = 2;
        let bytes = |found: &Option<ObjectBytes>| found.as_ref().map(|found| found.bytes.clone());
        while bytes(&last) != bytes(&next) {
            if read_count == CONFIRMING_READS_MAX {
                return Err(unconfirmed(key, "each answer differs from the one before"));
            }
            last = std::mem::replace(&mut next, read().await?);
            read_count += 1;
        }
        if next.is_none() && self.head(context, key).await.is_ok() {
            return Err(unconfirmed(key, "its head is there, but not its content"));
        }
        Ok(next)
    }

    /// URL of the bucket in the settings.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Arrangement of its blocks.
    #[must_use]
    pub fn layout(&self) -> &BucketLayout {
        &self.layout
    }

    /// Returns true if the bucket is a local directory.
    pub(crate) fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Fills a piece from an object whose content never changes.
    ///
    /// Cost: on a local directory one positional read and no allocation if the file is open, and no task may
    /// run on the thread meanwhile; otherwise as [`Store::read`], and a copy.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] if the object ends before the range does or has another length. The content
    /// of the piece is undefined after an error.
    pub async fn read_into(&self, context: &RequestContext, piece: Piece<'_>) -> Result<(), BucketError> {
        let Piece { key, object_bytes, offset, out, etag } = piece;
        if out.is_empty() {
            return Ok(());
        }
        if let Some(local) = &self.local {
            return self.read_local(local, context, key, offset, out).await;
        }
        let end = offset.saturating_add(out.len() as u64);
        let range = match object_bytes {
            Some(object_bytes) => ReadRange::Part { range: offset..end, object_bytes },
            None => ReadRange::Exact(offset..end),
        };
        let fetched = self.fetched(context, key, &range, None).await?;
        fetched.copy_to(out);
        *etag = fetched.etag;
        Ok(())
    }

    /// Fills several pieces, `ahead_max` requests at the same time.
    ///
    /// Cost: on a local directory one positional read for each, one after the other, in one blocking section;
    /// otherwise as [`Store::read_into`].
    ///
    /// # Errors
    /// As [`Store::read_into`].
    pub async fn read_pieces(
        &self,
        context: &RequestContext,
        pieces: Vec<Piece<'_>>,
        ahead_max: usize,
    ) -> Result<(), BucketError> {
        let Some(local) = &self.local else {
            let mut reads = FuturesUnordered::new();
            for piece in pieces {
                if reads.len() >= ahead_max {
                    reads.try_next().await?;
                }
                reads.push(self.read_into(context, piece));
            }
            return reads.try_collect().await;
        };
        leave_query_thread().await;
        let permit = tokio::time::timeout(
            context.remaining(&*self.requests.clock),
            self.requests.limits.acquire(context.tenant()),
        );
        let Ok(Some(_permit)) = permit.await else {
            return Err(BucketError::Deadline { what: "read of a local directory".to_owned() });
        };
        blocking_here(|| pieces.into_iter().try_for_each(|piece| self.read_piece(local, context, piece)))
    }

    /// Reads one piece of a local file and counts it.
    fn read_piece(
        &self,
        local: &LocalDir,
        context: &RequestContext,
        piece: Piece<'_>,
    ) -> Result<(), BucketError> {
        let Piece { key, offset, out, .. } = piece;
        let record = self.requests.meter.start(Operation::Get, context.tenant());
        let received_bytes = out.len() as u64;
        match local.read_at(key, offset, out) {
            Ok(()) => {
                record.finish(Outcome::Ok, Transfer { received_bytes, ..Transfer::default() });
                Ok(())
            }
            Err(error) => {
                let failure = local_failure(local, key, offset, received_bytes, error);
                record.finish(retry::classify(&failure), Transfer::default());
                Err(self.requests.attempts(Operation::Get, key).error(&failure))
            }
        }
    }

    async fn fetched(
        &self,
        context: &RequestContext,
        key: &str,
        range: &ReadRange,
        etag: Option<&str>,
    ) -> Result<Fetched, BucketError> {
        let location = self.location(key)?;
        self.hedges.deposit();
        let attempt = || self.hedged(context, &location, range, etag);
        self.requests.retried(context, Operation::Get, key, attempt).await
    }

    /// One read, sent again if it is slower than the recent p99.
    async fn hedged(
        &self,
        context: &RequestContext,
        location: &Path,
        range: &ReadRange,
        etag: Option<&str>,
    ) -> Result<Fetched, Failure> {
        let fetch = || read::fetch(&*self.backend, &*self.requests.clock, location, range, etag);
        let first = self.requests.once(context, Operation::Get, fetch());
        let is_hedgeable = context.purpose == Purpose::Query && self.local.is_none();
        let slow_after_ns = self.requests.meter.estimates().slow_after_ns(range.len_hint());
        let Some(delay_ns) = slow_after_ns.filter(|_| is_hedgeable) else { return first.await };
        let raced = hedge::race(first, Duration::from_nanos(delay_ns), || {
            let permit = self.requests.limits.try_acquire(context.tenant())?;
            if !self.hedges.withdraw() {
                return None;
            }
            self.requests.meter.add_hedge();
            Some(self.requests.sent(context, Operation::Get, permit, fetch()))
        });
        let raced = raced.await;
        if raced.is_hedge && raced.answer.is_ok() {
            self.requests.meter.add_hedge_win();
        }
        raced.answer
    }

    async fn read_local(
        &self,
        local: &LocalDir,
        context: &RequestContext,
        key: &str,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BucketError> {
        leave_query_thread().await;
        let len = out.len() as u64;
        let call = async {
            let done = blocking_here(|| local.read_at(key, offset, out));
            match done {
                Ok(()) => Ok(Answer {
                    value: (),
                    transfer: Transfer { received_bytes: len, ..Transfer::default() },
                }),
                Err(error) => Err(local_failure(local, key, offset, len, error)),
            }
        };
        match self.requests.once(context, Operation::Get, call).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.requests.attempts(Operation::Get, key).error(&failure)),
        }
    }

    /// Writes an object, replacing an existing one. For content that does not depend on the writer, so that
    /// writing again does no harm.
    ///
    /// # Errors
    /// After [`BucketError::Unavailable`] and [`BucketError::Deadline`] the object may be written.
    pub async fn put(&self, context: &RequestContext, key: &str, body: Bytes) -> Result<(), BucketError> {
        let location = self.location(key)?;
        let attempt = || {
            let call = async {
                let sent = self.backend.put_opts(&location, body.clone().into(), PutOptions::default());
                sent.await?;
                Ok(Answer::sent((), body.len()))
            };
            self.requests.once(context, Operation::Put, call)
        };
        self.requests.retried(context, Operation::Put, key, attempt).await
    }

    /// Writes an object if none has the key. The body must name its writer: equal bodies count as one write.
    ///
    /// Cost: one request; two more per refused or lost answer.
    ///
    /// # Errors
    /// After [`BucketError::Unavailable`] and [`BucketError::Deadline`] the object may be written; calling
    /// again with the same body settles it.
    pub async fn create(
        &self,
        context: &RequestContext,
        key: &str,
        body: Bytes,
    ) -> Result<CreateOutcome, BucketError> {
        let location = self.location(key)?;
        let mut attempts = self.requests.attempts(Operation::Create, key);
        loop {
            let call = async {
                let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
                self.backend.put_opts(&location, body.clone().into(), options).await?;
                Ok(Answer::sent((), body.len()))
            };
            let Err(failure) = self.requests.once(context, Operation::Create, call).await else {
                return Ok(CreateOutcome::Created);
            };
            // A refusal by ETag means the same here as one by existence.
            let outcome = classify(&failure);
            let may_exist = outcome == Outcome::Changed || outcome.is_retryable(Operation::Create);
            if !may_exist {
                return Err(attempts.error(&failure));
            }
            match self.read(context, key, ReadRange::Whole, None).await {
                Ok(found) if found.bytes == body => return Ok(CreateOutcome::Created),
                Ok(found) => return Ok(CreateOutcome::Exists(found)),
                Err(BucketError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            attempts.pause(&self.requests, context, failure).await?;
        }
    }

    /// Size, ETag and time of an object.
    ///
    /// # Errors
    /// [`BucketError::NotFound`].
    pub async fn head(&self, context: &RequestContext, key: &str) -> Result<ObjectHead, BucketError> {
        let location = self.location(key)?;
        let attempt = || {
            let call = async {
                let options = GetOptions { head: true, ..GetOptions::default() };
                let meta = self.backend.get_opts(&location, options).await?.meta;
                let modified_ms = known_time(&meta);
                Ok(Answer::bare(ObjectHead { object_bytes: meta.size, etag: meta.e_tag, modified_ms }))
            };
            self.requests.once(context, Operation::Head, call)
        };
        self.requests.retried(context, Operation::Head, key, attempt).await
    }

    /// Removes an object; an absent one is no error.
    ///
    /// # Errors
    /// As other requests.
    pub async fn remove(&self, context: &RequestContext, key: &str) -> Result<(), BucketError> {
        let location = self.location(key)?;
        let attempt = || {
            let call = async {
                match self.backend.delete(&location).await {
                    Ok(()) | Err(Error::NotFound { .. }) => Ok(Answer::bare(())),
                    Err(error) => Err(error.into()),
                }
            };
            self.requests.once(context, Operation::Delete, call)
        };
        self.requests.retried(context, Operation::Delete, key, attempt).await
    }

    /// Latency and bandwidth of recent reads.
    #[must_use]
    pub fn estimates(&self) -> Estimates {
        self.requests.meter.estimates()
    }

    /// Copies all counters.
    #[must_use]
    pub fn counters(&self) -> MeterSnapshot {
        self.requests.meter.snapshot(self.requests.limits.waits())
    }

    /// Key with the prefix of the store.
    fn full_key(&self, key: &str) -> String {
        match self.prefix.as_str() {
            "" => key.to_owned(),
            prefix => format!("{prefix}/{key}"),
        }
    }

    /// Key without the prefix of the store; `None` for a key of others.
    fn relative(&self, path: &str) -> Option<String> {
        match self.prefix.as_str() {
            "" => Some(path.to_owned()),
            prefix => Some(path.strip_prefix(prefix)?.strip_prefix('/')?.to_owned()),
        }
    }

    /// Path of a key in the bucket.
    fn location(&self, key: &str) -> Result<Path, BucketError> {
        let path = self.full_key(key);
        match Path::parse(&path) {
            Ok(parsed) if parsed.as_ref() == path && !key.is_empty() => Ok(parsed),
            _ => Err(BucketError::Config {
                setting: "key",
                expected: "path segments without \".\", \"..\" and control characters".to_owned(),
                found: format!("{key:?}"),
            }),
        }
    }
}

/// The error for an object whose answers do not agree.
fn unconfirmed(key: &str, last: &str) -> BucketError {
    let what = format!("get {key}");
    BucketError::Unavailable { what, attempts: CONFIRMING_READS_MAX, last: last.to_owned() }
}

/// Failure of a positional read of `expected_bytes`.
fn local_failure(
    local: &LocalDir,
    key: &str,
    offset: u64,
    expected_bytes: u64,
    error: std::io::Error,
) -> Failure {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            let found_bytes = local.len(key).unwrap_or(0).saturating_sub(offset);
            Failure::Size { what: "range", expected_bytes, found_bytes }
        }
        _ => Failure::Store(local::store_error(error, key)),
    }
}

/// Returns at once in a task. Elsewhere it is pending once: the first poll of a selection runs on the thread
/// of its query, which must not wait for a disk.
async fn leave_query_thread() {
    let mut is_done = tokio::task::try_id().is_some();
    std::future::poll_fn(|cx| match std::mem::replace(&mut is_done, true) {
        true => std::task::Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        }
    })
    .await;
}

/// Runs work that blocks on this thread; other tasks of the thread move to another one where the runtime can.
fn blocking_here<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
