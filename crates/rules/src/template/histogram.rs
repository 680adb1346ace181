//! Native histograms as structs of Go, for their fields and for verbs that their text does not suit.

use std::sync::Arc;

use chronolith_model::{FloatHistogram, Span};

use super::value::{ElementType, Field, IntType, List, Struct, UintType, Value};

/// Fields of Prometheus's type of histograms, in its order.
pub(super) fn histogram_fields(histogram: &FloatHistogram) -> Vec<Field> {
    let field = |name, value| Field { name, element: ElementType::Other, value };
    let floats =
        |values: &[f64]| list("[]float64", values.iter().map(|&value| Value::Float(value)).collect());
    let spans = |spans: &[Span]| list("[]histogram.Span", spans.iter().map(span).collect());
    vec![
        field("CounterResetHint", Value::Uint(UintType::ResetHint, histogram.reset_hint as u64)),
        field("Schema", Value::Int(IntType::Int32, i64::from(histogram.schema))),
        field("ZeroThreshold", Value::Float(histogram.zero_threshold)),
        field("ZeroCount", Value::Float(histogram.zero_count)),
        field("Count", Value::Float(histogram.count)),
        field("Sum", Value::Float(histogram.sum)),
        field("PositiveSpans", spans(&histogram.positive.spans)),
        field("NegativeSpans", spans(&histogram.negative.spans)),
        field("PositiveBuckets", floats(&histogram.positive.counts)),
        field("NegativeBuckets", floats(&histogram.negative.counts)),
        field("CustomValues", floats(&histogram.custom_values)),
    ]
}

fn list(type_name: &'static str, elements: Vec<Value>) -> Value {
    Value::List(Arc::new(List { type_name, elements }))
}

fn span(span: &Span) -> Value {
    let field = |name, value| Field { name, element: ElementType::Other, value };
    let fields = vec![
        field("Offset", Value::Int(IntType::Int32, i64::from(span.offset))),
        field("Length", Value::Uint(UintType::Uint32, u64::from(span.length))),
    ];
    Value::Struct(Arc::new(Struct { type_name: "histogram.Span", fields }))
}
