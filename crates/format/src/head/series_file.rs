//! Definitions files: the series of all tenants with the raw bytes that named them, as frames that are only
//! appended.
//!
//! Invariants: frames have the format of the WAL, under the WAL's key; a payload of series stands alone (it
//! has its own dictionary of label pairs); readers take untrusted bytes and never panic. Layout:
//! `docs/head/series_file.md`.
//! Not here: schedule of extending and rewriting a file (`head`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::hash::HashMap;
use chronolith_base::{ByteReader, DecodeError};

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLDF";
/// Version of the layout.
pub const FILE_VERSION: u16 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 40;

/// Frame kind: series of one tenant.
pub const KIND_SERIES: u8 = 65;
/// Frame kind: wire keys, in order of arrival.
pub const KIND_RAW_KEYS: u8 = 66;
/// Frame kind: a round is complete, see [`Mark`].
pub const KIND_MARK: u8 = 67;

/// Bytes of a raw key and the series it names.
pub const RAW_KEY_BYTES: usize = 20;

/// Header of a series file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Ascends from file to file.
    pub generation: u64,
    /// Key of the log.
    pub key: u128,
    /// Returns true if a second file has the same bytes: without it one of them is lost.
    pub is_mirrored: bool,
}

impl FileHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0u8; FILE_HEADER_BYTES];
        out[..4].copy_from_slice(&FILE_MAGIC);
        out[4..6].copy_from_slice(&FILE_VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&u16::from(self.is_mirrored).to_le_bytes());
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[16..32].copy_from_slice(&self.key.to_le_bytes());
        let sum = crc32c(&out[..36]);
        out[36..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign, damaged or later-version bytes.
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, DecodeError> {
        let head = ByteReader::new(bytes).bytes("definitions header", FILE_HEADER_BYTES)?;
        let mut reader = ByteReader::new(head);
        let magic = reader.be_u32("definitions magic")?;
        if magic != u32::from_be_bytes(FILE_MAGIC) {
            let (what, found) = ("definitions magic", u64::from(magic));
            return Err(DecodeError::Invalid { what, offset: 0, expected: "CLDF", found });
        }
        let version = reader.le_u16("definitions version")?;
        let mirror_count = reader.le_u16("definitions mirrors")?;
        let generation = reader.le_u64("definitions generation")?;
        let (low, high) = (reader.le_u64("definitions key")?, reader.le_u64("definitions key")?);
        reader.bytes("definitions reserved", 4)?;
        let found = reader.le_u32("definitions checksum")?;
        let expected = crc32c(head.get(..36).unwrap_or(&[]));
        if found != expected {
            return Err(DecodeError::Checksum { what: "definitions header", offset: 36, expected, found });
        }
        if version != FILE_VERSION {
            let (what, found) = ("definitions version", u64::from(version));
            return Err(DecodeError::Invalid { what, offset: 4, expected: "1", found });
        }
        let key = u128::from(high) << 64 | u128::from(low);
        Ok(FileHeader { generation, key, is_mirrored: mirror_count > 0 })
    }
}

/// Ends a round: all definitions that the log queued up to `sequence` stand before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// Position in the log.
    pub sequence: u64,
    /// Lowest series id that was not given out when the round began.
    pub next_id: u32,
    /// Series in the file, dead ones included.
    pub series_count: u64,
}

impl Mark {
    /// Writes the payload over `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.next_id.to_le_bytes());
        out.extend_from_slice(&self.series_count.to_le_bytes());
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode(payload: &[u8]) -> Result<Mark, DecodeError> {
        let mut reader = ByteReader::new(payload);
        Ok(Mark {
            sequence: reader.le_u64("mark sequence")?,
            next_id: reader.le_u32("mark next id")?,
            series_count: reader.le_u64("mark series")?,
        })
    }
}

/// Appends one raw key and the series it names.
pub fn encode_raw_key(hash: u128, id: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&hash.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
}

/// The wire keys of a payload; a cut last one is left out (the frame's checksum has been checked).
pub fn raw_keys(payload: &[u8]) -> impl Iterator<Item = (u128, u32)> {
    payload.as_chunks::<RAW_KEY_BYTES>().0.iter().map(|key| {
        let (hash, id) = key.split_at(16);
        let hash = hash.first_chunk().map_or(0, |b| u128::from_le_bytes(*b));
        (hash, id.first_chunk().map_or(u32::MAX, |b| u32::from_le_bytes(*b)))
    })
}

/// Collects the series of one payload.
#[derive(Default)]
pub struct SeriesWriter {
    names: Vec<u8>,
    name_count: u32,
    name_idx: HashMap<Box<str>, u32>,
    pairs: Vec<u8>,
    pair_count: u32,
    /// Number in the payload by the caller's number of the pair.
    pair_idx: HashMap<u32, u32>,
    series: Vec<u8>,
    series_count: u32,
    last_id: u32,
}

