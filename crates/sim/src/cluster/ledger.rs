//! Ledger of a simulated cluster: samples that gateways have acknowledged, and the records that the log has
//! of each that no deletion has taken.
//!
//! Invariants: the value of a sample follows from series and time, so a repeat has the same value; records
//! are read from the log itself, so the ledger needs no acknowledgement to know what owners may have.
//! Not here: answers of the cluster (`answer`), requests (`gateways`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_cluster::gateway::RecordStore;
use chronolith_format::record::{Record, RecordOrigin, decode_record};
use chronolith_model::log_position::PartitionId;
use chronolith_model::{
    FIELD_LABEL, LabelSource, Labels, LabelsBuilder, Matcher, TenantId, TimeRange, WriteBatch,
};
use chronolith_replicated_log::sim::SimTopic;

use super::setup::{HOUR_MS, MINUTE_MS, SERIES_PER_STORE, StoreSetup};

/// Width of the windows that are cut.
const WINDOW_MS: i64 = 2 * HOUR_MS;
/// Limit of a sample's time after the arrival of its request, in default stores.
const AHEAD_MS_MAX: i64 = 10 * MINUTE_MS;

/// First record of a sample that its store accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: u32,
    pub(super) offset: u64,
}

/// Sample of a series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sample {
    pub(super) is_acknowledged: bool,
    /// First record with the sample that no deletion has taken.
    pub(super) place: Option<Place>,
    /// Further records with the sample, likewise.
    later: Vec<Place>,
    /// Records with the sample that deletions have taken.
    taken_count: u32,
    /// Number of the last deletion that has taken one.
    pub(super) taken_by: Option<u64>,
}

impl Sample {
    /// Notes a record with the sample.
    fn note(&mut self, place: Place) {
        match self.place {
            None => self.place = Some(place),
            Some(_) => self.later.push(place),
        }
    }

    /// Takes the records of the partition before the record of a deletion at `end`.
    fn take(&mut self, number: u64, end: Place) {
        let is_taken = |place: &Place| place.partition == end.partition && place.offset < end.offset;
        let count = self.later.len() + usize::from(self.place.is_some());
        self.later.retain(|place| !is_taken(place));
        if self.place.is_some_and(|place| is_taken(&place)) {
            self.place = (!self.later.is_empty()).then(|| self.later.remove(0));
        }
        let left = self.later.len() + usize::from(self.place.is_some());
        if left < count {
            self.taken_by = Some(number);
            self.taken_count += (count - left) as u32;
        }
    }

    /// Blocks that may have the sample, besides the block that a read shows.
    pub(super) fn further_copies(&self) -> u64 {
        self.later.len() as u64 + u64::from(self.taken_count)
    }
}

/// Selection of a deletion.
struct Erased {
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
}

/// Run of samples of a series, at equal distances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) series: usize,
    pub(super) start_ms: i64,
    pub(super) step_ms: i64,
    pub(super) count: i64,
}

impl Run {
    fn times(self) -> impl Iterator<Item = i64> {
        (0..self.count).map(move |idx| self.start_ms + idx * self.step_ms)
    }
}

/// Samples of one request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) store_idx: usize,
    pub(super) runs: Vec<Run>,
}

impl Request {
    pub(super) fn sample_count(&self) -> u64 {
        self.runs.iter().map(|run| run.count.unsigned_abs()).sum()
    }

    /// Returns the batch that a protocol would make of it.
    pub(super) fn batch(&self, store: RecordStore) -> WriteBatch {
        let mut batch = WriteBatch::from_labels();
        for run in &self.runs {
            let sample = |time_ms| (store.time_unit().from_ms(time_ms), value_of(run.series, time_ms));
            let samples: Vec<(i64, f64)> = run.times().map(sample).collect();
            batch.push_labels(&labels_of(store, run.series), &samples);
        }
        batch
    }
}

