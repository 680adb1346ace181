//! Checks of the fields of SELECT: arguments of functions, and which of them may stand next to each other.
//!
//! Not here: types (`types`).

use super::function::is_math;
use crate::ast::{Call, Expr, Fill, VarRef, format_duration};
use crate::condition::type_name;
use crate::error::SemanticError;
use crate::fold::math_arg_count;

/// Properties of all fields of a SELECT.
pub(super) struct FieldRules {
    /// True if the SELECT has windows.
    pub(super) has_interval: bool,
    /// True if the windows are the outer query's.
    pub(super) is_interval_inherited: bool,
    /// LIMIT; 0 is none.
    pub(super) limit: u64,
    field_count: usize,
    call_count: usize,
    /// True until a function occurs that is no selector.
    only_selectors: bool,
    /// True if fields or tags stand outside of functions.
    has_auxiliary: bool,
    has_distinct: bool,
    /// `top` or `bottom`.
    top_function: Option<String>,
    /// True while the field has no binary operator.
    allows_wildcard: bool,
}

type Checked = Result<(), SemanticError>;

fn refuse(message: impl Into<String>) -> Checked {
    Err(SemanticError::new(message))
}

/// Refuses a number of arguments.
fn refuse_count(name: &str, expected: &str, got: usize) -> Checked {
    refuse(format!("invalid number of arguments for {name}, expected {expected}, got {got}"))
}

impl FieldRules {
    pub(super) fn new(has_interval: bool, is_interval_inherited: bool, limit: u64) -> FieldRules {
        FieldRules {
            has_interval,
            is_interval_inherited,
            limit,
            field_count: 0,
            call_count: 0,
            only_selectors: true,
            has_auxiliary: false,
            has_distinct: false,
            top_function: None,
            allows_wildcard: true,
        }
    }

    /// Checks one field, whose constants have been folded.
    pub(super) fn check_field(&mut self, expr: &Expr) -> Checked {
        self.field_count += 1;
        self.allows_wildcard = true;
        self.check(expr)
    }

    fn check(&mut self, expr: &Expr) -> Checked {
        match expr {
            Expr::Ref(_) => {
                self.has_auxiliary = true;
                Ok(())
            }
            Expr::Wildcard(_) => self.check_wildcard("wildcard"),
            Expr::Regex(_) => self.check_wildcard("regex"),
            Expr::Call(call) if is_math(&call.name) => self.check_math(call),
            Expr::Call(call) => {
                self.call_count += 1;
                self.check_call(call)
            }
            Expr::Distinct(_) => {
                self.call_count += 1;
                self.note_distinct(false);
                Ok(())
            }
            Expr::Chain(chain) => {
                self.allows_wildcard = false;
                self.check_chain(&chain.first, chain.rest.iter().map(|(_, operand)| operand))
            }
            Expr::Paren(inner) => self.check(inner),
            _ => refuse("field must contain at least one variable"),
        }
    }

    fn check_wildcard(&mut self, what: &str) -> Checked {
        self.has_auxiliary = true;
        if self.allows_wildcard {
            return Ok(());
        }
        refuse(format!("unable to use {what} in a binary expression"))
    }