impl SeriesWriter {
    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len() + self.pairs.len() + self.series.len()
    }

    /// Returns true if there is no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series_count == 0
    }

    /// Series so far.
    #[must_use]
    pub fn series_count(&self) -> u32 {
        self.series_count
    }

    /// Adds a series. `pairs` are numbers that stay the same for the same pair as long as this payload is
    /// written; `text` gives name and value of one.
    ///
    /// # Panics
    /// If ids do not ascend.
    pub fn push<'a>(
        &mut self,
        id: u32,
        pairs: impl ExactSizeIterator<Item = u32>,
        text: impl Fn(u32) -> (&'a str, &'a str),
    ) {
        assert!(self.series_count == 0 || id > self.last_id, "series ids ascend");
        put_uvarint(&mut self.series, u64::from(id - self.last_id));
        put_uvarint(&mut self.series, pairs.len() as u64);
        self.last_id = id;
        self.series_count += 1;
        for pair in pairs {
            let idx = match self.pair_idx.get(&pair) {
                Some(&idx) => idx,
                None => self.add_pair(pair, text(pair)),
            };
            put_uvarint(&mut self.series, u64::from(idx));
        }
    }

    fn add_pair(&mut self, pair: u32, (name, value): (&str, &str)) -> u32 {
        let name_idx = match self.name_idx.get(name) {
            Some(&idx) => idx,
            None => {
                put_text(&mut self.names, name);
                self.name_idx.insert(name.into(), self.name_count);
                self.name_count += 1;
                self.name_count - 1
            }
        };
        put_uvarint(&mut self.pairs, u64::from(name_idx));
        put_text(&mut self.pairs, value);
        self.pair_idx.insert(pair, self.pair_count);
        self.pair_count += 1;
        self.pair_count - 1
    }

    /// Writes the payload of `tenant` over `out` and starts again.
    pub fn finish(&mut self, tenant: &str, out: &mut Vec<u8>) {
        out.clear();
        put_text(out, tenant);
        for (count, bytes) in [
            (self.name_count, &self.names),
            (self.pair_count, &self.pairs),
            (self.series_count, &self.series),
        ] {
            put_uvarint(out, u64::from(count));
            out.extend_from_slice(bytes);
        }
        *self = SeriesWriter::default();
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A decoded payload of series: its dictionary, then series one by one.
pub struct SeriesReader<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    /// Label names.
    pub names: Vec<&'a str>,
    /// Name (by its number) and value of each pair.
    pub pairs: Vec<(u32, &'a str)>,
    /// Series in the payload.
    pub series_count: usize,
    left: usize,
    last_id: u32,
    reader: ByteReader<'a>,
}

impl<'a> SeriesReader<'a> {
    /// Reads tenant and dictionary.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<SeriesReader<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "tenant")?;
        let count = reader.length("name count")?;
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push(text(&mut reader, "label name")?);
        }
        let count = reader.length("pair count")?;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = reader.offset();
            let name = reader.uvarint("pair name")?;
            if name >= names.len() as u64 {
                let expected = "a name of the payload";
                return Err(DecodeError::Invalid { what: "pair name", offset, expected, found: name });
            }
            pairs.push((name as u32, text(&mut reader, "label value")?));
        }
        let series_count = reader.length("series count")?;
        Ok(SeriesReader { tenant, names, pairs, series_count, left: series_count, last_id: 0, reader })
    }

    /// The next series; the numbers of its pairs replace those in `members`. `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn next(&mut self, members: &mut Vec<u32>) -> Result<Option<u32>, DecodeError> {
        members.clear();
        if self.left == 0 {
            return Ok(None);
        }
        let offset = self.reader.offset();
        let delta = self.reader.uvarint("series id")?;
        let id = u64::from(self.last_id).saturating_add(delta);
        let Some(id) = u32::try_from(id).ok().filter(|&id| id != u32::MAX) else {
            let expected = "an id of 32 bits";
            return Err(DecodeError::Invalid { what: "series id", offset, expected, found: delta });
        };
        for _ in 0..self.reader.length("label count")? {
            let offset = self.reader.offset();
            let pair = self.reader.uvarint("label pair")?;
            if pair >= self.pairs.len() as u64 {
                let expected = "a pair of the payload";
                return Err(DecodeError::Invalid { what: "label pair", offset, expected, found: pair });
            }
            members.push(pair as u32);
        }
        self.left -= 1;
        self.last_id = id;
        Ok(Some(id))
    }
}

fn text<'a>(reader: &mut ByteReader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
    let len = reader.length(what)?;
    let offset = reader.offset();
    let bytes = reader.bytes(what, len)?;
    std::str::from_utf8(bytes).map_err(|e| DecodeError::Invalid {
        what,
        offset,
        expected: "UTF-8",
        found: e.valid_up_to() as u64,
    })
}

#[cfg(test)]
mod tests;
