//! Tombstone file of a TSM file: deleted times of its keys, in four versions.
//!
//! Version 1 is a key per line, deleted as a whole. From version 2 on, a magic number is followed by entries:
//! length and bytes of the key, first and last deleted time. Version 3 compresses them by gzip, version 4 has
//! one gzip member per deletion.
//! Invariants: memory holds at most [`TOMBSTONES_MAX`] ranges; after damage the entries before it are known,
//! except entries of the same gzip member.

use std::io::{self, BufRead, Read};

use chronolith_base::hash::HashMap;
use chronolith_format::block::tombstones::Interval;
use flate2::bufread::GzDecoder;

use super::key;

const VERSION_2: [u8; 4] = [0, 0, 0x15, 2];
const VERSION_3: [u8; 4] = [0, 0, 0x15, 3];
const VERSION_4: [u8; 4] = [0, 0, 0x15, 4];
/// Ranges of one file at most.
const TOMBSTONES_MAX: usize = 10_000_000;
/// The length of a key is 16 bits wide in TSM files.
const KEY_BYTES_MAX: usize = 1 << 16;

/// Deleted times by key.
#[derive(Debug, Default)]
pub(crate) struct KeyTombstones {
    by_key: HashMap<Box<[u8]>, Vec<Interval>>,
    count: usize,
}

impl KeyTombstones {
    /// Reads a tombstone file. An error comes with the entries before it.
    pub(crate) fn read(bytes: &[u8]) -> (KeyTombstones, Option<io::Error>) {
        let mut tombstones = KeyTombstones::default();
        let error = tombstones.read_all(bytes).err();
        (tombstones, error)
    }

    /// Deleted times of a key.
    pub(crate) fn of(&self, key: &[u8]) -> &[Interval] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    fn read_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (magic, mut rest) = bytes.split_at(bytes.len().min(VERSION_2.len()));
        if magic == VERSION_2 {
            return self.read_entries(&mut rest);
        }
        if magic == VERSION_3 {
            return self.read_member(&mut GzDecoder::new(rest));
        }
        if magic != VERSION_4 {
            return self.read_lines(bytes);
        }
        while !rest.fill_buf()?.is_empty() {
            let mut member = GzDecoder::new(rest);
            self.read_member(&mut member)?;
            rest = member.into_inner();
        }
        Ok(())
    }

    /// Reads a gzip member. Its checksum is at its end, so all of its entries count or none.
    fn read_member(&mut self, entries: &mut impl Read) -> io::Result<()> {
        let mut of_member = KeyTombstones { count: self.count, ..KeyTombstones::default() };
        of_member.read_entries(entries)?;
        for (key, intervals) in of_member.by_key {
            let of_key = self.by_key.entry(key).or_default();
            for interval in intervals {
                if !of_key.contains(&interval) {
                    of_key.push(interval);
                }
            }
        }
        self.count = of_member.count;
        Ok(())
    }

    fn read_lines(&mut self, bytes: &[u8]) -> io::Result<()> {
        for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            if key::split(line).is_none() {
                return Err(io::Error::other("neither a known version nor a list of keys"));
            }
            self.add(line, i64::MIN, i64::MAX)?;
        }
        Ok(())
    }

    fn read_entries(&mut self, entries: &mut impl Read) -> io::Result<()> {
        let mut key = Vec::new();
        let mut len = [0; 4];
        loop {
            match entries.read(len.get_mut(..1).unwrap_or_default())? {
                0 => return Ok(()),
                _ => entries.read_exact(len.get_mut(1..).unwrap_or_default())?,
            }
            let key_bytes = u32::from_be_bytes(len) as usize;
            if key_bytes > KEY_BYTES_MAX {
                return Err(io::Error::other(format!("a key of {key_bytes} bytes")));
            }
            key.resize(key_bytes, 0);
            entries.read_exact(&mut key)?;
            let first = read_time(entries)?;
            let last = read_time(entries)?;
            self.add(&key, first, last)?;
        }
    }

    fn add(&mut self, key: &[u8], first: i64, last: i64) -> io::Result<()> {
        self.count += 1;
        if self.count > TOMBSTONES_MAX {
            return Err(io::Error::other(format!("more than {TOMBSTONES_MAX} deletions")));
        }
        let interval = Interval { first, last };
        match self.by_key.get_mut(key) {
            Some(of_key) if of_key.contains(&interval) => {}
            Some(of_key) => of_key.push(interval),
            None => drop(self.by_key.insert(key.into(), vec![interval])),
        }
        Ok(())
    }
}

fn read_time(entries: &mut impl Read) -> io::Result<i64> {
    let mut bytes = [0; 8];
    entries.read_exact(&mut bytes)?;
    Ok(i64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests;
