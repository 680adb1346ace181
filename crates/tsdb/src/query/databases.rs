//! View of a tenant's InfluxDB databases for PromQL: the series of every retention policy next to the
//! series of the tenant's default store.
//!
//! Invariants: a field of a measurement is the metric `<measurement><separator><field>`, with the labels `db`
//! and `rp` unless tags have these names; reserved labels are hidden; texts are left out. Series are sorted
//! by the labels that readers see.
//! Not here: kinds of values (`kinds`), the time unit (`unit`).

use std::borrow::Cow;
use std::sync::Arc;

use chronolith_model::query::{
    LabelValueScan, Opened, PendingList, Read, ReadEstimate, SelectRequest, Source, VecBatches, Wanted,
};
use chronolith_model::{
    DuplicatePolicy, FIELD_LABEL, Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, QueryError,
    Queryable, ReadContext, Selector, SeriesBatches, SeriesRead,
};

use super::merged::{MergedBatches, merged, truncated};
use crate::merge::MergedSource;

const DATABASE_LABEL: &str = "db";
const POLICY_LABEL: &str = "rp";

/// Store of one retention policy.
pub(crate) struct PolicySource {
    pub(crate) database: String,
    pub(crate) policy: String,
    /// Series of the store in milliseconds, without the label of the kind.
    pub(crate) source: Arc<dyn Queryable>,
}

/// Names of labels after which a list with repeated ones is reduced.
const NAMES_KEPT_MAX: usize = 4096;

/// The default store of a tenant, and its databases.
pub(crate) struct WithDatabases(Arc<View>);

struct View {
    own: Arc<dyn Queryable>,
    policies: Vec<PolicySource>,
    separator: String,
}

/// A measurement and one of its fields.
type Metric = (String, String);

/// Matchers of a selector, by what they match.
struct Split<'a> {
    on_name: Vec<&'a Matcher>,
    /// Matchers on the labels that the view adds.
    on_added: Vec<&'a Matcher>,
    on_tags: Vec<Matcher>,
}

impl<'a> Split<'a> {
    /// Returns `None` if a matcher on a hidden label selects nothing.
    fn of(matchers: &'a [Matcher]) -> Option<Split<'a>> {
        let mut split = Split { on_name: Vec::new(), on_added: Vec::new(), on_tags: Vec::new() };
        for matcher in matchers {
            match &*matcher.name {
                METRIC_NAME => split.on_name.push(matcher),
                DATABASE_LABEL | POLICY_LABEL => split.on_added.push(matcher),
                FIELD_LABEL if matcher.matches_empty() => {}
                FIELD_LABEL => return None,
                _ => split.on_tags.push(matcher.clone()),
            }
        }
        Some(split)
    }

    /// Returns true if all matchers are on tags.
    fn is_of_tags(&self) -> bool {
        self.on_name.is_empty() && self.on_added.is_empty()
    }

    fn selects_name(&self, name: &str) -> bool {
        self.on_name.iter().all(|matcher| matcher.matches(name))
    }

    /// Returns the name that a matcher asks for, if one does.
    fn equal_name(&self) -> Option<&str> {
        let equal = self.on_name.iter().find(|matcher| matcher.op == MatchOp::Equal);
        equal.map(|matcher| &*matcher.value).filter(|name| !name.is_empty())
    }
}

impl PolicySource {
    /// Returns the matchers for the series of this policy; `None` if none can match. A matcher on `db` or
    /// `rp` that does not match the policy still selects series with a tag of that name.
    fn matchers(&self, split: &Split<'_>) -> Vec<Matcher> {
        let mut matchers = split.on_tags.clone();
        for matcher in &split.on_added {
            let of_policy = if *matcher.name == *DATABASE_LABEL { &self.database } else { &self.policy };
            if !matcher.matches(of_policy) {
                let any = Matcher::new(&matcher.name, MatchOp::NotEqual, "");
                matchers.push(any.expect("no regex that could be invalid"));
            }
        }
        matchers
    }

