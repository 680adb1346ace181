//! Types of parameters.

use super::super::value::{IntType, TYPE_ANY, TYPE_QUERY_RESULT, TYPE_SAMPLE, Value};

/// Type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum Param {
    /// Any value, no value included.
    Reflect,
    Any,
    Text,
    Samples,
    Sample,
    Time,
    Int(IntType),
}

impl Param {
    pub(in crate::template) fn type_name(self) -> String {
        match self {
            Param::Reflect => "reflect.Value".to_owned(),
            Param::Any => TYPE_ANY.to_owned(),
            Param::Text => "string".to_owned(),
            Param::Samples => TYPE_QUERY_RESULT.to_owned(),
            Param::Sample => format!("*{TYPE_SAMPLE}"),
            Param::Time => "time.Time".to_owned(),
            Param::Int(int_type) => int_type.name().to_owned(),
        }
    }

    pub(in crate::template) fn can_be_nil(self) -> bool {
        matches!(self, Param::Reflect | Param::Any | Param::Samples | Param::Sample)
    }

    /// Returns true if a value of the type of `value` can be an argument.
    pub(in crate::template) fn accepts(self, value: &Value) -> bool {
        match self {
            Param::Reflect | Param::Any => true,
            Param::Text => matches!(value, Value::Text(_)),
            Param::Samples => matches!(value, Value::List(list) if list.type_name == TYPE_QUERY_RESULT),
            Param::Sample => {
                let Value::Pointer(target) = value else { return false };
                matches!(target.as_ref(), Value::Struct(fields) if fields.type_name == TYPE_SAMPLE)
            }
            Param::Time => matches!(value, Value::Time(_)),
            Param::Int(int_type) => matches!(value, Value::Int(value_type, _) if *value_type == int_type),
        }
    }
}
