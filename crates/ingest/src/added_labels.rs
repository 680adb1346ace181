//! Labels that the server adds to each series of a batch, whatever its protocol.
//!
//! Invariant: an added label replaces one that was sent under its name, unless [`Conflict`] is another. The
//! wire key of a series with added labels has them, so series of senders with different labels are
//! different, and a known series is still found by its bytes alone.
//! Not here: whose labels they are (`service::access`).

use chronolith_model::{BatchSeries, LabelSource, LabelsBuilder, Reject, SeriesKey, WriteBatch};

use crate::key_tail::{ADDED, CONFLICT_BITS, NESTED, split};
use crate::protocols::sent_keys;

pub use crate::key_tail::{AddedLabels, Conflict};

/// Tails of a key at most: labels of a request, of its sender, and room for more.
const TAIL_COUNT_MAX: usize = 4;
/// Growth of the keys of a batch: beyond it, labels are large for series that small.
const GROWTH_MAX: usize = 8;
/// Growth that a batch of any size may have.
const GROWTH_BYTES_MIN: usize = 1 << 20;

/// Prefix of sent labels that an added one renames.
const EXPORTED: &str = "exported_";

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
        let tail_len = self.tail_bytes();
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
            self.put_outer_tail(before.protocol, raw);
            series.raw = start..raw.len() as u32;
            debug_assert!(series.raw.start < series.raw.end, "a key with labels has bytes");
        }
        batch.source = with_added(before);
        Ok(before)
    }
}

/// Returns the source of keys that have a tail for each series, or of those as sent if no label is added.
#[must_use]
pub fn tailed_keys(sent: LabelSource, added: &AddedLabels) -> LabelSource {
    if added.is_empty() { sent } else { with_added(sent) }
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

/// Parses a key with added labels.
fn parse_labels(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    parse_tails(key, TAIL_COUNT_MAX, out)
}

/// Parses a key of at most `tail_count` tails, from the inner one outwards.
fn parse_tails(key: SeriesKey<'_>, tail_count: usize, out: &mut LabelsBuilder) -> Result<(), Reject> {
    let (sent, pairs, last) = split(key.raw).ok_or(Reject::BadReference)?;
    let inner = SeriesKey { raw: sent, ..key };
    match last & !CONFLICT_BITS {
        NESTED if tail_count > 1 => parse_tails(inner, tail_count - 1, out)?,
        protocol => {
            let source = sent_keys(protocol).ok_or(Reject::BadReference)?;
            (source.parse)(inner, out)?;
        }
    }
    let mut texts = pairs.split(|byte| *byte == 0).map(std::str::from_utf8);
    let mut renamed = Vec::new();
    while let (Some(Ok(name)), Some(Ok(value))) = (texts.next(), texts.next()) {
        match last & CONFLICT_BITS {
            conflict if conflict == Conflict::Replace as u8 => out.set(name, value),
            conflict if conflict == Conflict::KeepSent as u8 => {
                if out.get(name).is_none() {
                    out.set(name, value);
                }
            }
            conflict if conflict == Conflict::RenameSent as u8 => {
                let sent = out.get(name).filter(|sent| !sent.is_empty()).map(str::to_owned);
                renamed.extend(sent.map(|sent| (name, sent)));
                out.set(name, value);
            }
            _ => return Err(Reject::BadReference),
        }
    }
    rename(renamed, out);
    Ok(())
}

/// Sets sent labels under the first name with prefixes that is free, short names first, as Prometheus does.
fn rename(mut sent: Vec<(&str, String)>, out: &mut LabelsBuilder) {
    sent.sort_by_key(|(name, _)| name.len());
    for (name, value) in sent {
        let mut name = format!("{EXPORTED}{name}");
        while out.get(&name).is_some_and(|other| !other.is_empty()) {
            name.insert_str(0, EXPORTED);
        }
        out.set(&name, &value);
    }
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
    fn a_sent_label_is_kept_or_renamed() {
        let check = |conflict, sent: &[(&str, &str)], want: &[(&str, &str)]| {
            let mut batch = plain(&[]);
            let mut builder = LabelsBuilder::new();
            sent.iter().for_each(|(name, value)| builder.push(name, value));
            batch.push_labels(&builder.finish(), &[(1, 1.0)]);
            let added = AddedLabels::new([("job", "j"), ("instance", "i")]).with_conflict(conflict);
            added.add_to(&mut batch).expect("small");
            let want: Vec<_> = want.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(labels_of(&batch, 0), Ok(want), "{conflict:?}");
        };
        let sent = [("exported_job", "x"), ("job", "sent")];
        check(Conflict::KeepSent, &sent, &[("exported_job", "x"), ("instance", "i"), ("job", "sent")]);
        let renamed =
            [("exported_exported_job", "sent"), ("exported_job", "x"), ("instance", "i"), ("job", "j")];
        check(Conflict::RenameSent, &sent, &renamed);
        check(Conflict::Replace, &sent, &[("exported_job", "x"), ("instance", "i"), ("job", "j")]);
    }

    /// A push with labels in its request, by a sender with labels of its own: the second tail was made with a
    /// number that already had the bit of the first one, and no parser read it.
    #[test]
    fn labels_can_be_added_to_keys_with_added_labels() {
        let mut batch = plain(&[&[("__name__", "a"), ("job", "sent")]]);
        let first = AddedLabels::new([("job", "group"), ("instance", "i")]);
        let first = first.with_conflict(Conflict::RenameSent);
        first.add_to(&mut batch).expect("small");
        let before =
            AddedLabels::new([("team", "ops"), ("instance", "own")]).add_to(&mut batch).expect("small");
        assert_eq!((before.protocol, batch.source.protocol), (0x80, 0x80));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let want = [
            pair("__name__", "a"),
            pair("exported_job", "sent"),
            pair("instance", "own"),
            pair("job", "group"),
            pair("team", "ops"),
        ];
        assert_eq!(labels_of(&batch, 0), Ok(want.to_vec()));
        batch.source = source_of(batch.source.protocol).expect("a source");
        assert_eq!(labels_of(&batch, 0), Ok(want.to_vec()));
        for _ in 0..TAIL_COUNT_MAX {
            first.add_to(&mut batch).expect("small");
        }
        assert_eq!(labels_of(&batch, 0), Err(Reject::BadReference), "too many tails");
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
        assert_eq!((number(6), number(0x86), number(0xff)), (None, None, None));
    }

    #[test]
    fn any_bytes_are_refused_as_a_key() {
        for raw in [&[][..], &[1], &[0; 5], &[9, 0, 0, 0, 1], &[255; 20], &[0, 0, 0, 0, 200]] {
            let key = SeriesKey { raw, field: b"", kind: chronolith_model::WordKind::default() };
            let _ = parse_labels(key, &mut LabelsBuilder::new());
        }
    }
}