    /// Starts to list the measurements that `tags` select.
    fn start_measurements(
        &self,
        tags: Vec<Matcher>,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<PendingList, QueryError> {
        self.start_values(METRIC_NAME, request.for_matchers(tags), ctx)
    }

    fn start_values(
        &self,
        name: &str,
        request: SelectRequest,
        ctx: &ReadContext,
    ) -> Result<PendingList, QueryError> {
        let wanted = Wanted::LabelValues { name: name.into() };
        self.source.open(Read { request, wanted }, ctx).map(Opened::into_list)
    }

    /// Returns the metrics of `measurements` that the selector names.
    fn metrics(
        &self,
        measurements: Vec<String>,
        split: &Split<'_>,
        request: &SelectRequest,
        separator: &str,
        ctx: &ReadContext,
    ) -> Result<Vec<Metric>, QueryError> {
        let tags = self.matchers(split);
        let mut metrics = Vec::new();
        for measurement in measurements {
            ctx.check()?;
            let matchers = with(&tags, &[(METRIC_NAME, &measurement)]);
            let fields = self.start_values(FIELD_LABEL, request.for_matchers(matchers), ctx)?()?;
            let named = fields
                .into_iter()
                .filter(|field| split.selects_name(&metric_name(&measurement, separator, field)));
            metrics.extend(named.map(|field| (measurement.clone(), field)));
        }
        Ok(metrics)
    }

    /// Returns the labels that readers see.
    fn visible(&self, labels: &Labels, separator: &str, builder: &mut LabelsBuilder) -> Labels {
        builder.clear();
        let has = |name: &str| labels.get(name).is_some();
        let field = labels.get(FIELD_LABEL).unwrap_or("");
        let name = metric_name(labels.metric_name().unwrap_or(""), separator, field);
        builder.push(METRIC_NAME, &name);
        let added = [(DATABASE_LABEL, &self.database), (POLICY_LABEL, &self.policy)];
        added
            .into_iter()
            .filter(|(label, _)| !has(label))
            .for_each(|(label, value)| builder.push(label, value));
        let tags = labels.iter().filter(|(label, _)| *label != METRIC_NAME && *label != FIELD_LABEL);
        tags.for_each(|(label, value)| builder.push(label, value));
        builder.sort();
        builder.finish()
    }

    /// Starts to select the series of `metrics`.
    fn start_selections(
        &self,
        metrics: &[Metric],
        split: &Split<'_>,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Vec<Box<dyn SeriesBatches>>, QueryError> {
        let tags = self.matchers(split);
        let select = |(measurement, field): &Metric| {
            let matchers = with(&tags, &[(METRIC_NAME, measurement), (FIELD_LABEL, field)]);
            self.source.open_series(request.for_matchers(matchers), ctx)
        };
        metrics.iter().map(select).collect()
    }
}

/// Work for the series of a policy that begins when a read is opened.
enum Begun {
    /// Selections of the metrics that the request names.
    Selections(Vec<Box<dyn SeriesBatches>>),
    /// Measurements, of which it may name some.
    Measurements(PendingList),
}

/// Series of a policy, sorted by the labels that readers see. All of them are read before the first batch.
struct PolicyBatches {
    view: Arc<View>,
    policy_idx: usize,
    request: SelectRequest,
    ctx: ReadContext,
    begun: Option<Begun>,
    sorted: VecBatches,
}

impl PolicyBatches {
    fn read(&self, begun: Begun) -> Result<VecBatches, QueryError> {
        let View { policies, separator, .. } = &*self.view;
        let policy = &policies[self.policy_idx];
        let ctx = &self.ctx;
        let Some(split) = Split::of(&self.request.matchers) else { return Ok(VecBatches::new(Vec::new())) };
        let selections = match begun {
            Begun::Selections(selections) => selections,
            Begun::Measurements(measurements) => {
                let metrics = policy.metrics(measurements()?, &split, &self.request, separator, ctx)?;
                policy.start_selections(&metrics, &split, &self.request, ctx)?
            }
        };
        let mut found: Vec<SeriesRead> = Vec::new();
        let mut builder = LabelsBuilder::new();
        for mut batches in selections {
            let mut has_more = true;
            while has_more {
                ctx.check()?;
                let start = found.len();
                has_more = batches.next_batch(&mut found)?;
                for series in &mut found[start..] {
                    series.labels = policy.visible(&series.labels, separator, &mut builder);
                }
            }
        }
        found.retain(|series| split.on_added.iter().all(|matcher| matcher.matches_labels(&series.labels)));
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(VecBatches::new(joined(found)))
    }

    /// Reads all series for their labels.
    fn for_each_labels(mut self, mut visit: impl FnMut(&Labels)) -> Result<(), QueryError> {
        let mut batch = Vec::new();
        let mut has_more = true;
        while has_more {
            has_more = self.next_batch(&mut batch)?;
            batch.drain(..).for_each(|series| visit(&series.labels));
        }
        Ok(())
    }
}

impl SeriesBatches for PolicyBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        if let Some(begun) = self.begun.take() {
            self.sorted = self.read(begun)?;
        }
        self.sorted.next_batch(out)
    }
}

/// Returns the splits of a metric name into measurement and field.
fn candidates(name: &str, separator: &str) -> Vec<Metric> {
    if separator.is_empty() {
        let cuts = name.char_indices().map(|(at, _)| name.split_at(at));
        return cuts.skip(1).map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    }
    let mut found = Vec::new();
    for (at, _) in name.char_indices().filter(|(at, _)| name[*at..].starts_with(separator)) {
        let measurement = &name[..at];
        let field = &name[at + separator.len()..];
        if !measurement.is_empty() && !field.is_empty() {
            found.push((measurement.to_owned(), field.to_owned()));
        }
    }
    found
}

