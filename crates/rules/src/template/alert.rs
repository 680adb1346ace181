//! Contract with callers: the alert that a template is expanded for, and the functions that need a database.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels};

use super::value::{ElementType, Field, Map, Struct, TYPE_SAMPLE, Value};

/// Type of the data that a template begins with.
const TYPE_ALERT: &str = "struct { Labels map[string]string; ExternalLabels map[string]string; \
                          ExternalURL string; Value interface {} }";

/// Alert for which a template is expanded.
#[derive(Debug, Clone)]
pub struct TemplateData<'a> {
    /// Labels of the sample, its name included.
    pub labels: &'a Labels,
    /// Labels of the server.
    pub external_labels: &'a Labels,
    /// URL at which clients reach the server.
    pub external_url: &'a str,
    /// Value of the sample.
    pub value: SampleValue,
    /// Time of the evaluation in milliseconds since 1970: the result of `now`.
    pub time_ms: i64,
}

/// Value of a sample.
#[derive(Debug, Clone)]
pub enum SampleValue {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<FloatHistogram>),
}

/// A sample of the result of a query.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Labels, the name included.
    pub labels: Labels,
    /// Float or histogram.
    pub value: SampleValue,
}

/// Functions that need a database.
pub trait Functions {
    /// Returns the samples of the instant query `expression` at the time of the evaluation; a scalar is one
    /// sample without labels.
    ///
    /// # Errors
    /// The text of the failure, which the error of the template ends with.
    fn query(&mut self, expression: &str) -> Result<Vec<Sample>, String>;
}

impl TemplateData<'_> {
    pub(super) fn to_value(&self) -> Value {
        let field = |name, element, value| Field { name, element, value };
        let fields = vec![
            field("Labels", ElementType::Other, labels_value(self.labels)),
            field("ExternalLabels", ElementType::Other, labels_value(self.external_labels)),
            field("ExternalURL", ElementType::Other, Value::text(self.external_url)),
            field("Value", ElementType::Any, self.value.to_value()),
        ];
        Value::Struct(Arc::new(Struct { type_name: TYPE_ALERT, fields }))
    }
}

impl Sample {
    pub(super) fn to_value(&self) -> Value {
        let fields = vec![
            Field { name: "Labels", element: ElementType::Other, value: labels_value(&self.labels) },
            Field { name: "Value", element: ElementType::Any, value: self.value.to_value() },
        ];
        Value::Struct(Arc::new(Struct { type_name: TYPE_SAMPLE, fields }))
    }
}

impl SampleValue {
    pub(super) fn to_value(&self) -> Value {
        match self {
            SampleValue::Float(value) => Value::Float(*value),
            SampleValue::Histogram(histogram) => Value::Histogram(Arc::clone(histogram)).pointer(),
        }
    }
}

fn labels_value(labels: &Labels) -> Value {
    let entries: BTreeMap<_, _> =
        labels.iter().map(|(name, value)| (name.as_bytes().to_vec(), Value::text(value))).collect();
    Value::Map(Arc::new(Map::new(ElementType::Text, entries)))
}