/// Value of a sample.
pub(super) fn value_of(series: usize, time_ms: i64) -> f64 {
    ((time_ms & 0xffff_ffff) * 64 + series as i64) as f64
}

/// Labels of a series; `id` is unique over all stores.
fn labels_of(store: RecordStore, series: usize) -> Labels {
    let id = series.to_string();
    match store {
        RecordStore::Default => Labels::from_pairs([("__name__", "m"), ("id", &id)]),
        RecordStore::Graphite(_) => Labels::from_pairs([("__name__", "g"), ("id", &id)]),
        RecordStore::Database(_) => Labels::from_pairs([("__name__", "d"), (FIELD_LABEL, "f"), ("id", &id)]),
    }
}

/// Returns the parser of the keys that requests have.
pub(super) fn source_of(protocol: u8) -> Option<LabelSource> {
    let source = WriteBatch::from_labels().source;
    (source.protocol == protocol).then_some(source)
}

/// Start of the window of a time.
pub(super) fn window_of(time_ms: i64) -> i64 {
    time_ms.div_euclid(WINDOW_MS) * WINDOW_MS
}

/// Samples of a store.
#[derive(Debug)]
pub(super) struct StoreLedger {
    pub(super) setup: StoreSetup,
    /// Samples of each series.
    pub(super) series: Vec<BTreeMap<i64, Sample>>,
    /// Number of its first series.
    pub(super) first_series: usize,
}

impl StoreLedger {
    fn samples_of(&mut self, series: usize) -> &mut BTreeMap<i64, Sample> {
        &mut self.series[series - self.first_series]
    }

    fn accepts(&self, time_ms: i64, arrival_ms: i64) -> bool {
        self.setup.store != RecordStore::Default || time_ms <= arrival_ms.saturating_add(AHEAD_MS_MAX)
    }

    /// All samples, with series and time.
    pub(super) fn samples(&self) -> impl Iterator<Item = (usize, i64, &Sample)> {
        self.series.iter().enumerate().flat_map(move |(idx, samples)| {
            samples.iter().map(move |(time, sample)| (self.first_series + idx, *time, sample))
        })
    }
}

/// Samples of all stores.
pub(super) struct Ledger {
    pub(super) stores: Vec<StoreLedger>,
    /// Offset of the next record that is read, per partition.
    next_offsets: Vec<u64>,
    batch: WriteBatch,
    /// Partitions and numbers of deletions whose first record was read.
    deletions: BTreeSet<(u32, u64)>,
    pub(super) record_count: u64,
    pub(super) cut_count: u64,
}

impl Ledger {
    pub(super) fn new(stores: &[StoreSetup]) -> Ledger {
        let store = |(idx, setup): (usize, &StoreSetup)| StoreLedger {
            setup: setup.clone(),
            series: vec![BTreeMap::new(); SERIES_PER_STORE],
            first_series: idx * SERIES_PER_STORE,
        };
        Ledger {
            stores: stores.iter().enumerate().map(store).collect(),
            next_offsets: Vec::new(),
            batch: WriteBatch::from_labels(),
            deletions: BTreeSet::new(),
            record_count: 0,
            cut_count: 0,
        }
    }

    /// Notes that a gateway has acknowledged a request that came at `arrival_ms`. Samples that are too far
    /// ahead of its clock are refused by owners.
    pub(super) fn acknowledge(&mut self, request: &Request, arrival_ms: i64) {
        let store = &mut self.stores[request.store_idx];
        for run in &request.runs {
            for time_ms in run.times() {
                if store.accepts(time_ms, arrival_ms) {
                    store.samples_of(run.series).entry(time_ms).or_default().is_acknowledged = true;
                }
            }
        }
    }

