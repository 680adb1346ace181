//! Families of samples: name, type, help text and values of a metric at one moment.
//! Not here: the text formats (`server`), the declarations of metrics (`definition`).

use chronolith_model::{MetadataEntry, MetricKind};

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by bucket, with sum and count.
    Histogram,
}

impl FamilyKind {
    /// Name in the text formats.
    pub fn as_str(self) -> &'static str {
        match self {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        }
    }
}

impl From<FamilyKind> for MetricKind {
    fn from(kind: FamilyKind) -> MetricKind {
        match kind {
            FamilyKind::Counter => MetricKind::Counter,
            FamilyKind::Gauge => MetricKind::Gauge,
            FamilyKind::Histogram => MetricKind::Histogram,
        }
    }
}

/// Units that end a name, before `_total`.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// One sample of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilySample {
    /// Suffix of the family's name (`_bucket`, `_sum`, `_count` or nothing).
    pub suffix: &'static str,
    /// Label pairs in the order of the declaration.
    pub labels: Vec<(&'static str, String)>,
    /// Value at this moment.
    pub value: f64,
}

/// Samples that share a name, a type and a help text.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name, with unit and `_total`.
    pub name: String,
    /// Type.
    pub kind: FamilyKind,
    /// Help text.
    pub help: &'static str,
    /// Samples in order of the declaration.
    pub samples: Vec<FamilySample>,
}

impl Family {
    /// Unit by the name; empty for counts.
    pub fn unit(&self) -> &'static str {
        unit_of(&self.name)
    }

    /// The family as `/api/v1/metadata` lists it.
    pub fn metadata(&self) -> MetadataEntry {
        MetadataEntry {
            metric: self.name.clone(),
            kind: self.kind.into(),
            help: self.help.to_owned(),
            unit: self.unit().to_owned(),
        }
    }
}

/// The unit of a metric, which is the last word of its name before `_total`; empty for counts and flags.
pub fn unit_of(name: &str) -> &'static str {
    let bare = name.strip_suffix("_total").unwrap_or(name);
    let last = bare.rsplit('_').next().unwrap_or(bare);
    UNITS.into_iter().find(|unit| *unit == last).unwrap_or("")
}
