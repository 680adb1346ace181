//! Chunks that Prometheus's head has m-mapped: found by ref when the log says which series it is.
//!
//! Holds: a chunk is used once; damage ends its file and is reported. The log holds the samples of these chunks too
//! until Prometheus cuts a block, so what is lost here comes from there.

use std::path::PathBuf;

use chronolith_base::{Env, Mapped};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::{self, ENCODING_XOR};
use chronolith_format::chunk::xor2::{self, ENCODING_XOR2};
use chronolith_format::prometheus::head_chunks::HeadChunks;
use chronolith_model::{Columns, TimeRange};

use super::Gather;
use crate::report::ImportReport;

struct Place {
    series_ref: u64,
    file: u32,
    start: u32,
    len: u32,
    encoding: u8,
    out_of_order: bool,
    used: bool,
    times: (i64, i64),
}

/// All chunks of `chunks_head`.
#[derive(Default)]
pub(crate) struct MappedChunks {
    files: Vec<Mapped>,
    /// By ref; chunks of a ref in the order of the files.
    places: Vec<Place>,
    is_damaged: bool,
}

impl MappedChunks {
    /// Finds the chunks of `paths`.
    pub(crate) fn read(env: &Env, paths: &[PathBuf], report: &mut ImportReport) -> MappedChunks {
        let mut chunks = MappedChunks::default();
        let damages_before = report.damage_count();
        for path in paths {
            match env.disk.map(path) {
                Ok(bytes) => {
                    let file = chunks.files.len() as u32;
                    chunks.add_file(file, path, &bytes, report);
                    chunks.files.push(bytes);
                }
                Err(error) => report.damage(path, 0, error),
            }
        }
        chunks.is_damaged = report.damage_count() > damages_before;
        chunks.places.sort_by_key(|place| place.series_ref);
        chunks
    }

    fn add_file(&mut self, file: u32, path: &PathBuf, bytes: &[u8], report: &mut ImportReport) {
        // A file that was made and never written to is empty or zero.
        if bytes.iter().all(|&b| b == 0) {
            return;
        }
        let mut chunks = match HeadChunks::open(bytes) {
            Ok(chunks) => chunks,
            Err(error) => return report.damage(path, error.offset() as u64, error),
        };
        loop {
            match chunks.next_chunk() {
                Ok(Some(chunk)) => {
                    let start = chunk.bytes.as_ptr() as usize - bytes.as_ptr() as usize;
                    self.places.push(Place {
                        series_ref: chunk.series_ref,
                        file,
                        start: start as u32,
                        len: chunk.bytes.len() as u32,
                        encoding: chunk.encoding,
                        out_of_order: chunk.out_of_order,
                        used: false,
                        times: (chunk.min_time, chunk.max_time),
                    });
                }
                Ok(None) => return,
                Err(error) => return report.damage(path, error.offset() as u64, error),
            }
        }
    }

    /// Whether some of the chunks cannot be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Chunks whose series the log does not name.
    pub(crate) fn left_count(&self) -> u64 {
        self.places.iter().filter(|place| !place.used).count() as u64
    }
}

impl Gather {
    /// Appends what the chunks of `series_ref` hold.
    pub(super) fn take_mapped(&mut self, series_ref: u64, series: u32) {
        let start = self.chunks.places.partition_point(|place| place.series_ref < series_ref);
        let mut columns = Columns::default();
        for at in start..self.chunks.places.len() {
            let place = &mut self.chunks.places[at];
            if place.series_ref != series_ref {
                break;
            }
            if std::mem::replace(&mut place.used, true) {
                continue;
            }
            let (first, last) = place.times;
            let out_of_order = place.out_of_order;
            columns.clear();
            if self.decode(at, &mut columns) {
                self.append_mapped(series, out_of_order, &columns);
                if out_of_order {
                    continue;
                }
                self.map_until(series, last);
                if self.chunks.is_damaged() {
                    let ranges = self.covered.entry(series).or_default();
                    let at = ranges.partition_point(|range| *range < (first, last));
                    ranges.insert(at, (first, last));
                }
            }
        }
    }

    fn map_until(&mut self, series: u32, last: i64) {
        let at = series as usize;
        if at >= self.mapped_until.len() {
            self.mapped_until.resize(at + 1, i64::MIN);
        }
        self.mapped_until[at] = self.mapped_until[at].max(last);
    }

    fn decode(&mut self, at: usize, columns: &mut Columns) -> bool {
        let place = &self.chunks.places[at];
        let file = self.chunks.files.get(place.file as usize).map_or(&[][..], |file| file);
        let (start, len) = (place.start as usize, place.len as usize);
        let bytes = file.get(start..start + len).unwrap_or_default();
        let decoded = match place.encoding {
            ENCODING_XOR => xor::decode(bytes, TimeRange::ALL, columns).is_ok(),
            ENCODING_XOR2 => xor2::decode(bytes, TimeRange::ALL, columns).is_ok(),
            other if kinds::is_histogram(other) => {
                kinds::decode(other, bytes, TimeRange::ALL, columns).is_ok()
            }
            _ => false,
        };
        self.counts.unknown_chunks += u64::from(!decoded);
        // The log fills in what this chunk holds.
        self.chunks.is_damaged |= !decoded;
        decoded
    }

    fn append_mapped(&mut self, series: u32, out_of_order: bool, columns: &Columns) {
        if !columns.histograms.is_empty() {
            for (idx, histogram) in &columns.histograms {
                let at = *idx as usize;
                self.histogram(series, columns.times[at], histogram.clone(), columns.start_time_at(at));
            }
            return;
        }
        for (at, (&time, value)) in columns.times.iter().zip(&columns.values).enumerate() {
            let start_ms = columns.start_time_at(at);
            if out_of_order {
                self.push_late(series, time, value.to_bits(), start_ms);
            } else if time < self.min_time {
                self.counts.in_block_samples += 1;
            } else {
                self.append(series, time, value.to_bits(), start_ms);
            }
        }
    }
}
