//! Points of the WAL of a shard, by key and kind, as InfluxDB's cache has them after a start.
//!
//! Invariants: of two points of one time the later one counts; a deletion takes the points before it.
//! Memory: the keys, and the points of as many series as `point_bytes_max` allows: the segments are read
//! again for others.
//! Not here: bytes of a segment (`wal`), merging with TSM files (`shard`).

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_base::{Env, Mapped};
use chronolith_model::WordKind;

use super::encoding::BlockPoints;
use super::error::InfluxError;
use super::source::SourceFile;
use super::wal::{self, KeyPoints, WalDamage, WalItem, WalValue};

/// Bytes of a time and a word in memory, with room to grow.
const POINT_BYTES: u64 = 32;

/// A key of the WAL with values of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalKey {
    pub(super) key: Box<[u8]>,
    pub(super) kind: WordKind,
    pub(super) totals: WalTotals,
}

/// Points of a key as written, deleted and overwritten ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalTotals {
    pub(super) count: u64,
    pub(super) min_time: i64,
    pub(super) max_time: i64,
    /// Estimate of their memory.
    byte_count: u64,
}

impl WalTotals {
    const NONE: WalTotals = WalTotals { count: 0, min_time: i64::MAX, max_time: i64::MIN, byte_count: 0 };

    fn add(&mut self, points: &KeyPoints<'_>) {
        self.count += u64::from(points.count());
        self.byte_count += points.byte_count() as u64 + POINT_BYTES * u64::from(points.count());
        for (time, _) in points.iter() {
            self.min_time = self.min_time.min(time);
            self.max_time = self.max_time.max(time);
        }
    }
}

/// Indices of the kinds of a key.
type KeyIndices = HashMap<Box<[u8]>, Vec<u32>>;

/// Segments of a shard, their keys, and the points of some.
pub(crate) struct WalPoints {
    segments: Vec<Mapped>,
    /// By key, then kind.
    keys: Vec<WalKey>,
    by_key: KeyIndices,
    /// Points of loaded keys, by index of the key.
    loaded: HashMap<u32, BlockPoints>,
    point_bytes_max: u64,
}

/// Order of kinds of one key.
pub(crate) fn kind_order(kind: WordKind) -> u8 {
    match kind {
        WordKind::Float => 0,
        WordKind::Integer => 1,
        WordKind::Unsigned => 2,
        WordKind::Boolean => 3,
        WordKind::Text => 4,
    }
}

impl WalPoints {
    /// Opens the segments and reads their keys. `damaged` is called with the index of the segment.
    ///
    /// # Errors
    /// [`InfluxError::Io`].
    pub(crate) fn open(
        env: &Env,
        files: &[SourceFile],
        point_bytes_max: u64,
        damaged: &mut dyn FnMut(usize, WalDamage),
    ) -> Result<WalPoints, InfluxError> {
        let mut segments = Vec::with_capacity(files.len());
        for file in files {
            let mapped = if file.len == 0 { Ok(Mapped::from_slice(&[])) } else { env.disk.map(&file.path) };
            segments.push(mapped.map_err(|error| InfluxError::Io { path: file.path.clone(), error })?);
        }
        let mut totals: HashMap<Box<[u8]>, [WalTotals; 5]> = HashMap::default();
        for (idx, segment) in segments.iter().enumerate() {
            let mut visit = |item: &WalItem<'_>| {
                let WalItem::Points(points) = item else { return };
                if !totals.contains_key(points.key) {
                    totals.insert(points.key.into(), [WalTotals::NONE; 5]);
                }
                let of_kinds = totals.get_mut(points.key);
                let of_kind = of_kinds.and_then(|all| all.get_mut(usize::from(kind_order(points.kind))));
                of_kind.into_iter().for_each(|totals| totals.add(points));
            };
            wal::for_each(segment, &mut visit, &mut |damage| damaged(idx, damage));
        }
        let (keys, by_key) = sorted(totals);
        Ok(WalPoints { segments, keys, by_key, loaded: HashMap::default(), point_bytes_max })
    }

    /// Keys in order.
    pub(crate) fn keys(&self) -> &[WalKey] {
        &self.keys
    }

    /// Returns the points of a key, ascending by time, each time once. If they are not loaded, points of
    /// `next` are loaded with them until memory is full, and other points are dropped.
    pub(crate) fn of(&mut self, idx: u32, next: impl Iterator<Item = u32>) -> Option<&BlockPoints> {
        if !self.loaded.contains_key(&idx) {
            self.load(idx, next);
        }
        self.loaded.get(&idx)
    }

    fn load(&mut self, idx: u32, next: impl Iterator<Item = u32>) {
        self.loaded.clear();
        let mut byte_count = 0;
        for idx in std::iter::once(idx).chain(next) {
            let Some(key) = self.keys.get(idx as usize) else { continue };
            byte_count += key.totals.byte_count;
            if byte_count > self.point_bytes_max && !self.loaded.is_empty() {
                break;
            }
            self.loaded.insert(idx, BlockPoints::default());
        }
        let keys = &self.keys;
        let by_key = &self.by_key;
        let loaded = &mut self.loaded;
        for segment in &self.segments {
            // Damage was reported by the first pass.
            wal::for_each(segment, &mut |item| apply(keys, by_key, loaded, item), &mut |_| {});
        }
        self.loaded.values_mut().for_each(sort_last_wins);
    }
}

