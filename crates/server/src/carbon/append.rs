//! Append of carbon points to the Graphite store of a tenant.
//!
//! Invariant: the store exists before its first point is appended.
//! Not here: the protocols (`ingest::carbon`), counters of inputs (`crate::carbon`).

use chronolith_ingest::carbon::{
    INPUT_BYTES_MAX, InputEnd, LineDecoder, PointWriter, Refused, RefusedReason,
};
use chronolith_model::databases::CatalogChange;
use chronolith_model::{Reject, TenantId, TimeUnit, WriteBatch, WriteOutcome};
use chronolith_service::activity::rejects::{RejectOrigin, WriteSender};
use chronolith_tsdb::{Applied, Tsdb};

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
    let mut batch: WriteBatch = app.writes.carbon.batches.take();
    let mut refused = Refused::default();
    let now_ms = app.env.clock.now_ms();
    let rules = app.writes.carbon.rules();
    rules.with_rewriter(|rewriter| {
        let points = PointWriter::new(&mut batch, &mut refused, now_ms).with_prefix(to.prefix);
        match rewriter {
            Some(rewriter) => decode(&mut points.with_rewriter(rewriter)),
            None => decode(&mut { points }),
        }
    });
    rules.apply(&mut batch);
    let reasons = refused_reasons(&refused);
    if reasons.is_some() {
        record_refused(app, &refused, to);
        input.add_refused(refused);
    }
    let point_count = batch.times.len() as u64;
    let applied = apply(app, store, to, &batch);
    app.writes.carbon.batches.give(batch);
    match applied {
        Ok(applied) => {
            input.points.add(point_count);
            Ok(Appended { applied, point_count, refused: reasons })
        }
        Err(text) => Err(NotStored { text, point_count }),
    }
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
/// [`NotStored`], with what was appended before: it is visible, and not durable yet.
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
        let now_ms = app.env.clock.now_ms();
        RejectOrigin { tenant: Some(self.tenant), sender: self.sender, now_ms }
    }
}

fn apply(
    app: &App,
    store: &Tsdb,
    to: PointTarget<'_>,
    batch: &WriteBatch,
) -> Result<Option<Applied>, String> {
    if batch.times.is_empty() {
        return Ok(None);
    }
    let target = graphite_store(store, to.tenant)?;
    store.apply(&target, batch).map(Some).map_err(|error| {
        let text = error.to_string();
        if let Some(reason) = app.metrics.write.count_refused(&error) {
            app.writes.rejects.record_text(reason, 1, &text, to.origin(app));
        }
        text
    })
}

/// Records refused lines with an example of each reason.
#[cold]
fn record_refused(app: &App, refused: &Refused, to: PointTarget<'_>) {
    for reason in RefusedReason::ALL {
        let line = refused.newest(reason).map_or("", |line| &line.text);
        app.writes.rejects.record_text(reason.label(), refused.count(reason), line, to.origin(app));
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
    /// Adds what was rejected of a later append.
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
    match store.wait_durable(applied) {
        Ok(outcome) => {
            app.metrics.write.count(&outcome);
            app.tenant_metrics.of(to.tenant, app.env.clock.now_ms()).count(&outcome);
            if outcome.rejected_count() > 0 {
                app.writes.rejects.record_outcome(&outcome, TimeUnit::Milli, "", to.origin(app));
            }
            Ok(Rejected::of(&outcome))
        }
        Err(error) => {
            app.metrics.write.failures.add(1);
            Err(error.to_string())
        }
    }
}

/// Returns the Graphite store of `tenant`; creates it if there is none.
fn graphite_store(store: &Tsdb, tenant: &TenantId) -> Result<TenantId, String> {
    let find = || Some(store.databases().of(tenant)?.graphite.as_ref()?.store.clone());
    if let Some(found) = find() {
        return Ok(found);
    }
    let change = CatalogChange::CreateGraphiteStore;
    store.change_databases(tenant, &change).map_err(|error| error.to_string())?;
    find().ok_or_else(|| "the Graphite store was not created".to_owned())
}