    /// Reads the records that have come into the log.
    pub(super) fn read_log(&mut self, topic: &SimTopic, partition_count: u32) -> Result<(), String> {
        self.next_offsets.resize(partition_count as usize, 0);
        for partition in 0..partition_count {
            for record in topic.records(PartitionId(partition)) {
                if record.offset < self.next_offsets[partition as usize] {
                    continue;
                }
                self.next_offsets[partition as usize] = record.offset + 1;
                self.record_count += 1;
                let decoded = decode_record(&record.value, source_of, &mut self.batch);
                match decoded.map_err(|error| format!("a record of the log: {error}"))? {
                    Record::Samples { origin, .. } => {
                        let place = Place { partition, offset: record.offset };
                        self.note_record(&origin.tenant, origin.store, origin.arrival_ms, place)?;
                    }
                    Record::Delete { origin, number: Some(number), selectors, range } => {
                        let end = Place { partition, offset: record.offset };
                        // Later records of the deletion are repeats.
                        if self.deletions.insert((partition, number)) {
                            self.delete(&origin, number, Erased { selectors, range }, end)?;
                        }
                    }
                    Record::Cut(_) => self.cut_count += 1,
                    Record::Tick { .. } => {}
                    Record::Delete { number: None, .. } => return Err("a deletion without a number".into()),
                }
            }
        }
        Ok(())
    }

    fn note_record(
        &mut self,
        tenant: &TenantId,
        store: RecordStore,
        arrival_ms: i64,
        place: Place,
    ) -> Result<(), String> {
        let batch = &self.batch;
        let is_it = |one: &&mut StoreLedger| one.setup.tenant == *tenant && one.setup.store == store;
        let ledger = self.stores.iter_mut().find(is_it).ok_or("a record of a store that nobody has")?;
        for (idx, series) in batch.series.iter().enumerate() {
            let mut labels = LabelsBuilder::new();
            (batch.source.parse)(batch.key_of(idx), &mut labels).map_err(|error| format!("{error:?}"))?;
            let number = series_of(&labels.finish()).ok_or("a series without a number")?;
            for at in series.samples.start as usize..series.samples.end as usize {
                let time_ms = store.time_unit().to_ms(batch.times[at]);
                if !ledger.accepts(time_ms, arrival_ms) {
                    continue;
                }
                let sample = ledger.samples_of(number).entry(time_ms).or_default();
                sample.note(place);
            }
        }
        Ok(())
    }

    /// Takes the samples of a deletion whose record is at `end`.
    fn delete(
        &mut self,
        origin: &RecordOrigin,
        number: u64,
        erased: Erased,
        end: Place,
    ) -> Result<(), String> {
        let is_it =
            |one: &&mut StoreLedger| one.setup.tenant == origin.tenant && one.setup.store == origin.store;
        let ledger = self.stores.iter_mut().find(is_it).ok_or("a deletion of a store that nobody has")?;
        let unit = origin.store.time_unit();
        for (idx, samples) in ledger.series.iter_mut().enumerate() {
            let id = (ledger.first_series + idx).to_string();
            let selects = |matchers: &Vec<Matcher>| matchers.iter().all(|matcher| *matcher.value == *id);
            if !erased.selectors.iter().any(selects) {
                continue;
            }
            for (time_ms, sample) in samples.iter_mut() {
                if erased.range.contains(unit.from_ms(*time_ms)) {
                    sample.take(number, end);
                }
            }
        }
        Ok(())
    }

    /// Returns an error if a sample was acknowledged and is in no record.
    pub(super) fn check_acknowledged(&self) -> Result<(), String> {
        for store in &self.stores {
            let is_lost = |sample: &Sample| {
                sample.is_acknowledged && sample.place.is_none() && sample.taken_by.is_none()
            };
            let lost = store.samples().find(|(_, _, sample)| is_lost(sample));
            if let Some((series, time, _)) = lost {
                return Err(format!("series {series} at {time} was acknowledged, and no record has it"));
            }
        }
        Ok(())
    }
}

/// Returns the number of a series.
pub(super) fn series_of(labels: &Labels) -> Option<usize> {
    labels.get("id")?.parse().ok()
}
