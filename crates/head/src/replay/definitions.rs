//! Series definitions of checkpoint and log: tables, raw keys, and records without samples.

use crate::sync::Mutex;
use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_format::checkpoint::{self as format, RAW_KEY_BYTES, RawKeys as RawKeyReader, WindowEntry};
use chronolith_format::wal::{KIND_DELETES, KIND_SAMPLES, KIND_SERIES, Scan, SeriesRef};
use chronolith_model::{Labels, TenantId};

use super::files::LogFiles;
use super::{new_stripes, no_tenants};
use crate::progress::ReplayReport;
use crate::raw_keys::RawKeys;
use crate::stripe::{Stripe, stripe_of};
use crate::tenant::Tenants;

/// What the definitions give.
pub(super) struct Definitions {
    pub(super) tenants: Tenants,
    pub(super) raw_keys: RawKeys,
    pub(super) next_id: u32,
    /// Ids of series that left the head and came back under another id, to the first of them.
    pub(super) aliases: HashMap<u32, u32>,
    /// First arrival by tenant and window start.
    pub(super) arrivals: HashMap<(u32, i64), i64>,
    pub(super) checkpoint_bytes: u64,
    stripes: Vec<Mutex<Stripe>>,
    /// Id, tenant, labels.
    stragglers: Vec<(u32, u32, Labels)>,
    env: Env,
    members: Vec<u32>,
}

impl Definitions {
    pub(super) fn new(env: &Env) -> Definitions {
        Definitions {
            tenants: no_tenants(),
            raw_keys: RawKeys::default(),
            next_id: 0,
            aliases: HashMap::default(),
            arrivals: HashMap::default(),
            checkpoint_bytes: 0,
            stripes: new_stripes(),
            stragglers: Vec::new(),
            env: env.clone(),
            members: Vec::new(),
        }
    }

    /// Hands over the records.
    pub(super) fn make_stripes(&mut self) -> Vec<Mutex<Stripe>> {
        std::mem::take(&mut self.stripes)
    }

    pub(super) fn live_count(&self) -> u64 {
        self.tenants.all().iter().map(|t| t.tables.read().live_count() as u64).sum()
    }

    /// Definitions, raw keys and windows of the good frames of a checkpoint.
    pub(super) fn load_checkpoint(&mut self, files: &LogFiles, report: &mut ReplayReport) {
        let header = files.checkpoint_header;
        self.next_id = self.next_id.max(header.map_or(0, |h| h.next_id));
        self.checkpoint_bytes = files.checkpoint_len();
        report.bytes += self.checkpoint_bytes;
        for payload in files.checkpoint_frames(format::KIND_SERIES) {
            self.load_series(payload, None, "checkpoint", report);
        }
        for payload in files.checkpoint_frames(format::KIND_WINDOWS) {
            self.load_windows(payload, report);
        }
        // The log's key is the checkpoint's, so these hashes are good.
        let key_bytes: usize = files.checkpoint_frames(format::KIND_RAW_KEYS).map(<[u8]>::len).sum();
        self.raw_keys.reserve(key_bytes / RAW_KEY_BYTES);
        for payload in files.checkpoint_frames(format::KIND_RAW_KEYS) {
            RawKeyReader::new(payload).for_each(|(hash, id)| self.raw_keys.insert(hash, id, usize::MAX));
        }
    }

    fn load_windows(&mut self, payload: &[u8], report: &mut ReplayReport) {
        let Ok((tenant, windows)) = WindowEntry::decode_all(payload) else {
            report.notes.push("checkpoint: windows cannot be read".to_owned());
            return;
        };
        let Some(tenant) = self.tenant(tenant) else { return };
        for window in windows {
            self.arrivals.insert((tenant, window.start), window.first_arrival_ms);
        }
    }

    fn tenant(&mut self, name: &str) -> Option<u32> {
        let id = TenantId::new(name).ok()?;
        let seed = self.env.rng.next_u64();
        self.tenants.get_or_create(&id, seed).map(|t| t.idx)
    }

    /// Definitions of the log, in its order; also finds the highest id that the log speaks of.
    pub(super) fn load_log(&mut self, files: &LogFiles, scans: &[Scan], report: &mut ReplayReport) {
        for (segment, scan) in files.segments.iter().zip(scans) {
            for frame in &scan.frames {
                let payload = segment.bytes.get(frame.payload.clone()).unwrap_or(&[]);
                match frame.header.kind {
                    KIND_SERIES => {
                        let place = format!("{} offset {}", segment.path.display(), frame.payload.start);
                        self.load_series(payload, Some(files.key), &place, report);
                    }
                    // Samples are read later, by stripe. Kinds of later versions are skipped.
                    KIND_SAMPLES | KIND_DELETES => {}
                    _ => {}
                }
            }
        }
        self.admit_stragglers();
    }

    /// Gives series whose id is below that of a younger one in the tables an id above all others: their
    /// samples in the log are then replayed under it.
    fn admit_stragglers(&mut self) {
        for (id, tenant, labels) in std::mem::take(&mut self.stragglers) {
            let tenant = self.tenants.all()[tenant as usize].clone();
            let mut tables = tenant.tables.write();
            let canonical = tables.find(labels.iter(), &mut self.members).unwrap_or_else(|| {
                let fresh = self.next_id;
                self.next_id = self.next_id.saturating_add(1);
                tables.insert(fresh, labels.iter(), &mut self.members);
                self.stripes[stripe_of(fresh)].lock().create(fresh, tenant.idx);
                fresh
            });
            self.aliases.insert(id, canonical);
        }
    }

    fn load_series(&mut self, payload: &[u8], key: Option<u128>, place: &str, report: &mut ReplayReport) {
        if let Err(what) = self.try_load_series(payload, key.is_some()) {
            report.notes.push(format!("{place}: series definitions: {what}"));
        }
    }

    fn try_load_series(&mut self, payload: &[u8], has_hashes: bool) -> Result<(), String> {
        let mut series = SeriesRef::decode(payload).map_err(|e| e.to_string())?;
        let Some(tenant) = self.tenant(series.tenant) else {
            return Err(format!("tenant {:?} is not valid", series.tenant));
        };
        let tenant = self.tenants.all()[tenant as usize].clone();
        let mut tables = tenant.tables.write();
        let mut pairs = Vec::new();
        while let Some(record) = series.next(&mut pairs).map_err(|e| e.to_string())? {
            let id = record.id;
            if id == u32::MAX || pairs.is_empty() {
                return Err(format!("series {id} is not valid"));
            }
            let known = tables.find(pairs.iter().copied(), &mut self.members);
            let canonical = known.unwrap_or(id);
            if known.is_none() {
                if !tables.ascends(id) {
                    // It had left the head when the checkpoint was written; see `admit_stragglers`.
                    let labels = Labels::from_pairs(pairs.iter().copied());
                    self.stragglers.push((id, tenant.idx, labels));
                    self.next_id = self.next_id.max(id.saturating_add(1));
                    continue;
                }
                self.next_id = self.next_id.max(id.saturating_add(1));
                tables.insert(id, pairs.iter().copied(), &mut self.members);
                let mut stripe = self.stripes[stripe_of(id)].lock();
                if stripe.hot(id).is_some() {
                    return Err(format!("series {id} belongs to two tenants"));
                }
                stripe.create(id, tenant.idx);
            } else if canonical != id {
                self.next_id = self.next_id.max(id.saturating_add(1));
                self.aliases.insert(id, canonical);
            }
            if has_hashes {
                self.raw_keys.insert(record.raw_hash, canonical, usize::MAX);
            }
        }
        Ok(())
    }
}
