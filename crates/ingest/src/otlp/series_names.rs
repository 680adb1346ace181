//! Names of the series at hand: resource, scope and metric, translated when a series is not known.
//!
//! Invariant: labels of a resource and of a scope are read at most once per message.
//! Not here: the lookup of known series (`writer`).

use chronolith_model::MetricKind;
use chronolith_model::labels::METRIC_NAME;

use super::attributes::Attributes;
use super::labels::{BaseLabels, Declared, ResourceLabels, ScopeLabels, compose, declared};
use super::refused::PointReject;
use super::settings::OtlpSettings;
use crate::remote_write::WireError;
use crate::remote_write::v2::SeriesNaming;
use crate::remote_write::wire::{Cursor, LEN};

/// Label that tells the series of one point from each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Extra {
    None,
    /// Upper bound of a bucket.
    Le(f64),
    Quantile(f64),
}

/// Name, version and attributes of a scope.
#[derive(Clone, Copy)]
struct ScopeFields<'a> {
    name: &'a [u8],
    version: &'a [u8],
    attributes: Attributes<'a>,
}

/// Resource, scope and metric of the points at hand.
pub(super) struct SeriesNames<'a> {
    settings: &'a OtlpSettings,
    naming: SeriesNaming,
    resource: Attributes<'a>,
    resource_labels: Option<Result<ResourceLabels, PointReject>>,
    scope: Cursor<'a>,
    schema: &'a [u8],
    scope_labels: Option<Result<Option<ScopeLabels>, PointReject>>,
    /// Translated name of the metric.
    pub(super) family: String,
    /// Translated unit, empty without one.
    pub(super) unit: String,
    pub(super) kind: MetricKind,
}

impl<'a> SeriesNames<'a> {
    pub(super) fn new(settings: &'a OtlpSettings, naming: SeriesNaming) -> SeriesNames<'a> {
        SeriesNames {
            settings,
            naming,
            resource: Attributes::new(Cursor::new(&[]), 1),
            resource_labels: None,
            scope: Cursor::new(&[]),
            schema: &[],
            scope_labels: None,
            family: String::new(),
            unit: String::new(),
            kind: MetricKind::Unknown,
        }
    }

    pub(super) fn settings(&self) -> &'a OtlpSettings {
        self.settings
    }

    /// Begins a resource.
    pub(super) fn set_resource(&mut self, resource: Attributes<'a>) {
        self.resource = resource;
        self.resource_labels = None;
    }

    /// Begins a scope of the resource.
    pub(super) fn set_scope(&mut self, scope: Cursor<'a>, schema: &'a [u8]) {
        self.scope = scope;
        self.schema = schema;
        self.scope_labels = None;
    }

    /// Returns the labels of the resource.
    pub(super) fn resource_labels(&mut self) -> Result<&ResourceLabels, PointReject> {
        let settings = self.settings;
        let resource = self.resource;
        let labels = self.resource_labels.get_or_insert_with(|| ResourceLabels::read(settings, resource));
        labels.as_ref().map_err(|reject| *reject)
    }

    /// Returns the labels of a point.
    pub(super) fn base(&mut self, attributes: Attributes<'_>) -> Result<BaseLabels, PointReject> {
        self.resource_labels()?;
        let settings = self.settings;
        if self.scope_labels.is_none() {
            self.scope_labels = Some(self.read_scope());
        }
        let (Some(Ok(resource)), Some(scope)) = (&self.resource_labels, &self.scope_labels) else {
            return Err(PointReject::Malformed);
        };
        let scope = scope.as_ref().map_err(|reject| *reject)?.as_ref();
        let declared: Option<Declared> = match self.naming {
            SeriesNaming::AsSent => None,
            SeriesNaming::TypeAndUnit => Some(declared(settings, self.kind.as_str(), &self.unit)),
        };
        // A metric without a unit keeps an attribute of the name of the label.
        let declared = declared.as_ref().map(|labels| match labels {
            labels if self.unit.is_empty() => &labels[..1],
            labels => &labels[..],
        });
        compose(settings, attributes, resource, scope, declared)
    }

    fn read_scope(&self) -> Result<Option<ScopeLabels>, PointReject> {
        if !self.settings.promote_scope_metadata {
            return Ok(None);
        }
        let scope = ScopeFields::read(self.scope)?;
        ScopeLabels::read(self.settings, scope.name, scope.version, self.schema, scope.attributes)
    }

    /// Writes the key of a series of the point with the labels `base` to `out`, which is cleared first.
    pub(super) fn write_key(
        &self,
        base: &BaseLabels,
        suffix: &str,
        extra: Extra,
        out: &mut Vec<u8>,
    ) -> Result<(), PointReject> {
        out.clear();
        let name = if suffix.is_empty() { &self.family } else { &format!("{}{suffix}", self.family) };
        match extra {
            Extra::None => base.write_key(&[(METRIC_NAME, name)], out),
            Extra::Le(bound) => base.write_key(&[(METRIC_NAME, name), ("le", &number_text(bound))], out),
            Extra::Quantile(quantile) => {
                base.write_key(&[(METRIC_NAME, name), ("quantile", &number_text(quantile))], out)
            }
        }
    }
}

/// Returns the shortest decimal text without an exponent, as Prometheus has it for bounds and quantiles.
fn number_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    format!("{number}")
}

impl<'a> ScopeFields<'a> {
    fn read(message: Cursor<'a>) -> Result<ScopeFields<'a>, WireError> {
        let mut at = message;
        let mut out = ScopeFields { name: &[], version: &[], attributes: Attributes::new(message, 3) };
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => out.name = at.message()?.rest(),
                (2, LEN) => out.version = at.message()?.rest(),
                (3, LEN) => drop(at.message()?),
                (1..=3, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }
}
