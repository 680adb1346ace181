//! Labels that the server adds to each series of a batch, whatever its protocol.
//!
//! Invariant: an added label replaces one that was sent under its name. The wire key of a series with added
//! labels has them, so series of senders with different labels are different, and a known series is still
//! found by its bytes alone.
//! Not here: whose labels they are (`service::access`).

use chronolith_model::{BatchSeries, LabelSource, LabelsBuilder, Reject, SeriesKey, WriteBatch};

use crate::protocols::sent_keys;

/// Set in the number of a protocol whose keys have added labels.
const ADDED: u8 = 0x80;
/// Growth of the keys of a batch: beyond it, labels are large for series that small.
const GROWTH_MAX: usize = 8;
/// Growth that a batch of any size may have.
const GROWTH_BYTES_MIN: usize = 1 << 20;

/// Labels as bytes for the end of wire keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedLabels {
    /// `name NUL value NUL` each.
    pairs: Vec<u8>,
}

/// Labels cannot be added to a batch, because its keys would become too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "adding the labels of the sender takes {bytes} bytes, at most {bytes_max} are allowed for this request"
)]
pub struct AddedLabelsTooLarge {
    /// Bytes of all keys with their labels.
    pub bytes: usize,
    /// Limit.
    pub bytes_max: usize,
}

