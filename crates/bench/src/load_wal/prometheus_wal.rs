//! Writes a Prometheus data directory: log segments of snappy records, m-mapped chunks. Our own writer, so
//! that the benchmark needs no Prometheus.
//! Invariants: Prometheus 2.42 finds every sample in it (counted by hand, see BENCHMARKS.md).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;

const PAGE_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
const SEGMENT_BYTES: usize = 128 << 20;
const FLAG_SNAPPY: u8 = 8;
const RECORD_SERIES: u8 = 1;
const RECORD_SAMPLES: u8 = 2;

/// A log being written.
pub(crate) struct WalWriter {
    dir: PathBuf,
    file: BufWriter<File>,
    segment: usize,
    /// Bytes in the segment.
    position: usize,
    snappy: snap::raw::Encoder,
    record: Vec<u8>,
    packed: Vec<u8>,
}

impl WalWriter {
    /// Starts the log in `dir/wal`.
    pub(crate) fn create(dir: &Path) -> Result<WalWriter> {
        let dir = dir.join("wal");
        std::fs::create_dir_all(&dir)?;
        let file = segment_file(&dir, 0)?;
        let record = Vec::new();
        let packed = Vec::new();
        Ok(WalWriter {
            dir,
            file,
            segment: 0,
            position: 0,
            snappy: snap::raw::Encoder::new(),
            record,
            packed,
        })
    }

    /// Appends one record of series: ref and labels, sorted by name.
    pub(crate) fn series<'a, L>(&mut self, series: impl Iterator<Item = (u64, L)>) -> Result<()>
    where
        L: AsRef<[(&'a str, String)]>,
    {
        self.record.clear();
        self.record.push(RECORD_SERIES);
        for (series_ref, labels) in series {
            self.record.extend_from_slice(&series_ref.to_be_bytes());
            put_uvarint(&mut self.record, labels.as_ref().len() as u64);
            for (name, value) in labels.as_ref() {
                for text in [*name, value.as_str()] {
                    put_uvarint(&mut self.record, text.len() as u64);
                    self.record.extend_from_slice(text.as_bytes());
                }
            }
        }
        self.write()
    }

    /// Appends one record of samples: ref, time, value.
    pub(crate) fn samples(&mut self, mut samples: impl Iterator<Item = (u64, i64, f64)>) -> Result<()> {
        let Some((base_ref, base_time, value)) = samples.next() else { return Ok(()) };
        self.record.clear();
        self.record.push(RECORD_SAMPLES);
        self.record.extend_from_slice(&base_ref.to_be_bytes());
        self.record.extend_from_slice(&base_time.to_be_bytes());
        self.record.extend_from_slice(&[0, 0]);
        self.record.extend_from_slice(&value.to_bits().to_be_bytes());
        for (series_ref, time, value) in samples {
            put_varint(&mut self.record, series_ref.wrapping_sub(base_ref).cast_signed());
            put_varint(&mut self.record, time - base_time);
            self.record.extend_from_slice(&value.to_bits().to_be_bytes());
        }
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.packed.resize(snap::raw::max_compress_len(self.record.len()), 0);
        let len = self.snappy.compress(&self.record, &mut self.packed)?;
        // Records do not span segments; headers add less than one part in a thousand.
        if self.position + len + len / 1000 + PAGE_BYTES > SEGMENT_BYTES {
            self.pad()?;
            self.segment += 1;
            self.file.flush()?;
            self.file = segment_file(&self.dir, self.segment)?;
            self.position = 0;
        }
        let mut start = 0;
        while start < len || start == 0 {
            if PAGE_BYTES - self.position % PAGE_BYTES <= HEADER_BYTES {
                self.pad()?;
            }
            let room = PAGE_BYTES - self.position % PAGE_BYTES - HEADER_BYTES;
            let end = len.min(start + room);
            let kind = match (start == 0, end == len) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            let part = &self.packed[start..end];
            self.file.write_all(&[kind | FLAG_SNAPPY])?;
            self.file.write_all(&(part.len() as u16).to_be_bytes())?;
            self.file.write_all(&crc32c(part).to_be_bytes())?;
            self.file.write_all(part)?;
            self.position += HEADER_BYTES + part.len();
            start = end;
        }
        Ok(())
    }

    /// Zeros up to the end of the page.
    fn pad(&mut self) -> Result<()> {
        let rest = self.position.next_multiple_of(PAGE_BYTES) - self.position;
        self.file.write_all(&[0; PAGE_BYTES][..rest])?;
        self.position += rest;
        Ok(())
    }

    /// Ends the log.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.pad()?;
        self.file.flush()?;
        Ok(())
    }
}

fn segment_file(dir: &Path, segment: usize) -> Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(1 << 20, File::create(dir.join(format!("{segment:08}")))?))
}

/// Writes one file of m-mapped chunks: ref, first time, last time, XOR bytes.
pub(crate) fn write_head_chunks(
    dir: &Path,
    chunks: impl Iterator<Item = (u64, i64, i64, Vec<u8>)>,
) -> Result<()> {
    let dir = dir.join("chunks_head");
    std::fs::create_dir_all(&dir)?;
    let mut file = BufWriter::new(File::create(dir.join("000001"))?);
    file.write_all(&[0x01, 0x30, 0xbc, 0x91, 1, 0, 0, 0])?;
    let mut bytes = Vec::new();
    for (series_ref, first, last, data) in chunks {
        bytes.clear();
        bytes.extend_from_slice(&series_ref.to_be_bytes());
        bytes.extend_from_slice(&first.to_be_bytes());
        bytes.extend_from_slice(&last.to_be_bytes());
        bytes.push(1);
        put_uvarint(&mut bytes, data.len() as u64);
        bytes.extend_from_slice(&data);
        let sum = crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_be_bytes());
        file.write_all(&bytes)?;
    }
    file.flush()?;
    Ok(())
}
