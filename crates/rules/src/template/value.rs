//! Values that a template computes with, and the names of their Go types.
//!
//! Invariants: values are immutable and shared; their depth is limited where they are made (`args`).
//! Not here: printing (`format`), fields and methods (`eval`).

mod time;

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::FloatHistogram;

pub(super) use time::{
    SECOND_NANOS, Time, YEAR_ONE_SECONDS, duration_text, go_int, month_name, weekday_name,
};

/// A value of a template.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// No value: an untyped nil.
    Nil,
    Bool(bool),
    Int(IntType, i64),
    Uint(UintType, u64),
    Float(f64),
    /// Real and imaginary part.
    Complex([f64; 2]),
    /// Bytes, UTF-8 by convention.
    Text(Arc<[u8]>),
    /// Text of the type of `safeHtml`.
    Html(Arc<[u8]>),
    Map(Arc<Map>),
    List(Arc<List>),
    Struct(Arc<Struct>),
    Time(Time),
    Histogram(Arc<FloatHistogram>),
    Pointer(Arc<Value>),
    /// A nil of this pointer type.
    NilPointer(&'static str),
}

/// Signed integers of different types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntType {
    Int,
    Int32,
    Int64,
    /// Nanoseconds of a duration.
    Duration,
    /// 1 to 12.
    Month,
    /// From 0, which is Sunday.
    Weekday,
}

/// Unsigned integers of different types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UintType {
    Uint8,
    Uint32,
    Uint64,
    ResetHint,
}

/// Type of the elements of a map or the fields of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementType {
    Text,
    /// Values of all types: `interface {}`.
    Any,
    Other,
}

/// A map with keys that are strings.
#[derive(Debug)]
pub(super) struct Map {
    pub(super) element: ElementType,
    pub(super) entries: BTreeMap<Vec<u8>, Value>,
    /// Levels of maps in this one, itself included.
    pub(super) depth: usize,
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) type_name: &'static str,
    pub(super) elements: Vec<Value>,
}

#[derive(Debug)]
pub(super) struct Struct {
    pub(super) type_name: &'static str,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) element: ElementType,
    pub(super) value: Value,
}

pub(super) const TYPE_ANY: &str = "interface {}";
pub(super) const TYPE_QUERY_RESULT: &str = "template.queryResult";
pub(super) const TYPE_SAMPLE: &str = "template.sample";

impl Value {
    pub(super) fn text(text: impl AsRef<[u8]>) -> Value {
        Value::Text(Arc::from(text.as_ref()))
    }

    pub(super) fn int(value: i64) -> Value {
        Value::Int(IntType::Int, value)
    }

    pub(super) fn pointer(self) -> Value {
        Value::Pointer(Arc::new(self))
    }

    /// Returns the name of the Go type; a value without a type has the name of nil.
    pub(super) fn type_name(&self) -> String {
        let name = match self {
            Value::Nil => "nil",
            Value::Bool(_) => "bool",
            Value::Int(int_type, _) => int_type.name(),
            Value::Uint(uint_type, _) => uint_type.name(),
            Value::Float(_) => "float64",
            Value::Complex(_) => "complex128",
            Value::Text(_) => "string",
            Value::Html(_) => "template.HTML",
            Value::Map(map) if map.element == ElementType::Any => "map[string]interface {}",
            Value::Map(_) => "map[string]string",
            Value::List(list) => list.type_name,
            Value::Struct(value) => value.type_name,
            Value::Time(_) => "time.Time",
            Value::Histogram(_) => "histogram.FloatHistogram",
            Value::Pointer(target) => return format!("*{}", target.type_name()),
            Value::NilPointer(type_name) => type_name,
        };
        name.to_owned()
    }

    /// Returns the value that pointers lead to.
    pub(super) fn target(&self) -> &Value {
        match self {
            Value::Pointer(target) => target.target(),
            value => value,
        }
    }

    /// Returns true unless the value is the zero of its type or empty.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Nil | Value::NilPointer(_) => false,
            Value::Bool(value) => *value,
            Value::Int(_, value) => *value != 0,
            Value::Uint(_, value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Complex([real, imaginary]) => *real != 0.0 || *imaginary != 0.0,
            Value::Text(text) | Value::Html(text) => !text.is_empty(),
            Value::Map(map) => !map.entries.is_empty(),
            Value::List(list) => !list.elements.is_empty(),
            Value::Struct(_) | Value::Time(_) | Value::Histogram(_) | Value::Pointer(_) => true,
        }
    }

    /// Levels of maps in the value.
    pub(super) fn depth(&self) -> usize {
        match self.target() {
            Value::Map(map) => map.depth,
            _ => 0,
        }
    }
}

impl IntType {
    pub(super) fn name(self) -> &'static str {
        match self {
            IntType::Int => "int",
            IntType::Int32 => "int32",
            IntType::Int64 => "int64",
            IntType::Duration => "time.Duration",
            IntType::Month => "time.Month",
            IntType::Weekday => "time.Weekday",
        }
    }
}

impl UintType {
    pub(super) fn name(self) -> &'static str {
        match self {
            UintType::Uint8 => "uint8",
            UintType::Uint32 => "uint32",
            UintType::Uint64 => "uint64",
            UintType::ResetHint => "histogram.CounterResetHint",
        }
    }
}

impl Map {
    /// Returns the map of `entries`.
    pub(super) fn new(element: ElementType, entries: BTreeMap<Vec<u8>, Value>) -> Map {
        let depth = 1 + entries.values().map(Value::depth).max().unwrap_or(0);
        Map { element, entries, depth }
    }

    /// Returns the value of `key`; an absent one is the zero of the elements' type.
    pub(super) fn get(&self, key: &[u8]) -> Value {
        match self.entries.get(key) {
            Some(value) => value.clone(),
            None if self.element == ElementType::Text => Value::text(""),
            None => Value::Nil,
        }
    }
}

impl Struct {
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}
