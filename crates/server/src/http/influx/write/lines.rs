//! Bodies in line protocol: parsed and appended piece by piece, and durable together.
//!
//! Invariants: the columns of a piece are within the memory that is reserved for the body; one wait for the
//! disk covers all pieces.
//! Not here: the line protocol (`ingest`), the answer (`outcome`).

use chronolith_base::Reservation;
use chronolith_cluster::gateway::LogOffsets;
use chronolith_ingest::line_protocol::{self, BodyPieces, DecodeOptions, memory_bytes as columns_of};
use chronolith_model::WriteBatch;
use chronolith_service::write::Decode;
use chronolith_service::write::destination::Destination;

use super::super::reply::InfluxError;
use super::outcome::{self, Counts};
use super::request::WriteRequest;
use crate::http::body::BodyBytes;
use crate::http::inflate::{claimed_bytes, inflate};
use crate::http::write::admit::WritePermits;
use crate::web::Web;

/// Returns the memory that a body takes beyond itself, by the size that it claims.
pub(super) fn memory_bytes(web: &Web, request: &WriteRequest, bytes: &[u8]) -> u64 {
    if !request.is_gzip {
        return columns_of(bytes.len());
    }
    let unpacked_bytes = claimed_bytes(bytes, web.service.options.write.decompressed_bytes_max);
    unpacked_bytes as u64 + columns_of(unpacked_bytes)
}

/// Parses, appends, counts. Blocks the thread until the points are durable.
pub(super) fn store_body(
    web: &Web,
    destination: &Destination,
    request: &WriteRequest,
    body: BodyBytes,
    permits: WritePermits,
) -> Result<LogOffsets, InfluxError> {
    let WritePermits { write: _write, apply } = permits;
    let metrics = &web.service.writes.metrics;
    metrics.bytes_compressed.add(body.bytes.len() as u64);
    let BodyBytes { bytes, mut held } = body;
    let bytes = match request.is_gzip {
        true => unpack(web, &bytes, &mut held)?,
        false => bytes,
    };
    metrics.bytes_decompressed.add(bytes.len() as u64);
    let now_ms = web.service.env.clock.now_ms();
    let mut lines = Lines {
        pieces: BodyPieces::new(bytes),
        options: decode_options(web, request, now_ms),
        held: &mut held,
        earliest_ns: outcome::earliest_ns(request, now_ms),
        counts: Counts::default(),
    };
    let mut writing = web.service.writes.begin(destination, request.write_target()).of_request(&request.id);
    let applied = writing.apply(&web.service.writes.pools.line_protocol, &mut lines);
    let counts = lines.counts;
    let refused = lines.pieces.into_refused();
    // Waiting for the disk needs no core.
    drop(held);
    let _uncommitted = apply.into_uncommitted(writing.wal_bytes());
    applied.map_err(|failure| outcome::not_written(web, request, failure))?;
    web.metrics.line_protocol.count(&refused);
    outcome::answer(web, request, &refused, writing, counts)
}

/// Unpacks a gzip body; `held` has memory for the size that it claims.
fn unpack(web: &Web, packed: &[u8], held: &mut Reservation) -> Result<Vec<u8>, InfluxError> {
    let bytes_max = web.service.options.write.decompressed_bytes_max;
    let claimed_bytes = claimed_bytes(packed, bytes_max);
    let bytes = inflate(packed, bytes_max, claimed_bytes, held)?;
    let more = columns_of(bytes.len()).saturating_sub(columns_of(claimed_bytes));
    held.grow(more).map_err(|_| InfluxError::no_memory())?;
    Ok(bytes)
}

fn decode_options(web: &Web, request: &WriteRequest, now_ms: i64) -> DecodeOptions {
    DecodeOptions {
        line_bytes_max: web.service.options.influx.line_bytes_max,
        text_bytes_max: web.service.options.influx.text_bytes_max,
        ..DecodeOptions::new(request.precision, now_ms.saturating_mul(1_000_000))
    }
}

/// Lines of a body, parsed piece by piece.
struct Lines<'a> {
    pieces: BodyPieces,
    options: DecodeOptions,
    held: &'a mut Reservation,
    /// Earliest time that the retention policy keeps.
    earliest_ns: i64,
    counts: Counts,
}

impl Decode for Lines<'_> {
    type Error = InfluxError;

    fn next_piece(&mut self, batch: &mut WriteBatch) -> Result<bool, InfluxError> {
        let next = self.pieces.next_piece(&self.options, self.held, batch);
        if !next.map_err(|_| InfluxError::no_memory())? {
            return Ok(false);
        }
        self.counts.points += line_protocol::point_count(batch);
        self.counts.too_old += outcome::points_before(batch, self.earliest_ns);
        Ok(true)
    }

    fn take_back(&mut self, batch: &mut WriteBatch) {
        self.pieces.take_back(batch);
    }
}
