//! Parameters of functions: types, conversion and binding of arguments.
//!
//! Invariants: arguments are converted only if all of them are valid, otherwise the function gets them as
//! written and refuses what it cannot use, as graphite-web without enforced validation does.
//! Not here: the functions and their table (`functions`).

use crate::aggregation::NAMES;
use crate::error::EvalError;
use crate::series::Series;
use crate::time::interval_seconds;
use crate::value::{Value, parse_integer, parse_number};

/// Type of a parameter; the names equal the names in `/functions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterType {
    /// Name of an aggregation.
    AggFunc,
    /// Name of an aggregation or of an aggregating function.
    AggOrSeriesFunc,
    /// Any value, not converted.
    Any,
    /// true or false.
    Boolean,
    /// A point in time.
    Date,
    /// A number, whole or not.
    Float,
    /// A whole number.
    Integer,
    /// A whole number or `inf`.
    IntOrInf,
    /// A whole number or an interval.
    IntOrInterval,
    /// An interval such as `5min`.
    Interval,
    /// Index of a node of the path.
    Node,
    /// Index of a node or key of a tag.
    NodeOrTag,
    /// A list of series.
    SeriesList,
    /// A list of lists of series.
    SeriesLists,
    /// A text of any content.
    Text,
    /// Key of a tag.
    Tag,
}

impl ParameterType {
    /// Name in `/functions`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            ParameterType::AggFunc => "aggFunc",
            ParameterType::AggOrSeriesFunc => "aggOrSeriesFunc",
            ParameterType::Any => "any",
            ParameterType::Boolean => "boolean",
            ParameterType::Date => "date",
            ParameterType::Float => "float",
            ParameterType::Integer => "integer",
            ParameterType::IntOrInf => "intOrInf",
            ParameterType::IntOrInterval => "intOrInterval",
            ParameterType::Interval => "interval",
            ParameterType::Node => "node",
            ParameterType::NodeOrTag => "nodeOrTag",
            ParameterType::SeriesList => "seriesList",
            ParameterType::SeriesLists => "seriesLists",
            ParameterType::Text => "string",
            ParameterType::Tag => "tag",
        }
    }
}

/// Number of times that a parameter may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occurrence {
    /// Exactly once per call.
    Required,
    /// Once or not at all.
    Optional,
    /// Once or more, at the end.
    Repeated,
    /// Any number of times, at the end.
    OptionalRepeated,
}

/// Default value that `/functions` shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DefaultValue {
    /// No default is shown.
    Absent,
    /// A number; infinities print as 1e9999.
    Number(f64),
    /// A text of any content.
    Text(&'static str),
    /// Either true or false.
    Bool(bool),
}

/// One parameter of a function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parameter {
    /// Name for keyword arguments.
    pub name: &'static str,
    /// Type.
    pub kind: ParameterType,
    /// Number of times that it may be given.
    pub occurrence: Occurrence,
    /// Default in `/functions`.
    pub default: DefaultValue,
    /// Only these texts are valid, if there are any.
    pub options: &'static [&'static str],
}

/// Arguments of a call, bound to parameters.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// One per parameter that is given once; `None` if it is not given.
    single: Vec<Option<Value>>,
    /// Values of the repeated parameter.
    repeated: Vec<Value>,
}

/// Binds positional and keyword arguments.
/// # Errors
/// [`EvalError::Parameter`] if there are too many, or a name is unknown or given twice.
pub(crate) fn bind(
    function: &str,
    parameters: &[Parameter],
    mut args: Vec<Value>,
    mut named: Vec<(String, Value)>,
) -> Result<Bound, EvalError> {
    if let Some((converted, converted_named)) = converted(parameters, &mut args, &mut named) {
        (args, named) = (converted, converted_named);
    }
    let is_repeated = |parameter: &Parameter| {
        matches!(parameter.occurrence, Occurrence::Repeated | Occurrence::OptionalRepeated)
    };
    let single_count = parameters.iter().take_while(|parameter| !is_repeated(parameter)).count();
    assert!(single_count + 1 >= parameters.len(), "only the last parameter of {function} is repeated");
    let is_repeated = single_count < parameters.len();
    let mut args = args.into_iter();
    let mut single: Vec<Option<Value>> = args.by_ref().take(single_count).map(Some).collect();
    let repeated: Vec<Value> = args.collect();
    if !is_repeated && !repeated.is_empty() {
        return Err(EvalError::of_function(function, &format!("takes at most {single_count} arguments")));
    }
    let positional_count = single.len();
    single.resize_with(single_count, || None);
    for (name, value) in named {
        let idx = parameters.iter().take(single_count).position(|parameter| parameter.name == name);
        match idx.filter(|idx| *idx >= positional_count).and_then(|idx| single.get_mut(idx)) {
            Some(slot) => *slot = Some(value),
            None => {
                return Err(EvalError::of_function(
                    function,
                    &format!("unexpected keyword argument '{name}'"),
                ));
            }
        }
    }
    Ok(Bound { single, repeated })
}

