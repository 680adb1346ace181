//! Writes the checkpoint of the overflow tables.
//!
//! Invariants: there is a file before the first change is in the WAL, so a start without one needs no old
//! segments; a file is durable before files of lower generations are removed.
//! Not here: bytes (`format::head::overflow_file`), loading (`recovery::overflow`).

use std::path::PathBuf;

use chronolith_base::AppendFile;
use chronolith_base::disk::is_short_of_files;
use chronolith_format::head::overflow_file::{
    HistogramSlotState, LabelValuesState, OverflowFileWriter, SlotState,
};
use chronolith_model::{OverflowPolicy, TenantLimits};
use chronolith_wal::{WalError, WalPosition};

use crate::index::overflow::{IDLE_MS, OverflowState};
use crate::index::tenant::TenantHead;
use crate::options::{HeadError, WriteError, wal_dir};
use crate::state::HeadState;

/// Series in one frame.
const FRAME_SERIES_COUNT: usize = 1 << 15;

/// Writes a first checkpoint if there is none, before a tenant with `limits` folds a series.
///
/// # Errors
/// [`WriteError::Marker`]: nothing may be folded.
pub(crate) fn prepare(state: &HeadState, limits: &TenantLimits) -> Result<(), WriteError> {
    let is_off = limits.ingestion.overflow == OverflowPolicy::Reject;
    if is_off || state.index.has_overflow_file() {
        return Ok(());
    }
    // Called while a record of the replicated log is applied. The tables are empty, so no position is needed.
    write(state, || Ok(())).map_err(|error| match error {
        HeadError::Io { error, .. } if is_short_of_files(&error) => WriteError::NoFileDescriptor,
        error => WriteError::Marker(error.to_string()),
    })
}

/// Writes a checkpoint of all tables if there may be one that is not empty: segments of the WAL up to the
/// position before the call are not needed after it.
///
/// # Errors
/// [`HeadError`]; the files before stay.
pub(crate) fn save(state: &HeadState) -> Result<(), HeadError> {
    if state.index.has_overflow_file() { write(state, || state.settle_position()) } else { Ok(()) }
}

/// Writes a checkpoint; `settle` runs between copying the tables and the rename.
fn write(state: &HeadState, settle: impl FnOnce() -> Result<(), WalError>) -> Result<(), HeadError> {
    let dir = wal_dir(&state.options.dir);
    let mut files = state.index.overflow_files();
    let new_paths = files.next_paths(&dir);
    let (newest, mut file) = write_generation(state, new_paths.clone()).map_err(HeadError::io(&dir))?;
    settle()?;
    file.publish().map_err(HeadError::io(&dir))?;
    let old_paths = files.add(new_paths);
    state.index.note_overflow_file();
    if !state.wal.is_disk_full() {
        // A checkpoint must not be ahead of the WAL: the next process continues its sequences.
        state.wal.sync_through(newest)?;
    }
    let disk = &*state.env.disk;
    for path in old_paths.iter().filter(|path| disk.exists(path)) {
        disk.remove_file(path).map_err(HeadError::io(path))?;
    }
    files.forget(old_paths.len());
    Ok(())
}

/// Writes the tables of all tenants; returns the newest position that a table covers, and the file, which is
/// not published yet.
fn write_generation(state: &HeadState, paths: Vec<PathBuf>) -> std::io::Result<(WalPosition, AppendFile)> {
    let start = state.wal.position();
    let mut newest = start;
    let mut writer = OverflowFileWriter::new(state.wal.key());
    let mut file = AppendFile::create(state.env.disk.clone(), paths)?;
    let idle_before = state.env.clock.now_ms().saturating_sub(IDLE_MS);
    for tenant in state.index.tenants() {
        if !tenant.overflow().is_used() {
            continue;
        }
        let mut overflow = tenant.overflow().lock();
        // A tenant that writes nothing any more has its table emptied here.
        overflow.remove_idle(&state.wal, tenant.name(), idle_before);
        if overflow.table().is_empty() {
            continue;
        }
        // All changes of the table are queued under its lock.
        newest = state.wal.position();
        put_tenant(&tenant, &overflow, newest.0, &mut writer, &mut file)?;
    }
    writer.put_end(start.0);
    file.append(&writer.take())?;
    Ok((newest, file))
}

fn put_tenant(
    tenant: &TenantHead,
    overflow: &OverflowState,
    sequence: u64,
    writer: &mut OverflowFileWriter,
    file: &mut AppendFile,
) -> std::io::Result<()> {
    let table = overflow.table();
    let floats = table.slots_for_checkpoint(false);
    let states = floats.slots().map(|slot| SlotState {
        slot: slot.as_stored(),
        time: slot.time(),
        total: slot.total(),
    });
    writer.put_store(tenant.name(), sequence, states);
    let mut samples = table.samples(floats.numbers()).peekable();
    while samples.peek().is_some() {
        writer.put_series(samples.by_ref().take(FRAME_SERIES_COUNT));
        file.append(&writer.take())?;
    }
    let histograms = table.slots_for_checkpoint(true);
    writer.put_histogram_slots(histograms.slots().map(|slot| HistogramSlotState {
        slot: slot.as_stored(),
        time: slot.time(),
        total: slot.histogram_total().cloned(),
    }));
    let mut samples = table.histograms(histograms.numbers()).peekable();
    while samples.peek().is_some() {
        writer.put_histogram_series(&mut samples, FRAME_SERIES_COUNT);
        file.append(&writer.take())?;
    }
    writer.put_label_values(overflow.label_values().all().map(|(metric, values)| LabelValuesState {
        metric,
        since_ms: values.since_ms(),
        labels: values.labels().map(|(label, estimate)| (label, estimate.registers())).collect(),
    }));
    file.append(&writer.take())
}