    /// Operands from left to right; literals need no check, unless both of the first operator are some.
    fn check_chain<'a>(&mut self, first: &Expr, mut rest: impl Iterator<Item = &'a Expr>) -> Checked {
        match rest.next() {
            Some(second) if first.is_literal() && second.is_literal() => {
                return refuse("cannot perform a binary expression on two literals");
            }
            Some(second) => {
                for operand in [first, second] {
                    if !operand.is_literal() {
                        self.check(operand)?;
                    }
                }
            }
            None => self.check(first)?,
        }
        rest.filter(|operand| !operand.is_literal()).try_for_each(|operand| self.check(operand))
    }

    fn check_math(&mut self, call: &Call) -> Checked {
        let expected = math_arg_count(&call.name).unwrap_or(1);
        if call.args.len() != expected {
            return refuse_count(&call.name, &expected.to_string(), call.args.len());
        }
        call.args.iter().filter(|arg| !arg.is_literal()).try_for_each(|arg| self.check(arg))
    }

    fn check_call(&mut self, call: &Call) -> Checked {
        let args = call.args.as_slice();
        match call.name.as_str() {
            "percentile" => self.check_percentile(args),
            "sample" => self.check_sample(args),
            "distinct" => self.check_distinct(args, false),
            "top" | "bottom" => self.check_top(call),
            "derivative" | "non_negative_derivative" => {
                check_count_between(&call.name, args, 1, 2)?;
                check_unit(&format!("second argument to {}", call.name), args.get(1))?;
                self.check_transformed(&call.name, args)
            }
            "elapsed" => {
                check_count_between("elapsed", args, 1, 2)?;
                check_unit("second argument to elapsed", args.get(1))?;
                self.check_transformed("elapsed", args)
            }
            "difference" | "non_negative_difference" | "cumulative_sum" => {
                check_count(&call.name, args, 1)?;
                self.check_transformed(&call.name, args)
            }
            "moving_average" => {
                check_count("moving_average", args, 2)?;
                check_moving_average(args)?;
                self.check_transformed("moving_average", args)
            }
            "exponential_moving_average"
            | "double_exponential_moving_average"
            | "triple_exponential_moving_average"
            | "relative_strength_index"
            | "triple_exponential_derivative"
            | "kaufmans_efficiency_ratio"
            | "kaufmans_adaptive_moving_average"
            | "chande_momentum_oscillator" => {
                check_indicator(&call.name, args)?;
                self.check_transformed(&call.name, args)
            }
            "integral" => self.check_integral(args),
            "holt_winters" | "holt_winters_with_fit" => self.check_holt_winters(call),
            _ => self.check_function(call),
        }
    }

    /// Functions of one field.
    fn check_function(&mut self, call: &Call) -> Checked {
        match call.name.as_str() {
            "max" | "min" | "first" | "last" => {}
            "count" | "sum" | "mean" | "median" | "mode" | "stddev" | "spread" => self.only_selectors = false,
            name => return refuse(format!("undefined function {name}()")),
        }
        check_count(&call.name, &call.args, 1)?;
        match call.args.first() {
            Some(Expr::Call(inner)) if call.name == "count" && inner.name == "distinct" => {
                self.check_distinct(&inner.args, true)
            }
            Some(Expr::Distinct(_)) if call.name == "count" => {
                self.note_distinct(true);
                Ok(())
            }
            arg => self.check_symbol(&call.name, arg),
        }
    }

    /// The argument of a function that reads a field.
    fn check_symbol(&mut self, name: &str, arg: Option<&Expr>) -> Checked {
        match arg {
            Some(Expr::Ref(_)) => Ok(()),
            Some(Expr::Wildcard(_)) if !self.allows_wildcard => {
                refuse(format!("unsupported expression with wildcard: {name}()"))
            }
            Some(Expr::Regex(_)) if !self.allows_wildcard => {
                refuse(format!("unsupported expression with regex field: {name}()"))
            }
            Some(Expr::Wildcard(_) | Expr::Regex(_)) => {
                self.only_selectors = false;
                Ok(())
            }
            _ => refuse(format!("expected field argument in {name}()")),
        }
    }

    /// The first argument of a transformation: an aggregate with windows, a field without.
    fn check_transformed(&mut self, name: &str, args: &[Expr]) -> Checked {
        self.only_selectors = false;
        match args.first() {
            Some(Expr::Call(_)) if !self.has_interval => {
                refuse(format!("{name} aggregate requires a GROUP BY interval"))
            }
            Some(arg @ Expr::Call(_)) => self.check_nested(arg),
            _ if self.has_interval && !self.is_interval_inherited => {
                refuse(format!("aggregate function required inside the call to {name}"))
            }
            arg => self.check_symbol(name, arg),
        }
    }

    /// A function below another one.
    fn check_nested(&mut self, expr: &Expr) -> Checked {
        match expr {
            Expr::Call(call) if call.name == "distinct" => self.check_distinct(&call.args, true),
            expr => self.check(expr),
        }
    }

    fn note_distinct(&mut self, is_nested: bool) {
        self.has_distinct |= !is_nested;
        self.only_selectors = false;
    }

    fn check_distinct(&mut self, args: &[Expr], is_nested: bool) -> Checked {
        match args {
            [] => refuse("distinct function requires at least one argument"),
            [Expr::Ref(_)] => {
                self.note_distinct(is_nested);
                Ok(())
            }
            [_] => refuse("expected field argument in distinct()"),
            _ => refuse("distinct function can only have one argument"),
        }
    }

    fn check_percentile(&mut self, args: &[Expr]) -> Checked {
        check_count("percentile", args, 2)?;
        match args.get(1) {
            Some(Expr::Integer(_) | Expr::Number(_)) => self.check_symbol("percentile", args.first()),
            _ => refuse("expected float argument in percentile()"),
        }
    }

    fn check_sample(&mut self, args: &[Expr]) -> Checked {
        check_count("sample", args, 2)?;
        match args.get(1) {
            Some(Expr::Integer(count @ ..=0)) => {
                refuse(format!("sample window must be greater than 1, got {count}"))
            }
            Some(Expr::Integer(_)) => self.check_symbol("sample", args.first()),
            _ => refuse("expected integer argument in sample()"),
        }
    }

    fn check_integral(&mut self, args: &[Expr]) -> Checked {
        check_count_between("integral", args, 1, 2)?;
        match args.get(1) {
            Some(Expr::Duration(ns @ ..=0)) => {
                return refuse(format!("duration argument must be positive, got {}", format_duration(*ns)));
            }
            Some(Expr::Duration(_)) | None => {}
            Some(_) => return refuse("second argument must be a duration"),
        }
        self.only_selectors = false;
        self.check_symbol("integral", args.first())
    }

    fn check_holt_winters(&mut self, call: &Call) -> Checked {
        let name = &call.name;
        check_count(name, &call.args, 3)?;
        match call.args.get(1) {
            Some(Expr::Integer(count @ ..=0)) => {
                return refuse(format!("second arg to {name} must be greater than 0, got {count}"));
            }
            Some(Expr::Integer(_)) => {}
            _ => return refuse(format!("expected integer argument as second arg in {name}")),
        }
        match call.args.get(2) {
            Some(Expr::Integer(count @ ..0)) => {
                return refuse(format!("third arg to {name} cannot be negative, got {count}"));
            }
            Some(Expr::Integer(_)) => {}
            _ => return refuse(format!("expected integer argument as third arg in {name}")),
        }
        self.only_selectors = false;
        match call.args.first() {
            Some(Expr::Call(_)) if !self.has_interval => {
                refuse(format!("{name} aggregate requires a GROUP BY interval"))
            }
            Some(arg @ Expr::Call(_)) => self.check_nested(arg),
            _ => refuse(format!("must use aggregate function with {name}")),
        }
    }

    fn check_top(&mut self, call: &Call) -> Checked {
        let name = &call.name;
        if let Some(other) = &self.top_function {
            return refuse(format!("selector function {other}() cannot be combined with other functions"));
        }
        let [first, tags @ .., last] = call.args.as_slice() else {
            return refuse_count(name, "at least 2", call.args.len());
        };
        let count = match last {
            Expr::Integer(count @ 1..) => count.unsigned_abs(),
            Expr::Integer(count) => {
                return refuse(format!("limit ({count}) in {name} function must be at least 1"));
            }
            _ => return refuse(format!("expected integer as last argument in {name}(), found {last}")),
        };
        if self.limit > 0 && count > self.limit {
            let limit = self.limit;
            return refuse(format!(
                "limit ({count}) in {name} function can not be larger than the LIMIT ({limit}) in the select statement"
            ));
        }
        if !matches!(first, Expr::Ref(_)) {
            return refuse(format!("expected first argument to be a field in {name}(), found {first}"));
        }
        if let Some(other) = tags.iter().find(|tag| !matches!(tag, Expr::Ref(_))) {
            return refuse(format!("only fields or tags are allowed in {name}(), found {other}"));
        }
        self.top_function = Some(name.clone());
        Ok(())
    }

    /// Checks that the fields may stand next to each other.
    pub(super) fn finish(&self, fill: Fill) -> Checked {
        if self.field_count == 0 {
            return refuse("at least 1 non-time field must be queried");
        }
        if let Some(name) = &self.top_function
            && self.call_count > 1
        {
            return refuse(format!("selector function {name}() cannot be combined with other functions"));
        }
        if self.call_count == 0 {
            match fill {
                Fill::None => return refuse("fill(none) must be used with a function"),
                Fill::Linear => return refuse("fill(linear) must be used with a function"),
                _ => {}
            }
            if self.has_interval && !self.is_interval_inherited {
                return refuse("GROUP BY requires at least one aggregate function");
            }
        }
        if self.has_distinct && (self.call_count != 1 || self.has_auxiliary) {
            return refuse("aggregate function distinct() cannot be combined with other functions or fields");
        }
        if self.has_auxiliary && !self.only_selectors {
            return refuse("mixing aggregate and non-aggregate queries is not supported");
        }
        if self.has_auxiliary && self.call_count > 1 {
            return refuse("mixing multiple selector functions with tags or fields is not supported");
        }
        Ok(())
    }
}