type Converted = (Vec<Value>, Vec<(String, Value)>);

/// The converted arguments if all are valid; then the originals are taken.
fn converted(
    parameters: &[Parameter],
    args: &mut Vec<Value>,
    named: &mut Vec<(String, Value)>,
) -> Option<Converted> {
    let last = parameters.last()?;
    let is_repeated = matches!(last.occurrence, Occurrence::Repeated | Occurrence::OptionalRepeated);
    let is_over = args.len() + named.len() > parameters.len();
    if is_over && (!is_repeated || !named.is_empty()) {
        return None;
    }
    for (idx, arg) in args.iter().enumerate() {
        check(parameters.get(idx).unwrap_or(last), arg)?;
    }
    for (name, value) in named.iter() {
        let parameter = parameters.iter().skip(args.len()).find(|parameter| parameter.name == name)?;
        if matches!(value, Value::None) {
            return None;
        }
        check(parameter, value)?;
    }
    let is_missing = |parameter: &&Parameter| {
        matches!(parameter.occurrence, Occurrence::Required | Occurrence::Repeated)
            && !named.iter().any(|(name, _)| name == parameter.name)
    };
    if parameters.iter().skip(args.len()).any(|parameter| is_missing(&parameter)) {
        return None;
    }
    let args = std::mem::take(args).into_iter().enumerate();
    let args = args.map(|(idx, value)| convert(parameters.get(idx).unwrap_or(last).kind, value)).collect();
    let kind_of = |name: &str| {
        parameters
            .iter()
            .find(|parameter| parameter.name == name)
            .map_or(ParameterType::Any, |found| found.kind)
    };
    let named = std::mem::take(named)
        .into_iter()
        .map(|(name, value)| (name.clone(), convert(kind_of(&name), value)))
        .collect();
    Some((args, named))
}

/// `Some` if the value is valid for the parameter.
fn check(parameter: &Parameter, value: &Value) -> Option<()> {
    if matches!(value, Value::None)
        && (parameter.default != DefaultValue::Absent
            || !matches!(parameter.occurrence, Occurrence::Required | Occurrence::Repeated))
    {
        return Some(());
    }
    if !parameter.options.is_empty() {
        let Value::Text(text) = value else { return None };
        if !parameter.options.contains(&text.as_str()) {
            return None;
        }
    }
    let is_valid = match (parameter.kind, value) {
        (ParameterType::Boolean, Value::Text(text)) => {
            text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
        }
        (ParameterType::Boolean, Value::Int(value)) => (0..=1).contains(value),
        (ParameterType::Boolean, Value::Float(value)) => *value == 0.0 || *value == 1.0,
        (ParameterType::Float, Value::Text(text)) => parse_number(text).is_some(),
        (ParameterType::Float, value) => value.number().is_some(),
        (ParameterType::Integer | ParameterType::Node, Value::Int(_) | Value::Bool(_)) => true,
        (ParameterType::Integer | ParameterType::Node, Value::Text(text)) => parse_integer(text).is_some(),
        (ParameterType::Integer | ParameterType::Node, _) => false,
        (ParameterType::IntOrInf, Value::Int(_) | Value::Bool(_)) => true,
        (ParameterType::IntOrInf, Value::Float(value)) => *value == f64::INFINITY,
        (ParameterType::IntOrInf, Value::Text(text)) => {
            parse_integer(text).is_some() || parse_number(text) == Some(f64::INFINITY)
        }
        (ParameterType::IntOrInf, _) => false,
        (ParameterType::Interval, Value::Text(text)) => interval_seconds(text).is_ok(),
        (ParameterType::Interval, _) => false,
        (ParameterType::SeriesList, value) => matches!(value, Value::Series(_)),
        (ParameterType::SeriesLists, value) => matches!(value, Value::Lists(_)),
        (ParameterType::AggFunc, Value::Text(text)) => {
            let name = text.strip_suffix("Series").unwrap_or(text);
            // The options of the type hold the plain names only, and they are looked at first.
            name.len() == text.len() && NAMES.iter().any(|(known, _)| *known == name)
        }
        (ParameterType::AggFunc | ParameterType::AggOrSeriesFunc, value) => matches!(value, Value::Text(_)),
        _ => true,
    };
    is_valid.then_some(())
}

fn convert(kind: ParameterType, value: Value) -> Value {
    match (kind, value) {
        (_, Value::None) => Value::None,
        (ParameterType::Boolean, Value::Text(text)) => Value::Bool(text.eq_ignore_ascii_case("true")),
        (ParameterType::Boolean, value) => Value::Bool(value.is_truthy()),
        (ParameterType::Float, Value::Text(text)) => Value::Float(parse_number(&text).unwrap_or(0.0)),
        (ParameterType::Float, value) => Value::Float(value.number().unwrap_or(0.0)),
        (ParameterType::IntOrInf, Value::Text(text)) => {
            parse_integer(&text).map_or(Value::Float(f64::INFINITY), Value::Int)
        }
        (ParameterType::Integer | ParameterType::Node | ParameterType::IntOrInf, value) => {
            match value.whole() {
                Some(whole) => Value::Int(whole),
                None => value,
            }
        }
        (_, value) => value,
    }
}

