//! The two kinds of counts and how a chunk follows them: integers by the change of their change, floats by
//! XOR.
//!
//! Invariant: integer buckets are written as differences to the bucket before, float buckets as they are.

use std::fmt::Debug;

use chronolith_base::DecodeError;
use chronolith_model::histogram::Count;

use super::bits::{BitReader, BitWriter, XorTrack};
use super::header::{ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM, ResetHeader};

/// A number that is followed from sample to sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntTrack {
    value: i64,
    delta: i64,
}

/// A kind of counts that chunks hold.
pub(super) trait ChunkCount: Count + Debug {
    /// Encoding byte of the chunk.
    const ENCODING: u8;
    /// Bits of a bucket in the first sample at least.
    const FIRST_BUCKET_BITS: usize;
    /// State of a number between samples.
    type Track: Copy + Debug;

    fn put_first(bits: &mut BitWriter, value: Self) -> Self::Track;
    fn put_first_bucket(bits: &mut BitWriter, value: Self, before: Self) -> Self::Track;
    fn put_next(bits: &mut BitWriter, track: &mut Self::Track, value: Self);
    fn put_next_bucket(bits: &mut BitWriter, track: &mut Self::Track, value: Self, before: Self);
    /// Writes the counts of a staleness marker, which counts nothing.
    fn put_stale(bits: &mut BitWriter, track: &mut Self::Track);

    fn get_first(reader: &mut BitReader<'_>) -> Result<Self::Track, DecodeError>;
    fn get_first_bucket(reader: &mut BitReader<'_>) -> Result<Self::Track, DecodeError>;
    fn get_next(reader: &mut BitReader<'_>, track: &mut Self::Track) -> Result<(), DecodeError>;

    /// The observations of the bucket of `track`.
    fn value(track: &Self::Track) -> Self;
    /// Observations of a bucket that follows one of `before`; `None` if that is negative.
    fn bucket(track: &Self::Track, before: Self) -> Option<Self>;

    /// The header of a chunk that is cut because its first sample does not fit the one before.
    fn cut_header(reason: ResetHeader) -> ResetHeader;
    /// The header of a chunk that follows a full one, for what would have been the reason of a cut.
    fn start_header(reason: ResetHeader) -> ResetHeader;
}

fn put_first_int(bits: &mut BitWriter, value: i64) -> IntTrack {
    bits.put_varbit_int(value);
    IntTrack { value, delta: 0 }
}

fn put_next_int(bits: &mut BitWriter, track: &mut IntTrack, value: i64) {
    let delta = value.wrapping_sub(track.value);
    bits.put_varbit_int(delta.wrapping_sub(track.delta));
    *track = IntTrack { value, delta };
}

impl ChunkCount for u64 {
    const ENCODING: u8 = ENCODING_HISTOGRAM;
    const FIRST_BUCKET_BITS: usize = 1;
    type Track = IntTrack;

    fn put_first(bits: &mut BitWriter, value: u64) -> IntTrack {
        bits.put_varbit_uint(value);
        IntTrack { value: value.cast_signed(), delta: 0 }
    }

    fn put_first_bucket(bits: &mut BitWriter, value: u64, before: u64) -> IntTrack {
        put_first_int(bits, value.wrapping_sub(before).cast_signed())
    }

    fn put_next(bits: &mut BitWriter, track: &mut IntTrack, value: u64) {
        put_next_int(bits, track, value.cast_signed());
    }

    fn put_next_bucket(bits: &mut BitWriter, track: &mut IntTrack, value: u64, before: u64) {
        put_next_int(bits, track, value.wrapping_sub(before).cast_signed());
    }

    fn put_stale(bits: &mut BitWriter, _: &mut IntTrack) {
        bits.put_varbit_int(0);
    }

    fn get_first(reader: &mut BitReader<'_>) -> Result<IntTrack, DecodeError> {
        Ok(IntTrack { value: reader.varbit_uint()?.cast_signed(), delta: 0 })
    }

    fn get_first_bucket(reader: &mut BitReader<'_>) -> Result<IntTrack, DecodeError> {
        Ok(IntTrack { value: reader.varbit_int()?, delta: 0 })
    }

    fn get_next(reader: &mut BitReader<'_>, track: &mut IntTrack) -> Result<(), DecodeError> {
        track.delta = track.delta.wrapping_add(reader.varbit_int()?);
        track.value = track.value.wrapping_add(track.delta);
        Ok(())
    }

    fn value(track: &IntTrack) -> u64 {
        track.value.cast_unsigned()
    }

    fn bucket(track: &IntTrack, before: u64) -> Option<u64> {
        before.checked_add_signed(track.value)
    }

    fn cut_header(reason: ResetHeader) -> ResetHeader {
        reason
    }

    fn start_header(reason: ResetHeader) -> ResetHeader {
        reason
    }
}

impl ChunkCount for f64 {
    const ENCODING: u8 = ENCODING_FLOAT_HISTOGRAM;
    const FIRST_BUCKET_BITS: usize = 64;
    type Track = XorTrack;

    fn put_first(bits: &mut BitWriter, value: f64) -> XorTrack {
        bits.put(value.to_bits(), 64);
        XorTrack::new(value.to_bits())
    }

    fn put_first_bucket(bits: &mut BitWriter, value: f64, _: f64) -> XorTrack {
        f64::put_first(bits, value)
    }

    fn put_next(bits: &mut BitWriter, track: &mut XorTrack, value: f64) {
        bits.put_xor(track, value.to_bits());
    }

    fn put_next_bucket(bits: &mut BitWriter, track: &mut XorTrack, value: f64, _: f64) {
        bits.put_xor(track, value.to_bits());
    }

    fn put_stale(bits: &mut BitWriter, track: &mut XorTrack) {
        bits.put_xor(track, 0);
    }

    fn get_first(reader: &mut BitReader<'_>) -> Result<XorTrack, DecodeError> {
        Ok(XorTrack::new(reader.bits(64)?))
    }

    fn get_first_bucket(reader: &mut BitReader<'_>) -> Result<XorTrack, DecodeError> {
        f64::get_first(reader)
    }

    fn get_next(reader: &mut BitReader<'_>, track: &mut XorTrack) -> Result<(), DecodeError> {
        reader.xor(track)
    }

    fn value(track: &XorTrack) -> f64 {
        f64::from_bits(track.bits)
    }

    fn bucket(track: &XorTrack, _: f64) -> Option<f64> {
        Some(f64::value(track))
    }

    // Float chunks of Prometheus distinguish fewer reasons than its integer chunks.
    fn cut_header(reason: ResetHeader) -> ResetHeader {
        if reason == ResetHeader::Reset { reason } else { ResetHeader::Unknown }
    }

    fn start_header(reason: ResetHeader) -> ResetHeader {
        if reason == ResetHeader::Reset { reason } else { ResetHeader::NotReset }
    }
}
