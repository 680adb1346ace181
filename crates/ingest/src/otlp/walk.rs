//! The walk over an `ExportMetricsServiceRequest`: resources, scopes, metrics, points.
//!
//! Invariants: fields may come in any order (a resource after its scopes), missing ones have proto3's
//! defaults, unknown ones are skipped. A fault of the outermost message refuses the request; a fault of an
//! inner one is counted, and what lies outside of it is stored.
//! Not here: bytes of JSON (`json`).

use chronolith_base::hash::HashSet;
use chronolith_model::{Exemplar, MetadataEntry};

use super::attributes::Attributes;
use super::explicit::{ExplicitScratch, write_classic, write_custom};
use super::exponential::{ExponentialScratch, write_exponential};
use super::key_memory::{Identity, Part, Verdict};
use super::metric::{MetricFields, MetricType, PointList, Temporality};
use super::names::{metric_name, unit_name};
use super::number::{write_number, write_summary};
use super::refused::PointReject;
use super::target_info::Targets;
use super::writer::{TimeRange, Writer};
use crate::remote_write::DecodeError;
use crate::remote_write::WireError;
use crate::remote_write::wire::{Cursor, LEN};

/// Memory that requests share.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    explicit: ExplicitScratch,
    exponential: ExponentialScratch,
    exemplars: Vec<Exemplar>,
    /// Translated name and unit of a metric, as in the key memory.
    family: Vec<u8>,
    targets: Targets,
    /// Metadata of the request.
    seen_metadata: HashSet<Identity>,
}

/// Walks over one request.
pub(super) struct Walk<'a, 'b> {
    pub(super) writer: Writer<'a, 'b>,
    pub(super) scratch: &'b mut Scratch,
    /// Distance of samples of `target_info`.
    pub(super) target_interval_ms: i64,
}

/// A message with two fields that are messages, one of them repeated.
struct Parts<'a> {
    /// Field 1: the resource or the scope.
    head: Cursor<'a>,
    /// Field 3: URL of the schema.
    schema: &'a [u8],
    /// For the repeated field 2.
    message: Cursor<'a>,
}

