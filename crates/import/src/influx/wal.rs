//! WAL segment of a shard: entries of a type byte, a length and a snappy block each.
//!
//! A write has, per key, a type, the key and its points. A deletion has keys, and its first and last time.
//! Invariants: entries come in order of writing; a damaged entry is reported, and reading goes on after it if
//! its length is plausible. Entries have no checksum: damage that leaves a valid snappy block is not seen.
//! Not here: the order of segments (`source`), the effect of deletions (`wal_points`).

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::WordKind;
use chronolith_model::kind::{word_of_integer, word_of_unsigned};

use super::fault::{invalid, shifted};
use super::snappy;

const TYPE_WRITE: u8 = 1;
const TYPE_DELETE: u8 = 2;
const TYPE_DELETE_RANGE: u8 = 3;

/// Part of an entry.
pub(crate) enum WalItem<'a> {
    /// Points of one key.
    Points(KeyPoints<'a>),
    /// Deletion of a key's earlier points with times from `first` to `last`.
    Delete { key: &'a [u8], first: i64, last: i64 },
}

/// Points of one key in a write.
#[derive(Clone, Copy)]
pub(crate) struct KeyPoints<'a> {
    pub(super) key: &'a [u8],
    pub(super) kind: WordKind,
    count: u32,
    points: &'a [u8],
}

/// Value of a point.
pub(crate) enum WalValue<'a> {
    Word(f64),
    Text(&'a [u8]),
}

/// Damage of a segment.
pub(crate) struct WalDamage {
    pub(super) error: DecodeError,
    /// Set if nothing after it can be read.
    pub(super) is_end: bool,
}

/// Calls `visit` with the items of a segment in order, and `damaged` with damage. Items of an entry before
/// its damage are visited.
pub(crate) fn for_each(
    segment: &[u8],
    visit: &mut dyn FnMut(&WalItem<'_>),
    damaged: &mut dyn FnMut(WalDamage),
) {
    let mut r = ByteReader::new(segment);
    while !r.is_empty() {
        let offset = r.offset();
        match next_entry(&mut r) {
            Ok((entry_type, compressed)) => {
                if let Err(error) = read_entry(entry_type, compressed, visit) {
                    damaged(WalDamage { error: at(error, offset), is_end: false });
                }
            }
            Err(error) => {
                damaged(WalDamage { error, is_end: true });
                return;
            }
        }
    }
}

/// Returns the error with the offset of its entry: offsets in the payload are not offsets in the file.
fn at(error: DecodeError, offset: usize) -> DecodeError {
    let inner = error.offset();
    shifted(error, offset.wrapping_sub(inner))
}

fn next_entry<'a>(r: &mut ByteReader<'a>) -> Result<(u8, &'a [u8]), DecodeError> {
    let offset = r.offset();
    let entry_type = r.u8("type of a WAL entry")?;
    if !(TYPE_WRITE..=TYPE_DELETE_RANGE).contains(&entry_type) {
        return Err(invalid("type of a WAL entry", offset, "1 to 3", u64::from(entry_type)));
    }
    let len = r.be_u32("length of a WAL entry")?;
    Ok((entry_type, r.bytes("WAL entry", len as usize)?))
}

fn read_entry(
    entry_type: u8,
    compressed: &[u8],
    visit: &mut dyn FnMut(&WalItem<'_>),
) -> Result<(), DecodeError> {
    let plain = snappy::decompress(compressed, "WAL entry")?;
    let mut r = ByteReader::new(&plain);
    match entry_type {
        TYPE_WRITE => {
            while !r.is_empty() {
                visit(&WalItem::Points(key_points(&mut r)?));
            }
        }
        TYPE_DELETE => {
            for key in plain.split(|&byte| byte == b'\n').filter(|key| !key.is_empty()) {
                visit(&WalItem::Delete { key, first: i64::MIN, last: i64::MAX });
            }
        }
        _ => {
            let first = r.be_u64("first deleted time")? as i64;
            let last = r.be_u64("last deleted time")? as i64;
            while !r.is_empty() {
                let len = r.be_u32("length of a deleted key")?;
                visit(&WalItem::Delete { key: r.bytes("deleted key", len as usize)?, first, last });
            }
        }
    }
    Ok(())
}

fn kind_of(value_type: u8) -> Option<WordKind> {
    match value_type {
        1 => Some(WordKind::Float),
        2 => Some(WordKind::Integer),
        3 => Some(WordKind::Boolean),
        4 => Some(WordKind::Text),
        5 => Some(WordKind::Unsigned),
        _ => None,
    }
}

/// Reads the points of a key and checks their lengths.
fn key_points<'a>(r: &mut ByteReader<'a>) -> Result<KeyPoints<'a>, DecodeError> {
    let offset = r.offset();
    let value_type = r.u8("type of WAL values")?;
    let Some(kind) = kind_of(value_type) else {
        return Err(invalid("type of WAL values", offset, "1 to 5", u64::from(value_type)));
    };
    let key_bytes = r.be_u16("length of a WAL key")?;
    let key = r.bytes("WAL key", usize::from(key_bytes))?;
    let count = r.be_u32("count of WAL values")?;
    let mut rest = r.clone();
    let remaining = rest.bytes("WAL values", rest.remaining())?;
    let start = r.offset();
    for _ in 0..count {
        read_value(r, kind)?;
    }
    let points = remaining.get(..r.offset() - start).unwrap_or_default();
    Ok(KeyPoints { key, kind, count, points })
}

fn read_value<'a>(r: &mut ByteReader<'a>, kind: WordKind) -> Result<(i64, WalValue<'a>), DecodeError> {
    let time = r.be_u64("time of a WAL value")? as i64;
    let word = match kind {
        WordKind::Float => r.be_u64("WAL value")?,
        WordKind::Integer => word_of_integer(r.be_u64("WAL value")? as i64),
        WordKind::Unsigned => word_of_unsigned(r.be_u64("WAL value")?),
        WordKind::Boolean => f64::from(u8::from(r.u8("WAL value")? == 1)).to_bits(),
        WordKind::Text => {
            let len = r.be_u32("length of a WAL text")?;
            return Ok((time, WalValue::Text(r.bytes("WAL text", len as usize)?)));
        }
    };
    Ok((time, WalValue::Word(f64::from_bits(word))))
}

impl<'a> KeyPoints<'a> {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the points.
    pub(crate) fn byte_count(&self) -> usize {
        self.points.len()
    }

    /// Times and values as written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, WalValue<'a>)> {
        let mut r = ByteReader::new(self.points);
        let kind = self.kind;
        (0..self.count).map_while(move |_| read_value(&mut r, kind).ok())
    }
}

#[cfg(test)]
mod tests;
