//! Messages of OTLP metrics: names, numbers and kinds of fields (opentelemetry-proto 1.x).
//!
//! Invariant: the numbers are those by which `walk` and `points` read.
//! Not here: fields without a reader (dropped counts, minimum, maximum, entities).

/// A message, or a list of points, with the fields that are read.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    /// Name in JSON.
    pub(super) name: &'static str,
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) is_repeated: bool,
    /// Set for varints that may be negative.
    pub(super) is_signed: bool,
}

/// Kind of the values of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Message(&'static Message),
    Text,
    /// Bytes, in JSON in base64.
    Bytes,
    /// Bytes, in JSON in hexadecimal digits.
    Id,
    Bool,
    Varint,
    /// Varint with the sign in the lowest bit.
    SignedVarint,
    Fixed64,
    SignedFixed64,
    Double,
}

impl Kind {
    /// Returns the value that JSON has, for messages.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Kind::Message(_) => "an object",
            Kind::Text => "a text",
            Kind::Bytes => "base64",
            Kind::Id => "hexadecimal digits",
            Kind::Bool => "true or false",
            Kind::Varint | Kind::SignedVarint | Kind::Fixed64 | Kind::SignedFixed64 => "an integer",
            Kind::Double => "a number",
        }
    }
}

const fn one(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { name, number, kind, is_repeated: false, is_signed: false }
}

const fn many(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { name, number, kind, is_repeated: true, is_signed: false }
}

/// `ExportMetricsServiceRequest`.
pub(super) static REQUEST: Message = Message {
    name: "ExportMetricsServiceRequest",
    fields: &[many(1, "resourceMetrics", Kind::Message(&RESOURCE_METRICS))],
};

static RESOURCE_METRICS: Message = Message {
    name: "ResourceMetrics",
    fields: &[
        one(1, "resource", Kind::Message(&RESOURCE)),
        many(2, "scopeMetrics", Kind::Message(&SCOPE_METRICS)),
        one(3, "schemaUrl", Kind::Text),
    ],
};

static RESOURCE: Message =
    Message { name: "Resource", fields: &[many(1, "attributes", Kind::Message(&KEY_VALUE))] };

static SCOPE_METRICS: Message = Message {
    name: "ScopeMetrics",
    fields: &[
        one(1, "scope", Kind::Message(&SCOPE)),
        many(2, "metrics", Kind::Message(&METRIC)),
        one(3, "schemaUrl", Kind::Text),
    ],
};

static SCOPE: Message = Message {
    name: "InstrumentationScope",
    fields: &[
        one(1, "name", Kind::Text),
        one(2, "version", Kind::Text),
        many(3, "attributes", Kind::Message(&KEY_VALUE)),
    ],
};

static METRIC: Message = Message {
    name: "Metric",
    fields: &[
        one(1, "name", Kind::Text),
        one(2, "description", Kind::Text),
        one(3, "unit", Kind::Text),
        one(5, "gauge", Kind::Message(&GAUGE)),
        one(7, "sum", Kind::Message(&SUM)),
        one(9, "histogram", Kind::Message(&HISTOGRAM)),
        one(10, "exponentialHistogram", Kind::Message(&EXPONENTIAL_HISTOGRAM)),
        one(11, "summary", Kind::Message(&SUMMARY)),
    ],
};

static GAUGE: Message =
    Message { name: "Gauge", fields: &[many(1, "dataPoints", Kind::Message(&NUMBER_POINT))] };

static SUM: Message = Message {
    name: "Sum",
    fields: &[
        many(1, "dataPoints", Kind::Message(&NUMBER_POINT)),
        one(2, "aggregationTemporality", Kind::Varint),
        one(3, "isMonotonic", Kind::Bool),
    ],
};

static HISTOGRAM: Message = Message {
    name: "Histogram",
    fields: &[
        many(1, "dataPoints", Kind::Message(&HISTOGRAM_POINT)),
        one(2, "aggregationTemporality", Kind::Varint),
    ],
};

static EXPONENTIAL_HISTOGRAM: Message = Message {
    name: "ExponentialHistogram",
    fields: &[
        many(1, "dataPoints", Kind::Message(&EXPONENTIAL_POINT)),
        one(2, "aggregationTemporality", Kind::Varint),
    ],
};

