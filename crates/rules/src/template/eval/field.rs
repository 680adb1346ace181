//! Fields of structs, keys of maps, and methods.

use super::super::histogram::histogram_fields;
use super::super::syntax::Context;
use super::super::value::{TYPE_ANY, Value};
use super::command::{Arguments, Evaluator, check_count, converted};
use super::method;
use super::state::{Reflected, Result};

impl<'t> Evaluator<'t, '_> {
    /// Field, key or method `name` of `receiver`.
    pub(super) fn field(
        &mut self,
        dot: &Reflected,
        receiver: &Reflected,
        name: &str,
        context: Context<'t>,
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        let Reflected { value, is_interface } = receiver;
        let type_name = if *is_interface { TYPE_ANY.to_owned() } else { value.type_name() };
        if matches!(value, Value::Nil) {
            if *is_interface {
                return self.state.fail(format!("nil pointer evaluating {type_name}.{name}"));
            }
            return Ok(Reflected::plain(Value::Nil));
        }
        if let Some(method) = method::Method::find(value.target(), name) {
            return self.method(dot, value.target(), &method, context, arguments);
        }
        let found = match value.target() {
            Value::Map(map) => {
                if !arguments.is_empty() {
                    return self.state.fail(format!("{name} is not a method but has arguments"));
                }
                return Ok(Reflected::of_element(map.element, map.get(name.as_bytes())));
            }
            Value::Struct(fields) => {
                fields.field(name).map(|field| Reflected::of_element(field.element, field.value.clone()))
            }
            Value::Histogram(histogram) => histogram_fields(histogram)
                .into_iter()
                .find(|field| field.name == name)
                .map(|field| Reflected::plain(field.value)),
            Value::Time(_) if matches!(name, "wall" | "ext" | "loc") => {
                let message = format!("{name} is an unexported field of struct type {type_name}");
                return self.state.fail(message);
            }
            _ => None,
        };
        match found {
            Some(_) if !arguments.is_empty() => {
                self.state.fail(format!("{name} has arguments but cannot be invoked as function"))
            }
            Some(field) => Ok(field),
            None => self.state.fail(format!("can't evaluate field {name} in type {type_name}")),
        }
    }

    fn method(
        &mut self,
        dot: &Reflected,
        receiver: &Value,
        method: &method::Method,
        context: Context<'t>,
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        check_count(&self.state, method.name, method.params.len(), false, arguments)?;
        let mut values = Vec::with_capacity(arguments.len());
        let params = method.params.iter().copied();
        for (param, operand) in params.zip(arguments.operands) {
            values.push(self.argument(dot, param, operand)?.value);
        }
        if let Some((last, param)) = arguments.last.zip(method.params.last()) {
            values.push(converted(&self.state, last, *param)?);
        }
        if method.result_count > 2 {
            let count = method.result_count;
            return self
                .state
                .fail(format!("function {} has {count} return values; should be 1 or 2", method.name));
        }
        let result = method.run(receiver, &values);
        self.finish_call(method.name, context, result)
    }
}
