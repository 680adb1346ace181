//! Scrub job: verifies all blocks once after a start, in steps of bounded cost, so that damage is reported
//! before a query meets it.
//!
//! Invariants: first all blocks are opened, which finds missing and damaged files within minutes, then their
//! contents are read, the newest block of a tenant first. A damaged block is reported once, in the log and
//! on the status page, and counts in `blocks_damaged` as long as it is there. Damaged roll-ups are reported,
//! and written again by their job: the block is not damaged, as queries read its samples. Blocks that cannot
//! be opened for lack of descriptors or memory are retried with the next step.
//! Not here: verification of one block (`block::verify`), sizes of files at the start (`blocks::load`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::Env;
use chronolith_block::{BlockEntry, BlockError, BlockVerification, Damage, RollupVerification};
use chronolith_format::store_name;
use chronolith_model::StoreId;
use parking_lot::Mutex;

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::blocks::BlockStore;
use crate::blocks::tenant::TenantBlocks;

/// Limits of one step: blocks opened, bytes read, time.
const STEP_BLOCKS_MAX: usize = 500;
const STEP_READ_MAX: u64 = 32 << 20;
const STEP_NS_MAX: u64 = 50_000_000;
/// Bytes read between two checks of the time.
const STEP_BYTES: u64 = 1 << 20;
/// Damaged files on the status page; the log has all of them.
const NAMED_MAX: usize = 20;

/// Pass over all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Pass {
    /// Verifies what opening a block verifies, and sizes of files.
    #[default]
    Open,
    /// Verifies the contents of files.
    Contents,
}

/// A block whose contents are being read.
struct Current {
    tenant: StoreId,
    blocks: Arc<TenantBlocks>,
    entry: Arc<BlockEntry>,
    verification: BlockVerification,
    rollups: RollupVerification,
}

impl Current {
    /// Reads about `bytes_max` bytes. Returns true once all of the block is verified.
    fn step(&mut self, bytes_max: u64) -> bool {
        self.verification.step(bytes_max) && self.rollups.step(bytes_max)
    }
}

/// Effect of damage on queries.
const EFFECT_OF_DAMAGE: &str =
    "block is damaged; queries that need the damaged part fail until it is restored or removed";
const EFFECT_OF_DAMAGED_ROLLUPS: &str =
    "roll-ups of a block are damaged; queries read its samples until maintenance writes them again";

/// Blocks of a tenant at the time of its turn, newest first. Later ones were written by this process.
struct Walk {
    tenant: StoreId,
    blocks: Arc<TenantBlocks>,
    list: Arc<Vec<Arc<BlockEntry>>>,
    /// Blocks at the front of the list that are not visited yet.
    left_count: usize,
}

impl Walk {
    fn next(&mut self) -> Option<Arc<BlockEntry>> {
        self.left_count = self.left_count.checked_sub(1)?;
        self.list.get(self.left_count).cloned()
    }
}

#[derive(Default)]
struct Progress {
    pass: Pass,
    walk: Option<Walk>,
    /// Tenants up to this one are complete.
    done_to: Option<StoreId>,
    current: Option<Current>,
}

/// Damage reports: the first ones, and the number of others.
#[derive(Default)]
struct Findings {
    texts: Vec<String>,
    more_count: usize,
}

/// Verification of all blocks after a start, and how far it has come.
#[derive(Default)]
pub(crate) struct Scrub {
    progress: Mutex<Progress>,
    findings: Mutex<Findings>,
    is_done: AtomicBool,
}

/// Remaining budget of a step.
struct Budget<'a> {
    env: &'a Env,
    end_ns: u64,
    blocks_left: usize,
    bytes_left: u64,
}

impl Budget<'_> {
    fn is_spent(&self) -> bool {
        self.blocks_left == 0 || self.bytes_left == 0 || self.env.clock.mono_ns() > self.end_ns
    }
}

impl Scrub {
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Returns the damage reports for operators.
    pub(crate) fn notes(&self) -> Vec<String> {
        let findings = self.findings.lock();
        let mut notes = findings.texts.clone();
        if findings.more_count > 0 {
            notes.push(format!("{} more files of blocks are damaged, see the log", findings.more_count));
        }
        notes
    }

    fn report(&self, store: &StoreId, entry: &BlockEntry, text: String, effect: &str) {
        tracing::error!(tenant = %store_name(store), block = %entry.ulid(), damage = text, "{effect}");
        let mut findings = self.findings.lock();
        if findings.texts.len() < NAMED_MAX {
            findings.texts.push(text);
        } else {
            findings.more_count += 1;
        }
    }

