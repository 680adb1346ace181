//! Owner of a process: its store, the thread that applies the records of its partition, and the thread that
//! publishes cut windows.
//!
//! Invariants: records are applied once the store is open; an owner that cannot go on makes the process
//! unhealthy with the reason, and its samples can still be queried and published.
//! Not here: application of records and publication (`cluster`), endpoints (`http`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Env, thread};
use chronolith_cluster::ReplicatedLog;
use chronolith_cluster::options::{PartitionChoice, PartitionOptions};
use chronolith_cluster::owner::{self, Owner, OwnerError, OwnerOptions, OwnerParts};
use chronolith_cluster::partition_maps::PartitionMaps;
use chronolith_ingest::added_labels::source_of;
use chronolith_model::log_position::{LogPartition, PartitionId};
use chronolith_service::set_accepting_partitions;
use chronolith_tsdb::{Bucket, OpenError, SyncMode, Tsdb, TsdbOptions};
use tokio::runtime::Handle;

use super::error::RunError;
use super::rounds::guarded;
use super::stop::Stop;
use crate::web::Web;

/// Sync interval of the WAL, which is a cache of the log, unless the settings name one.
const WAL_SYNC_MS: u64 = 1000;
/// Pause between two checks whether the store is open.
const OPEN_PAUSE: Duration = Duration::from_millis(20);
/// Pause until the log is asked again at the start.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks for cuts to publish, and the longest one after failures.
const PUBLICATION_PAUSE: Duration = Duration::from_secs(1);
const PUBLICATION_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Pause between two reads of the partition map, by which limits are divided.
const MAP_PAUSE_NS: u64 = 60_000_000_000;

/// Partition of a process, with its log and bucket.
#[derive(Clone)]
pub(crate) struct OwnedPartition {
    log: Arc<dyn ReplicatedLog>,
    bucket: Arc<Bucket>,
    handle: Handle,
    partition: LogPartition,
}

impl OwnedPartition {
    /// Checks that the log has the partition of the settings.
    ///
    /// # Errors
    /// [`RunError::Partition`] and [`RunError::Log`].
    pub(crate) fn find(
        log: Arc<dyn ReplicatedLog>,
        bucket: Arc<Bucket>,
        handle: Handle,
        options: &PartitionOptions,
    ) -> Result<OwnedPartition, RunError> {
        // The settings have found the number for `auto`.
        let Some(PartitionChoice::Number(number)) = options.partition else {
            return Err(RunError::Partition { number: None, partition_count: log.partition_count()? });
        };
        let partition_count = log.partition_count()?;
        if number >= partition_count {
            return Err(RunError::Partition { number: Some(number), partition_count });
        }
        let partition = LogPartition { topic: log.identity(), number: PartitionId(number) };
        Ok(OwnedPartition { log, bucket, handle, partition })
    }

