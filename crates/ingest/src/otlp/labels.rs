//! Labels of a series: attributes of point, resource and scope, job and instance, type and unit.
//!
//! Runs for series that the key memory lacks.
//! Invariants: the labels of a key are sorted by name, and of remote write 1.0's bytes (`put_label`). Names
//! are unique, except that attributes of one name stay apart without escaping, which the head refuses.
//! Not here: names (`names`), values of attributes as text (`attributes`).

use chronolith_model::labels::METRIC_NAME;

use super::attributes::Attributes;
use super::names::{label_name, unit_name};
use super::refused::PointReject;
use super::settings::OtlpSettings;
use crate::remote_write::LABEL_SECTION_BYTES_MAX;
use crate::remote_write::v2::put_label;

const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const SERVICE_INSTANCE: &str = "service.instance.id";
/// Attributes of which job and instance are made.
const IDENTIFYING: [&str; 3] = [SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_INSTANCE];

/// A label of a series.
pub(super) type Label = (String, String);

/// Origin of a label, in ascending order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// An attribute of the resource; yields to any other.
    Promoted,
    Point,
    /// Job and instance.
    Target,
    ScopeAttribute,
    Scope,
    /// Type and unit.
    Declared,
}

struct Candidate {
    name: String,
    value: String,
    origin: Origin,
}

/// Labels that the series of one resource share.
#[derive(Debug, Default)]
pub(super) struct ResourceLabels {
    job: String,
    instance: String,
    promoted: Vec<Label>,
}

/// Labels that the series of one scope share.
#[derive(Debug, Default)]
pub(super) struct ScopeLabels {
    attributes: Vec<Label>,
    /// Name, version and schema.
    scope: [Label; 3],
}

/// Labels for type and unit.
pub(super) type Declared = [Label; 2];

/// Labels of a point, without the metric name.
pub(super) struct BaseLabels(Vec<Label>);

impl ResourceLabels {
    /// Reads the attributes of a resource.
    ///
    /// # Errors
    /// The fault of an attribute that is needed.
    pub(super) fn read(
        settings: &OtlpSettings,
        attributes: Attributes<'_>,
    ) -> Result<ResourceLabels, PointReject> {
        let mut promoted = Vec::new();
        let mut identifying = [None, None, None];
        let mut instances = vec![None; settings.instance_from.len()];
        attributes.for_each(|attribute| {
            let key = attribute.key;
            if let Some(idx) = IDENTIFYING.iter().position(|name| *name == key) {
                let slot = identifying.get_mut(idx).filter(|slot| slot.is_none());
                slot.into_iter().try_for_each(|slot| attribute.text().map(|text| *slot = Some(text)))?;
            }
            let wanted = settings.instance_from.iter().position(|name| name == key);
            if let Some(slot) = wanted.and_then(|idx| instances.get_mut(idx)).filter(|slot| slot.is_none()) {
                *slot = Some(attribute.text()?).filter(|text| !text.is_empty());
            }
            if settings.is_promoted(key) {
                let name = label_name(settings, key).map_err(|_| PointReject::InvalidLabelName)?;
                promoted.push((name, attribute.text()?));
            }
            Ok(())
        })?;
        let [namespace, name, instance] = identifying;
        let job = match (namespace, name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (None, Some(name)) => name,
            (_, None) => String::new(),
        };
        let mut instance = instance.unwrap_or_default();
        if job.is_empty() && instance.is_empty() {
            instance = instances.into_iter().flatten().next().unwrap_or_default();
        }
        Ok(ResourceLabels { job, instance, promoted })
    }

    /// Returns true if the series have a job or an instance.
    pub(super) fn has_target(&self) -> bool {
        !self.job.is_empty() || !self.instance.is_empty()
    }

