//! Checks of a simulated cluster against its ledger.
//!
//! Invariants: no sample is in two live blocks, but for repeats; `resume` passes no sample that is in no
//! block; an answer has every sample of the records that the asked owners have applied.
//! Not here: comparison of one answer (`answer`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_bucket::snapshots::SnapshotReader;
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext, Store};
use chronolith_cluster::deletions::{Deletions, DeletionsSnapshot};
use chronolith_cluster::gateway::RecordStore;
use chronolith_cluster::verify::{VerifyError, VerifyParts, verify_partition};
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::bucket::resume::ResumeSnapshot;
use chronolith_model::log_position::PartitionId;
use chronolith_model::query::TenantSources;
use chronolith_tsdb::BucketSources;

use super::answer::{Answer, compare, read_all};
use super::ledger::{Ledger, Sample, StoreLedger, source_of, window_of};
use super::machine::Site;
use super::setup::StoreSetup;

const TIMEOUT: Duration = Duration::from_secs(600);
/// Attempts to read the log for a verification.
const VERIFICATIONS_MAX: usize = 100;

/// Process that reads the bucket alone, without faults.
pub(super) struct Auditor {
    site: Site,
    env: Env,
    store: Arc<Store>,
}

impl Auditor {
    pub(super) fn new(site: &Site, seed: u64) -> Auditor {
        let (env, _) = site.env(seed, 0);
        let (store, _) = site.connect(&env, seed);
        Auditor { site: site.clone(), env, store }
    }

    fn request(&self, folder: Folder) -> RequestContext {
        RequestContext::with_timeout(&*self.env.clock, folder, TIMEOUT, Purpose::Tool)
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T, BucketError>>) -> Result<T, String> {
        self.site.handle.block_on(work).map_err(|error| format!("reading the bucket: {error}"))
    }

    fn catalogue(&self, store: &StoreSetup) -> Result<Option<Arc<Snapshot>>, String> {
        let folder = match store.store {
            RecordStore::Default => Folder::of_tenant(&store.tenant),
            RecordStore::Database(id) | RecordStore::Graphite(id) => Folder::of_store(&store.tenant, id),
        };
        let reader: SnapshotReader<Snapshot> =
            SnapshotReader::of_kind(self.store.clone(), self.env.clock.clone());
        let latest = self.wait(reader.read_latest(&self.request(folder)))?;
        Ok(latest.map(|latest| latest.snapshot))
    }

    /// Offset from which on a new owner reads.
    pub(super) fn resume(&self, partition: u32) -> Result<u64, String> {
        let names = ResumeSnapshot::names_of(PartitionId(partition));
        let reader: SnapshotReader<ResumeSnapshot> =
            SnapshotReader::of_series(self.store.clone(), self.env.clock.clone(), names);
        let folder = Folder::of_tenant(&chronolith_model::TenantId::new("cluster").expect("an id"));
        let latest = self.wait(reader.read_latest(&self.request(folder)))?;
        let position = latest.and_then(|latest| latest.snapshot.position);
        Ok(position.map_or(0, |position| position.offset))
    }

    /// Checks the live blocks; samples for which `is_required` is true must be among them. Returns the number
    /// of samples that were compared.
    pub(super) fn check_blocks(
        &self,
        ledger: &Ledger,
        is_required: impl Fn(&Sample) -> bool + Copy,
    ) -> Result<u64, String> {
        // Before the blocks: those that are read have the tombstones of deletions that are done.
        let list = self.deletions()?;
        let is_hidden = |number| list.find(number).is_none_or(|deletion| !deletion.is_open());
        let sources = self.sources();
        let mut compared = 0;
        for tenant in self.site.setup.tenants() {
            let answer = read_all(&*sources.queryable(&tenant), self.env.clock.clone());
            let answer = answer.map_err(|error| format!("blocks of {tenant:?}: {error}"))?;
            compared += compare(ledger, &tenant, &answer, is_required, is_hidden)
                .map_err(|error| format!("blocks of {tenant:?}: {error}"))?;
            for store in ledger.stores.iter().filter(|store| store.setup.tenant == tenant) {
                self.check_copies(store, &answer)?;
            }
        }
        Ok(compared)
    }

    /// Returns the deletions of the bucket.
    pub(super) fn deletions(&self) -> Result<Arc<DeletionsSnapshot>, String> {
        let deletions = Deletions::new(self.store.clone(), &self.env, self.site.handle.clone());
        deletions.read().map_err(|error| format!("reading the bucket: {error}"))
    }

    /// Blocks alone, as a process without owners reads them.
    fn sources(&self) -> BucketSources {
        BucketSources::over(self.store.clone(), &self.site.bucket_options, &self.env, &self.site.handle)
    }

    /// Compares the samples of all blocks, counted block by block, with the different ones.
    fn check_copies(&self, store: &StoreLedger, answer: &Answer) -> Result<(), String> {
        let Some(catalogue) = self.catalogue(&store.setup)? else { return Ok(()) };
        let mut copies: BTreeMap<i64, i64> = BTreeMap::new();
        for block in &catalogue.blocks {
            let window = window_of(block.time_unit.to_ms(block.range.start));
            *copies.entry(window).or_default() += i64::try_from(block.counts.samples).unwrap_or(i64::MAX);
        }
        for (series, time, sample) in store.samples() {
            let is_in_block =
                answer.get(&series).is_some_and(|found| found.times.binary_search(&time).is_ok());
            let left = copies.entry(window_of(time)).or_default();
            *left -= i64::from(is_in_block) + sample.further_copies().cast_signed();
        }
        match copies.into_iter().find(|(_, left)| *left > 0) {
            None => Ok(()),
            Some((window, left)) => Err(format!(
                "{:?}: {left} samples of the window at {window} are in two live blocks, and were not repeated",
                store.setup
            )),
        }
    }

    /// Checks that `resume` of each partition passes samples of blocks alone.
    pub(super) fn check_resume(&self, ledger: &Ledger, partition_count: u32) -> Result<u64, String> {
        // Before the blocks: what it passes is in blocks from then on.
        let resume: Result<Vec<u64>, String> =
            (0..partition_count).map(|number| self.resume(number)).collect();
        let resume = resume?;
        let is_passed = |sample: &Sample| {
            sample.place.is_some_and(|place| place.offset < resume[place.partition as usize])
        };
        self.check_blocks(ledger, is_passed).map_err(|error| format!("with resume at {resume:?}: {error}"))
    }

    /// Runs `cluster::verify` over a partition.
    pub(super) fn verify(&self, partition: u32) -> Result<(), String> {
        let parts = VerifyParts {
            log: Arc::new(self.site.topic.connect().map_err(|error| error.to_string())?),
            bucket: self.store.clone(),
            handle: self.site.handle.clone(),
            env: self.env.clone(),
            source: source_of,
        };
        for _ in 0..VERIFICATIONS_MAX {
            match verify_partition(&parts, PartitionId(partition)) {
                Ok(verification) if verification.findings.is_empty() => return Ok(()),
                Ok(verification) => return Err(format!("verify finds {:?}", verification.findings)),
                Err(VerifyError::Log(error)) if error.is_retriable() => {}
                Err(error) => return Err(format!("verify: {error}")),
            }
        }
        Err("the log cannot be read".to_owned())
    }
}