impl Bound {
    /// The value of a parameter, if it is given.
    #[must_use]
    pub(crate) fn value(&self, idx: usize) -> Option<&Value> {
        debug_assert!(idx < self.single.len(), "a function reads the parameters of its signature");
        self.single.get(idx).and_then(Option::as_ref)
    }

    /// The value of a parameter if it is given and not `none`.
    #[must_use]
    pub(crate) fn given(&self, idx: usize) -> Option<&Value> {
        self.value(idx).filter(|value| !matches!(value, Value::None))
    }

    fn wrong(idx: usize, expected: &str) -> EvalError {
        EvalError::Parameter(format!("argument {} is missing or is not {expected}", idx + 1))
    }

    /// Takes a list of series.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is missing or is something else.
    pub(crate) fn take_series(&mut self, idx: usize) -> Result<Vec<Series>, EvalError> {
        match self.single.get_mut(idx).and_then(Option::take) {
            Some(Value::Series(list)) => Ok(list),
            Some(Value::Lists(lists)) if lists.is_empty() => Ok(Vec::new()),
            _ => Err(Self::wrong(idx, "a list of series")),
        }
    }

    /// Takes a list of lists.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is missing or is something else.
    pub(crate) fn take_lists(&mut self, idx: usize) -> Result<Vec<Vec<Series>>, EvalError> {
        match self.single.get_mut(idx).and_then(Option::take) {
            Some(Value::Lists(lists)) => Ok(lists),
            Some(Value::Series(list)) if list.is_empty() => Ok(Vec::new()),
            _ => Err(Self::wrong(idx, "a list of lists of series")),
        }
    }

    /// A number.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is missing or is something else.
    pub(crate) fn number(&self, idx: usize) -> Result<f64, EvalError> {
        self.value(idx).and_then(Value::number).ok_or_else(|| Self::wrong(idx, "a number"))
    }

    /// A number or `none`.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is something else.
    pub(crate) fn optional_number(&self, idx: usize) -> Result<Option<f64>, EvalError> {
        self.given(idx).map(|value| value.number().ok_or_else(|| Self::wrong(idx, "a number"))).transpose()
    }

    /// A whole number, `default` if it is not given.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is something else.
    pub(crate) fn integer_or(&self, idx: usize, default: i64) -> Result<i64, EvalError> {
        match self.value(idx) {
            None => Ok(default),
            Some(Value::Int(value)) => Ok(*value),
            Some(Value::Bool(value)) => Ok(i64::from(*value)),
            Some(_) => Err(Self::wrong(idx, "a whole number")),
        }
    }

    /// A whole number.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is missing or is something else.
    pub(crate) fn integer(&self, idx: usize) -> Result<i64, EvalError> {
        self.value(idx).ok_or_else(|| Self::wrong(idx, "a whole number"))?;
        self.integer_or(idx, 0)
    }

    /// A text.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is missing or is something else.
    pub(crate) fn text(&self, idx: usize) -> Result<&str, EvalError> {
        match self.value(idx) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(Self::wrong(idx, "a text")),
        }
    }

    /// A text, `default` if it is not given.
    /// # Errors
    /// [`EvalError::Parameter`] if the parameter is something else.
    pub(crate) fn text_or<'a>(&'a self, idx: usize, default: &'a str) -> Result<&'a str, EvalError> {
        if self.value(idx).is_none() { Ok(default) } else { self.text(idx) }
    }

    /// Returns true if the parameter counts as true; `default` if it is not given.
    #[must_use]
    pub(crate) fn is_set_or(&self, idx: usize, default: Toggle) -> bool {
        self.value(idx).map_or(default == Toggle::On, Value::is_truthy)
    }

    /// Values of the repeated parameter.
    #[must_use]
    pub(crate) fn repeated(&self) -> &[Value] {
        &self.repeated
    }

    /// Takes the repeated parameter as lists of series.
    /// # Errors
    /// [`EvalError::Parameter`] if one is something else.
    pub(crate) fn take_repeated_series(&mut self) -> Result<Vec<Vec<Series>>, EvalError> {
        let lists = std::mem::take(&mut self.repeated).into_iter().enumerate();
        lists
            .map(|(idx, value)| match value {
                Value::Series(list) => Ok(list),
                _ => Err(Self::wrong(idx, "a list of series")),
            })
            .collect()
    }
}

/// Default of a parameter that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toggle {
    /// On unless it is given.
    On,
    /// Off unless it is given.
    Off,
}