    /// Returns the labels of `target_info`, or `None` if it would have no label besides job and instance, or
    /// neither of both.
    pub(super) fn target_info(
        &self,
        settings: &OtlpSettings,
        attributes: Attributes<'_>,
    ) -> Result<Option<BaseLabels>, PointReject> {
        let mut found = [false; IDENTIFYING.len()];
        let mut count = 0usize;
        attributes.for_each(|attribute| {
            count += 1;
            let idx = IDENTIFYING.iter().position(|name| *name == attribute.key);
            idx.and_then(|idx| found.get_mut(idx)).into_iter().for_each(|found| *found = true);
            Ok(())
        })?;
        if count == found.iter().filter(|found| **found).count() {
            return Ok(None);
        }
        let ignored: &[&str] = if settings.keep_identifying_resource_attributes { &[] } else { &IDENTIFYING };
        let mut candidates = point_labels(settings, attributes, ignored)?;
        self.push_target(&mut candidates);
        let base = merge(candidates, settings.translation_strategy.is_escaping());
        let is_target = |(name, _): &Label| name == "job" || name == "instance";
        Ok(base.0.iter().any(is_target).then_some(base))
    }

    fn push_target(&self, out: &mut Vec<Candidate>) {
        for (name, value) in [("job", &self.job), ("instance", &self.instance)] {
            if !value.is_empty() {
                let origin = Origin::Target;
                out.push(Candidate { name: name.to_owned(), value: value.clone(), origin });
            }
        }
    }
}

impl ScopeLabels {
    /// Returns the labels of a scope; none if it has no name.
    ///
    /// # Errors
    /// The fault of an attribute.
    pub(super) fn read(
        settings: &OtlpSettings,
        name: &[u8],
        version: &[u8],
        schema: &[u8],
        attributes: Attributes<'_>,
    ) -> Result<Option<ScopeLabels>, PointReject> {
        if name.is_empty() {
            return Ok(None);
        }
        let mut out = Vec::new();
        attributes.for_each(|attribute| {
            let name = label_name(settings, &format!("otel_scope_{}", attribute.key));
            out.push((name.map_err(|_| PointReject::InvalidLabelName)?, attribute.text()?));
            Ok(())
        })?;
        let label = |label: &str, value: &[u8]| -> Result<Label, PointReject> {
            let value = std::str::from_utf8(value).map_err(|_| PointReject::InvalidUtf8)?;
            Ok((label.to_owned(), value.to_owned()))
        };
        let scope = [
            label("otel_scope_name", name)?,
            label("otel_scope_version", version)?,
            label("otel_scope_schema_url", schema)?,
        ];
        Ok(Some(ScopeLabels { attributes: out, scope }))
    }
}

/// Returns the labels for type and unit; `unit` is the translated one.
pub(super) fn declared(settings: &OtlpSettings, kind: &str, unit: &str) -> Declared {
    let unit = if unit.is_empty() {
        String::new()
    } else {
        // As in Prometheus, the translated unit is translated again.
        unit_name(unit, settings.translation_strategy.is_escaping())
    };
    [("__type__".to_owned(), kind.to_owned()), ("__unit__".to_owned(), unit)]
}

/// Returns the labels of a point, without the metric name.
///
/// # Errors
/// The fault of an attribute.
pub(super) fn compose(
    settings: &OtlpSettings,
    attributes: Attributes<'_>,
    resource: &ResourceLabels,
    scope: Option<&ScopeLabels>,
    declared: Option<&[Label]>,
) -> Result<BaseLabels, PointReject> {
    let mut out = point_labels(settings, attributes, &[METRIC_NAME])?;
    let mut push = |labels: &[Label], origin: Origin| {
        let candidates = labels.iter().cloned();
        out.extend(candidates.map(|(name, value)| Candidate { name, value, origin }));
    };
    push(&resource.promoted, Origin::Promoted);
    if let Some(scope) = scope {
        push(&scope.attributes, Origin::ScopeAttribute);
        push(&scope.scope, Origin::Scope);
    }
    push(declared.unwrap_or(&[]), Origin::Declared);
    resource.push_target(&mut out);
    Ok(merge(out, settings.translation_strategy.is_escaping()))
}

