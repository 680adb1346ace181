//! Restores overflow tables: the newest intact checkpoint, then changes of WAL frames.
//!
//! Not here: the table (`overflow`), samples of overflow series, which are frames of samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_base::{DecodeError, Env};
use chronolith_format::head::overflow_file::{OverflowFile, OverflowPart};
use chronolith_format::head::wal::{
    KIND_OVERFLOW, KIND_OVERFLOW_HISTOGRAMS, OverflowHistogramsRef, OverflowRef,
};
use chronolith_format::parse_store_name;
use chronolith_model::StoreId;
use chronolith_wal::SegmentEnd;

use super::files::CheckpointFiles;
use crate::index::overflow::file::OverflowFiles;
use crate::index::overflow::label_values::MetricLabels;
use crate::index::tenant::{TenantHead, Tenants};
use crate::options::HeadError;
use crate::recovery::progress::ReplayReport;

/// Changes of one WAL frame.
pub(super) enum FrameChanges<'a> {
    Floats(OverflowRef<'a>),
    Histograms(OverflowHistogramsRef<'a>),
}

impl<'a> FrameChanges<'a> {
    /// Returns true if frames of `kind` have changes of overflow tables.
    pub(super) fn is_in(kind: u8) -> bool {
        kind == KIND_OVERFLOW || kind == KIND_OVERFLOW_HISTOGRAMS
    }

    /// Reads the payload of a frame of `kind`.
    pub(super) fn decode(kind: u8, payload: &'a [u8]) -> Result<FrameChanges<'a>, DecodeError> {
        if kind == KIND_OVERFLOW {
            return OverflowRef::decode(payload).map(FrameChanges::Floats);
        }
        OverflowHistogramsRef::decode(payload).map(FrameChanges::Histograms)
    }

    fn tenant(&self) -> &'a str {
        match self {
            FrameChanges::Floats(changes) => changes.tenant,
            FrameChanges::Histograms(changes) => changes.tenant,
        }
    }
}

/// Tables of the checkpoint, and what follows them.
#[derive(Default)]
pub(super) struct LoadedOverflow {
    files: OverflowFiles,
    /// Position that all tables cover; `None` without a checkpoint.
    sequence: Option<u64>,
    /// Position of each table in the checkpoint.
    sequences: HashMap<StoreId, u64>,
    has_changes: AtomicBool,
}

impl LoadedOverflow {
    /// Returns the position after which the WAL must be read.
    pub(super) fn needed_after(&self) -> u64 {
        // Without a checkpoint nothing was ever folded.
        if self.has_file() { self.sequence.unwrap_or(0) } else { u64::MAX }
    }

    pub(super) fn has_file(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns the newest position of a table.
    pub(super) fn newest(&self) -> u64 {
        self.sequences.values().copied().max().unwrap_or(0).max(self.sequence.unwrap_or(0))
    }

    /// Returns true if the WAL had changes after the checkpoint, or a copy of it is damaged.
    pub(super) fn has_changes(&self) -> bool {
        self.has_changes.load(Ordering::Relaxed)
    }

    pub(super) fn into_files(self) -> OverflowFiles {
        self.files
    }

    /// Applies the changes of a frame, unless the table has them.
    pub(super) fn apply(
        &self,
        changes: &FrameChanges<'_>,
        sequence: u64,
        tenant: impl FnOnce(&StoreId) -> Option<Arc<TenantHead>>,
    ) -> Result<(), String> {
        let id = store_of(changes.tenant())?;
        if sequence <= self.sequences.get(&id).copied().or(self.sequence).unwrap_or(0) {
            return Ok(());
        }
        self.has_changes.store(true, Ordering::Relaxed);
        let tenant = tenant(&id).ok_or("too many tenants")?;
        let mut overflow = tenant.overflow().lock();
        tenant.overflow().note_used();
        match changes {
            FrameChanges::Floats(changes) => overflow.table_mut().apply(changes),
            FrameChanges::Histograms(changes) => overflow.table_mut().apply_histograms(changes),
        }
    }

    /// Lets all sums of increases begin at 0 again if changes are missing: otherwise they may be below those
    /// that overflow series have, which would be a reset of a large counter.
    pub(super) fn note_missing(&self, tenants: &Tenants, ends: &[SegmentEnd], report: &mut ReplayReport) {
        let first = ends.iter().find(|end| end.last_sequence > 0).map(|end| end.first_sequence);
        let sequence = self.sequence.unwrap_or(0);
        if !self.has_file() || first.is_none_or(|first| first <= sequence.saturating_add(1)) {
            return;
        }
        let used: Vec<&Arc<TenantHead>> =
            tenants.all().filter(|tenant| !tenant.overflow().is_empty()).collect();
        if !used.is_empty() {
            used.iter().for_each(|tenant| tenant.overflow().lock().table_mut().reset_totals());
            report
                .notes
                .push("WAL: changes of overflow tables are missing, sums begin at 0 again".to_owned());
        }
    }
}

/// Reads the newest intact checkpoint; `tenants` are the tenants of the slices.
pub(super) fn load(
    env: &Env,
    files: &CheckpointFiles,
    tenants: &mut Tenants,
    report: &mut ReplayReport,
) -> Result<LoadedOverflow, HeadError> {
    let mut loaded = LoadedOverflow::default();
    let generation = files.overflow.keys().last().copied().unwrap_or(0);
    loaded.files = OverflowFiles::found(generation, files.overflow.values().flatten().cloned().collect());
    for copies in files.overflow.values().rev() {
        let mut damaged = Vec::new();
        for path in copies {
            // A process that was killed may not have synced it.
            env.disk.open(path).and_then(|file| file.sync_data()).map_err(HeadError::io(path))?;
            let bytes = env.disk.map_or_copy(path, u64::MAX).map_err(HeadError::io(path))?;
            let Some(file) = OverflowFile::open(&bytes, files.key) else {
                damaged.push(format!("{}: the checkpoint of overflow tables is damaged", path.display()));
                continue;
            };
            if loaded.sequence.is_some() {
                continue;
            }
            let mut loader =
                TableLoader { tenants, env, tenant: None, slots: Vec::new(), histogram_slots: Vec::new() };
            if let Err(LoadError(what)) = file.visit(|part| loader.load(part, &mut loaded.sequences)) {
                report.notes.push(format!("{}: {what}", path.display()));
            }
            loaded.sequence = Some(file.sequence);
            report.bytes += bytes.len() as u64;
        }
        if !damaged.is_empty() {
            loaded.has_changes.store(true, Ordering::Relaxed);
        }
        if loaded.sequence.is_some() {
            report.repaired.append(&mut damaged);
            break;
        }
        report.notes.append(&mut damaged);
    }
    if loaded.has_file() {
        env.disk.sync_dir(&files.dir).map_err(HeadError::io(&files.dir))?;
    }
    Ok(loaded)
}

/// Reason why the rest of a checkpoint is not used.
struct LoadError(String);

impl From<DecodeError> for LoadError {
    fn from(error: DecodeError) -> LoadError {
        LoadError(error.to_string())
    }
}

/// Fills the tables with the parts of a checkpoint.
struct TableLoader<'a> {
    tenants: &'a mut Tenants,
    env: &'a Env,
    tenant: Option<Arc<TenantHead>>,
    /// Numbers of the slots in the table, by their numbers in the file.
    slots: Vec<usize>,
    /// The same for the slots of histograms.
    histogram_slots: Vec<usize>,
}

impl TableLoader<'_> {
    fn load(
        &mut self,
        part: OverflowPart<'_>,
        sequences: &mut HashMap<StoreId, u64>,
    ) -> Result<(), LoadError> {
        match part {
            OverflowPart::Store { tenant, sequence, slots } => {
                let id = store_of(tenant).map_err(LoadError)?;
                let found = self.tenants.get_or_create(&id, self.env.rng.next_u64());
                let found = found.ok_or_else(|| LoadError("too many tenants".to_owned()))?;
                sequences.insert(id, sequence);
                self.slots.clear();
                self.histogram_slots.clear();
                let mut overflow = found.overflow().lock();
                found.overflow().note_used();
                for state in &slots {
                    let slot = overflow.table_mut().load_slot(&state.slot, state.time, state.total);
                    self.slots.push(slot.map_err(LoadError)?);
                }
                drop(overflow);
                self.tenant = Some(found);
            }
            OverflowPart::Series(series) => {
                let Some(tenant) = &self.tenant else { return Ok(()) };
                let mut overflow = tenant.overflow().lock();
                for one in series {
                    if let Some(&slot) = self.slots.get(one.slot as usize) {
                        overflow.table_mut().load_series(one.key, slot, one.time, one.value);
                    }
                }
            }
            OverflowPart::HistogramSlots(slots) => {
                let Some(tenant) = &self.tenant else { return Ok(()) };
                let mut overflow = tenant.overflow().lock();
                for state in slots {
                    let slot = overflow.table_mut().load_histogram_slot(&state.slot, state.time, state.total);
                    self.histogram_slots.push(slot.map_err(LoadError)?);
                }
            }
            OverflowPart::LabelValues(metrics) => {
                let Some(tenant) = &self.tenant else { return Ok(()) };
                let mut overflow = tenant.overflow().lock();
                for one in metrics {
                    let labels = MetricLabels::from_registers(one.since_ms, one.labels.into_iter());
                    overflow.label_values_mut().load(one.metric, labels);
                }
            }
            OverflowPart::HistogramSeries(series) => {
                let Some(tenant) = &self.tenant else { return Ok(()) };
                let mut overflow = tenant.overflow().lock();
                for one in series {
                    if let Some(&slot) = self.histogram_slots.get(one.slot as usize) {
                        overflow.table_mut().load_histogram(one.key, slot, one.time, &one.histogram);
                    }
                }
            }
        }
        Ok(())
    }
}

fn store_of(name: &str) -> Result<StoreId, String> {
    parse_store_name(name).map_err(|_| format!("tenant {name:?} is not valid"))
}
