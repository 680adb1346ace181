//! Bodies in line protocol: parsed and appended piece by piece, and durable together.
//!
//! Invariants: the columns of a piece are within what is reserved for the body; one wait for the disk covers
//! all pieces.
//! Not here: the line protocol (`ingest`), the answer (`outcome`).

use chronolith_base::Reservation;
use chronolith_ingest::line_protocol::{
    self, BodyPieces, DecodeOptions, Refused, memory_bytes as columns_of,
};
use chronolith_model::WriteBatch;
use chronolith_tsdb::{Applied, Tsdb, WriteError};

use super::super::reply::InfluxError;
use super::outcome::{self, Counts};
use super::request::WriteRequest;
use crate::app::App;
use crate::http::body::BodyBytes;
use crate::http::inflate::{claimed_bytes, inflate};
use crate::http::write::admit::WritePermits;

/// Returns the memory that a body takes beyond itself, by the size that it claims.
pub(super) fn memory_bytes(app: &App, request: &WriteRequest, bytes: &[u8]) -> u64 {
    if !request.is_gzip {
        return columns_of(bytes.len());
    }
    let unpacked_bytes = claimed_bytes(bytes, app.options.service.write.decompressed_bytes_max);
    unpacked_bytes as u64 + columns_of(unpacked_bytes)
}

/// Pieces of a body that are applied.
#[derive(Default)]
struct Stored {
    applied: Option<Applied>,
    counts: Counts,
    decode_ns: u64,
}

/// Parses, appends, counts. Blocks the thread until the points are durable.
pub(super) fn store_body(
    app: &App,
    store: &Tsdb,
    request: &WriteRequest,
    body: BodyBytes,
    permits: WritePermits,
) -> Result<(), InfluxError> {
    let WritePermits { write: _write, apply } = permits;
    let metrics = &app.metrics.write;
    metrics.bytes_compressed.add(body.bytes.len() as u64);
    let BodyBytes { bytes, mut held } = body;
    let bytes = match request.is_gzip {
        true => unpack(app, &bytes, &mut held)?,
        false => bytes,
    };
    metrics.bytes_decompressed.add(bytes.len() as u64);
    let start_ns = app.env.clock.mono_ns();
    let mut batch = app.influx.batches.take();
    let mut stored = Stored::default();
    let refused = apply_pieces(app, store, request, bytes, &mut held, &mut batch, &mut stored);
    // Waiting for the disk needs neither the batch nor a core.
    app.influx.batches.give(batch);
    drop((held, apply));
    let refused = refused?;
    metrics.decode.observe_ns(stored.decode_ns);
    app.metrics.line_protocol.count(&refused);
    let outcome = outcome::wait_durable(app, request, store, stored.applied, start_ns + stored.decode_ns)?;
    outcome::answer(app, request, &refused, outcome, stored.counts)
}

/// Unpacks a gzip body; `held` has memory for the size that it claims.
fn unpack(app: &App, packed: &[u8], held: &mut Reservation) -> Result<Vec<u8>, InfluxError> {
    let bytes_max = app.options.service.write.decompressed_bytes_max;
    let claimed_bytes = claimed_bytes(packed, bytes_max);
    let bytes = inflate(packed, bytes_max, claimed_bytes, held)?;
    let more = columns_of(bytes.len()).saturating_sub(columns_of(claimed_bytes));
    held.grow(more).map_err(|_| InfluxError::no_memory())?;
    Ok(bytes)
}

/// Parses and applies all pieces; returns the lines that are in none.
fn apply_pieces(
    app: &App,
    store: &Tsdb,
    request: &WriteRequest,
    bytes: Vec<u8>,
    held: &mut Reservation,
    batch: &mut WriteBatch,
    stored: &mut Stored,
) -> Result<Refused, InfluxError> {
    let clock = &app.env.clock;
    let now_ms = clock.now_ms();
    let options = DecodeOptions {
        line_bytes_max: app.options.service.influx.line_bytes_max,
        text_bytes_max: app.options.service.influx.text_bytes_max,
        ..DecodeOptions::new(request.precision, now_ms.saturating_mul(1_000_000))
    };
    let mut pieces = BodyPieces::new(bytes);
    loop {
        let start_ns = clock.mono_ns();
        let next = pieces.next_piece(&options, held, batch).map_err(|_| InfluxError::no_memory())?;
        stored.decode_ns += clock.mono_ns().saturating_sub(start_ns);
        if !next {
            return Ok(pieces.into_refused());
        }
        stored.counts.points += line_protocol::point_count(batch);
        stored.counts.too_old += outcome::points_before(batch, outcome::earliest_ns(request, now_ms));
        if !batch.times.is_empty() {
            let applied = store.apply(&request.target, batch);
            let applied = applied.map_err(|error: WriteError| outcome::failed(app, request, &error))?;
            stored.applied = Some(match stored.applied.take() {
                None => applied,
                Some(before) => before.join(applied),
            });
        }
        pieces.take_back(batch);
    }
}
