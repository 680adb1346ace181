//! Rules of the OpenMetrics specification beyond the grammar of lines, for checks of exporters: families,
//! suffixes, groups, timestamps, buckets, values by type. Prometheus's scrapes do not apply them.
//!
//! Invariant: a body that breaks a rule is refused, whatever the order in which rules are checked. Memory
//! grows with the names of a body and the groups of a family: for tools, not for the way of samples.
//! Not here: grammar (`grammar`, `metadata`), texts of rules (`rule`).

mod buckets;

use chronolith_base::hash::HashSet;
use chronolith_model::{LabelsBuilder, MetricKind};

use super::rule::Rule;
use buckets::{BucketCheck, Group, Part};

/// Checks of one body.
#[derive(Debug, Default)]
pub(super) struct Specification {
    family: Option<CheckedFamily>,
    /// Names of families and of their samples.
    names: HashSet<String>,
}

/// Declaration of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared<'a> {
    /// Type of the family.
    Type(MetricKind),
    /// Help text, whatever it is.
    Help,
    /// Unit of the family.
    Unit(&'a str),
}

/// Sample of a line, with its labels sorted.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedSample<'a> {
    pub(super) name: &'a str,
    pub(super) labels: &'a LabelsBuilder,
    pub(super) value: f64,
    pub(super) time_ms: Option<i64>,
    pub(super) has_exemplar: bool,
}

/// Family at hand.
#[derive(Debug, Default)]
struct CheckedFamily {
    name: String,
    kind: Option<MetricKind>,
    has_help: bool,
    unit: Option<String>,
    has_samples: bool,
    groups: CheckedGroups,
    buckets: BucketCheck,
}

/// Groups of a family: samples with equal labels have to follow each other.
#[derive(Debug, Default)]
struct CheckedGroups {
    seen: HashSet<Group>,
    last: Option<Group>,
    last_time_ms: Option<i64>,
    /// Series of the last group.
    series: HashSet<(String, Group)>,
}

impl Specification {
    /// Checks a comment about the family `name`.
    pub(super) fn comment(&mut self, name: &str, declared: Declared<'_>) -> Result<(), Rule> {
        let is_same = self.family.as_ref().is_some_and(|family| family.name == name);
        if !is_same {
            self.end()?;
            self.family = Some(CheckedFamily { name: name.to_owned(), ..CheckedFamily::default() });
        }
        let Some(family) = &mut self.family else { return Ok(()) };
        if family.has_samples {
            return Err(Rule::MetadataAfterSamples);
        }
        let is_repeated = match declared {
            Declared::Type(kind) => family.kind.replace(kind).is_some(),
            Declared::Help => std::mem::replace(&mut family.has_help, true),
            Declared::Unit(unit) => family.unit.replace(unit.to_owned()).is_some(),
        };
        if is_repeated { Err(Rule::RepeatedMetadata) } else { Ok(()) }
    }

    /// Checks a sample.
    pub(super) fn sample(&mut self, sample: &CheckedSample<'_>) -> Result<(), Rule> {
        if sample.labels.repeated_name().is_some() {
            return Err(Rule::RepeatedLabel);
        }
        let is_member = self.family.as_ref().is_some_and(|family| family.suffix(sample.name).is_some());
        if !is_member {
            self.end()?;
            self.family = Some(CheckedFamily { name: sample.name.to_owned(), ..CheckedFamily::default() });
        }
        match &mut self.family {
            Some(family) => family.sample(sample),
            None => Ok(()),
        }
    }

    /// Ends the family at hand.
    pub(super) fn end(&mut self) -> Result<(), Rule> {
        let Some(family) = self.family.take() else { return Ok(()) };
        let kind = family.kind.unwrap_or_default();
        let own = suffixes(kind).iter().filter(|suffix| !suffix.is_empty());
        for suffix in own.chain(&[""]) {
            if !self.names.insert(format!("{}{suffix}", family.name)) {
                return Err(Rule::ClashingName);
            }
        }
        let has_unit = family.unit.as_ref().is_some_and(|unit| !unit.is_empty());
        if has_unit && matches!(kind, MetricKind::Info | MetricKind::StateSet) {
            return Err(Rule::UnitOfType);
        }
        family.buckets.end()
    }
}

/// Ends of the names of the samples of a type.
fn suffixes(kind: MetricKind) -> &'static [&'static str] {
    match kind {
        MetricKind::Counter => &["_total", "_created"],
        MetricKind::Summary => &["", "_count", "_sum", "_created"],
        MetricKind::Histogram => &["_count", "_sum", "_bucket", "_created"],
        MetricKind::GaugeHistogram => &["_gcount", "_gsum", "_bucket"],
        MetricKind::Info => &["_info"],
        MetricKind::Gauge | MetricKind::StateSet | MetricKind::Unknown => &[""],
    }
}