fn metric_name(measurement: &str, separator: &str, field: &str) -> String {
    format!("{measurement}{separator}{field}")
}

fn with(matchers: &[Matcher], equal: &[(&str, &String)]) -> Vec<Matcher> {
    let added = equal.iter().map(|(name, value)| Matcher::equal(name, value));
    matchers.iter().cloned().chain(added).collect()
}

/// Joins adjacent series with equal labels: several splits of a name, or several kinds of a field.
fn joined(sorted: Vec<SeriesRead>) -> Vec<SeriesRead> {
    let mut out: Vec<SeriesRead> = Vec::with_capacity(sorted.len());
    let mut parts = Vec::new();
    let mut series = sorted.into_iter().peekable();
    while let Some(first) = series.next() {
        if series.peek().is_none_or(|next| next.labels != first.labels) {
            out.push(first);
            continue;
        }
        parts.push(first.samples);
        while let Some(next) = series.next_if(|next| next.labels == first.labels) {
            parts.push(next.samples);
        }
        let samples = Box::new(MergedSource::new(std::mem::take(&mut parts)));
        out.push(SeriesRead { labels: first.labels, samples });
    }
    out
}

impl WithDatabases {
    pub(crate) fn new(
        own: Arc<dyn Queryable>,
        policies: Vec<PolicySource>,
        separator: String,
    ) -> WithDatabases {
        WithDatabases(Arc::new(View { own, policies, separator }))
    }
}