fn check_count(name: &str, args: &[Expr], expected: usize) -> Checked {
    if args.len() == expected { Ok(()) } else { refuse_count(name, &expected.to_string(), args.len()) }
}

fn check_count_between(name: &str, args: &[Expr], min: usize, max: usize) -> Checked {
    if (min..=max).contains(&args.len()) {
        return Ok(());
    }
    refuse_count(name, &format!("at least {min} but no more than {max}"), args.len())
}

/// The unit of time of a transformation.
fn check_unit(what: &str, unit: Option<&Expr>) -> Checked {
    match unit {
        Some(Expr::Duration(ns @ ..=0)) => {
            refuse(format!("duration argument must be positive, got {}", format_duration(*ns)))
        }
        Some(Expr::Duration(_)) | None => Ok(()),
        Some(other) => refuse(format!("{what} must be a duration, got {}", type_name(other))),
    }
}

fn check_moving_average(args: &[Expr]) -> Checked {
    match args.get(1) {
        Some(Expr::Integer(count @ ..=1)) => {
            refuse(format!("moving_average window must be greater than 1, got {count}"))
        }
        Some(Expr::Integer(_)) | None => Ok(()),
        Some(other) => {
            let kind = type_name(other);
            refuse(format!("second argument for moving_average must be an integer, got {kind}"))
        }
    }
}

