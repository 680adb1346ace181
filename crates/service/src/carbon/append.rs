//! Append of carbon points to the Graphite store of a tenant.
//!
//! Invariant: the store exists before its first point is appended.
//! Not here: the protocols (`ingest::carbon`), counters of inputs (`carbon`).

use std::convert::Infallible;

use crate::access::Identity;
use crate::activity::rejects::{RejectOrigin, WriteSender};
use crate::write::destination::{Applied, Destination};
use crate::write::{OnePiece, TargetStore, WriteFailure, WriteTarget};
use chronolith_cluster::gateway::{Acknowledged, LogOffsets};
use chronolith_ingest::carbon::{
    INPUT_BYTES_MAX, InputEnd, LineDecoder, PointWriter, Refused, RefusedReason,
};
use chronolith_model::{Reject, TimeUnit, WriteBatch, WriteOutcome};
use chronolith_tsdb::Writer;

use super::CarbonContext;
use super::CarbonInput;
use crate::write::Writes;

/// Decodes points by `decode` and appends them to the Graphite store of the tenant. They are visible and
/// not yet durable. Blocks the thread.
///
/// # Errors
/// [`NotStored`]: none of the points is stored.
pub fn append_points(
    writes: &Writes,
    carbon: &CarbonContext,
    destination: &Destination,
    to: PointTarget<'_>,
    decode: impl FnOnce(&mut PointWriter<'_>),
) -> Result<Appended, NotStored> {
    let mut refused = Refused::default();
    let mut point_count = 0;
    let now_ms = writes.now_ms();
    let rules = carbon.rules();
    let target = WriteTarget { identity: to.identity, store: TargetStore::Graphite, writer: Writer::Client };
    let mut writing = writes.begin(destination, target);
    let mut decoder = OnePiece::new(|batch: &mut WriteBatch| {
        rules.with_rewriter(|rewriter| {
            let points = PointWriter::new(batch, &mut refused, now_ms).with_prefix(to.prefix);
            match rewriter {
                Some(rewriter) => decode(&mut points.with_rewriter(rewriter)),
                None => decode(&mut { points }),
            }
        });
        rules.apply(batch);
        point_count = batch.times.len() as u64;
        Ok::<(), Infallible>(())
    });
    let stored = writing.apply(&writes.pools.carbon, &mut decoder);
    let reasons = refused_reasons(&refused);
    if reasons.is_some() {
        record_refused(writes, &refused, to);
        to.input.add_refused(refused);
    }
    if let Err(WriteFailure::Store(failure)) = stored {
        let text = failure.to_string();
        if let Some(reason) = failure.limit() {
            writes.rejects.record_text(reason, 1, &text, to.origin(writes));
        }
        return Err(NotStored { text, point_count });
    }
    to.input.points.add(point_count);
    Ok(Appended { applied: writing.into_applied(), point_count, refused: reasons })
}

/// Points that the store refused, or that may not be durable: a sender that sends them again loses none.
#[derive(Debug)]
pub struct NotStored {
    /// The text for the log or the client.
    pub text: String,
    pub point_count: u64,
}

/// Appends all lines of a body, piece by piece. Blocks the thread.
///
/// # Errors
/// [`NotStored`], with the points that were appended before: they are visible, and not durable yet.
pub fn append_lines(
    writes: &Writes,
    carbon: &CarbonContext,
    destination: &Destination,
    to: PointTarget<'_>,
    body: &[u8],
) -> (Appended, Result<(), NotStored>) {
    let mut lines = LineDecoder::new();
    let mut all = Appended::default();
    let mut start = 0;
    while start < body.len() {
        let end = body.len().min(start + INPUT_BYTES_MAX);
        let piece = body.get(start..end).unwrap_or_default();
        let ends = if end == body.len() { InputEnd::Closed } else { InputEnd::Open };
        match append_points(writes, carbon, destination, to, |points| {
            start += lines.decode(piece, ends, points)
        }) {
            Ok(appended) => all.add(appended),
            Err(error) => return (all, Err(error)),
        }
    }
    (all, Ok(()))
}

/// Outcome of an append.
#[derive(Default)]
pub struct Appended {
    /// `None` if no point was appended.
    pub applied: Option<Applied>,
    /// Number of appended points; some may be rejected as [`wait_durable`] returns.
    pub point_count: u64,
    /// Number of refused points, and the reason of one of them with its text.
    pub refused: Option<(u64, String)>,
}

impl Appended {
    /// Adds the outcome of a later append.
    fn add(&mut self, later: Appended) {
        self.applied = joined(self.applied.take(), later.applied);
        self.point_count += later.point_count;
        if let Some((count, newest)) = later.refused {
            let before = self.refused.take().map_or(0, |(count, _)| count);
            self.refused = Some((before + count, newest));
        }
    }
}

/// Joins appends that become durable together.
fn joined(before: Option<Applied>, later: Option<Applied>) -> Option<Applied> {
    match (before, later) {
        (Some(before), Some(later)) => Some(before.join(later)),
        (before, later) => before.or(later),
    }
}

fn refused_reasons(refused: &Refused) -> Option<(u64, String)> {
    let reason = RefusedReason::ALL.into_iter().find(|reason| refused.count(*reason) > 0)?;
    let line = refused.newest(reason).map_or("", |line| &line.text);
    Some((refused.total(), format!("{}: {line:?}", reason.message())))
}

/// Destination of points.
#[derive(Clone, Copy)]
pub struct PointTarget<'a> {
    /// Input that counts them.
    pub input: &'a CarbonInput,
    /// Sender, and tenant of the Graphite store.
    pub identity: &'a Identity,
    /// In front of every path.
    pub prefix: &'a str,
    pub sender: &'a WriteSender,
}

