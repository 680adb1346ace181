//! Content of the logs: series and samples, generated again the same way whenever they are needed, and their
//! checksum.
//! Invariants: the checksum does not depend on order, and covers labels, times and value bits.

use anyhow::Result;
use chronolith_model::Labels;

use crate::traffic::mix;

/// A number of samples and the sum of their hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(super) count: u64,
    /// Wrapping sum of a hash of each.
    pub(crate) sum: u64,
}

impl Checksum {
    /// Adds one sample of the series with this hash.
    #[inline]
    pub(crate) fn add(&mut self, series_hash: u64, time: i64, bits: u64) {
        self.count += 1;
        let mixed = mix(series_hash ^ mix(time.cast_unsigned() ^ mix(bits)));
        self.sum = self.sum.wrapping_add(mixed);
    }
}

/// Hash of a label set: FNV-1a over names and values.
pub(crate) fn series_hash<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    labels.flat_map(|(name, value)| [name, value]).fold(0xcbf2_9ce4_8422_2325, |hash, text| {
        let text = text.bytes().chain([0xff]);
        text.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    })
}

/// As [`series_hash`], of labels that were read back.
pub(crate) fn labels_hash(labels: &Labels) -> u64 {
    series_hash(labels.iter())
}

/// Labels of a series, sorted by name.
pub(crate) type LabelList = Vec<(&'static str, String)>;

/// The labels as pairs of texts.
pub(crate) fn texts<'a>(labels: &'a [(&str, String)]) -> impl Iterator<Item = (&'a str, &'a str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str()))
}

/// Callback for first series, time and values of each record.
pub(crate) type Visit<'a> = dyn FnMut(usize, i64, &[f64]) -> Result<()> + 'a;

/// Something that a log can be made of.
pub(crate) trait Content {
    /// Number of series.
    fn series_count(&self) -> usize;
    /// Labels of a series.
    fn labels(&self, series: usize) -> LabelList;
    /// Ref of a series in Prometheus's log.
    fn series_ref(&self, series: usize) -> u64;
    /// Series that go into one record.
    fn series_per_record(&self) -> usize;
    /// Calls `visit` with the samples of one record after the other: first series, time, values.
    fn for_each_record(&self, visit: &mut Visit<'_>) -> Result<()>;
}

/// Count and checksum of all samples of `content` for which `keep` holds.
pub(crate) fn checksum(content: &dyn Content, keep: impl Fn(i64) -> bool) -> Result<Checksum> {
    let hash = |series| series_hash(texts(&content.labels(series)));
    let hashes: Vec<u64> = (0..content.series_count()).map(hash).collect();
    let mut sum = Checksum::default();
    content.for_each_record(&mut |first, time, values| {
        if keep(time) {
            for (hash, value) in hashes[first..].iter().zip(values) {
                sum.add(*hash, time, value.to_bits());
            }
        }
        Ok(())
    })?;
    Ok(sum)
}
