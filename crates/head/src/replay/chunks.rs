//! Chunks of a checkpoint: sealed files opened, open and late chunks put back, on all cores.
//! Holds: a chunk that is out of its file or window, or does not decode, is left out and counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use chronolith_base::hash::HashSet;
use chronolith_base::{ByteReader, Env};
use chronolith_format::checkpoint as format;
use chronolith_format::xor::{self, XorState};
use chronolith_model::{Columns, TimeRange};

use super::definitions::Definitions;
use super::files::LogFiles;
use crate::chain::Chain;
use crate::head::{Series, replay_thread_count};
use crate::options::{HeadError, HeadOptions};
use crate::progress::ReplayReport;
use crate::sealed::{SealedFile, SealedPlace, SealedStore, sealed_dir};
use crate::stripe::{NONE, SealedNode, Stripe, stripe_of};
use crate::windows::WindowTally;

/// Opens the sealed files that the checkpoint refers to and deletes the others. Gives the length of each.
pub(super) fn open_sealed(
    env: &Env,
    options: &HeadOptions,
    files: &LogFiles,
    report: &mut ReplayReport,
) -> Result<(SealedStore, Vec<(u32, u64)>), HeadError> {
    let dir = sealed_dir(&options.dir);
    let mut wanted = HashSet::default();
    for payload in files.checkpoint_frames(format::KIND_CHUNKS) {
        for_each_chunks(payload, |entry| wanted.extend(entry.sealed.iter().map(|s| s.file)));
    }
    let mut next = 1;
    let mut kept = Vec::new();
    for entry in env.disk.list(&dir).map_err(HeadError::io(&dir))? {
        let Some(number) = entry.name.strip_suffix(".sealed").and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        next = next.max(number.saturating_add(1));
        let path = dir.join(&entry.name);
        if !wanted.contains(&number) {
            // A damaged checkpoint does not say which files it needs; they stay for whoever repairs it.
            if files.is_whole {
                env.disk.remove_file(&path).map_err(HeadError::io(&path))?;
            }
            continue;
        }
        match SealedFile::open(&*env.disk, &dir, number) {
            Ok(file) => kept.push(file),
            Err(error) => {
                report.notes.push(format!("{}: not usable, its chunks are lost: {error}", path.display()))
            }
        }
    }
    let known: Vec<(u32, u64)> = kept.iter().map(|f| (f.number, f.len())).collect();
    for missing in wanted.iter().filter(|n| !known.iter().any(|(k, _)| k == *n)) {
        next = next.max(missing.saturating_add(1));
        report
            .notes
            .push(format!("{}: sealed file {missing} is missing, its chunks are lost", dir.display()));
    }
    Ok((SealedStore::new(env, &options.dir, options.sealed_file_bytes, next, kept), known))
}

