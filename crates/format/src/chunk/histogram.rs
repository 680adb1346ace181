//! Prometheus's chunks of native histograms, bit for bit: integer counts (encoding 2) and float counts (3),
//! and the same with start times (5 and 6, `starts`).
//!
//! Invariants: a sequence of histograms becomes the chunks that Prometheus makes of it, re-coded where new
//! buckets appear, cut with the right header where a counter starts again; any valid histogram and any
//! ascending times round-trip; decoders take untrusted bytes, allocate in proportion to them, and read
//! exactly as many samples as the header counts.
//! Not here: the number of samples of a chunk (`head`), chunk files.

mod append;
mod appender;
pub(crate) mod bits;
mod counts;
mod decode;
mod header;
mod layout;
mod spread;
mod starts;
mod state;

#[cfg(test)]
mod tests;

pub use appender::{HistogramAppender, encode};
pub use decode::first_time;
pub use header::{ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM, HEADER_BYTES, ResetHeader, reset_header};
pub use starts::{ENCODING_FLOAT_HISTOGRAM_STARTS, ENCODING_HISTOGRAM_STARTS, decode, with_starts};
