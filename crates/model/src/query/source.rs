//! Contract of a source: it opens a read at once; its reader waits later.
//!
//! Invariants: the answer has the form that was wanted. A list is sorted and unique, and has at most as many
//! entries as the request allows. A source that fails in part has the series that it could read and calls
//! [`ReadContext::warn_partial`].
//! Not here: sources of requests that change on their way (`layer`).

use std::sync::Arc;

use super::context::ReadContext;
use super::error::QueryError;
use super::label_search::{LabelValueCursor, LabelValueScan, SoleLabelValues, SortedValues};
use super::request::{Read, ReadEstimate, SelectRequest, Selector, Wanted};
use super::series::{SeriesBatches, VecBatches};
use crate::TenantId;
use crate::change::ChangeWatch;

/// List that is waited for.
pub type PendingList = Box<dyn FnOnce() -> Result<Vec<String>, QueryError> + Send>;

/// Visit of label values: calls its argument with each until that returns false, which ends one part of
/// a source.
pub type PendingVisit = Box<dyn FnOnce(&mut dyn FnMut(&str) -> bool) -> Result<(), QueryError> + Send>;

/// An answer that has begun.
pub enum Opened {
    /// For [`Wanted::Series`].
    Series(Box<dyn SeriesBatches>),
    /// For [`Wanted::Estimate`]; `None` if the source has none.
    Estimate(Option<ReadEstimate>),
    /// For [`Wanted::LabelNames`] and [`Wanted::LabelValues`].
    List(PendingList),
    /// For [`Wanted::EachLabelValue`]. Values of one part of the source ascend, and several parts may
    /// have the same value.
    Visit(PendingVisit),
    /// For [`Wanted::SoleLabelValues`]; `None` if the source has no such search, in which case the caller
    /// lists the series.
    Cursor(Option<Box<dyn LabelValueCursor>>),
}

impl Opened {
    /// A list that is there.
    #[must_use]
    pub fn listed(list: Vec<String>) -> Opened {
        Opened::List(Box::new(|| Ok(list)))
    }

    /// The answer of a source without series.
    #[must_use]
    pub fn nothing(wanted: &Wanted) -> Opened {
        match wanted {
            Wanted::Series => Opened::Series(Box::new(VecBatches::new(Vec::new()))),
            Wanted::Estimate => Opened::Estimate(Some(ReadEstimate::default())),
            Wanted::LabelNames | Wanted::LabelValues { .. } => Opened::listed(Vec::new()),
            Wanted::EachLabelValue { .. } => Opened::Visit(Box::new(|_| Ok(()))),
            Wanted::SoleLabelValues { .. } => Opened::Cursor(Some(Box::new(SortedValues::default()))),
        }
    }

    /// Returns the series.
    ///
    /// # Panics
    /// If another form was wanted, as the other methods do.
    #[must_use]
    pub fn into_series(self) -> Box<dyn SeriesBatches> {
        match self {
            Opened::Series(series) => series,
            other => other.panic_instead_of("series"),
        }
    }

    /// Returns the estimate.
    #[must_use]
    pub fn into_estimate(self) -> Option<ReadEstimate> {
        match self {
            Opened::Estimate(estimate) => estimate,
            other => other.panic_instead_of("an estimate"),
        }
    }

    /// Returns the list, which is waited for when it is called.
    #[must_use]
    pub fn into_list(self) -> PendingList {
        match self {
            Opened::List(list) => list,
            other => other.panic_instead_of("a list"),
        }
    }

    /// Returns the visit.
    #[must_use]
    pub fn into_visit(self) -> PendingVisit {
        match self {
            Opened::Visit(visit) => visit,
            other => other.panic_instead_of("a visit"),
        }
    }

    /// Returns the search.
    #[must_use]
    pub fn into_cursor(self) -> Option<Box<dyn LabelValueCursor>> {
        match self {
            Opened::Cursor(cursor) => cursor,
            other => other.panic_instead_of("a cursor"),
        }
    }

    #[cold]
    fn panic_instead_of(&self, wanted: &str) -> ! {
        let found = match self {
            Opened::Series(_) => "series",
            Opened::Estimate(_) => "an estimate",
            Opened::List(_) => "a list",
            Opened::Visit(_) => "a visit",
            Opened::Cursor(_) => "a cursor",
        };
        panic!("a source answered with {found} where {wanted} was wanted");
    }
}