/// Calls `visit` with the chunks of every series of a frame.
fn for_each_chunks(payload: &[u8], mut visit: impl FnMut(&format::ChunkEntry<'_>)) {
    let mut reader = ByteReader::new(payload);
    // The frame's checksum fits, so an entry that does not parse is a bug of the writer; the rest is left.
    while let Ok(Some(entry)) = format::decode_chunks(&mut reader) {
        visit(&entry);
    }
}

/// Puts the chunks of the checkpoint into the records of their series.
pub(super) fn load(
    files: &LogFiles,
    series: &Series,
    definitions: &Definitions,
    known_files: &[(u32, u64)],
    report: &mut ReplayReport,
) {
    let frames: Vec<&[u8]> = files.checkpoint_frames(format::KIND_CHUNKS).collect();
    let next = AtomicUsize::new(0);
    let (unknown_count, damaged_count) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut tallies: Vec<WindowTally> = Vec::new();
        while let Some(payload) = frames.get(next.fetch_add(1, Ordering::Relaxed)) {
            for_each_chunks(payload, |entry| {
                let mut stripe = series.stripes[stripe_of(entry.id)].lock();
                let Some(tenant) = stripe.hot(entry.id).map(|hot| hot.tenant as usize) else {
                    unknown_count.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                if tallies.len() <= tenant {
                    tallies.resize_with(tenant + 1, || WindowTally::new(series.window_ms));
                }
                let damaged = load_series(&mut stripe, series, entry, known_files, &mut tallies[tenant]);
                damaged_count.fetch_add(damaged, Ordering::Relaxed);
            });
        }
        let now_ms = series.env.clock.now_ms();
        for (tenant, mut tally) in definitions.tenants.all().iter().zip(tallies) {
            tenant.windows.lock().merge_known(&mut tally, &definitions.arrivals, tenant.idx, now_ms);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..replay_thread_count().min(frames.len()) {
            // Without another thread this one does all.
            let _ = std::thread::Builder::new().name("replay-chunks".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    let (unknown, damaged) = (unknown_count.into_inner(), damaged_count.into_inner());
    if unknown > 0 {
        report.notes.push(format!("checkpoint: chunks of {unknown} series without definition are left out"));
    }
    if damaged > 0 {
        report.notes.push(format!("checkpoint: {damaged} chunks cannot be used and are left out"));
    }
}

/// Puts the chunks of one series into its record; gives how many cannot be used.
fn load_series(
    stripe: &mut Stripe,
    series: &Series,
    entry: &format::ChunkEntry<'_>,
    known_files: &[(u32, u64)],
    tally: &mut WindowTally,
) -> u64 {
    let mut damaged = 0;
    let mut sealed = NONE;
    for chunk in &entry.sealed {
        let record_len = u64::from(chunk.len) + chronolith_format::sealed::RECORD_OVERHEAD_BYTES as u64;
        let fits = known_files
            .iter()
            .any(|&(n, len)| n == chunk.file && u64::from(chunk.offset) + record_len <= len);
        let window = TimeRange::window_of(
            chunk.min_time.clamp(TimeRange::ALL.start, TimeRange::ALL.end - 1),
            series.window_ms,
        );
        let within = window.contains(chunk.min_time)
            && chunk.min_time.checked_add(i64::from(chunk.span_ms)).is_some_and(|t| window.contains(t));
        let Some(file) = series.store.file(chunk.file).filter(|_| fits && within) else {
            damaged += 1;
            continue;
        };
        file.live_count.fetch_add(1, Ordering::Relaxed);
        tally.add(chunk.min_time, i64::from(chunk.count));
        let place = SealedPlace { file: chunk.file, offset: chunk.offset };
        let node = SealedNode::restored(place, chunk.min_time, chunk.span_ms, chunk.len, chunk.count);
        sealed = stripe.nodes.push(node, sealed);
    }
    let mut state = entry.last.map_or(XorState::new(), |(time, value)| XorState::ended(time, value));
    let (mut open, mut open_min, mut window_end) = (Chain::NONE, 0, 0);
    if !entry.open.is_empty() {
        match open_chunk(entry.open, series.window_ms) {
            Some((resumed, first, window)) => {
                open = stripe.chains.store(entry.open);
                tally.add(first, i64::from(resumed.count()));
                (state, open_min, window_end) = (resumed, first, window.end);
            }
            None => damaged += 1,
        }
    }
    let mut late = NONE;
    if !entry.late.is_empty() {
        let mut samples = Columns::default();
        match xor::decode(entry.late, TimeRange::ALL, &mut samples) {
            Ok(()) if !samples.is_empty() => {
                samples.times.iter().for_each(|&t| tally.add(t, 1));
                late = stripe.late.alloc();
                stripe.late.fill(late, samples);
            }
            _ => damaged += 1,
        }
    }
    if let Some(hot) = stripe.hot_mut(entry.id) {
        (hot.xor, hot.open, hot.open_min, hot.window_end) = (state, open, open_min, window_end);
        (hot.sealed, hot.late) = (sealed, late);
    }
    damaged
}

/// State, first time and window of an open chunk that is fit to go on.
fn open_chunk(bytes: &[u8], window_ms: i64) -> Option<(XorState, i64, TimeRange)> {
    let state = XorState::resume(bytes).ok()?;
    let first = xor::first_time(bytes).ok().filter(|&t| TimeRange::ALL.contains(t))?;
    let window = TimeRange::window_of(first, window_ms);
    let fits = window.contains(state.time()) && bytes.len() <= xor::CHUNK_BYTES_MAX;
    fits.then_some((state, first, window))
}
