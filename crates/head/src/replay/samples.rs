//! Samples of the log: each thread takes its stripes and walks the frames of all segments in order.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_format::wal::{DeletesRef, FrameRef, KIND_DELETES, KIND_SAMPLES, SamplesRef, Scan};
use chronolith_model::TimeRange;
use parking_lot::Mutex;

use super::definitions::Definitions;
use super::files::LogFiles;
use crate::head::{Series, replay_thread_count};
use crate::options::HeadError;
use crate::progress::ReplayReport;
use crate::stripe::{Applied, stripe_of};
use crate::windows::WindowTally;

struct Shared<'a> {
    series: &'a Series,
    definitions: &'a Definitions,
    sample_count: AtomicU64,
    unknown_count: AtomicU64,
    /// Above every id without definition that the log speaks of.
    unknown_end: AtomicU32,
    notes: Mutex<Vec<String>>,
    failure: Mutex<Option<HeadError>>,
}

/// Appends all samples to memory. Gives a bound above the ids of samples without definition: such an id must
/// not be given to another series while the log has samples of it.
pub(super) fn replay(
    files: &LogFiles,
    scans: &[Scan],
    series: &Series,
    definitions: &Definitions,
    report: &mut ReplayReport,
) -> Result<u32, HeadError> {
    let shared = Shared {
        series,
        definitions,
        sample_count: AtomicU64::new(0),
        unknown_count: AtomicU64::new(0),
        unknown_end: AtomicU32::new(0),
        notes: Mutex::default(),
        failure: Mutex::default(),
    };
    let lane_count = replay_thread_count();
    let next_lane = AtomicUsize::new(0);
    let work = || {
        while let Some(lane) =
            Some(next_lane.fetch_add(1, Ordering::Relaxed)).filter(|&lane| lane < lane_count)
        {
            take_stripes(files, scans, &shared, lane, lane_count);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..lane_count {
            // Without another thread this one takes all lanes.
            let _ = std::thread::Builder::new().name("replay".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    if let Some(failure) = shared.failure.into_inner() {
        return Err(failure);
    }
    report.samples = shared.sample_count.into_inner();
    report.samples_unknown = shared.unknown_count.into_inner();
    report.notes.extend(shared.notes.into_inner());
    if report.samples_unknown > 0 {
        let count = report.samples_unknown;
        report.notes.push(format!("log: {count} samples of series without definition are left out"));
    }
    series.store.write_all()?;
    Ok(shared.unknown_end.into_inner())
}

/// Replays the frames of the stripes that are `lane` modulo `lane_count`.
fn take_stripes(files: &LogFiles, scans: &[Scan], shared: &Shared<'_>, lane: usize, lane_count: usize) {
    let mut samples = SamplesRef::default();
    for (segment, scan) in files.segments.iter().zip(scans) {
        let mine = |f: &&FrameRef| {
            let is_mine = usize::from(f.header.stripe) % lane_count == lane;
            is_mine && matches!(f.header.kind, KIND_SAMPLES | KIND_DELETES)
        };
        for frame in scan.frames.iter().filter(mine) {
            let payload = segment.bytes.get(frame.payload.clone()).unwrap_or(&[]);
            let applied = if frame.header.kind == KIND_DELETES {
                DeletesRef::decode(payload).map(|deletes| apply_deletes(&deletes, shared))
            } else {
                samples.decode(payload).map(|()| apply(&samples, shared))
            };
            match applied {
                Ok(()) => {}
                Err(error) => {
                    let (path, offset) = (segment.path.display(), frame.payload.start);
                    shared.notes.lock().push(format!("{path}: frame at offset {offset}: {error}"));
                }
            }
            if let Err(error) = shared.series.store.write_if_many() {
                *shared.failure.lock() = Some(error);
                return;
            }
        }
    }
}

fn apply(samples: &SamplesRef, shared: &Shared<'_>) {
    let series = shared.series;
    let world = series.world();
    let aliases: &HashMap<u32, u32> = &shared.definitions.aliases;
    let mut tally = WindowTally::new(series.window_ms);
    let mut tenant = None;
    let mut unknown = 0;
    let mut at = 0;
    while let Some(&first) = samples.ids.get(at) {
        let target = |id: u32| aliases.get(&id).copied().unwrap_or(id);
        let stripe_idx = stripe_of(target(first));
        let mut stripe = series.stripes[stripe_idx].lock();
        while let Some(id) =
            samples.ids.get(at).map(|&id| target(id)).filter(|&id| stripe_of(id) == stripe_idx)
        {
            let (time, bits) = (samples.times[at], samples.values[at]);
            at += 1;
            let owner = stripe.hot(id).map(|hot| hot.tenant);
            if owner.is_none() || !TimeRange::ALL.contains(time) {
                unknown += 1;
                shared.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
                continue;
            }
            if tenant != owner {
                put_windows(shared, tenant, &mut tally, samples.arrival_ms);
                tenant = owner;
            }
            // What the checkpoint holds already comes back as a repeat. Of two values for a time the later one
            // counts, whatever the tenant's policy: the log has only what was accepted, in order.
            let applied = stripe.append(&world, &mut tally, id, time, bits);
            debug_assert!(applied != Applied::Gone, "the stripe is locked");
        }
    }
    put_windows(shared, tenant, &mut tally, samples.arrival_ms);
    shared.sample_count.fetch_add(samples.ids.len() as u64, Ordering::Relaxed);
    shared.unknown_count.fetch_add(unknown, Ordering::Relaxed);
}

/// Deletes at the same point of the order as when the frame was written.
fn apply_deletes(deletes: &DeletesRef, shared: &Shared<'_>) {
    let series = shared.series;
    let world = series.world();
    let mut tally = WindowTally::new(series.window_ms);
    for &id in &deletes.ids {
        let id = shared.definitions.aliases.get(&id).copied().unwrap_or(id);
        let mut stripe = series.stripes[stripe_of(id)].lock();
        // A series that is not known has lost its definition, or left the head with all its samples.
        let Some(tenant) = stripe.hot(id).map(|hot| hot.tenant) else { continue };
        stripe.erase(&world, &mut tally, id, deletes.range);
        put_windows(shared, Some(tenant), &mut tally, i64::MAX);
    }
}

fn put_windows(shared: &Shared<'_>, tenant: Option<u32>, tally: &mut WindowTally, arrival_ms: i64) {
    if let Some(tenant) = tenant.and_then(|idx| shared.definitions.tenants.all().get(idx as usize)) {
        tenant.windows.lock().merge(tally, arrival_ms);
    }
}
