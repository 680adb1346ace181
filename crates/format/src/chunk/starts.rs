//! Start times as a step function of time: runs "from this time on, the counter began then"
//! (`docs/chunk/starts.md`).
//!
//! Invariant: times of runs ascend strictly; before the first run, and in a run of start 0, they are unknown;
//! the decoder takes untrusted bytes and allocates in proportion to them.
//! Not here: choice of the samples (`head`, `block`), Prometheus's own codes for start times (`xor2`,
//! `histogram`), the encodings of chunks after runs (`kinds`, `dense`).

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::Columns;

/// Start of the counter of all samples from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRun {
    /// Milliseconds.
    pub time: i64,
    /// Milliseconds; 0 = unknown.
    pub start_ms: i64,
}

/// Fields of a run that are written as a difference to the run before.
#[derive(Default)]
struct Steps {
    time: i64,
    time_step: i64,
    /// Time minus start: the same from run to run where each sample counts from the one before.
    age: i64,
}

/// Appends runs to `out`.
///
/// # Panics
/// In debug builds, if times do not ascend.
pub fn encode(runs: &[StartRun], out: &mut Vec<u8>) {
    debug_assert!(runs.is_sorted_by(|a, b| a.time < b.time), "runs ascend");
    put_uvarint(out, runs.len() as u64);
    let mut before = Steps::default();
    for run in runs {
        let time_step = run.time.wrapping_sub(before.time);
        let age = run.time.wrapping_sub(run.start_ms);
        put_varint(out, time_step.wrapping_sub(before.time_step));
        put_varint(out, age.wrapping_sub(before.age));
        before = Steps { time: run.time, time_step, age };
    }
}

/// Appends the runs that `reader` is at to `out`.
///
/// # Errors
/// [`DecodeError`] if the bytes end early or times do not ascend.
pub fn decode(reader: &mut ByteReader<'_>, out: &mut Vec<StartRun>) -> Result<(), DecodeError> {
    // Every run has at least two bytes, so the count is bounded by the bytes.
    let count = reader.length("start run count")?;
    let mut before = Steps::default();
    for idx in 0..count {
        let offset = reader.offset();
        let time_step = before.time_step.wrapping_add(reader.varint("start run time")?);
        let time = before.time.wrapping_add(time_step);
        if idx > 0 && time <= before.time {
            let what = "start run time";
            let expected = "a time after the one before";
            return Err(DecodeError::Invalid { what, offset, expected, found: time.cast_unsigned() });
        }
        let age = before.age.wrapping_add(reader.varint("start run start")?);
        out.push(StartRun { time, start_ms: time.wrapping_sub(age) });
        before = Steps { time, time_step, age };
    }
    Ok(())
}

/// Start of the counter of a sample of `time`.
#[must_use]
pub fn start_at(runs: &[StartRun], time: i64) -> i64 {
    let next = runs.partition_point(|run| run.time <= time);
    runs.get(..next).and_then(<[StartRun]>::last).map_or(0, |run| run.start_ms)
}

/// Says of the samples from `first` on when their counters began.
pub fn fill(runs: &[StartRun], first: usize, columns: &mut Columns) {
    let times = columns.times.get(first..).unwrap_or(&[]);
    let Some(&earliest) = times.first() else { return };
    let next = runs.partition_point(|run| run.time <= earliest);
    let mut start_ms = runs.get(..next).and_then(<[StartRun]>::last).map_or(0, |run| run.start_ms);
    let mut rest = runs.get(next..).unwrap_or(&[]).iter().peekable();
    columns.start_times.truncate(first);
    for (idx, &time) in (first..).zip(times) {
        while let Some(run) = rest.next_if(|run| run.time <= time) {
            start_ms = run.start_ms;
        }
        if start_ms != 0 {
            columns.start_times.resize(idx, 0);
            columns.start_times.push(start_ms);
        }
    }
}

/// Appends the run-length encoding of `start_times` to `out`, for samples at `times`; a missing start time is
/// unknown. Appends nothing if no start is known.
pub fn runs_of(times: &[i64], start_times: &[i64], out: &mut Vec<StartRun>) {
    let mut current = 0;
    let known = start_times.iter().copied().chain(std::iter::repeat(0));
    for (&time, start_ms) in times.iter().zip(known) {
        if start_ms != current {
            out.push(StartRun { time, start_ms });
            current = start_ms;
        }
    }
}

/// Appends a chunk after the runs of its start times to `out`; both have its count.
///
/// # Panics
/// If the chunk has no count.
pub(super) fn put_chunk(runs: &[StartRun], encoding: u8, chunk: &[u8], out: &mut Vec<u8>) {
    let count = chunk.first_chunk::<2>().expect("a chunk begins with its count");
    let mut coded = Vec::new();
    encode(runs, &mut coded);
    out.extend_from_slice(count);
    put_uvarint(out, coded.len() as u64);
    out.extend_from_slice(&coded);
    out.push(encoding);
    out.extend_from_slice(chunk);
}

/// A chunk after the runs of its start times.
pub(super) struct ChunkWithStarts<'a> {
    pub(super) runs: Vec<StartRun>,
    /// Encoding byte of the chunk.
    pub(super) encoding: u8,
    pub(super) chunk: &'a [u8],
}

/// Splits the bytes of [`put_chunk`]; `what` names them in errors.
///
/// # Errors
/// [`DecodeError`] for bytes that are cut, bytes between runs and chunk, and two counts that differ.
pub(super) fn split_chunk<'a>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<ChunkWithStarts<'a>, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let count = reader.be_u16(what)?;
    let len = reader.length(what)?;
    let mut coded = ByteReader::new(reader.bytes(what, len)?);
    let mut runs = Vec::new();
    decode(&mut coded, &mut runs)?;
    if !coded.is_empty() {
        let offset = coded.offset();
        let found = coded.remaining() as u64;
        return Err(DecodeError::Invalid { what, offset, expected: "the end of its runs", found });
    }
    let offset = reader.offset();
    let encoding = reader.u8(what)?;
    let chunk = reader.bytes(what, reader.remaining())?;
    let chunk_count = ByteReader::new(chunk).be_u16(what)?;
    if chunk_count != count {
        let expected = "two counts that are equal";
        let found = u64::from(chunk_count);
        return Err(DecodeError::Invalid { what, offset, expected, found });
    }
    Ok(ChunkWithStarts { runs, encoding, chunk })
}

#[cfg(test)]
mod tests;