/// Attributes in the order of their keys, so that values of names that become equal are joined in this order.
fn point_labels(
    settings: &OtlpSettings,
    attributes: Attributes<'_>,
    ignored: &[&str],
) -> Result<Vec<Candidate>, PointReject> {
    let mut pairs = Vec::new();
    attributes.for_each(|attribute| {
        if !ignored.contains(&attribute.key) {
            pairs.push((attribute.key, attribute.text()?));
        }
        Ok(())
    })?;
    pairs.sort_by_key(|(key, _)| *key);
    let is_escaping = settings.translation_strategy.is_escaping();
    let candidate = |(key, value): (&str, String)| {
        let name = if is_escaping { label_name(settings, key) } else { Ok(key.to_owned()) };
        let name = name.map_err(|_| PointReject::InvalidLabelName)?;
        Ok(Candidate { name, value, origin: Origin::Point })
    };
    pairs.into_iter().map(candidate).collect()
}

/// Sorts by name; of one name the candidate with the highest precedence counts, of equal precedence the last
/// one. Attributes of a point are joined with semicolons if names were escaped.
fn merge(mut candidates: Vec<Candidate>, is_escaping: bool) -> BaseLabels {
    candidates.sort_by(|a, b| a.name.cmp(&b.name).then(a.origin.cmp(&b.origin)));
    let mut out: Vec<Label> = Vec::with_capacity(candidates.len());
    for group in candidates.chunk_by(|a, b| a.name == b.name) {
        let Some(last) = group.last() else { continue };
        if last.origin != Origin::Point {
            push_label(&last.name, &last.value, &mut out);
            continue;
        }
        let before = out.len();
        let values = group.iter().filter(|candidate| candidate.origin == Origin::Point);
        if is_escaping {
            let mut joined = String::new();
            for candidate in values {
                joined.push_str(if joined.is_empty() { "" } else { ";" });
                joined.push_str(&candidate.value);
            }
            push_label(&last.name, &joined, &mut out);
        } else {
            values.for_each(|candidate| push_label(&candidate.name, &candidate.value, &mut out));
        }
        let promoted = group.iter().rfind(|candidate| candidate.origin == Origin::Promoted);
        if let Some(promoted) = promoted.filter(|_| out.len() == before) {
            push_label(&promoted.name, &promoted.value, &mut out);
        }
    }
    debug_assert!(out.iter().all(|(_, value)| !value.is_empty()), "a label has a value");
    BaseLabels(out)
}

/// Appends a label, unless its value is empty.
fn push_label(name: &str, value: &str, out: &mut Vec<Label>) {
    if !value.is_empty() {
        out.push((name.to_owned(), value.to_owned()));
    }
}

impl BaseLabels {
    /// Appends the key of a series: these labels, with `extras` (ascending by name) in place of equal names.
    ///
    /// # Errors
    /// [`PointReject::LabelsTooLong`]; then `out` has a part of the key.
    pub(super) fn write_key(&self, extras: &[(&str, &str)], out: &mut Vec<u8>) -> Result<(), PointReject> {
        let start = out.len();
        debug_assert!(extras.is_sorted_by(|a, b| a.0 < b.0), "labels of a key are sorted");
        debug_assert!(self.0.is_sorted_by(|a, b| a.0 <= b.0), "labels of a key are sorted");
        let mut extras = extras.iter().peekable();
        for (name, value) in &self.0 {
            while let Some(&(extra, value)) = extras.next_if(|(extra, _)| *extra < name.as_str()) {
                put_label(out, extra.as_bytes(), value.as_bytes());
            }
            if extras.peek().is_none_or(|(extra, _)| extra != name) {
                put_label(out, name.as_bytes(), value.as_bytes());
            }
        }
        for &(extra, value) in extras {
            put_label(out, extra.as_bytes(), value.as_bytes());
        }
        if out.len() - start > LABEL_SECTION_BYTES_MAX { Err(PointReject::LabelsTooLong) } else { Ok(()) }
    }
}
