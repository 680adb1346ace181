//! References to the labels of a series, and the bytes that they unfold to.
//! Invariants: the bytes equal remote write 1.0's; labels that the previous series has at the same position
//! are copied from it.

use super::limits::LABEL_REF_COUNT_MAX;
use super::symbols::Symbols;
use super::unfolded::Unfolded;
use crate::remote_write::wire::Cursor;
use crate::remote_write::{DecodeError, LABEL_SECTION_BYTES_MAX};
use chronolith_base::bytes::put_uvarint;

/// The labels of one series.
#[derive(Default)]
pub(super) struct LabelRefs {
    /// Numbers of symbols: name, value, name, value and so on.
    pub(super) refs: Vec<u32>,
    /// Offset of the first byte of the labels.
    start: usize,
    /// Offset after each label.
    ends: Vec<usize>,
}

impl LabelRefs {
    /// Prepares for the next series. A series without bytes of its own cannot be copied from.
    pub(super) fn clear(&mut self) {
        self.refs.clear();
        self.ends.clear();
    }

    pub(super) fn push(&mut self, idx: u32) -> Result<(), DecodeError> {
        if self.refs.len() >= LABEL_REF_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "label references", limit: LABEL_REF_COUNT_MAX });
        }
        self.refs.push(idx);
        Ok(())
    }

    pub(super) fn push_packed(&mut self, mut message: Cursor<'_>) -> Result<(), DecodeError> {
        // A number takes a byte at least, so that few bytes need no count of each.
        if self.refs.len() + message.rest().len() <= LABEL_REF_COUNT_MAX {
            message.skip_to(short_varints(message.rest(), &mut self.refs));
        }
        while !message.is_empty() {
            self.push(message.varint_u32()?)?;
        }
        Ok(())
    }

    /// Appends the labels to `raw`, up to the first bad reference; `last` are the labels of the previous
    /// series.
    ///
    /// PERF: what `last` has is copied in runs, not put together again: 223 -> 204 ns per series of ten
    /// labels.
    ///   cargo bench -p chronolith-ingest --bench decode_speed
    pub(super) fn unfold(
        &mut self,
        last: &LabelRefs,
        symbols: &Symbols<'_>,
        unfolded: &mut Unfolded<'_>,
        raw: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        self.start = raw.len();
        let pairs = self.refs.as_chunks::<2>().0;
        while let Some(&[name, value]) = pairs.get(self.ends.len()) {
            let at = self.ends.len();
            if let Some((from, ends)) = last.same_run(pairs, at) {
                let to = ends.last().copied().unwrap_or(from);
                unfolded.take(to - from)?;
                let here = raw.len();
                raw.extend_from_within(from..to);
                self.ends.extend(ends.iter().map(|end| end - from + here));
            } else {
                let (Some(name), Some(value)) = (symbols.get(name), symbols.get(value)) else { break };
                // Tag and length of label, name and value.
                unfolded.take(3 * (1 + 5) + name.len() + value.len())?;
                put_label(raw, name, value);
                self.ends.push(raw.len());
            }
            let section = raw.len() - self.start;
            if section > LABEL_SECTION_BYTES_MAX {
                let found = section as u64;
                let limit = LABEL_SECTION_BYTES_MAX as u64;
                return Err(DecodeError::TooLarge { what: "labels of one series", found, limit });
            }
        }
        Ok(())
    }

    /// Appends labels to the labels of the series and removes earlier labels of the same names. A label
    /// without a value is none.
    pub(super) fn put_over(
        &mut self,
        over: [(&[u8], &[u8]); 2],
        symbols: &Symbols<'_>,
        unfolded: &mut Unfolded<'_>,
        raw: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let is_over =
            |name: u32| symbols.get(name).is_some_and(|name| over.iter().any(|(over, _)| *over == name));
        let pairs = self.refs.as_chunks::<2>().0;
        if pairs.iter().any(|[name, _]| is_over(*name)) {
            let mut kept = Vec::with_capacity(raw.len() - self.start);
            let mut from = self.start;
            for ([name, _], &end) in pairs.iter().zip(&self.ends) {
                if !is_over(*name) {
                    kept.extend_from_slice(raw.get(from..end).unwrap_or(&[]));
                }
                from = end;
            }
            raw.truncate(self.start);
            raw.extend_from_slice(&kept);
            // The bytes are at other places than noted: the next series copies nothing of this one.
            self.clear();
        }
        for (name, value) in over.into_iter().filter(|(_, value)| !value.is_empty()) {
            unfolded.take(3 * (1 + 5) + name.len() + value.len())?;
            put_label(raw, name, value);
        }
        let section = raw.len() - self.start;
        if section > LABEL_SECTION_BYTES_MAX {
            let found = section as u64;
            let limit = LABEL_SECTION_BYTES_MAX as u64;
            return Err(DecodeError::TooLarge { what: "labels of one series", found, limit });
        }
        Ok(())
    }

    /// Offset of the cached labels that are equal from `at` on, and the end of each of them.
    fn same_run(&self, pairs: &[[u32; 2]], at: usize) -> Option<(usize, &[usize])> {
        let own = self.refs.as_chunks::<2>().0.get(at..)?;
        let other = pairs.get(at..)?;
        let same = own.iter().zip(other).take_while(|(a, b)| a == b).count();
        let ends = self.ends.get(at..)?;
        let ends = ends.get(..same.min(ends.len())).filter(|ends| !ends.is_empty())?;
        let from = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => self.start,
        };
        Some((from, ends))
    }
}

/// Appends numbers of at most two bytes until there is another; gives the bytes that are left.
fn short_varints<'a>(mut bytes: &'a [u8], out: &mut Vec<u32>) -> &'a [u8] {
    loop {
        match *bytes {
            [low, ref rest @ ..] if low < 0x80 => {
                out.push(u32::from(low));
                bytes = rest;
            }
            [low, high, ref rest @ ..] if high < 0x80 => {
                out.push(u32::from(low & 0x7f) | u32::from(high) << 7);
                bytes = rest;
            }
            _ => return bytes,
        }
    }
}

/// Appends a label as the senders of remote write 1.0 write it: empty text is left out.
///
/// PERF: inlined though it is called from two places: unfolding ten labels takes 1617 -> 1474 instructions.
///   cargo bench -p chronolith-ingest --bench decode_speed -- 2.0
#[inline(always)]
pub(crate) fn put_label(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0x0a);
    if let (1..=60, 1..=60) = (name.len(), value.len()) {
        // All lengths take one byte.
        let name_len = name.len() as u8;
        let value_len = value.len() as u8;
        out.extend_from_slice(&[name_len + value_len + 4, 0x0a, name_len]);
        out.extend_from_slice(name);
        out.extend_from_slice(&[0x12, value_len]);
        out.extend_from_slice(value);
        return;
    }
    let field_bytes = |text: &[u8]| match text.len() {
        0 => 0,
        len => 1 + (64 - (len as u64).leading_zeros()).div_ceil(7) as usize + len,
    };
    put_uvarint(out, (field_bytes(name) + field_bytes(value)) as u64);
    for (tag, text) in [(0x0a, name), (0x12, value)] {
        if !text.is_empty() {
            out.push(tag);
            put_uvarint(out, text.len() as u64);
            out.extend_from_slice(text);
        }
    }
}
