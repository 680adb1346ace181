//! Append of carbon points to the Graphite store of a tenant.
//!
//! Invariant: the store exists before its first point is appended.
//! Not here: the protocols (`ingest::carbon`), counters of inputs (`crate::carbon`).

use std::convert::Infallible;

use chronolith_ingest::carbon::{
    INPUT_BYTES_MAX, InputEnd, LineDecoder, PointWriter, Refused, RefusedReason,
};
use chronolith_model::{Reject, TenantId, TimeUnit, WriteBatch, WriteOutcome};
use chronolith_service::activity::rejects::{RejectOrigin, WriteSender};
use chronolith_service::write::{OnePiece, TargetStore, WriteFailure, WriteTarget};
use chronolith_tsdb::{Applied, Tsdb, Writer};

use super::CarbonInput;
use crate::app::App;

/// Decodes points by `decode` and appends them to the Graphite store of the tenant. They are visible and
/// not yet durable. Blocks the thread.
///
/// # Errors
/// [`NotStored`]: none of the points is stored.
pub(crate) fn append_points(
    app: &App,
    input: &CarbonInput,
    store: &Tsdb,
    to: PointTarget<'_>,
    decode: impl FnOnce(&mut PointWriter<'_>),
) -> Result<Appended, NotStored> {
    let mut refused = Refused::default();
    let mut point_count = 0;
    let now_ms = app.service.env.clock.now_ms();
    let rules = app.carbon.rules();
    let target = WriteTarget { tenant: to.tenant, store: TargetStore::Graphite, writer: Writer::Client };
    let mut writing = app.service.writes.begin(store, target);
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
    let stored = writing.apply(&app.service.writes.pools.carbon, &mut decoder);
    let reasons = refused_reasons(&refused);
    if reasons.is_some() {
        record_refused(app, &refused, to);
        input.add_refused(refused);
    }
    if let Err(WriteFailure::Store(failure)) = stored {
        let text = failure.to_string();
        if let Some(reason) = failure.limit() {
            app.service.writes.rejects.record_text(reason, 1, &text, to.origin(app));
        }
        return Err(NotStored { text, point_count });
    }
    input.points.add(point_count);
    Ok(Appended { applied: writing.into_applied(), point_count, refused: reasons })
}

/// Points that the store refused, or that may not be durable: a sender that sends them again loses none.
#[derive(Debug)]
pub(crate) struct NotStored {
    /// The text for the log or the client.
    pub(crate) text: String,
    pub(crate) point_count: u64,
}

/// Appends all lines of a body, piece by piece. Blocks the thread.
///
/// # Errors
/// [`NotStored`], with the points that were appended before: they are visible, and not durable yet.
pub(crate) fn append_lines(
    app: &App,
    input: &CarbonInput,
    store: &Tsdb,
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
        match append_points(app, input, store, to, |points| start += lines.decode(piece, ends, points)) {
            Ok(appended) => all.add(appended),
            Err(error) => return (all, Err(error)),
        }
    }
    (all, Ok(()))
}

/// Outcome of an append.
#[derive(Default)]
pub(crate) struct Appended {
    /// `None` if no point was appended.
    pub(crate) applied: Option<Applied>,
    /// Number of appended points; some may be rejected as [`wait_durable`] returns.
    pub(crate) point_count: u64,
    /// Number of refused points, and the reason of one of them with its text.
    pub(crate) refused: Option<(u64, String)>,
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointTarget<'a> {
    pub(crate) tenant: &'a TenantId,
    /// In front of every path.
    pub(crate) prefix: &'a str,
    pub(crate) sender: &'a WriteSender,
}

impl<'a> PointTarget<'a> {
    fn origin(&self, app: &App) -> RejectOrigin<'a> {
        app.service.writes.origin(self.tenant, self.sender)
    }
}

/// Records refused lines with an example of each reason.
#[cold]
fn record_refused(app: &App, refused: &Refused, to: PointTarget<'_>) {
    for reason in RefusedReason::ALL {
        let line = refused.newest(reason).map_or("", |line| &line.text);
        app.service.writes.rejects.record_text(reason.label(), refused.count(reason), line, to.origin(app));
    }
}

/// Points that the store rejected while it stored the others of their append.
#[derive(Default)]
pub(crate) struct Rejected {
    pub(crate) point_count: u64,
    /// Points that may be stored if they are sent again.
    pub(crate) retryable_count: u64,
    /// Message of the first one, empty if there is none.
    pub(crate) message: &'static str,
}

impl Rejected {
    /// Adds the rejected points of a later append.
    pub(crate) fn add(&mut self, later: Rejected) {
        self.point_count += later.point_count;
        self.retryable_count += later.retryable_count;
        if self.message.is_empty() {
            self.message = later.message;
        }
    }

    fn of(outcome: &WriteOutcome) -> Rejected {
        let of_kind = |kind: &Reject| outcome.rejected.get(*kind as usize).copied().unwrap_or(0);
        let retryable = Reject::ALL.iter().filter(|kind| is_retryable(**kind));
        Rejected {
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
        Reject::SeriesLimit | Reject::SeriesIdsExhausted | Reject::TextLimit | Reject::TagValueLimit
    )
}

/// Waits until points are durable, and counts them. Returns those that the store rejected. Blocks the
/// thread.
///
/// # Errors
/// The text for the log or the client: the points may be lost.
pub(crate) fn wait_durable(
    app: &App,
    store: &Tsdb,
    to: PointTarget<'_>,
    applied: Applied,
) -> Result<Rejected, String> {
    let waited = app.service.writes.wait(store, to.tenant, applied);
    let outcome = waited.map_err(|failure| failure.to_string())?;
    app.service.writes.record_outcome(&outcome, TimeUnit::Milli, "", to.tenant, to.sender);
    Ok(Rejected::of(&outcome))
}