/// Source of series: a store, a block, or several sources as one.
pub trait Source: Send + Sync {
    /// Begins to read. Nothing waits for another machine here: series, lists and visits do when they are
    /// pulled. A source of memory and local files may have done its work when this returns.
    ///
    /// # Errors
    /// As the source.
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError>;
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        (**self).open(read, ctx)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        (**self).open(read, ctx)
    }
}

/// Reads of a source by their forms. Each source has them.
pub trait Queryable: Source {
    /// Returns the series that all matchers select, that may have samples in the range and that can be read
    /// as floats.
    ///
    /// # Errors
    /// As the source.
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.open_series(SelectRequest::new(selector), ctx)
    }

    /// Returns the series of `request`.
    ///
    /// # Errors
    /// As the source.
    fn open_series(
        &self,
        request: SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.open(Read::series(request), ctx).map(Opened::into_series)
    }

    /// Estimates [`Queryable::select`] and reading all of it, from postings and counts alone; without
    /// matchers, from counts alone. `None` if the source has no estimate.
    ///
    /// # Errors
    /// As the source.
    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        self.open(Read::of(selector, Wanted::Estimate), ctx).map(Opened::into_estimate)
    }

    /// Label names of the selected series, sorted and unique; at most `limit` (0 = all).
    ///
    /// # Errors
    /// As the source.
    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let request = SelectRequest { limit, ..SelectRequest::new(selector) };
        self.open(Read { request, wanted: Wanted::LabelNames }, ctx)?.into_list()()
    }

    /// Values of `name` of the selected series, sorted and unique; at most `limit` (0 = all).
    ///
    /// # Errors
    /// As the source.
    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let request = SelectRequest { limit, ..SelectRequest::new(selector) };
        self.open(Read { request, wanted: Wanted::LabelValues { name: name.into() } }, ctx)?.into_list()()
    }

    /// Visits label values, one part of the source after another: values of one part ascend, and several
    /// parts may have the same value. If `visit` returns false, the next part follows. A source that has no
    /// visit of its own lists the values, whose memory is reserved.
    ///
    /// # Errors
    /// As the source.
    fn scan_label_values(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        let wanted = Wanted::EachLabelValue { name: scan.name.into(), prefix: scan.prefix.into() };
        let selector = Selector { matchers: &[], range: scan.range };
        self.open(Read::of(&selector, wanted), ctx)?.into_visit()(visit)
    }

    /// Returns a cursor over label values; `None` if the source has no such search, in which case the caller
    /// lists the series.
    ///
    /// # Errors
    /// As the source.
    fn sole_label_values(
        &self,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn LabelValueCursor>>, QueryError> {
        let wanted = Wanted::SoleLabelValues { name: search.name.into() };
        let selector = Selector { matchers: &[], range: search.range };
        self.open(Read::of(&selector, wanted), ctx).map(Opened::into_cursor)
    }
}

impl<S: Source> Queryable for S {}

/// Sources of all tenants, and what changes in them.
pub trait TenantSources: ChangeWatch {
    /// Returns the source of a tenant; empty for a tenant without data.
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable>;
}

/// A source without series.
pub struct NoSeries;

impl Source for NoSeries {
    fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
        Ok(Opened::nothing(&read.wanted))
    }
}

/// Opens a visit of the values of `name` that begin with `prefix` as a list of `source`, for a source
/// without a visit of its own. The memory of the list is reserved.
///
/// # Errors
/// As the source, and [`QueryError::Memory`].
pub fn visit_listed(
    source: &dyn Source,
    request: SelectRequest,
    name: Arc<str>,
    prefix: Arc<str>,
    ctx: &ReadContext,
) -> Result<Opened, QueryError> {
    let range = request.range;
    let list = source.open(Read { request, wanted: Wanted::LabelValues { name: name.clone() } }, ctx)?;
    let list = list.into_list();
    let budget = ctx.budget.clone();
    Ok(Opened::Visit(Box::new(move |visit| {
        let scan = LabelValueScan { name: &name, prefix: &prefix, range };
        scan.visit_listed(&list()?, &budget, visit)
    })))
}
