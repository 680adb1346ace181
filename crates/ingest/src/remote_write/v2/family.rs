//! Metadata that comes with every series, folded to one entry a metric family and request.
//! Invariants: an entry is made once for equal references; series of a classic histogram or summary name one
//! family.

use chronolith_base::hash::HashSet;
use chronolith_model::{METRIC_NAME, MetadataEntry, MetricKind};

use super::symbols::Symbols;
use super::unfolded::Unfolded;
use crate::remote_write::wire::{Cursor, VARINT};
use crate::remote_write::{DecodeError, METADATA_COUNT_MAX, Refused};

/// The metadata of one series: references to symbols.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct SeriesMetadata {
    pub(super) kind: MetricKind,
    help: u32,
    pub(super) unit: u32,
}

impl SeriesMetadata {
    pub(super) fn read(mut message: Cursor<'_>) -> Result<SeriesMetadata, DecodeError> {
        let mut out = SeriesMetadata::default();
        while !message.is_empty() {
            match message.tag()? {
                (1, VARINT) => out.kind = MetricKind::from_remote_write(message.varint()?),
                (3, VARINT) => out.help = message.varint_u32()?,
                (4, VARINT) => out.unit = message.varint_u32()?,
                (1 | 3 | 4, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            }
        }
        Ok(out)
    }

    /// Returns the fault of its references, in Prometheus's words.
    pub(super) fn fault(self, symbol_count: usize) -> Option<String> {
        let outside = |what: &str, idx: u32| {
            // Nothing is referred to by a sender that has no symbols at all.
            (idx != 0 && idx as usize >= symbol_count)
                .then(|| format!("metadata {what} {idx} outside of symbols table (size {symbol_count})"))
        };
        outside("unit_ref", self.unit).or_else(|| outside("help_ref", self.help))
    }

    fn says_nothing(self) -> bool {
        self == SeriesMetadata::default()
    }
}

/// Entries of a request.
#[derive(Default)]
pub(super) struct Families {
    /// Series of one family follow each other, so that the last one answers nearly always.
    last: Option<(u32, SeriesMetadata)>,
    seen: HashSet<(u32, SeriesMetadata)>,
}

impl Families {
    /// Keeps the metadata of a series whose labels are `refs`; both have been checked.
    pub(super) fn keep(
        &mut self,
        refs: &[u32],
        metadata: SeriesMetadata,
        symbols: &Symbols<'_>,
        unfolded: &mut Unfolded<'_>,
        out: &mut Vec<MetadataEntry>,
        refused: &mut Refused,
    ) -> Result<(), DecodeError> {
        if metadata.says_nothing() {
            return Ok(());
        }
        let pairs = refs.as_chunks::<2>().0;
        let is_name = |pair: &&[u32; 2]| symbols.get(pair[0]) == Some(METRIC_NAME.as_bytes());
        let Some(&[_, name]) = pairs.iter().find(is_name) else { return Ok(()) };
        let key = (name, metadata);
        if self.last == Some(key) {
            return Ok(());
        }
        self.last = Some(key);
        if !self.seen.insert(key) {
            return Ok(());
        }
        let bytes_of = |idx| symbols.get(idx).unwrap_or(b"");
        // A series whose name is not UTF-8 is refused when it is stored, and counted there.
        let Ok(name) = std::str::from_utf8(bytes_of(name)) else { return Ok(()) };
        let help = refused.metadata_text("help", bytes_of(metadata.help));
        let metric = family_of(name, metadata.kind);
        let unit = refused.metadata_text("unit", bytes_of(metadata.unit));
        let known = |last: &MetadataEntry| {
            last.metric == metric && last.kind == metadata.kind && last.help == help && last.unit == unit
        };
        // Buckets, sum and count of a classic histogram say the same one after the other.
        if out.last().is_some_and(known) {
            return Ok(());
        }
        if out.len() >= METADATA_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "metadata entries", limit: METADATA_COUNT_MAX });
        }
        unfolded.take(size_of::<MetadataEntry>() + metric.len() + help.len() + unit.len())?;
        out.push(MetadataEntry {
            metric: metric.to_owned(),
            kind: metadata.kind,
            help: help.to_owned(),
            unit: unit.to_owned(),
        });
        Ok(())
    }
}

/// The metric family that a series belongs to, as senders of remote write 1.0 name it.
pub(super) fn family_of(name: &str, kind: MetricKind) -> &str {
    let suffixes: &[&str] = match kind {
        MetricKind::Histogram => &["_bucket", "_sum", "_count"],
        MetricKind::GaugeHistogram => &["_bucket", "_gsum", "_gcount"],
        MetricKind::Summary => &["_sum", "_count"],
        _ => &[],
    };
    let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    stripped.filter(|family| !family.is_empty()).unwrap_or(name)
}
