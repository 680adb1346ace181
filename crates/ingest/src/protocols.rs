//! Numbers of protocols: which parser reads the wire keys of a batch that was stored or sent as bytes.
//!
//! Invariant: a number keeps its meaning. It is in series files, in the WAL and in records of the replicated
//! log, which readers of later versions read; a protocol that is dropped keeps its number and parser, and a
//! change of how keys are parsed is a new number.
//! Not here: keys with labels that the server added (`added_labels`), which have the number of their protocol
//! and a bit.

use chronolith_model::{LabelSource, WriteBatch};

use crate::{carbon, exposition, line_protocol, remote_write};

/// Returns the source of keys as a protocol sends them, by its number in [`LabelSource::protocol`].
#[must_use]
pub fn sent_keys(protocol: u8) -> Option<LabelSource> {
    // The numbers from 0x3f on have a meaning in keys with added labels.
    match protocol {
        0 => Some(WriteBatch::from_labels().source),
        1 => Some(remote_write::new_batch().source),
        2 => Some(line_protocol::new_batch().source),
        3 => Some(remote_write::MEASUREMENTS),
        4 => Some(carbon::new_batch().source),
        5 => Some(exposition::text_keys()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::{Labels, LabelsBuilder, SeriesKey, WordKind};

    use super::*;

    /// Numbers are in files and records: a change of this table reads the keys of one protocol with the
    /// parser of another one.
    #[test]
    fn each_number_reads_the_keys_of_its_protocol() {
        let check = |protocol: u8, raw: &[u8], field: &[u8], want: &str| {
            let source = sent_keys(protocol).expect("a protocol");
            assert_eq!(source.protocol, protocol);
            let mut builder = LabelsBuilder::new();
            let parsed = (source.parse)(SeriesKey { raw, field, kind: WordKind::Float }, &mut builder);
            assert_eq!(parsed, Ok(()), "{protocol}");
            builder.sort();
            assert_eq!(builder.finish().to_string(), want, "{protocol}");
        };
        let mut plain = WriteBatch::from_labels();
        plain.push_labels(&Labels::from_pairs([("__name__", "up"), ("job", "a")]), &[(0, 1.0)]);
        let remote = b"\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x08\x0a\x03job\x12\x01a";
        check(0, plain.raw_of(&plain.series[0]), b"", r#"up{job="a"}"#);
        check(1, remote, b"", r#"up{job="a"}"#);
        check(2, b"up,job=a", b"value", r#"up{__field__="value", job="a"}"#);
        check(3, remote, b"", r#"up{__field__="value", job="a"}"#);
        check(4, b"up;job=a", b"", r#"up{job="a"}"#);
        check(5, b"up{ job=\"b\"}\n{job=\"a\"}", b"", r#"up{job="a"}"#);
    }

    #[test]
    fn typed_protocols_may_have_reserved_labels() {
        let is_typed = |protocol| sent_keys(protocol).map(|source| source.is_typed);
        let typed = [0, 1, 2, 3, 4, 5].map(is_typed);
        assert_eq!(typed, [true, false, true, true, false, false].map(Some));
        assert!((6..=u8::MAX).all(|protocol| sent_keys(protocol).is_none()));
    }
}
