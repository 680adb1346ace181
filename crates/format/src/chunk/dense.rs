//! Dense float chunk (private encoding byte 0x40): all times, then all values of a chunk, in blocks of 128.
//!
//! Invariants: any `f64` bits and any strictly ascending `i64` times round-trip, 1 to 65535 of them; the
//! decoder takes untrusted bytes, allocates for no more samples than a `u16` counts, and returns ascending
//! times or an error.
//! Not here: time of encoding (`head`, `block`), checksums (the container's).

mod block;
mod boolean;
mod column;
mod decimal;
mod entropy;
mod integers;
mod items;
mod packed;
mod plain;
mod scratch;
mod sequence;
mod starts;
mod texts;
mod times;
mod values;

pub use boolean::{ENCODING_BOOLEAN, decode_boolean, encode_boolean};
pub use column::{decode_column, encode_column};
pub use integers::{decode_integers, encode_integers, shared_times_offset_of_integers};
pub use packed::{
    ChunkTimes, ENCODING_INTEGERS, ENCODING_PACKED, ENCODING_TEXTS, PackedChunk, decode_packed,
    encode_packed, shared_times_offset,
};
pub use plain::{ENCODING_DENSE, decode, encode, sample_count, time_bounds};
pub use scratch::DenseScratch;
pub use sequence::SAMPLES_MAX;
pub use starts::{ENCODING_DENSE_STARTS, decode_starts, encode_starts, shared_times_offset_of_starts};
pub use texts::{TEXT_BYTES_MAX, decode_texts, encode_texts, shared_times_offset_of_texts};

#[cfg(test)]
mod tests;