    /// Opens the store of the partition. Blocks the thread.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) fn open_store(&self, web: &Web) -> Result<Arc<Tsdb>, OpenError> {
        let service = &web.service;
        let options = self.store_options(service.options.tsdb_options());
        let progress = service.lifecycle.replay_progress();
        let (store, _) = owner::open_store(&service.env, &options, &progress, Some(&self.bucket))?;
        Ok(store)
    }

    fn store_options(&self, mut options: TsdbOptions) -> TsdbOptions {
        options.wal.log = Some(self.partition);
        if options.sync == SyncMode::Fsync {
            options.sync = SyncMode::Interval(WAL_SYNC_MS);
        }
        options
    }

    fn open_owner(
        &self,
        env: &Env,
        tsdb: &Arc<Tsdb>,
        options: &PartitionOptions,
        poll: Duration,
    ) -> Result<Owner, OwnerError> {
        let parts = OwnerParts {
            log: self.log.clone(),
            bucket: self.bucket.store().clone(),
            handle: self.handle.clone(),
            tsdb: tsdb.clone(),
            env: env.clone(),
        };
        let options = OwnerOptions {
            ready_lag: options.ready_lag,
            accepted_gap: options.accepted_gap.clone(),
            seam: poll * 2,
            ..OwnerOptions::new(source_of)
        };
        Owner::open(parts, options)
    }

    /// Applies records until the stop, once the store is open.
    pub(crate) fn run(&self, web: &Arc<Web>, stop: &Arc<Stop>) {
        let is_done = std::cell::Cell::new(false);
        guarded(web, "owner", || {
            self.run_until(web, stop);
            is_done.set(true);
        });
        if !is_done.get() {
            // The batch of a record may be applied in part: only a restart finds its position.
            web.service.lifecycle.set_failure("the owner panicked, see standard error".to_owned());
        }
    }

    fn run_until(&self, web: &Arc<Web>, stop: &Arc<Stop>) {
        let lifecycle = &web.service.lifecycle;
        let Some(owner) = self.opened_owner(web, stop) else { return };
        let maps = PartitionMaps::new(self.bucket.store().clone(), &web.service.env, self.handle.clone());
        // Before the first record is applied.
        divide_limits(web, &maps);
        lifecycle.roles.set_owner(owner.clone());
        let publish = {
            let owner = owner.clone();
            let web = web.clone();
            let stop = stop.clone();
            move || publish(&owner, &maps, &web, &stop)
        };
        let publication = match thread::spawn("publication", publish) {
            Ok(publication) => publication,
            Err(error) => return lifecycle.set_failure(format!("starting the publication failed: {error}")),
        };
        tracing::info!(partition = %self.partition, "applying the records of the partition");
        if let Err(error) = owner.run(stop.flag()) {
            lifecycle.set_failure(format!("the owner has stopped: {error}"));
        }
        // The thread ends at the stop; a panic in it was counted.
        let _ = publication.join();
    }

    /// Opens the owner once the store is open and the log answers; `None` at the stop, and if only an
    /// operator can help.
    fn opened_owner(&self, web: &Web, stop: &Stop) -> Option<Arc<Owner>> {
        let lifecycle = &web.service.lifecycle;
        let poll = web.options.bucket.as_ref().map_or(Duration::ZERO, |bucket| bucket.catalog.poll);
        loop {
            if let Some(store) = lifecycle.opened() {
                match self.open_owner(&web.service.env, store, &web.service.options.cluster.owner, poll) {
                    Ok(owner) => return Some(Arc::new(owner)),
                    Err(error) if error.is_retriable() => {
                        let why = match error {
                            OwnerError::Log(error) => format!("the log cannot be read: {error}"),
                            error => error.to_string(),
                        };
                        tracing::warn!(partition = %self.partition, why, "owner not open, retrying in 1 s");
                        lifecycle.roles.note_owner_wait(why);
                    }
                    Err(error) => {
                        lifecycle.set_failure(format!("the owner cannot start: {error}"));
                        return None;
                    }
                }
            }
            let pause = if lifecycle.opened().is_some() { RETRY_PAUSE } else { OPEN_PAUSE };
            if stop.wait(pause) {
                return None;
            }
        }
    }
}

/// Divides limits of series among the partitions of the newest map. Blocks the thread.
fn divide_limits(web: &Web, maps: &PartitionMaps) {
    if let Err(error) = maps.refresh(None) {
        tracing::warn!(%error, "the partition map was not read, limits of series stay as they are");
    }
    if let Some(snapshot) = maps.current() {
        set_accepting_partitions(&web.service, snapshot.map.accepting().len());
    }
}

/// Publishes cuts, and follows the partition map, until the stop.
fn publish(owner: &Owner, maps: &PartitionMaps, web: &Web, stop: &Stop) {
    let mut pause = PUBLICATION_PAUSE;
    let clock = &web.service.env.clock;
    let mut map_read_ns = clock.mono_ns();
    loop {
        if clock.mono_ns().saturating_sub(map_read_ns) >= MAP_PAUSE_NS {
            guarded(web, "partition-map", || divide_limits(web, maps));
            map_read_ns = clock.mono_ns();
        }
        let mut has_more = false;
        guarded(web, "publication", || match owner.publish() {
            Ok(is_any) => {
                has_more = is_any;
                pause = PUBLICATION_PAUSE;
            }
            Err(_) => pause = (pause * 2).min(PUBLICATION_PAUSE_MAX),
        });
        let wait = if has_more { Duration::ZERO } else { pause };
        if stop.wait(wait) {
            return;
        }
    }
}
