//! Smaller columns of a record: kinds of words, rules of reorder buffers, exemplars, metadata.
//!
//! Invariant: the layout has its own numbers for kinds and policies, whatever the order in `model`.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::batch::BatchExemplar;
use chronolith_model::reorder::Update;
use chronolith_model::{
    Exemplar, Labels, LabelsBuilder, MetadataEntry, MetricKind, ReorderRule, WordKind, WriteBatch,
};

use super::frame::invalid;
use crate::lists::{put_text, read_text};

const KINDS: [WordKind; 5] =
    [WordKind::Float, WordKind::Boolean, WordKind::Integer, WordKind::Unsigned, WordKind::Text];

const METRIC_KINDS: [MetricKind; 8] = [
    MetricKind::Unknown,
    MetricKind::Counter,
    MetricKind::Gauge,
    MetricKind::Histogram,
    MetricKind::GaugeHistogram,
    MetricKind::Summary,
    MetricKind::Info,
    MetricKind::StateSet,
];

/// Rules of a record: a reference is one more than the index of a rule, and has 16 bits in a batch.
const RULES_MAX: usize = u16::MAX as usize - 1;

/// Place of a value in the list of all, which is its byte.
fn place_of<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let place = all.iter().position(|one| one == value).expect("a list of all values");
    u8::try_from(place).expect("few values")
}

/// Byte of a kind of words.
pub(super) fn kind_number(kind: WordKind) -> u8 {
    place_of(&KINDS, &kind)
}

/// Reads a kind of words.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_kind(reader: &mut ByteReader<'_>) -> Result<WordKind, DecodeError> {
    let offset = reader.offset();
    let found = reader.u8("kind of values")?;
    let kind = KINDS.get(usize::from(found)).copied();
    kind.ok_or_else(|| invalid("kind of values", offset, "0 to 4", u64::from(found)))
}

/// Encoder of the rules of series: a rule stands where it is used first.
#[derive(Debug, Default)]
pub(super) struct RuleWriter {
    /// Per rule of the batch, one more than its index in the record, or 0.
    references: Vec<u64>,
    used_count: u64,
}

impl RuleWriter {
    /// Begins a record with rules of a batch that has `rule_count`.
    pub(super) fn begin(&mut self, rule_count: usize) {
        self.references.clear();
        self.references.resize(rule_count, 0);
        self.used_count = 0;
    }

    /// Appends the rule of a series.
    pub(super) fn put(&mut self, batch: &WriteBatch, series_idx: u32, out: &mut Vec<u8>) {
        let reference = batch.reordered.get(series_idx as usize).copied().unwrap_or(0);
        let rule_idx = usize::from(reference).checked_sub(1);
        let rule = rule_idx.and_then(|idx| batch.reorder_rules.get(idx).zip(self.references.get_mut(idx)));
        let Some((rule, known)) = rule else {
            out.push(0);
            return;
        };
        if *known != 0 {
            put_uvarint(out, *known);
            return;
        }
        self.used_count += 1;
        *known = self.used_count;
        put_uvarint(out, self.used_count);
        put_uvarint(out, rule.interval_ms());
        put_uvarint(out, rule.window_len() as u64);
        out.push(match rule.update() {
            Update::Allow => 0,
            Update::Disallow => 1,
        });
    }
}

/// Reads the rules of `count` series.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_rules(
    reader: &mut ByteReader<'_>,
    count: usize,
    batch: &mut WriteBatch,
) -> Result<(), DecodeError> {
    let what = "reorder rule";
    for _ in 0..count {
        let offset = reader.offset();
        let found = reader.uvarint(what)?;
        let rule_count = batch.reorder_rules.len();
        let reference =
            usize::try_from(found).ok().filter(|&found| found <= rule_count + 1 && found <= RULES_MAX);
        let Some(reference) = reference else {
            return Err(invalid(what, offset, "a rule before or the next one", found));
        };
        if reference == rule_count + 1 {
            batch.reorder_rules.push(read_rule(reader)?);
        }
        batch.reordered.push(reference as u16);
    }
    Ok(())
}