impl CheckedFamily {
    /// Returns the suffix of a sample of this family.
    fn suffix(&self, name: &str) -> Option<&'static str> {
        let suffix = name.strip_prefix(self.name.as_str())?;
        suffixes(self.kind.unwrap_or_default()).iter().copied().find(|known| *known == suffix)
    }

    fn sample(&mut self, sample: &CheckedSample<'_>) -> Result<(), Rule> {
        let Some(suffix) = self.suffix(sample.name) else { return Ok(()) };
        self.has_samples = true;
        let kind = self.kind.unwrap_or_default();
        let varied = match (kind, suffix) {
            (MetricKind::Summary, "") => "quantile",
            (MetricKind::StateSet, _) => self.name.as_str(),
            (MetricKind::Histogram | MetricKind::GaugeHistogram, "_bucket") => "le",
            _ => "",
        };
        let bound = sample.labels.get(varied);
        check_label(kind, varied, bound)?;
        check_value(kind, suffix, sample.value)?;
        let can_have_exemplar = matches!(
            (kind, suffix),
            (MetricKind::Counter, "_total") | (MetricKind::Histogram | MetricKind::GaugeHistogram, "_bucket")
        );
        if sample.has_exemplar && !can_have_exemplar {
            return Err(Rule::ExemplarOfType);
        }
        let mut group: Group = Vec::new();
        // Samples of an info family are one group.
        if kind != MetricKind::Info {
            let others = sample.labels.iter().filter(|(name, _)| varied.is_empty() || *name != varied);
            group.extend(others.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let bound = bound.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        let is_new = self.groups.add(kind, sample, &group)?;
        if is_new && matches!(kind, MetricKind::Histogram | MetricKind::GaugeHistogram) {
            let part = match suffix {
                "_bucket" => Part::Bucket(bound),
                "_count" | "_gcount" => Part::Count,
                "_sum" => Part::Sum,
                "_gsum" => Part::GaugeSum,
                _ => Part::Created,
            };
            self.buckets.add((group, sample.time_ms), part, sample.value)?;
        }
        Ok(())
    }
}

/// Checks the label that names the bucket, quantile or state.
fn check_label(kind: MetricKind, varied: &str, bound: Option<&str>) -> Result<(), Rule> {
    let number = bound.and_then(|text| text.parse::<f64>().ok()).filter(|number| !number.is_nan());
    let is_canonical = number.is_some_and(|number| number != f64::INFINITY || bound == Some("+Inf"));
    match kind {
        _ if varied.is_empty() => Ok(()),
        MetricKind::StateSet if bound.is_none() => Err(Rule::NoState),
        MetricKind::StateSet => Ok(()),
        MetricKind::Summary => {
            let is_quantile = number.is_some_and(|number| (0.0..=1.0).contains(&number));
            if is_quantile { Ok(()) } else { Err(Rule::Quantile) }
        }
        _ if is_canonical => Ok(()),
        _ => Err(Rule::Bound),
    }
}

fn check_value(kind: MetricKind, suffix: &str, value: f64) -> Result<(), Rule> {
    let is_count = matches!(suffix, "_bucket" | "_count" | "_gcount");
    let is_cumulative = is_count || matches!(suffix, "_total" | "_sum");
    if is_count && value.fract() != 0.0 {
        return Err(Rule::CountInteger);
    }
    if (is_cumulative || suffix == "_gsum") && value.is_nan() {
        return Err(Rule::CounterNan);
    }
    if is_cumulative && value < 0.0 {
        return Err(Rule::CounterNegative);
    }
    match kind {
        MetricKind::StateSet if value != 0.0 && value != 1.0 => Err(Rule::StateValue),
        MetricKind::Info if value != 1.0 => Err(Rule::InfoValue),
        MetricKind::Summary if suffix.is_empty() && value < 0.0 => Err(Rule::QuantileNegative),
        _ => Ok(()),
    }
}

impl CheckedGroups {
    /// Adds a sample. Returns false if its series is in the group at the same time already.
    fn add(&mut self, kind: MetricKind, sample: &CheckedSample<'_>, group: &Group) -> Result<bool, Rule> {
        let is_last = self.last.as_ref() == Some(group);
        if self.last.is_some() && !is_last && self.seen.contains(group) {
            return Err(Rule::Interleaved);
        }
        if !is_last {
            self.series.clear();
        } else if sample.time_ms.is_some() != self.last_time_ms.is_some() {
            return Err(Rule::MixedTimestamps);
        } else if self.last_time_ms > sample.time_ms && kind != MetricKind::Info {
            return Err(Rule::TimestampsBackwards);
        }
        let labels = sample.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let is_first = self.series.insert((sample.name.to_owned(), labels));
        let is_new = is_first || !is_last || sample.time_ms != self.last_time_ms;
        if !is_last {
            self.seen.insert(group.clone());
            self.last = Some(group.clone());
        }
        self.last_time_ms = sample.time_ms;
        Ok(is_new)
    }
}