impl<'a> Parts<'a> {
    fn read(message: Cursor<'a>) -> Result<Parts<'a>, WireError> {
        let mut at = message;
        let mut head = None;
        let mut schema: &[u8] = &[];
        while !at.is_empty() {
            match at.tag()? {
                // Two of them would have to be merged; no sender writes that.
                (1, LEN) if head.is_some() => return Err(at.error("resource or scope occurs twice")),
                (1, LEN) => head = Some(at.message()?),
                (2, LEN) => drop(at.message()?),
                (3, LEN) => schema = at.message()?.rest(),
                (1..=3, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(Parts { head: head.unwrap_or(Cursor::new(&[])), schema, message })
    }

    /// Calls `each` with the messages of the repeated field.
    fn for_each(
        &self,
        mut each: impl FnMut(Cursor<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut at = self.message;
        while !at.is_empty() {
            match at.tag()? {
                (2, LEN) => each(at.message()?)?,
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}

impl<'a> Walk<'a, '_> {
    pub(super) fn request(&mut self, body: &'a [u8]) -> Result<(), DecodeError> {
        // A body that is cut off stores nothing: its sender gets an error, and sends it again.
        let mut at = Cursor::new(body);
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => drop(at.message()?),
                (1, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        self.scratch.targets.clear();
        self.scratch.seen_metadata.clear();
        let mut at = Cursor::new(body);
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => self.resource_metrics(at.message()?)?,
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }

    fn resource_metrics(&mut self, message: Cursor<'a>) -> Result<(), DecodeError> {
        self.writer.metric_name = &[];
        let parts = match Parts::read(message) {
            Ok(parts) => parts,
            Err(error) => {
                self.writer.malformed(error);
                return Ok(());
            }
        };
        let attributes = Attributes::new(parts.head, 1);
        let identity = self.writer.memory.identity(Part::Resource, parts.head.rest());
        self.writer.names.set_resource(attributes);
        self.writer.has_target = self.scratch.targets.begin(identity, attributes, &mut self.writer);
        self.writer.times = TimeRange::EMPTY;
        parts.for_each(|scope| self.scope_metrics(identity, scope))?;
        let times = self.writer.times;
        if times != TimeRange::EMPTY && !self.writer.has_target {
            self.writer.refused.resource_without_target_count += 1;
        }
        self.scratch.targets.end(times, self.target_interval_ms, &mut self.writer)
    }

    fn scope_metrics(&mut self, resource: Identity, message: Cursor<'a>) -> Result<(), DecodeError> {
        self.writer.metric_name = &[];
        let parts = match Parts::read(message) {
            Ok(parts) => parts,
            Err(error) => {
                self.writer.malformed(error);
                return Ok(());
            }
        };
        self.writer.names.set_scope(parts.head, parts.schema);
        let mut identity = resource;
        if self.writer.names.settings().promote_scope_metadata {
            let memory = &self.writer.memory;
            identity = memory.within(identity, Part::Scope, parts.head.rest());
            identity = memory.within(identity, Part::Schema, parts.schema);
        }
        parts.for_each(|metric| self.metric(identity, metric))
    }

    fn metric(&mut self, scope: Identity, message: Cursor<'a>) -> Result<(), DecodeError> {
        self.writer.metric_name = &[];
        let fields = match MetricFields::read(message) {
            Ok(fields) => fields,
            Err(error) => {
                self.writer.malformed(error);
                return Ok(());
            }
        };
        self.writer.metric_name = fields.name;
        let Some(points) = fields.points.as_ref().filter(|points| points.count > 0) else { return Ok(()) };
        if points.temporality == Temporality::Unspecified {
            self.writer.refused.note(PointReject::NoTemporality, points.count, fields.name, None);
            return Ok(());
        }
        let memory = &self.writer.memory;
        let mut identity = memory.within(scope, Part::MetricName, fields.name);
        identity = memory.within(identity, Part::Unit, fields.unit);
        identity = memory.within(identity, Part::MetricType, &[points.metric_type.number()]);
        debug_assert!(points.count > 0, "a metric without points is skipped");
        self.writer.metric = identity;
        self.writer.is_delta = points.temporality == Temporality::Delta;
        if let Err(reject) = self.set_family(identity, &fields, points.metric_type) {
            self.writer.refused.note(reject, points.count, fields.name, None);
            return Ok(());
        }
        self.metadata(fields.description)?;
        self.points(points)
    }

    /// Looks up or translates the name and the unit of a metric.
    fn set_family(
        &mut self,
        identity: Identity,
        fields: &MetricFields<'_>,
        metric_type: MetricType,
    ) -> Result<(), PointReject> {
        let names = &mut self.writer.names;
        names.kind = metric_type.metric_kind();
        names.family.clear();
        names.unit.clear();
        match self.writer.memory.find(identity) {
            Some(Verdict::Key(record)) => {
                let (family, unit) = split_record(record).ok_or(PointReject::InvalidMetricName)?;
                names.family.push_str(family);
                names.unit.push_str(unit);
                return Ok(());
            }
            Some(Verdict::Dropped(number)) => {
                return Err(PointReject::from_number(number).unwrap_or(PointReject::InvalidMetricName));
            }
            None => {}
        }
        let translated = translate(names.settings(), fields, metric_type);
        match translated {
            Ok((family, unit)) => {
                let record = &mut self.scratch.family;
                record.clear();
                record.extend_from_slice(&(family.len() as u64).to_le_bytes());
                record.extend_from_slice(family.as_bytes());
                record.extend_from_slice(unit.as_bytes());
                self.writer.memory.insert(identity, Verdict::Key(record));
                names.family = family;
                names.unit = unit;
                Ok(())
            }
            Err(reject) => {
                self.writer.memory.insert(identity, Verdict::Dropped(reject as u32));
                Err(reject)
            }
        }
    }

    /// Appends the metadata of the metric, unless the request had the same before.
    fn metadata(&mut self, description: &[u8]) -> Result<(), DecodeError> {
        let names = &self.writer.names;
        let memory = &self.writer.memory;
        let mut identity = memory.identity(Part::MetricName, names.family.as_bytes());
        identity = memory.within(identity, Part::Unit, names.unit.as_bytes());
        identity = memory.within(identity, Part::Help, description);
        identity = memory.within(identity, Part::MetricType, &[names.kind as u8]);
        if !self.scratch.seen_metadata.insert(identity) {
            return Ok(());
        }
        let help = std::str::from_utf8(description).unwrap_or_else(|_| {
            self.writer.refused.metadata_count += 1;
            ""
        });
        let entry = MetadataEntry {
            metric: names.family.clone(),
            kind: names.kind,
            help: help.to_owned(),
            unit: names.unit.clone(),
        };
        self.writer.push_metadata(entry)
    }

    fn points(&mut self, points: &PointList<'a>) -> Result<(), DecodeError> {
        let writer = &mut self.writer;
        let Scratch { explicit, exponential, exemplars, .. } = &mut *self.scratch;
        let is_custom = writer.names.settings().convert_histograms_to_nhcb;
        points.for_each(|message| match points.metric_type {
            MetricType::Gauge => write_number(message, false, exemplars, writer),
            MetricType::Sum { .. } => write_number(message, true, exemplars, writer),
            MetricType::Histogram if is_custom => write_custom(message, explicit, exemplars, writer),
            MetricType::Histogram => write_classic(message, explicit, exemplars, writer),
            MetricType::ExponentialHistogram => write_exponential(message, exponential, exemplars, writer),
            MetricType::Summary => write_summary(message, writer),
        })
    }
}

fn translate(
    settings: &super::settings::OtlpSettings,
    fields: &MetricFields<'_>,
    metric_type: MetricType,
) -> Result<(String, String), PointReject> {
    let utf8 = |text| std::str::from_utf8(text).map_err(|_| PointReject::InvalidUtf8);
    let unit = utf8(fields.unit)?;
    let family = metric_name(settings, utf8(fields.name)?, unit, metric_type.name_kind());
    // As in Prometheus, units of metadata are escaped whatever the strategy.
    Ok((family.map_err(|_| PointReject::InvalidMetricName)?, unit_name(unit, true)))
}

/// Name and unit of a metric.
fn split_record(record: &[u8]) -> Option<(&str, &str)> {
    let (len, texts) = record.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (family, unit) = texts.split_at_checked(len)?;
    Some((std::str::from_utf8(family).ok()?, std::str::from_utf8(unit).ok()?))
}
