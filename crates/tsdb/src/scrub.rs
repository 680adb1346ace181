//! Scrub: verifies all blocks once after a start, in rounds of bounded cost, so that damage is named before
//! somebody queries it.
//!
//! Holds: first all blocks are opened, which finds missing and damaged files within minutes, then their
//! contents are read, the newest block of a tenant first. A block that is damaged is named once, in the log
//! and on the status page, and counts in `blocks_damaged` as long as it is there. Blocks that cannot be
//! opened for lack of descriptors or memory wait for the next round.
//! Not here: what is verified in a block (`block::verify`), sizes of files at the start (`load`).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_block::{BlockEntry, BlockError, BlockVerification};
use chronolith_model::TenantId;
use parking_lot::Mutex;

use crate::blocks::BlockStore;
use crate::tenant::TenantBlocks;

/// Blocks that one round opens at most, bytes that it reads, and how long it goes on.
const ROUND_BLOCKS_MAX: usize = 500;
const ROUND_BYTES_MAX: u64 = 32 << 20;
const ROUND_NS_MAX: u64 = 50_000_000;
/// Bytes between two looks at the clock.
const STEP_BYTES: u64 = 1 << 20;
/// Damaged files that the status page names; the log has all of them.
const NAMED_MAX: usize = 20;

/// What is verified next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Pass {
    /// What opening verifies, and sizes of files.
    #[default]
    Open,
    /// Everything else.
    Contents,
}

/// A block whose contents are being read.
struct Current {
    tenant: TenantId,
    blocks: Arc<TenantBlocks>,
    entry: Arc<BlockEntry>,
    verification: BlockVerification,
}

/// The blocks of a tenant when its turn began, newest first. Those that come later were written by this process.
struct Walk {
    tenant: TenantId,
    blocks: Arc<TenantBlocks>,
    list: Arc<Vec<Arc<BlockEntry>>>,
    /// Blocks at the front of the list that were not visited.
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
    /// Tenants up to this one are through.
    done_to: Option<TenantId>,
    current: Option<Current>,
}

/// Texts for people, of which the first are kept.
#[derive(Default)]
struct Findings {
    texts: Vec<String>,
    more_count: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Scrub {
    progress: Mutex<Progress>,
    findings: Mutex<Findings>,
    is_done: AtomicBool,
}

/// What a round may still do.
struct Budget<'a> {
    store: &'a BlockStore,
    end_ns: u64,
    blocks_left: usize,
    bytes_left: u64,
}

impl Budget<'_> {
    fn is_spent(&self) -> bool {
        self.blocks_left == 0 || self.bytes_left == 0 || self.store.env.clock.mono_ns() > self.end_ns
    }
}

impl Scrub {
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// What was found damaged, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        let findings = self.findings.lock();
        let mut notes = findings.texts.clone();
        if findings.more_count > 0 {
            notes.push(format!("{} more files of blocks are damaged, see the log", findings.more_count));
        }
        notes
    }

    fn report(&self, tenant: &TenantId, entry: &BlockEntry, text: String) {
        tracing::error!(%tenant, block = %entry.ulid(), note = text,
            "a block is damaged; queries that need the damaged part fail until it is restored or removed");
        let mut findings = self.findings.lock();
        if findings.texts.len() < NAMED_MAX {
            findings.texts.push(text);
        } else {
            findings.more_count += 1;
        }
    }
}

impl BlockStore {
    /// One round of the scrub; returns true once all blocks are verified.
    pub(crate) fn scrub_some(&self) -> bool {
        if self.scrub.is_done() {
            return true;
        }
        let mut progress = self.scrub.progress.lock();
        let mut budget = Budget {
            store: self,
            end_ns: self.env.clock.mono_ns() + ROUND_NS_MAX,
            blocks_left: ROUND_BLOCKS_MAX,
            bytes_left: ROUND_BYTES_MAX,
        };
        while !budget.is_spent() {
            if let Some(current) = &mut progress.current {
                budget.bytes_left = budget.bytes_left.saturating_sub(STEP_BYTES);
                if current.verification.step(STEP_BYTES) {
                    self.finish(current);
                    progress.current = None;
                }
            } else if let Some((tenant, blocks, entry)) = self.next_unverified(&mut progress) {
                budget.blocks_left -= 1;
                match self.begin(tenant, blocks, entry, progress.pass) {
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
                self.scrub.is_done.store(true, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// The next block that `progress.pass` has not met.
    fn next_unverified(
        &self,
        progress: &mut Progress,
    ) -> Option<(TenantId, Arc<TenantBlocks>, Arc<BlockEntry>)> {
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
            let (tenant, blocks) = {
                let tenants = self.tenants.read();
                let after = progress.done_to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut rest = tenants.range::<TenantId, _>((after, Bound::Unbounded));
                rest.next().map(|(tenant, blocks)| (tenant.clone(), blocks.clone()))?
            };
            let list = blocks.list();
            progress.walk = Some(Walk { tenant, blocks, left_count: list.len(), list });
        }
    }

    /// Opens a block; gives it if its contents are to be read.
    ///
    /// # Errors
    /// If it cannot be opened for a reason that may pass.
    fn begin(
        &self,
        tenant: TenantId,
        blocks: Arc<TenantBlocks>,
        entry: Arc<BlockEntry>,
        pass: Pass,
    ) -> Result<Option<Current>, BlockError> {
        let block = match self.pool.open_unpooled(&blocks.dir, &entry) {
            Ok(block) => block,
            Err(error) if error.is_exhaustion() => return Err(error),
            Err(error) => {
                entry.note_verified_contents();
                if blocks.has(&entry) {
                    self.scrub.report(&tenant, &entry, error.to_string());
                }
                return Ok(None);
            }
        };
        // A start compares them too, as far as it has time.
        if let Err(error) = block.compare_sizes(entry.record())
            && !entry.is_damaged()
            && blocks.has(&entry)
        {
            self.scrub.report(&tenant, &entry, error.to_string());
            entry.note_damaged_contents();
        }
        let verification = (pass == Pass::Contents).then(|| BlockVerification::new(&block));
        Ok(verification.map(|verification| Current { tenant, blocks, entry, verification }))
    }

    fn finish(&self, current: &Current) {
        let Current { tenant, blocks, entry, verification } = current;
        entry.note_verified_contents();
        if verification.damages().is_empty() || !blocks.has(entry) {
            return;
        }
        entry.note_damaged_contents();
        let files: BTreeSet<&PathBuf> = verification.damages().iter().map(|damage| &damage.path).collect();
        for path in files {
            self.scrub.report(tenant, entry, damage_text(path, verification));
        }
    }
}

fn damage_text(path: &Path, verification: &BlockVerification) -> String {
    let mut damages = verification.damages().iter().filter(|damage| damage.path == path);
    let first = damages.next().map(|damage| format!("offset {}: {}", damage.offset, damage.what));
    let first = first.unwrap_or_default();
    match damages.count() {
        0 => format!("{}: {first}", path.display()),
        more_count => format!("{}: {first}; {more_count} more damages in the file", path.display()),
    }
}
