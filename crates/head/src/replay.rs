//! Starting: newest good checkpoint, then the log behind it, samples on all cores.
//!
//! Holds: nothing is logged; loading twice the same gives the same; damage is contained, and named in notes.
//! Steps: files, definitions (checkpoint, then log), chunks, samples, cut the torn tail.

mod chunks;
mod definitions;
mod files;
mod samples;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use chronolith_base::Env;
use parking_lot::{Mutex, RwLock};

use crate::head::{Counters, Head, Series};
use crate::key_hash::KeyHash;
use crate::options::{HeadError, HeadOptions};
use crate::progress::{ReplayProgress, ReplayReport};
use crate::stripe::{STRIPE_COUNT, Stripe};
use crate::sync;
use crate::tenant::Tenants;
use crate::wal::{Wal, WalStart, wal_dir};

use definitions::Definitions;
use files::LogFiles;

/// Makes a head from what is on disk.
pub(crate) fn open(env: &Env, options: HeadOptions, progress: &ReplayProgress) -> Result<Head, HeadError> {
    let start_ns = env.clock.mono_ns();
    let mut report = ReplayReport::default();
    let files = LogFiles::find(env, &options.dir, &mut report)?;
    files.announce(progress);
    let scans = files.scan(progress, &mut report);
    let mut definitions = Definitions::new(env);
    definitions.load_checkpoint(&files, &mut report);
    definitions.load_log(&files, &scans, &mut report);
    let (store, known_files) = chunks::open_sealed(env, &options, &files, &mut report)?;
    let stripes = definitions.make_stripes();
    let series = Arc::new(Series { stripes, store, env: env.clone(), window_ms: options.window_ms });
    chunks::load(&files, &series, &definitions, &known_files, &mut report);
    let unknown_end = samples::replay(&files, &scans, &series, &definitions, &mut report)?;
    definitions.next_id = definitions.next_id.max(unknown_end);
    let start = files.finish(env, &scans)?;
    report.series = definitions.live_count();
    report.duration_ns = env.clock.mono_ns().saturating_sub(start_ns);
    for note in &report.notes {
        tracing::warn!(note = %note, "replay");
    }
    Ok(build(env, options, definitions, series, start, report))
}

fn build(
    env: &Env,
    options: HeadOptions,
    definitions: Definitions,
    series: Arc<Series>,
    start: WalStart,
    report: ReplayReport,
) -> Head {
    let dir = wal_dir(&options.dir);
    let kept_bytes = start.kept.iter().map(|s| s.bytes).sum();
    let (key, kept) = (start.key, kept_bytes);
    let wal = Wal::new(env, &options, dir, start);
    wal.counters.segment_bytes.store(kept, Ordering::Relaxed);
    Head {
        env: env.clone(),
        options,
        series,
        tenants: RwLock::new(definitions.tenants),
        raw_keys: sync::RwLock::new(definitions.raw_keys),
        key_hash: KeyHash::new(key),
        next_id: AtomicU32::new(definitions.next_id),
        wal,
        gate: RwLock::new(()),
        maintenance: Mutex::new(()),
        scratch: Mutex::new(Vec::new()),
        counters: Counters {
            checkpoint_bytes: AtomicU64::new(definitions.checkpoint_bytes),
            ..Counters::default()
        },
        replay: report,
    }
}

/// Empty stripes.
pub(crate) fn new_stripes() -> Vec<sync::Mutex<Stripe>> {
    (0..STRIPE_COUNT).map(|_| sync::Mutex::new(Stripe::new())).collect()
}

/// Tenants of a head without any.
pub(crate) fn no_tenants() -> Tenants {
    Tenants::default()
}
