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
    LabelValueCursor, LabelValueScan, ReadEstimate, SelectHints, SoleLabelValues, VecBatches,
};
use chronolith_model::{
    DuplicatePolicy, FIELD_LABEL, Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, QueryError,
    Queryable, ReadContext, Selector, SeriesBatches, SeriesRead,
};

use super::merged::{MergedBatches, merged};
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

/// The default store of a tenant, and its databases.
pub(crate) struct WithDatabases {
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

    /// Returns the metrics of this policy that the selector names.
    fn metrics(
        &self,
        split: &Split<'_>,
        selector: &Selector<'_>,
        separator: &str,
        ctx: &ReadContext,
    ) -> Result<Vec<Metric>, QueryError> {
        if let Some(name) = split.equal_name() {
            return Ok(candidates(name, separator));
        }
        let mut metrics = Vec::new();
        for measurement in self.source.label_values(METRIC_NAME, selector, 0, ctx)? {
            ctx.check()?;
            let matchers = with(selector.matchers, &[(METRIC_NAME, &measurement)]);
            let selector = &Selector { matchers: &matchers, range: selector.range };
            let fields = self.source.label_values(FIELD_LABEL, selector, 0, ctx)?;
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

    /// Returns the selected series, sorted by the labels that readers see.
    fn select(
        &self,
        split: &Split<'_>,
        selector: &Selector<'_>,
        separator: &str,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        let tags = self.matchers(split);
        let selector = Selector { matchers: &tags, range: selector.range };
        let mut found: Vec<SeriesRead> = Vec::new();
        let mut builder = LabelsBuilder::new();
        for (measurement, field) in self.metrics(split, &selector, separator, ctx)? {
            let matchers = with(&tags, &[(METRIC_NAME, &measurement), (FIELD_LABEL, &field)]);
            let selector = Selector { matchers: &matchers, range: selector.range };
            let mut batches = self.source.select(&selector, ctx)?;
            let mut has_more = true;
            while has_more {
                ctx.check()?;
                let start = found.len();
                has_more = batches.next_batch(&mut found)?;
                for series in &mut found[start..] {
                    series.labels = self.visible(&series.labels, separator, &mut builder);
                }
            }
        }
        found.retain(|series| split.on_added.iter().all(|matcher| matcher.matches_labels(&series.labels)));
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(joined(found))
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
        WithDatabases { own, policies, separator }
    }

    /// Returns the values of a label in the store of a policy, as readers see them.
    fn values_in(
        &self,
        policy: &PolicySource,
        split: &Split<'_>,
        name: &str,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let tags = policy.matchers(split);
        let on_tags = Selector { matchers: &tags, range: selector.range };
        if name == METRIC_NAME && split.on_added.is_empty() && split.equal_name().is_none() {
            let metrics = policy.metrics(split, &on_tags, &self.separator, ctx)?;
            return Ok(metrics.iter().map(|(m, f)| metric_name(m, &self.separator, f)).collect());
        }
        let is_added = name == DATABASE_LABEL || name == POLICY_LABEL;
        if split.is_of_tags() && !is_added {
            return policy.source.label_values(name, &on_tags, 0, ctx);
        }
        let series = policy.select(split, selector, &self.separator, ctx)?;
        let values = series.iter().filter_map(|series| series.labels.get(name));
        Ok(values.map(str::to_owned).collect())
    }

    /// Returns the union of the lists of the default store and of all policies, at most `limit` (0 = all).
    fn union(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        own: Vec<String>,
        of_policy: impl Fn(&PolicySource, &Split<'_>) -> Result<Vec<String>, QueryError>,
    ) -> Result<Vec<String>, QueryError> {
        let mut all = own;
        if let Some(split) = Split::of(selector.matchers) {
            for policy in &self.policies {
                let mut names = of_policy(policy, &split)?;
                names.sort_unstable();
                names.dedup();
                all = merged(all, names);
            }
        }
        all.truncate(if limit == 0 { usize::MAX } else { limit });
        Ok(all)
    }
}

impl Queryable for WithDatabases {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_with(selector, &SelectHints::default(), ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        // The merge needs all labels.
        let hints = SelectHints { presence_only: false, projection: None, ..*hints };
        let mut sources = vec![self.own.select_with(selector, &hints, ctx)?];
        if let Some(split) = Split::of(selector.matchers) {
            for policy in &self.policies {
                let series = policy.select(&split, selector, &self.separator, ctx)?;
                if !series.is_empty() {
                    sources.push(hints.filter(Box::new(VecBatches::new(series))));
                }
            }
        }
        match sources.len() {
            1 => Ok(sources.remove(0)),
            _ => Ok(Box::new(MergedBatches::new(sources, DuplicatePolicy::default(), ctx.clone())?)),
        }
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let mut all = self.own.estimate(selector, ctx)?.unwrap_or_default();
        let Some(split) = Split::of(selector.matchers) else { return Ok(Some(all)) };
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
                let selector = Selector { matchers, range: selector.range };
                let one = policy.source.estimate(&selector, ctx)?.unwrap_or_default();
                all.series = all.series.saturating_add(one.series);
                all.samples = all.samples.saturating_add(one.samples);
            }
        }
        Ok(Some(all))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let own = self.own.label_names(selector, limit, ctx)?;
        self.union(selector, limit, own, |policy, split| {
            if split.is_of_tags() {
                let on_tags = Selector { matchers: &split.on_tags, range: selector.range };
                let mut names = policy.source.label_names(&on_tags, 0, ctx)?;
                let has_series = !names.is_empty();
                names.retain(|name| name != FIELD_LABEL);
                let added = [DATABASE_LABEL, POLICY_LABEL].into_iter().filter(|_| has_series);
                names.extend(added.map(str::to_owned));
                return Ok(names);
            }
            let mut names = Vec::new();
            for series in policy.select(split, selector, &self.separator, ctx)? {
                names.extend(series.labels.iter().map(|(name, _)| name.to_owned()));
                if names.len() > 4096 {
                    names.sort_unstable();
                    names.dedup();
                }
            }
            Ok(names)
        })
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let own = self.own.label_values(name, selector, limit, ctx)?;
        if name == FIELD_LABEL {
            return Ok(own);
        }
        self.union(selector, limit, own, |policy, split| self.values_in(policy, split, name, selector, ctx))
    }

    fn scan_label_values(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        self.own.scan_label_values(scan, ctx, visit)?;
        if scan.name == FIELD_LABEL {
            return Ok(());
        }
        let selector = &Selector { matchers: &[], range: scan.range };
        let values = self.union(selector, 0, Vec::new(), |policy, split| {
            self.values_in(policy, split, scan.name, selector, ctx)
        })?;
        scan.visit_listed(&values, &ctx.budget, visit)
    }

    /// Series of databases have labels of their databases.
    fn sole_label_values(
        &self,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn LabelValueCursor>>, QueryError> {
        self.own.sole_label_values(search, ctx)
    }
}