/// Period, hold period and warm-up of an indicator of technical analysis.
fn check_indicator(name: &str, args: &[Expr]) -> Checked {
    let max = if name.starts_with("kaufmans") { 3 } else { 4 };
    check_count_between(name, args, 2, max)?;
    match args.get(1) {
        Some(Expr::Integer(..1)) => {
            return refuse(format!("{name} period must be greater than or equal to 1"));
        }
        Some(Expr::Integer(_)) => {}
        _ => return refuse(format!("{name} period must be an integer")),
    }
    let hold_min = i64::from(name == "triple_exponential_derivative");
    match args.get(2) {
        Some(Expr::Integer(hold)) if *hold < hold_min && *hold != -1 => {
            return refuse(format!("{name} hold period must be greater than or equal to {hold_min}"));
        }
        Some(Expr::Integer(_)) | None => {}
        Some(_) => return refuse(format!("{name} hold period must be an integer")),
    }
    check_warmup(name, args.get(3))
}

fn check_warmup(name: &str, warmup: Option<&Expr>) -> Checked {
    let known: &[&str] = match name {
        "chande_momentum_oscillator" => &["none", "exponential", "simple"],
        _ => &["exponential", "simple"],
    };
    match warmup {
        Some(Expr::Text(warmup)) if known.contains(&warmup.as_str()) => Ok(()),
        Some(Expr::Text(_)) => {
            let known: Vec<String> = known.iter().map(|name| format!("'{name}'")).collect();
            refuse(format!("{name} warmup type must be one of: {}", known.join(" ")))
        }
        Some(_) => refuse(format!("{name} warmup type must be a string")),
        None => Ok(()),
    }
}

/// Checks the functions of a condition: only mathematical ones.
pub(super) fn check_condition(condition: &Expr) -> Checked {
    match condition {
        Expr::Chain(chain) => {
            check_condition(&chain.first)?;
            chain.rest.iter().try_for_each(|(_, operand)| check_condition(operand))
        }
        Expr::Call(call) if !is_math(&call.name) => {
            refuse(format!("invalid function call in condition: {condition}"))
        }
        Expr::Call(call) => {
            check_count(&call.name, &call.args, math_arg_count(&call.name).unwrap_or(1))?;
            call.args.iter().try_for_each(check_condition)
        }
        _ => Ok(()),
    }
}

/// Returns true if the field is `time`, which is a column anyway.
pub(super) fn is_time(expr: &Expr) -> bool {
    matches!(expr, Expr::Ref(VarRef { name, .. }) if name == "time")
}