fn read_rule(reader: &mut ByteReader<'_>) -> Result<ReorderRule, DecodeError> {
    let what = "reorder rule";
    let offset = reader.offset();
    let interval_ms = reader.uvarint(what)?;
    let window_len = usize::try_from(reader.uvarint(what)?).unwrap_or(usize::MAX);
    let update = match reader.u8(what)? {
        0 => Update::Allow,
        1 => Update::Disallow,
        other => return Err(invalid(what, offset, "an update policy of 0 or 1", u64::from(other))),
    };
    let rule = ReorderRule::new(interval_ms, window_len, update);
    rule.map_err(|_| invalid(what, offset, "an interval that fits a window", interval_ms))
}

/// Upper bound of the bytes of an exemplar.
pub(super) fn exemplar_bytes_max(exemplar: &Exemplar) -> usize {
    let labels = exemplar.labels.iter();
    5 + 10 + 8 + 5 + labels.map(|(name, value)| 10 + name.len() + value.len()).sum::<usize>()
}

/// Appends an exemplar of the series with this index in the record.
pub(super) fn put_exemplar(series_idx: u64, exemplar: &Exemplar, out: &mut Vec<u8>) {
    put_uvarint(out, series_idx);
    put_varint(out, exemplar.time_ms);
    out.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
    put_uvarint(out, exemplar.labels.iter().count() as u64);
    for (name, value) in exemplar.labels.iter() {
        put_text(out, name);
        put_text(out, value);
    }
}

/// Reads an exemplar of one of `series_count` series.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_exemplar(
    reader: &mut ByteReader<'_>,
    series_count: usize,
) -> Result<BatchExemplar, DecodeError> {
    let offset = reader.offset();
    let found = reader.uvarint("series of an exemplar")?;
    let series_idx = u32::try_from(found).ok().filter(|&idx| (idx as usize) < series_count);
    let Some(series_idx) = series_idx else {
        return Err(invalid("series of an exemplar", offset, "a series of the record", found));
    };
    let time_ms = reader.varint("time of an exemplar")?;
    let value = f64::from_bits(reader.le_u64("value of an exemplar")?);
    let labels = read_labels(reader)?;
    Ok(BatchExemplar { series_idx, exemplar: Exemplar { labels, value, time_ms } })
}

fn read_labels(reader: &mut ByteReader<'_>) -> Result<Labels, DecodeError> {
    let offset = reader.offset();
    let count = reader.length("labels of an exemplar")?;
    let mut builder = LabelsBuilder::new();
    for _ in 0..count {
        let name = read_text(reader, "label of an exemplar")?;
        let value = read_text(reader, "label of an exemplar")?;
        builder.push(&name, &value);
    }
    // The encoder writes labels in the order of their names.
    if !builder.iter().is_sorted_by(|left, right| left.0 < right.0) {
        return Err(invalid("labels of an exemplar", offset, "ascending names", count as u64));
    }
    builder.sort();
    Ok(builder.finish())
}

/// Upper bound of the bytes of a metadata entry.
pub(super) fn metadata_bytes_max(entry: &MetadataEntry) -> usize {
    1 + 3 * 5 + entry.metric.len() + entry.help.len() + entry.unit.len()
}

/// Appends a metadata entry.
pub(crate) fn put_metadata(entry: &MetadataEntry, out: &mut Vec<u8>) {
    put_text(out, &entry.metric);
    out.push(place_of(&METRIC_KINDS, &entry.kind));
    put_text(out, &entry.help);
    put_text(out, &entry.unit);
}

/// Reads a metadata entry.
///
/// # Errors
/// [`DecodeError`].
pub(crate) fn read_metadata(reader: &mut ByteReader<'_>) -> Result<MetadataEntry, DecodeError> {
    let metric = read_text(reader, "metric of metadata")?;
    let offset = reader.offset();
    let found = reader.u8("type of a metric")?;
    let kind = METRIC_KINDS.get(usize::from(found)).copied();
    let kind = kind.ok_or_else(|| invalid("type of a metric", offset, "0 to 7", u64::from(found)))?;
    let help = read_text(reader, "help of a metric")?;
    Ok(MetadataEntry { metric, kind, help, unit: read_text(reader, "unit of a metric")? })
}
