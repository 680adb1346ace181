//! `info`: adds the labels of info series (`target_info`) to the series with the same `instance` and
//! `job`.
//! Invariants: of info series with one identity the newest sample wins, step by step; two that are equally
//! new are an error. Info series among the argument stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use chronolith_base::hash::HashMap;
use chronolith_exec::column::{ABSENT, Element, StepSeries, is_absent};
use chronolith_exec::error::Error;
use chronolith_exec::execution::{Execution, OperatorMemory};
use chronolith_exec::grid::Windows;
use chronolith_exec::metric_name::METADATA_LABELS;
use chronolith_exec::operator::{SeriesOperator, collect, merge_equal_labels};
use chronolith_exec::select::latest_idx;
use chronolith_model::matcher::MatchOp;
use chronolith_model::{Labels, LabelsBuilder, METRIC_NAME, Matcher, SeriesRead};

use crate::engine::error::braced;

/// Labels that identify the target of a series.
const IDENTIFYING: [&str; 2] = ["instance", "job"];
/// The info metric that is meant if none is named.
const TARGET_INFO: &str = "target_info";
/// With more values of an identifying label, series are not selected by them but sorted out afterwards.
const SELECTED_VALUES_MAX: usize = 256;

/// One call of `info()` during its evaluation.
pub(crate) struct TargetInfo<'q> {
    pub(crate) execution: &'q Execution<'q>,
    /// Matchers of the second argument.
    pub(crate) matchers: &'q [Matcher],
    /// Instant windows in which info series are looked up: at the reference time of the argument.
    pub(crate) windows: Windows,
}

/// A series that describes a target: when its sample was taken, for each step.
struct InfoSeries {
    labels: Labels,
    /// Milliseconds; `None` where there is no sample.
    times: Vec<Option<i64>>,
}

/// Values of the identifying labels of targets.
type IdentifyingValues = [BTreeSet<String>; IDENTIFYING.len()];

/// Name of the info metric, and the identifying labels.
type Identity = (String, Labels);