impl AddedLabels {
    /// Labels without NUL bytes; others are left out.
    pub fn new<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> AddedLabels {
        let mut pairs = Vec::new();
        let has_nul = |text: &str| text.as_bytes().contains(&0);
        for (name, value) in labels.into_iter().filter(|(name, value)| !has_nul(name) && !has_nul(value)) {
            pairs.extend_from_slice(name.as_bytes());
            pairs.push(0);
            pairs.extend_from_slice(value.as_bytes());
            pairs.push(0);
        }
        AddedLabels { pairs }
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds the labels to the series of `batch`, whose keys are copied. Returns the source of the batch
    /// before, which the caller restores when the batch is used again. Cost: one copy of the keys.
    ///
    /// # Errors
    /// [`AddedLabelsTooLarge`]: the batch is as it was.
    pub fn add_to(&self, batch: &mut WriteBatch) -> Result<LabelSource, AddedLabelsTooLarge> {
        let before = batch.source;
        if self.is_empty() {
            return Ok(before);
        }
        let tail_len = self.pairs.len() + TAIL_BYTES;
        let key_bytes = |series: &BatchSeries| series.raw.len() + tail_len;
        let bytes: usize = batch.series.iter().map(key_bytes).sum();
        let bytes_max = GROWTH_BYTES_MIN.max(GROWTH_MAX.saturating_mul(batch.raw.len()));
        let end = batch.raw.len().saturating_add(bytes);
        if bytes > bytes_max || u32::try_from(end).is_err() {
            return Err(AddedLabelsTooLarge { bytes, bytes_max });
        }
        batch.raw.reserve(bytes);
        let WriteBatch { raw, series, .. } = batch;
        for series in series {
            let start = raw.len() as u32;
            raw.extend_from_within(series.raw.start as usize..series.raw.end as usize);
            raw.extend_from_slice(&self.pairs);
            raw.extend_from_slice(&(self.pairs.len() as u32).to_le_bytes());
            raw.push(before.protocol);
            series.raw = start..raw.len() as u32;
            debug_assert!(series.raw.start < series.raw.end, "a key with labels has bytes");
        }
        batch.source = with_added(before);
        Ok(before)
    }
}

/// Returns the source of keys with added labels.
fn with_added(sent: LabelSource) -> LabelSource {
    LabelSource { protocol: sent.protocol | ADDED, parse: parse_labels, ..sent }
}

/// Returns the source of keys with or without added labels, by its number in [`LabelSource::protocol`].
#[must_use]
pub fn source_of(protocol: u8) -> Option<LabelSource> {
    let sent = sent_keys(protocol & !ADDED)?;
    Some(if protocol & ADDED == 0 { sent } else { with_added(sent) })
}

/// Length of the pairs and number of the protocol.
const TAIL_BYTES: usize = 4 + 1;

/// Parses a key with added labels.
fn parse_labels(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    let (sent, pairs, protocol) = split(key.raw).ok_or(Reject::BadReference)?;
    let source = sent_keys(protocol).ok_or(Reject::BadReference)?;
    (source.parse)(SeriesKey { raw: sent, ..key }, out)?;
    let mut texts = pairs.split(|byte| *byte == 0).map(std::str::from_utf8);
    while let (Some(Ok(name)), Some(Ok(value))) = (texts.next(), texts.next()) {
        out.set(name, value);
    }
    Ok(())
}

/// Splits a key into the key as sent, the added pairs and the number of its protocol.
fn split(raw: &[u8]) -> Option<(&[u8], &[u8], u8)> {
    let (&protocol, rest) = raw.split_last()?;
    let (rest, len) = rest.split_last_chunk::<4>()?;
    let at = rest.len().checked_sub(u32::from_le_bytes(*len) as usize)?;
    let (sent, pairs) = rest.split_at(at);
    Some((sent, pairs, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(batch: &WriteBatch, idx: usize) -> Result<Vec<(String, String)>, Reject> {
        let mut out = LabelsBuilder::new();
        let key = SeriesKey {
            raw: batch.raw_of(&batch.series[idx]),
            field: batch.field_of(idx),
            kind: batch.kind_of(idx),
        };
        (batch.source.parse)(key, &mut out)?;
        out.sort();
        Ok(out.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn plain(labels: &[&[(&str, &str)]]) -> WriteBatch {
        let mut batch = WriteBatch::from_labels();
        for pairs in labels {
            let mut builder = LabelsBuilder::new();
            pairs.iter().for_each(|(name, value)| builder.push(name, value));
            builder.sort();
            batch.push_labels(&builder.finish(), &[(1, 1.0)]);
        }
        batch
    }

    #[test]
    fn an_added_label_replaces_a_sent_one_in_each_series() {
        let mut batch = plain(&[&[("__name__", "a"), ("team", "x")], &[("__name__", "b")], &[("team", "y")]]);
        let added = AddedLabels::new([("team", "ops"), ("zone", "eu")]);
        let before = added.add_to(&mut batch).expect("small");
        assert_eq!(before.protocol, 0);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let ops = [pair("team", "ops"), pair("zone", "eu")];
        for (idx, name) in [(0, Some("a")), (1, Some("b")), (2, None)] {
            let name = name.map(|name| pair("__name__", name));
            let want: Vec<_> = name.into_iter().chain(ops.clone()).collect();
            assert_eq!(labels_of(&batch, idx), Ok(want), "series {idx}");
        }
    }

    #[test]
    fn keys_of_senders_with_other_labels_differ() {
        let raw_of = |value: &str| {
            let mut batch = plain(&[&[("__name__", "a")]]);
            AddedLabels::new([("team", value)]).add_to(&mut batch).expect("small");
            (batch.source.protocol, batch.raw_of(&batch.series[0]).to_vec())
        };
        assert_ne!(raw_of("x"), raw_of("y"));
        assert_eq!(raw_of("x"), raw_of("x"));
        assert_ne!(raw_of("x").0, 0);
    }

    #[test]
    fn no_labels_leave_the_batch_as_it_is() {
        let mut batch = plain(&[&[("__name__", "a")]]);
        let raw = batch.raw.clone();
        AddedLabels::default().add_to(&mut batch).expect("nothing to add");
        assert_eq!((batch.raw, batch.source.protocol), (raw, 0));
    }

    #[test]
    fn labels_that_are_large_for_many_small_series_are_refused() {
        let many = vec![&[("a", "b")][..]; 10_000];
        let mut batch = plain(&many);
        let value = "v".repeat(1_000);
        let refused = AddedLabels::new([("x", value.as_str())]).add_to(&mut batch).err().expect("too large");
        assert!(refused.bytes > refused.bytes_max, "{refused}");
        assert_eq!(batch.source.protocol, 0, "nothing is changed");
    }

    #[test]
    fn a_number_leads_to_the_source_of_a_batch() {
        let mut batch = plain(&[&[("__name__", "a")]]);
        AddedLabels::new([("team", "ops")]).add_to(&mut batch).expect("small");
        assert_eq!(batch.source.protocol, 0x80);
        let pairs = labels_of(&batch, 0);
        batch.source = source_of(batch.source.protocol).expect("a source");
        assert_eq!((batch.source.protocol, batch.source.is_typed), (0x80, true));
        assert_eq!(labels_of(&batch, 0), pairs);
        let number = |protocol| source_of(protocol).map(|source| (source.protocol, source.is_typed));
        assert_eq!(number(1), Some((1, false)));
        assert_eq!(number(0x84), Some((0x84, false)));
        assert_eq!((number(5), number(0x85), number(0xff)), (None, None, None));
    }

    #[test]
    fn any_bytes_are_refused_as_a_key() {
        for raw in [&[][..], &[1], &[0; 5], &[9, 0, 0, 0, 1], &[255; 20], &[0, 0, 0, 0, 200]] {
            let key = SeriesKey { raw, field: b"", kind: chronolith_model::WordKind::default() };
            let _ = parse_labels(key, &mut LabelsBuilder::new());
        }
        assert_eq!(split(b"abc\x02\x00\x00\x00\x07"), Some((&b"a"[..], &b"bc"[..], 7)));
        assert_eq!(split(b"abc\x04\x00\x00\x00\x07"), None);
    }
}