static SUMMARY: Message =
    Message { name: "Summary", fields: &[many(1, "dataPoints", Kind::Message(&SUMMARY_POINT))] };

static NUMBER_POINT: Message = Message {
    name: "NumberDataPoint",
    fields: &[
        one(2, "startTimeUnixNano", Kind::Fixed64),
        one(3, "timeUnixNano", Kind::Fixed64),
        one(4, "asDouble", Kind::Double),
        many(5, "exemplars", Kind::Message(&EXEMPLAR)),
        one(6, "asInt", Kind::SignedFixed64),
        many(7, "attributes", Kind::Message(&KEY_VALUE)),
        one(8, "flags", Kind::Varint),
    ],
};

static HISTOGRAM_POINT: Message = Message {
    name: "HistogramDataPoint",
    fields: &[
        one(2, "startTimeUnixNano", Kind::Fixed64),
        one(3, "timeUnixNano", Kind::Fixed64),
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        many(6, "bucketCounts", Kind::Fixed64),
        many(7, "explicitBounds", Kind::Double),
        many(8, "exemplars", Kind::Message(&EXEMPLAR)),
        many(9, "attributes", Kind::Message(&KEY_VALUE)),
        one(10, "flags", Kind::Varint),
    ],
};

static EXPONENTIAL_POINT: Message = Message {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        many(1, "attributes", Kind::Message(&KEY_VALUE)),
        one(2, "startTimeUnixNano", Kind::Fixed64),
        one(3, "timeUnixNano", Kind::Fixed64),
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        one(6, "scale", Kind::SignedVarint),
        one(7, "zeroCount", Kind::Fixed64),
        one(8, "positive", Kind::Message(&BUCKETS)),
        one(9, "negative", Kind::Message(&BUCKETS)),
        one(10, "flags", Kind::Varint),
        many(11, "exemplars", Kind::Message(&EXEMPLAR)),
        one(14, "zeroThreshold", Kind::Double),
    ],
};

static BUCKETS: Message = Message {
    name: "Buckets",
    fields: &[one(1, "offset", Kind::SignedVarint), many(2, "bucketCounts", Kind::Varint)],
};

static SUMMARY_POINT: Message = Message {
    name: "SummaryDataPoint",
    fields: &[
        one(2, "startTimeUnixNano", Kind::Fixed64),
        one(3, "timeUnixNano", Kind::Fixed64),
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        many(6, "quantileValues", Kind::Message(&QUANTILE)),
        many(7, "attributes", Kind::Message(&KEY_VALUE)),
        one(8, "flags", Kind::Varint),
    ],
};

static QUANTILE: Message = Message {
    name: "ValueAtQuantile",
    fields: &[one(1, "quantile", Kind::Double), one(2, "value", Kind::Double)],
};

static EXEMPLAR: Message = Message {
    name: "Exemplar",
    fields: &[
        one(2, "timeUnixNano", Kind::Fixed64),
        one(3, "asDouble", Kind::Double),
        one(4, "spanId", Kind::Id),
        one(5, "traceId", Kind::Id),
        one(6, "asInt", Kind::SignedFixed64),
        many(7, "filteredAttributes", Kind::Message(&KEY_VALUE)),
    ],
};

static KEY_VALUE: Message = Message {
    name: "KeyValue",
    fields: &[one(1, "key", Kind::Text), one(2, "value", Kind::Message(&ANY_VALUE))],
};

static ANY_VALUE: Message = Message {
    name: "AnyValue",
    fields: &[
        one(1, "stringValue", Kind::Text),
        one(2, "boolValue", Kind::Bool),
        Field { name: "intValue", number: 3, kind: Kind::Varint, is_repeated: false, is_signed: true },
        one(4, "doubleValue", Kind::Double),
        one(5, "arrayValue", Kind::Message(&ARRAY)),
        one(6, "kvlistValue", Kind::Message(&KEY_VALUES)),
        one(7, "bytesValue", Kind::Bytes),
    ],
};

static ARRAY: Message =
    Message { name: "ArrayValue", fields: &[many(1, "values", Kind::Message(&ANY_VALUE))] };

static KEY_VALUES: Message =
    Message { name: "KeyValueList", fields: &[many(1, "values", Kind::Message(&KEY_VALUE))] };
