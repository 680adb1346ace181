//! Bodies of remote write 1.0 into a database.
//!
//! Invariants: samples that InfluxDB cannot store are left out without an error, as 1.8 leaves them out.
//! Not here: protobuf, snappy and the names of measurements (`ingest`), the answer (`outcome`).

use axum::http::StatusCode;
use chronolith_base::ByteReader;
use chronolith_cluster::gateway::LogOffsets;
use chronolith_ingest::line_protocol::Refused;
use chronolith_ingest::remote_write::{self, DecodeError};
use chronolith_model::WriteBatch;
use chronolith_service::admission::WRITE_DECODED_FACTOR;
use chronolith_service::write::OnePiece;
use chronolith_service::write::destination::Destination;

use super::super::reply::InfluxError;
use super::outcome::{self, Counts};
use super::request::WriteRequest;
use crate::http::body::BodyBytes;
use crate::http::write::admit::WritePermits;
use crate::web::Web;

/// Returns the memory that a body takes beyond itself, by the size that it claims.
pub(super) fn memory_bytes(web: &Web, bytes: &[u8]) -> u64 {
    let claimed_bytes = ByteReader::new(bytes).uvarint("length of the decompressed body").unwrap_or(0);
    claimed_bytes
        .min(web.service.options.write.decompressed_bytes_max as u64)
        .saturating_mul(WRITE_DECODED_FACTOR)
}

/// Decodes, appends, counts. Blocks the thread until the samples are durable.
pub(super) fn store_body(
    web: &Web,
    destination: &Destination,
    request: &WriteRequest,
    mut body: BodyBytes,
    permits: WritePermits,
) -> Result<LogOffsets, InfluxError> {
    let WritePermits { write: _write, apply } = permits;
    web.service.writes.metrics.bytes_compressed.add(body.bytes.len() as u64);
    let earliest_ns = outcome::earliest_ns(request, web.service.env.clock.now_ms());
    let mut counts = Counts::default();
    let mut writing = web.service.writes.begin(destination, request.write_target()).of_request(&request.id);
    let mut decoder = OnePiece::new(|batch: &mut WriteBatch| {
        decode(web, &mut body, batch)?;
        counts.points = batch.times.len() as u64;
        counts.too_old = batch.times.iter().filter(|time| **time < earliest_ns).count() as u64;
        Ok(())
    });
    let applied = writing.apply(&web.service.writes.pools.remote_write, &mut decoder);
    drop(body);
    let _uncommitted = apply.into_uncommitted(writing.wal_bytes());
    applied.map_err(|failure| outcome::not_written(web, request, failure))?;
    outcome::answer(web, request, &Refused::default(), writing, counts)
}

fn decode(web: &Web, body: &mut BodyBytes, batch: &mut WriteBatch) -> Result<(), InfluxError> {
    let bytes_max = web.service.options.write.decompressed_bytes_max;
    let decoded = remote_write::decode(&body.bytes, bytes_max, &mut body.held, batch);
    decoded.map_err(|error| match error {
        DecodeError::TooLarge { .. } => {
            InfluxError::new(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large")
        }
        DecodeError::NoMemory(_) => InfluxError::no_memory(),
        error => InfluxError::bad_request(error),
    })?;
    web.service.writes.metrics.bytes_decompressed.add(batch.raw.len() as u64);
    let left_out = remote_write::into_measurements(batch);
    web.metrics.line_protocol.note_left_out(left_out);
    Ok(())
}
