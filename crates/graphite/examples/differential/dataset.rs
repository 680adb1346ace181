//! The series of the differential: three steps, gaps, resets, tags, names with odd characters.
//!
//! Invariant: values depend on name and index alone.

use chronolith_graphite::storage::memory::{MemorySource, StoredSeries};

/// Time of the first value of most series.
pub(crate) const START: i64 = 1_700_000_000 - 1_700_000_000 % 300;
/// Seconds of data.
pub(crate) const LENGTH: i64 = 4 * 3600;

/// A series as both sides get it.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) start: i64,
    pub(crate) step: i64,
    pub(crate) values: Vec<Option<f64>>,
}

fn noise(seed: u64) -> f64 {
    let mixed = (seed.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Value of a kind of series at an index.
fn value(kind: u64, seed: u64, idx: u64) -> Option<f64> {
    let random = noise(seed * 1_000_003 + idx);
    match kind {
        0 => Some((random * 10_000.0).round() / 100.0),
        1 => (random > 0.3).then_some((random * 1000.0).round()),
        2 => Some(((idx % 97) * 13 + seed % 7) as f64),
        3 => Some(random * 20.0 - 10.0),
        4 => (idx / 20 % 3 != 1).then_some(random),
        5 => Some(((idx as f64) / 30.0).sin() * 50.0 + 50.0),
        6 => idx.is_multiple_of(5).then_some(1.0 + random),
        7 => None,
        8 => (idx == 300).then_some(42.0),
        9 => Some(0.0),
        10 => Some(random * 1e12),
        _ => Some(7.0),
    }
}

fn entry(name: &str, step: i64, kind: u64, seed: u64) -> Entry {
    let count = u64::try_from(LENGTH / step).unwrap_or(0);
    Entry {
        name: name.to_owned(),
        start: START,
        step,
        values: (0..count).map(|idx| value(kind, seed, idx)).collect(),
    }
}

/// All series.
pub(crate) fn dataset() -> Vec<Entry> {
    let mut entries = Vec::new();
    for (host, step) in [("web1", 10), ("web2", 10), ("web10", 10), ("db1", 60), ("db2", 300)] {
        for (metric, kind) in
            [("cpu.user", 0), ("cpu.idle", 5), ("mem.used", 1), ("net.bytes", 2), ("disk.util", 4)]
        {
            let seed = entries.len() as u64;
            entries.push(entry(&format!("servers.{host}.{metric}"), step, kind, seed));
        }
    }
    let special = [
        ("special.negative", 3),
        ("special.periodic", 6),
        ("special.empty", 7),
        ("special.single", 8),
        ("special.zero", 9),
        ("special.huge", 10),
        ("special.constant", 11),
        ("odd.a-b_c.x:y", 0),
        ("odd.123.45", 1),
        ("odd.a%b.#tag", 2),
        ("odd.true.none", 0),
        ("odd.UPPER.Case", 3),
        ("odd.k=v.x", 0),
    ];
    for (idx, (name, kind)) in special.into_iter().enumerate() {
        entries.push(entry(name, if idx % 3 == 2 { 60 } else { 10 }, kind, 100 + idx as u64));
    }
    for (idx, (dc, host)) in [("ams", "a"), ("ams", "b"), ("fra", "a"), ("fra", "c")].into_iter().enumerate()
    {
        for (metric, kind) in [("load", 0), ("requests", 2), ("free.bytes", 1)] {
            let step = if idx % 2 == 0 { 10 } else { 60 };
            entries.push(entry(&format!("{metric};dc={dc};host={host}"), step, kind, 200 + idx as u64));
        }
    }
    entries
}

/// The series as a source of the crate.
pub(crate) fn source(entries: &[Entry]) -> MemorySource {
    let mut source = MemorySource::default();
    for entry in entries {
        let values = entry.values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
        source.insert(&entry.name, StoredSeries { start: entry.start, step: entry.step, values });
    }
    source
}
