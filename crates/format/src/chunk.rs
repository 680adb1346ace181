//! Samples of one series as bytes: the encodings of chunks, which an encoding byte names (`kinds`).
//!
//! Not here: files of chunks (`block::chunks`, `head::sealed`).

pub mod decimal_delta;
pub mod dense;
pub mod histogram;
pub mod kinds;
mod raw;
pub mod starts;
pub mod xor;
pub mod xor2;

pub use raw::RawChunk;