impl<'a> PointTarget<'a> {
    fn origin(&self, writes: &Writes) -> RejectOrigin<'a> {
        writes.origin(self.identity.tenant(), self.sender)
    }
}

/// Records refused lines with an example of each reason.
#[cold]
fn record_refused(writes: &Writes, refused: &Refused, to: PointTarget<'_>) {
    for reason in RefusedReason::ALL {
        let line = refused.newest(reason).map_or("", |line| &line.text);
        writes.rejects.record_text(reason.label(), refused.count(reason), line, to.origin(writes));
    }
}

/// Points that the store rejected while it stored the others of their append.
#[derive(Default)]
pub struct Rejected {
    /// Offsets of the points in the replicated log, if they went there.
    pub offsets: LogOffsets,
    pub point_count: u64,
    /// Points that may be stored if they are sent again.
    pub retryable_count: u64,
    /// Message of the first one, empty if there is none.
    pub message: &'static str,
}

impl Rejected {
    /// Adds the rejected points of a later append.
    pub fn add(&mut self, later: Rejected) {
        self.point_count += later.point_count;
        self.retryable_count += later.retryable_count;
        if self.message.is_empty() {
            self.message = later.message;
        }
    }

    fn of(outcome: &WriteOutcome, offsets: LogOffsets) -> Rejected {
        let of_kind = |kind: &Reject| outcome.rejected.get(*kind as usize).copied().unwrap_or(0);
        let retryable = Reject::ALL.iter().filter(|kind| is_retryable(**kind));
        Rejected {
            offsets,
            point_count: outcome.rejected_count(),
            retryable_count: retryable.map(of_kind).sum(),
            message: outcome.first_rejects().next().map_or("", |(kind, ..)| kind.message()),
        }
    }
}

/// Returns true if a point that the store rejects may be stored later: room is missing. Every other reject
/// is one of the point itself, which no retry changes.
fn is_retryable(kind: Reject) -> bool {
    matches!(
        kind,
        Reject::SeriesLimit
            | Reject::SeriesIdsExhausted
            | Reject::TextLimit
            | Reject::TagValueLimit
            | Reject::MetricSeriesLimit
            | Reject::LabelValueLimit
    )
}

/// Waits until points are durable, and counts them. Returns the points that the store rejected. Blocks the
/// thread.
///
/// # Errors
/// The text for the log or the client: the points may be lost.
pub fn wait_durable(
    writes: &Writes,
    destination: &Destination,
    to: PointTarget<'_>,
    applied: Applied,
) -> Result<Rejected, String> {
    let waited = writes.wait(destination, to.identity.tenant(), applied);
    let Acknowledged { outcome, offsets } = waited.map_err(|failure| failure.to_string())?;
    writes.record_outcome(&outcome, TimeUnit::Milli, "", to.identity.tenant(), to.sender);
    Ok(Rejected::of(&outcome, offsets))
}