    /// Runs one step; returns true once all blocks are verified.
    pub(crate) fn step(&self, env: &Env, store: &BlockStore) -> bool {
        if self.is_done() {
            return true;
        }
        let mut progress = self.progress.lock();
        let mut budget = Budget {
            env,
            end_ns: env.clock.mono_ns() + STEP_NS_MAX,
            blocks_left: STEP_BLOCKS_MAX,
            bytes_left: STEP_READ_MAX,
        };
        while !budget.is_spent() {
            if let Some(current) = &mut progress.current {
                budget.bytes_left = budget.bytes_left.saturating_sub(STEP_BYTES);
                if current.step(STEP_BYTES) {
                    self.finish(current);
                    progress.current = None;
                }
            } else if let Some((tenant, blocks, entry)) = Self::next_unverified(store, &mut progress) {
                budget.blocks_left -= 1;
                match self.begin(store, tenant, blocks, entry, progress.pass) {
                    Ok(current) => progress.current = current,
                    Err(_) => {
                        if let Some(walk) = &mut progress.walk {
                            walk.left_count += 1;
                        }
                        return false;
                    }
                }
            } else if progress.pass == Pass::Open {
                *progress = Progress { pass: Pass::Contents, ..Progress::default() };
            } else {
                *progress = Progress::default();
                self.is_done.store(true, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Returns the next block that the current pass has not verified.
    fn next_unverified(
        store: &BlockStore,
        progress: &mut Progress,
    ) -> Option<(StoreId, Arc<TenantBlocks>, Arc<BlockEntry>)> {
        let pass = progress.pass;
        let is_left = |entry: &Arc<BlockEntry>| match pass {
            Pass::Open => !entry.is_verified(),
            Pass::Contents => !entry.are_contents_verified(),
        };
        loop {
            if let Some(mut walk) = progress.walk.take() {
                while let Some(entry) = walk.next() {
                    if is_left(&entry) {
                        let found = (walk.tenant.clone(), walk.blocks.clone(), entry);
                        progress.walk = Some(walk);
                        return Some(found);
                    }
                }
                progress.done_to = Some(walk.tenant);
            }
            let (tenant, blocks) = store.next_after(progress.done_to.as_ref())?;
            let list = blocks.list();
            progress.walk = Some(Walk { tenant, blocks, left_count: list.len(), list });
        }
    }

    /// Opens a block and returns it if its contents are to be read.
    ///
    /// # Errors
    /// If the block cannot be opened for lack of a resource.
    fn begin(
        &self,
        store: &BlockStore,
        tenant: StoreId,
        blocks: Arc<TenantBlocks>,
        entry: Arc<BlockEntry>,
        pass: Pass,
    ) -> Result<Option<Current>, BlockError> {
        let block = match store.open_unpooled(&blocks, &entry) {
            Ok(block) => block,
            Err(error) if error.is_exhaustion() => return Err(error),
            Err(error) => {
                entry.note_verified_contents();
                if blocks.has(&entry) {
                    self.report(&tenant, &entry, error.to_string(), EFFECT_OF_DAMAGE);
                }
                return Ok(None);
            }
        };
        // The start compares sizes too, for as long as it has time.
        if let Err(error) = block.compare_sizes(entry.record())
            && !entry.is_damaged()
            && blocks.has(&entry)
        {
            self.report(&tenant, &entry, error.to_string(), EFFECT_OF_DAMAGE);
            entry.note_damaged_contents();
        }
        let current = || {
            let verification = BlockVerification::new(&block);
            let rollups = block.rollup_verification();
            Current { tenant, blocks, entry, verification, rollups }
        };
        Ok((pass == Pass::Contents).then(current))
    }

    fn finish(&self, current: &Current) {
        let Current { tenant, blocks, entry, verification, rollups } = current;
        entry.note_verified_contents();
        if !blocks.has(entry) {
            return;
        }
        if !verification.damages().is_empty() {
            entry.note_damaged_contents();
        }
        if !rollups.damages().is_empty() {
            entry.note_damaged_rollups();
        }
        for text in damage_texts(verification.damages()) {
            self.report(tenant, entry, text, EFFECT_OF_DAMAGE);
        }
        for text in damage_texts(rollups.damages()) {
            self.report(tenant, entry, text, EFFECT_OF_DAMAGED_ROLLUPS);
        }
    }
}

/// Jobs of the scrub, one per run.
pub(super) struct ScrubJobs(pub(super) Arc<Scrub>);

impl JobRunner for ScrubJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let job = || Job { cost_bytes: STEP_READ_MAX, ..Job::global(JobKind::Scrub, cx.now_ms) };
        Found::Some((!self.0.is_done()).then(job).into_iter().collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |_| {
            self.0.step(cx.storage.env(), cx.storage.blocks());
            Outcome::Done
        })
    }
}

/// One text per damaged file.
fn damage_texts(damages: &[Damage]) -> Vec<String> {
    let files: BTreeSet<&PathBuf> = damages.iter().map(|damage| &damage.path).collect();
    files.into_iter().map(|path| damage_text(path, damages)).collect()
}

fn damage_text(path: &Path, damages: &[Damage]) -> String {
    let mut damages = damages.iter().filter(|damage| damage.path == path);
    let first = damages.next().map(|damage| format!("offset {}: {}", damage.offset, damage.what));
    let first = first.unwrap_or_default();
    match damages.count() {
        0 => format!("{}: {first}", path.display()),
        more_count => format!("{}: {first}; {more_count} more damages in the file", path.display()),
    }
}