impl TargetInfo<'_> {
    /// The series of `inner` with the labels of their info series.
    pub(crate) fn compute(
        &self,
        inner: &mut dyn SeriesOperator,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<Vec<StepSeries>, Error> {
        let base = collect(inner, memory)?;
        let names = name_matchers(self.matchers)?;
        let is_info = |series: &StepSeries| {
            let name = series.labels.metric_name().unwrap_or("");
            names.iter().all(|matcher| matcher.matches(name))
        };
        let infos = self.fetch(base.iter().filter(|series| !is_info(series)), &names, memory)?;
        let newest = self.newest(&infos, &base)?;
        let mut results = Vec::with_capacity(base.len());
        for series in base {
            self.execution.ctx.check()?;
            if is_info(&series) {
                results.push(series);
            } else {
                self.enrich(&series, &infos, &newest, &mut results, memory)?;
            }
        }
        merge_equal_labels(results)
    }

    fn data_matchers(&self) -> impl Iterator<Item = &Matcher> {
        self.matchers.iter().filter(|matcher| &*matcher.name != METRIC_NAME)
    }

    /// The info series of the targets of `base`.
    fn fetch<'s>(
        &self,
        base: impl Iterator<Item = &'s StepSeries>,
        names: &[Matcher],
        memory: &mut OperatorMemory<'_>,
    ) -> Result<Vec<InfoSeries>, Error> {
        // Groups by the labels that are present: a target without `instance` is described by info series
        // without it.
        let mut groups: BTreeMap<[bool; IDENTIFYING.len()], IdentifyingValues> = BTreeMap::new();
        for series in base {
            let own = IDENTIFYING.map(|label| series.labels.get(label));
            let group = groups.entry(own.map(|value| value.is_some())).or_default();
            for (value, values) in own.into_iter().zip(group) {
                values.extend(value.map(str::to_owned));
            }
        }
        let mut infos = Vec::new();
        for values in groups.values().filter(|values| values.iter().any(|values| !values.is_empty())) {
            self.fetch_group(values, names, &mut infos, memory)?;
        }
        Ok(infos)
    }

    /// Appends the info series that have one of `values` each, and lack the labels without values.
    fn fetch_group(
        &self,
        values: &IdentifyingValues,
        names: &[Matcher],
        infos: &mut Vec<InfoSeries>,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<(), Error> {
        let mut matchers: Vec<Matcher> = names.to_vec();
        matchers.extend(self.data_matchers().cloned());
        for (label, values) in IDENTIFYING.iter().zip(values) {
            if values.len() <= SELECTED_VALUES_MAX {
                let pattern: Vec<String> = values.iter().map(|value| escape(value)).collect();
                let matcher = Matcher::new(label, MatchOp::Regex, &pattern.join("|"));
                matchers.push(matcher.map_err(|error| Error::Language(error.to_string()))?);
            }
        }
        let selector = chronolith_model::Selector { matchers: &matchers, range: self.windows.read_range() };
        let mut batches = self.execution.source.select(&selector, self.execution.ctx)?;
        let mut batch = Vec::new();
        let mut more = true;
        while more {
            more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                let known = IDENTIFYING.iter().zip(values).all(|(label, values)| {
                    let value = series.labels.get(label).unwrap_or("");
                    if values.is_empty() { value.is_empty() } else { values.contains(value) }
                });
                if known {
                    infos.extend(self.read(&series, memory)?);
                }
            }
        }
        Ok(())
    }

    /// Time of each step's sample; `None` if no step has one.
    fn read(
        &self,
        series: &SeriesRead,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<Option<InfoSeries>, Error> {
        self.execution.ctx.check()?;
        let mut columns = chronolith_model::Columns::default();
        series.samples.read(self.windows.read_range(), &mut columns)?;
        self.execution.trace.count_read(columns.len() as u64);
        let mut times = Vec::with_capacity(self.windows.grid.count);
        let mut histogram = false;
        let any = latest_idx(&columns, &self.windows, |at| {
            histogram |= at.is_some_and(|at| columns.histogram_at(at).is_some());
            times.push(at.map(|at| columns.times[at]));
        });
        if histogram {
            let message =
                format!("this should be an info metric, with float samples: {}", braced(&series.labels));
            return Err(Error::Language(message));
        }
        memory.grow(times.len() as u64, (times.len() * 16 + series.labels.heap_bytes()) as u64)?;
        Ok(any.then(|| InfoSeries { labels: series.labels.clone(), times }))
    }

    /// The series with the newest sample of an identity in each step.
    fn newest(
        &self,
        infos: &[InfoSeries],
        base: &[StepSeries],
    ) -> Result<HashMap<Identity, Vec<Option<usize>>>, Error> {
        let has_base =
            |step: usize| base.iter().any(|series| series.values.get(step).is_some_and(|v| !is_absent(*v)));
        let mut newest: HashMap<Identity, Vec<Option<usize>>> = HashMap::default();
        let mut conflict: Option<(usize, String)> = None;
        for (idx, info) in infos.iter().enumerate() {
            let name = info.labels.metric_name().unwrap_or("").to_owned();
            let chosen = newest
                .entry((name, identity(&info.labels)))
                .or_insert_with(|| vec![None; self.windows.grid.count]);
            for (step, chosen) in chosen.iter_mut().enumerate() {
                let Some(time) = info.times[step] else { continue };
                let before = chosen.and_then(|other| infos[other].times[step].map(|time| (other, time)));
                match before {
                    Some((_, before)) if before > time => {}
                    Some((other, before)) if before == time => {
                        if conflict.as_ref().is_none_or(|(first, _)| step < *first) && has_base(step) {
                            let text = format!(
                                "found duplicate series for info metric: existing {} @ {before}, new {} @ {time}",
                                braced(&infos[other].labels),
                                braced(&info.labels)
                            );
                            conflict = Some((step, text));
                        }
                    }
                    _ => *chosen = Some(idx),
                }
            }
        }
        match conflict {
            Some((_, text)) => Err(Error::Language(text)),
            None => Ok(newest),
        }
    }

    /// Adds a series for each set of info series that it meets.
    fn enrich(
        &self,
        series: &StepSeries,
        infos: &[InfoSeries],
        newest: &HashMap<Identity, Vec<Option<usize>>>,
        results: &mut Vec<StepSeries>,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<(), Error> {
        let own = identity(&series.labels);
        let mut names: Vec<&Identity> = newest.keys().filter(|(_, labels)| *labels == own).collect();
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let columns: Vec<&Vec<Option<usize>>> = names.iter().filter_map(|key| newest.get(*key)).collect();
        let first = results.len();
        let mut by_meeting: HashMap<Vec<usize>, Option<usize>> = HashMap::default();
        for step in (0..series.values.len()).filter(|&step| !is_absent(series.values[step])) {
            let met: Vec<usize> = columns.iter().filter_map(|column| column[step]).collect();
            let place = match by_meeting.get(&met) {
                Some(place) => *place,
                None => {
                    let labels = self.labels(&series.labels, &met, infos)?;
                    let place = labels.map(|labels| {
                        let values = vec![ABSENT; series.values.len()];
                        let drop_name = series.drop_name;
                        results.push(StepSeries { drop_name, ..StepSeries::floats(labels, values) });
                        results.len() - 1 - first
                    });
                    by_meeting.insert(met, place);
                    place
                }
            };
            let Some(target) = place.and_then(|place| results.get_mut(first + place)) else { continue };
            match series.element(step) {
                Some(Element::Float(value)) => target.set_float(step, value),
                Some(Element::Histogram(histogram)) => target.set_histogram(step, histogram.clone()),
                None => {}
            }
        }
        for result in results.iter().skip(first) {
            memory.grow(result.sample_count(), result.heap_bytes())?;
        }
        Ok(())
    }

    /// Labels of a series that meets these info series; `None` if it has to go.
    fn labels(&self, base: &Labels, met: &[usize], infos: &[InfoSeries]) -> Result<Option<Labels>, Error> {
        if met.is_empty() {
            let optional = self.data_matchers().all(Matcher::matches_empty);
            return Ok(optional.then(|| base.clone()));
        }
        let wanted = |name: &str| {
            let mut matchers = self.data_matchers().peekable();
            matchers.peek().is_none() || matchers.any(|matcher| &*matcher.name == name)
        };
        let mut added: HashMap<&str, &str> = HashMap::default();
        for (name, value) in met.iter().flat_map(|&idx| infos[idx].labels.iter()) {
            if METADATA_LABELS.contains(&name) || !wanted(name) {
                continue;
            }
            if added.get(name).is_some_and(|before| *before != value) {
                return Err(Error::Language(format!("conflicting label: {name}")));
            }
            if base.get(name).is_none() {
                added.insert(name, value);
            }
        }
        let mut builder: LabelsBuilder = base.to_builder();
        added.into_iter().for_each(|(name, value)| builder.set(name, value));
        Ok(Some(builder.finish()))
    }
}

fn identity(labels: &Labels) -> Labels {
    labels.filtered(|name| IDENTIFYING.contains(&name))
}

/// Matchers for the names of info series: the name matchers of the second argument, if one of them is
/// positive.
fn name_matchers(matchers: &[Matcher]) -> Result<Vec<Matcher>, Error> {
    let names: Vec<Matcher> = matchers.iter().filter(|m| &*m.name == METRIC_NAME).cloned().collect();
    if names.is_empty() {
        return Ok(vec![Matcher::equal(METRIC_NAME, TARGET_INFO)]);
    }
    if names.iter().any(|m| matches!(m.op, MatchOp::Equal | MatchOp::Regex)) {
        return Ok(names);
    }
    let any_info = Matcher::new(METRIC_NAME, MatchOp::Regex, ".+_info");
    let mut all = vec![any_info.map_err(|error| Error::Language(error.to_string()))?];
    all.extend(names);
    Ok(all)
}

/// A pattern that fits nothing but `text`.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