impl View {
    /// Starts to select the series of a policy; `None` if it can have none.
    fn start_series(
        self: &Arc<Self>,
        policy_idx: usize,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Option<PolicyBatches>, QueryError> {
        let Some(split) = Split::of(&request.matchers) else { return Ok(None) };
        let policy = &self.policies[policy_idx];
        let begun = match split.equal_name().map(|name| candidates(name, &self.separator)) {
            Some(metrics) if metrics.is_empty() => return Ok(None),
            Some(metrics) => Begun::Selections(policy.start_selections(&metrics, &split, request, ctx)?),
            None => Begun::Measurements(policy.start_measurements(policy.matchers(&split), request, ctx)?),
        };
        Ok(Some(PolicyBatches {
            view: self.clone(),
            policy_idx,
            request: request.clone(),
            ctx: ctx.clone(),
            begun: Some(begun),
            sorted: VecBatches::new(Vec::new()),
        }))
    }

    /// Starts to list the names of the labels that readers see in a policy.
    fn start_names(
        self: &Arc<Self>,
        policy_idx: usize,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<PendingList, QueryError> {
        let Some(split) = Split::of(&request.matchers) else { return Ok(Box::new(|| Ok(Vec::new()))) };
        if split.is_of_tags() {
            let request = request.for_matchers(split.on_tags);
            let read = Read { request, wanted: Wanted::LabelNames };
            let listed = self.policies[policy_idx].source.open(read, ctx)?.map_list(|mut names| {
                let added = [DATABASE_LABEL, POLICY_LABEL].into_iter().filter(|_| !names.is_empty());
                let added: Vec<String> = added.map(str::to_owned).collect();
                names.retain(|name| name != FIELD_LABEL);
                names.extend(added);
                names
            });
            return Ok(listed.into_list());
        }
        let series = self.start_series(policy_idx, request, ctx)?;
        Ok(Box::new(move || {
            let mut names = Vec::new();
            series.map_or(Ok(()), |series| {
                series.for_each_labels(|labels| {
                    names.extend(labels.iter().map(|(name, _)| name.to_owned()));
                    if names.len() > NAMES_KEPT_MAX {
                        names.sort_unstable();
                        names.dedup();
                    }
                })
            })?;
            Ok(names)
        }))
    }

    /// Starts to list the values of a label in a policy, as readers see them.
    fn start_values(
        self: &Arc<Self>,
        policy_idx: usize,
        name: &Arc<str>,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<PendingList, QueryError> {
        let none = || -> PendingList { Box::new(|| Ok(Vec::new())) };
        let Some(split) = Split::of(&request.matchers).filter(|_| **name != *FIELD_LABEL) else {
            return Ok(none());
        };
        let policy = &self.policies[policy_idx];
        let tags = policy.matchers(&split);
        if **name == *METRIC_NAME && split.on_added.is_empty() && split.equal_name().is_none() {
            let measurements = policy.start_measurements(tags, request, ctx)?;
            let view = self.clone();
            let request = request.clone();
            let ctx = ctx.clone();
            return Ok(Box::new(move || {
                let Some(split) = Split::of(&request.matchers) else { return Ok(Vec::new()) };
                let View { policies, separator, .. } = &*view;
                let metrics =
                    policies[policy_idx].metrics(measurements()?, &split, &request, separator, &ctx)?;
                Ok(metrics.iter().map(|(m, f)| metric_name(m, separator, f)).collect())
            }));
        }
        let is_added = **name == *DATABASE_LABEL || **name == *POLICY_LABEL;
        if split.is_of_tags() && !is_added {
            return policy.start_values(name, request.for_matchers(tags), ctx);
        }
        let Some(series) = self.start_series(policy_idx, request, ctx)? else { return Ok(none()) };
        let name = name.clone();
        Ok(Box::new(move || {
            let mut values = Vec::new();
            series.for_each_labels(|labels| values.extend(labels.get(&name).map(str::to_owned)))?;
            Ok(values)
        }))
    }

    /// Starts `start` for each policy. The list is the union of all lists, sorted.
    fn start_in_policies(
        &self,
        start: impl Fn(usize) -> Result<PendingList, QueryError>,
    ) -> Result<PendingList, QueryError> {
        let lists: Vec<PendingList> = (0..self.policies.len()).map(start).collect::<Result<_, _>>()?;
        Ok(Box::new(move || {
            lists.into_iter().try_fold(Vec::new(), |all, list| {
                let mut names = list()?;
                names.sort_unstable();
                names.dedup();
                Ok(merged(all, names))
            })
        }))
    }

    fn start_all_series(
        self: &Arc<Self>,
        request: SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Opened, QueryError> {
        // The merge needs all labels.
        let request = request.with_all_labels();
        let mut sources = vec![self.own.open_series(request.clone(), ctx)?];
        for policy_idx in 0..self.policies.len() {
            if let Some(series) = self.start_series(policy_idx, &request, ctx)? {
                sources.push(request.filter(Box::new(series)));
            }
        }
        Ok(Opened::Series(MergedBatches::of_all(sources, DuplicatePolicy::default(), ctx)))
    }

    fn estimate(&self, request: &SelectRequest, ctx: &ReadContext) -> Result<ReadEstimate, QueryError> {
        let mut all = self.own.estimate(&request.selector(), ctx)?.unwrap_or_default();
        let Some(split) = Split::of(&request.matchers) else { return Ok(all) };
        for policy in &self.policies {
            let tags = policy.matchers(&split);
            let named: Cow<'_, [Vec<Matcher>]> = match split.equal_name() {
                None => Cow::Owned(vec![tags]),
                Some(name) => candidates(name, &self.separator)
                    .iter()
                    .map(|(measurement, field)| {
                        with(&tags, &[(METRIC_NAME, measurement), (FIELD_LABEL, field)])
                    })
                    .collect(),
            };
            for matchers in named.iter() {
                let selector = Selector { matchers, range: request.range };
                let one = policy.source.estimate(&selector, ctx)?.unwrap_or_default();
                all.series = all.series.saturating_add(one.series);
                all.samples = all.samples.saturating_add(one.samples);
            }
        }
        Ok(all)
    }

    fn start_visit(
        self: &Arc<Self>,
        read: Read,
        name: &Arc<str>,
        prefix: Arc<str>,
        ctx: &ReadContext,
    ) -> Result<Opened, QueryError> {
        let request = read.request.clone();
        let of_own = self.own.open(read, ctx)?.into_visit();
        let values = self.start_in_policies(|idx| self.start_values(idx, name, &request, ctx))?;
        let name = name.clone();
        let budget = ctx.budget.clone();
        Ok(Opened::Visit(Box::new(move |visit| {
            of_own(visit)?;
            let scan = LabelValueScan { name: &name, prefix: &prefix, range: request.range };
            scan.visit_listed(&values()?, &budget, visit)
        })))
    }
}

impl Source for WithDatabases {
    /// The default store and all policies have begun before the first of them is waited for.
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let view = &self.0;
        let request = read.request.clone();
        let of_policies = match read.wanted.clone() {
            Wanted::Series => return view.start_all_series(request, ctx),
            Wanted::Estimate => return Ok(Opened::Estimate(Some(view.estimate(&request, ctx)?))),
            Wanted::EachLabelValue { name, prefix } => return view.start_visit(read, &name, prefix, ctx),
            // Series of databases have labels of their databases.
            Wanted::SoleLabelValues { .. } => return view.own.open(read, ctx),
            Wanted::LabelNames => view.start_in_policies(|idx| view.start_names(idx, &request, ctx))?,
            Wanted::LabelValues { name } => {
                view.start_in_policies(|idx| view.start_values(idx, &name, &request, ctx))?
            }
        };
        let own = view.own.open(read, ctx)?.into_list();
        Ok(Opened::List(Box::new(move || Ok(truncated(merged(own()?, of_policies()?), request.limit)))))
    }
}

#[cfg(test)]
mod tests;