/// Returns the keys in order, and their indices by key.
fn sorted(totals: HashMap<Box<[u8]>, [WalTotals; 5]>) -> (Vec<WalKey>, KeyIndices) {
    let kinds = [WordKind::Float, WordKind::Integer, WordKind::Unsigned, WordKind::Boolean, WordKind::Text];
    let mut keys: Vec<WalKey> = Vec::with_capacity(totals.len());
    for (key, of_kinds) in totals {
        for (kind, totals) in kinds.into_iter().zip(of_kinds).filter(|(_, totals)| totals.count > 0) {
            keys.push(WalKey { key: key.clone(), kind, totals });
        }
    }
    keys.sort_by(|a, b| (&a.key, kind_order(a.kind)).cmp(&(&b.key, kind_order(b.kind))));
    let mut by_key: KeyIndices = HashMap::default();
    for (idx, key) in (0u32..).zip(&keys) {
        by_key.entry(key.key.clone()).or_default().push(idx);
    }
    (keys, by_key)
}

/// Applies an item to the loaded points.
fn apply(keys: &[WalKey], by_key: &KeyIndices, loaded: &mut HashMap<u32, BlockPoints>, item: &WalItem<'_>) {
    let key = match item {
        WalItem::Points(points) => points.key,
        WalItem::Delete { key, .. } => key,
    };
    for idx in by_key.get(key).into_iter().flatten() {
        let Some(of_key) = loaded.get_mut(idx) else { continue };
        match item {
            WalItem::Points(points) => {
                if keys.get(*idx as usize).is_some_and(|key| key.kind == points.kind) {
                    append(of_key, points);
                }
            }
            WalItem::Delete { first, last, .. } => delete(of_key, *first, *last),
        }
    }
}

fn append(of_key: &mut BlockPoints, points: &KeyPoints<'_>) {
    for (time, value) in points.iter() {
        of_key.times.push(time);
        match value {
            WalValue::Word(word) => of_key.words.push(word),
            WalValue::Text(text) => match of_key.texts.last().filter(|last| ***last == *text) {
                Some(last) => of_key.texts.push(Arc::clone(last)),
                None => of_key.texts.push(text.into()),
            },
        }
    }
}

fn delete(of_key: &mut BlockPoints, first: i64, last: i64) {
    let is_kept: Vec<bool> = of_key.times.iter().map(|time| !(first..=last).contains(time)).collect();
    retain(&mut of_key.times, &is_kept);
    retain(&mut of_key.words, &is_kept);
    retain(&mut of_key.texts, &is_kept);
}

fn retain<T>(column: &mut Vec<T>, is_kept: &[bool]) {
    let mut flags = is_kept.iter();
    column.retain(|_| flags.next().copied().unwrap_or(true));
}

/// Sorts points by time; of several of one time the last one stays.
fn sort_last_wins(points: &mut BlockPoints) {
    if points.times.is_sorted_by(|a, b| a < b) {
        return;
    }
    let mut order: Vec<usize> = (0..points.times.len()).collect();
    let times = &points.times;
    order.sort_by_key(|&at| times.get(at).copied());
    order.reverse();
    order.dedup_by_key(|at| times.get(*at).copied());
    order.reverse();
    points.words = order.iter().filter_map(|&at| points.words.get(at).copied()).collect();
    points.texts = order.iter().filter_map(|&at| points.texts.get(at).cloned()).collect();
    points.times = order.iter().filter_map(|&at| times.get(at).copied()).collect();
}
