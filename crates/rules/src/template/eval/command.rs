//! Pipelines, commands and operands; calls of functions, with number and types of arguments, and errors.

use super::super::error::TemplateErrorKind;
use super::super::functions::{self, Failure, Function, Param};
use super::super::syntax::{Command, Context, Number, Operand, Pipeline};
use super::super::value::{TYPE_ANY, Value};
use super::state::{Reflected, Result, State, Variable};

/// Arguments of a call that are not evaluated, and the value from the pipeline, which is the last argument.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'t, 'v> {
    pub(super) operands: &'t [Operand],
    pub(super) last: Option<&'v Reflected>,
}

impl Arguments<'_, '_> {
    pub(super) const NONE: Arguments<'static, 'static> = Arguments { operands: &[], last: None };

    pub(super) fn is_empty(&self) -> bool {
        self.operands.is_empty() && self.last.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.operands.len() + usize::from(self.last.is_some())
    }
}

/// Evaluates pipelines, commands and operands to values.
pub(super) struct Evaluator<'t, 'e> {
    pub(super) state: State<'t, 'e>,
}

impl<'t> Evaluator<'t, '_> {
    /// Runs `evaluate` one level deeper.
    fn nested<T>(&mut self, evaluate: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.state.enter()?;
        let result = evaluate(self);
        self.state.leave();
        result
    }

    pub(super) fn pipeline(&mut self, dot: &Reflected, pipeline: &'t Pipeline) -> Result<Reflected> {
        self.state.at = Some(Context::Pipeline(pipeline));
        let mut last: Option<Reflected> = None;
        for command in &pipeline.commands {
            let mut value = self.command(dot, command, last.as_ref())?;
            value.is_interface = false;
            last = Some(value);
        }
        let value = last.unwrap_or(Reflected::plain(Value::Nil));
        for name in &pipeline.variables {
            if pipeline.is_assignment {
                self.state.assign(name, value.clone())?;
            } else {
                self.state.variables.push(Variable { name, value: value.clone() });
            }
        }
        Ok(value)
    }

    fn command(
        &mut self,
        dot: &Reflected,
        command: &'t Command,
        last: Option<&Reflected>,
    ) -> Result<Reflected> {
        self.state.step()?;
        let arguments = Arguments { operands: &command.arguments, last };
        let context = Context::Operand(&command.first);
        match &command.first {
            Operand::Field { names, .. } => {
                self.state.at = Some(context);
                self.fields(dot, dot.clone(), names, context, arguments)
            }
            Operand::Chain { base, names, .. } => self.chain(dot, base, names, context, arguments),
            Operand::Function { name, .. } => {
                self.state.at = Some(context);
                self.function(dot, name, Context::Command(command), arguments)
            }
            Operand::Pipeline(pipeline) => {
                check_no_arguments(&self.state, &command.first, arguments)?;
                self.nested(|machine| machine.pipeline(dot, pipeline))
            }
            Operand::Variable { name, fields, .. } => {
                self.variable_operand(dot, &command.first, name, fields, arguments)
            }
            literal => {
                self.state.at = Some(context);
                check_no_arguments(&self.state, literal, arguments)?;
                match literal {
                    Operand::Dot(_) => Ok(dot.clone()),
                    Operand::Nil(_) => self.state.fail("nil is not a command"),
                    literal => self.constant(literal),
                }
            }
        }
    }

    fn variable_operand(
        &mut self,
        dot: &Reflected,
        operand: &'t Operand,
        name: &str,
        fields: &'t [String],
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        let context = Context::Operand(operand);
        self.state.at = Some(context);
        let value = self.state.variable(name)?;
        if fields.is_empty() {
            check_no_arguments(&self.state, operand, arguments)?;
            return Ok(value);
        }
        self.fields(dot, value, fields, context, arguments)
    }

    fn chain(
        &mut self,
        dot: &Reflected,
        base: &'t Operand,
        names: &'t [String],
        context: Context<'t>,
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        self.state.at = Some(context);
        if matches!(base, Operand::Nil(_)) {
            return self.state.fail(format!("indirection through explicit nil in {context}"));
        }
        let receiver = self.untyped(dot, base)?;
        self.fields(dot, receiver, names, context, arguments)
    }

    /// Fields of `receiver` in turn; the last one gets the arguments if it is a method.
    fn fields(
        &mut self,
        dot: &Reflected,
        receiver: Reflected,
        names: &'t [String],
        context: Context<'t>,
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        let mut receiver = receiver;
        for (idx, name) in names.iter().enumerate() {
            let arguments = if idx + 1 == names.len() { arguments } else { Arguments::NONE };
            receiver = self.field(dot, &receiver, name, context, arguments)?;
        }
        Ok(receiver)
    }

    /// Value of a literal whose type nothing else decides.
    pub(super) fn constant(&mut self, operand: &'t Operand) -> Result<Reflected> {
        self.state.at = Some(Context::Operand(operand));
        let value = match operand {
            Operand::Bool { value, .. } => Value::Bool(*value),
            Operand::Text { value, .. } => Value::text(value),
            Operand::Number { value, .. } => number(&self.state, value)?,
            operand => return self.state.fail(format!("can't evaluate command {operand}")),
        };
        Ok(Reflected::plain(value))
    }

    /// Value of an operand that is not a literal.
    fn untyped(&mut self, dot: &Reflected, operand: &'t Operand) -> Result<Reflected> {
        self.state.at = Some(Context::Operand(operand));
        match operand {
            Operand::Dot(_) => Ok(dot.clone()),
            Operand::Field { names, .. } => {
                let context = Context::Operand(operand);
                self.fields(dot, dot.clone(), names, context, Arguments::NONE)
            }
            Operand::Variable { name, fields, .. } => {
                self.variable_operand(dot, operand, name, fields, Arguments::NONE)
            }
            Operand::Pipeline(pipeline) => self.nested(|machine| machine.pipeline(dot, pipeline)),
            Operand::Function { name, .. } => {
                self.function(dot, name, Context::Operand(operand), Arguments::NONE)
            }
            Operand::Chain { base, names, .. } => {
                let context = Context::Operand(operand);
                self.nested(|machine| machine.chain(dot, base, names, context, Arguments::NONE))
            }
            literal => self.constant(literal),
        }
    }

    /// Value of an argument for a parameter.
    pub(super) fn argument(
        &mut self,
        dot: &Reflected,
        param: Param,
        operand: &'t Operand,
    ) -> Result<Reflected> {
        self.state.at = Some(Context::Operand(operand));
        match operand {
            Operand::Nil(_) if param.can_be_nil() => Ok(Reflected::plain(Value::Nil)),
            Operand::Nil(_) => self.state.fail(format!("cannot assign nil to {}", param.type_name())),
            Operand::Bool { .. } | Operand::Number { .. } | Operand::Text { .. } => {
                Ok(Reflected::plain(self.literal_argument(param, operand)?))
            }
            operand => {
                let value = self.untyped(dot, operand)?;
                let is_interface = value.is_interface;
                Ok(Reflected { value: converted(&self.state, &value, param)?, is_interface })
            }
        }
    }

    fn literal_argument(&mut self, param: Param, operand: &'t Operand) -> Result<Value> {
        match (param, operand) {
            (Param::Any | Param::Reflect, operand) => Ok(self.constant(operand)?.value),
            (Param::Text, Operand::Text { value, .. }) => Ok(Value::text(value)),
            (Param::Text, operand) => self.state.fail(format!("expected string; found {operand}")),
            (Param::Int(int_type), Operand::Number { value, .. }) if value.int.is_some() => {
                Ok(Value::Int(int_type, value.int.unwrap_or(0)))
            }
            (Param::Int(_), operand) => self.state.fail(format!("expected integer; found {operand}")),
            (param, operand) => {
                self.state.fail(format!("can't handle {operand} for arg of type {}", param.type_name()))
            }
        }
    }

    fn function(
        &mut self,
        dot: &Reflected,
        name: &'t str,
        caller: Context<'t>,
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        match Function::from_name(name) {
            Some(function) => self.call(dot, function, name, caller, arguments),
            None => self.state.fail(format!("\"{name}\" is not a defined function")),
        }
    }

    pub(super) fn call(
        &mut self,
        dot: &Reflected,
        function: Function,
        name: &str,
        caller: Context<'t>,
        arguments: Arguments<'t, '_>,
    ) -> Result<Reflected> {
        let signature = function.signature();
        check_count(&self.state, name, signature.fixed.len(), signature.rest.is_some(), arguments)?;
        if matches!(function, Function::And | Function::Or) {
            return self.and_or(dot, function == Function::Or, arguments);
        }
        let mut values = Vec::with_capacity(arguments.len());
        let mut interface_idx = None;
        for (idx, operand) in arguments.operands.iter().enumerate() {
            let value = self.argument(dot, signature.param(idx), operand)?;
            let is_fault = match function {
                Function::Len => value.is_interface && matches!(value.value, Value::Nil),
                Function::Slice => value.is_interface && idx > 0,
                _ => false,
            };
            interface_idx = interface_idx.or(is_fault.then_some(idx));
            values.push(value.value);
        }
        if let Some(last) = arguments.last {
            values.push(converted(&self.state, last, signature.param(arguments.operands.len()))?);
        }
        if let Some(idx) = interface_idx {
            return self.refuse_interface(function, name, caller, values, idx);
        }
        if function == Function::Call {
            // A value from the pipeline has no source text.
            let callee = match (arguments.operands.first(), values.first()) {
                (Some(operand), _) => Value::text(operand.to_string()),
                (None, Some(Value::Text(text))) => Value::Text(text.clone()),
                (None, value) => {
                    let type_name = value.map_or_else(|| "invalid".to_owned(), Value::type_name);
                    Value::text(format!("<{type_name} Value>"))
                }
            };
            values.insert(0, callee);
        }
        let result = functions::call(&mut self.state.environment, function, values);
        self.finish_call(name, caller, result)
    }

    /// Two functions of Go do not look into an argument whose type is `interface {}`: `values[idx]`.
    fn refuse_interface(
        &mut self,
        function: Function,
        name: &str,
        caller: Context<'t>,
        mut values: Vec<Value>,
        idx: usize,
    ) -> Result<Reflected> {
        let message = if function == Function::Len {
            "len of nil pointer".to_owned()
        } else {
            format!("cannot index slice/array with type {TYPE_ANY}")
        };
        // Arguments before it are checked first.
        values.truncate(idx);
        let before = match values.is_empty() {
            true => Ok(Value::Nil),
            false => functions::call(&mut self.state.environment, function, values),
        };
        self.finish_call(name, caller, before.and(Err(Failure::Message(message))))
    }

    pub(super) fn finish_call(
        &mut self,
        name: &str,
        caller: Context<'t>,
        result: std::result::Result<Value, Failure>,
    ) -> Result<Reflected> {
        match result {
            Ok(value) => Ok(Reflected::plain(value)),
            Err(failure) => {
                self.state.at = Some(caller);
                match failure {
                    Failure::Message(message) => self.state.fail(format!("error calling {name}: {message}")),
                    Failure::Limit(exceeded) => {
                        let kind = TemplateErrorKind::Limit(exceeded.kind);
                        Err(self.state.error(kind, &format!("error calling {name}: {exceeded}")))
                    }
                }
            }
        }
    }

    /// Evaluates arguments until one decides.
    fn and_or(&mut self, dot: &Reflected, is_or: bool, arguments: Arguments<'t, '_>) -> Result<Reflected> {
        let mut value = Value::Nil;
        for operand in arguments.operands {
            value = self.argument(dot, Param::Reflect, operand)?.value;
            if value.is_true() == is_or {
                return Ok(Reflected::plain(value));
            }
        }
        if let Some(last) = arguments.last {
            value = last.value.clone();
        }
        Ok(Reflected::plain(value))
    }
}

fn check_no_arguments(state: &State<'_, '_>, first: &Operand, arguments: Arguments<'_, '_>) -> Result<()> {
    if arguments.is_empty() {
        return Ok(());
    }
    state.fail(format!("can't give argument to non-function {first}"))
}

fn number(state: &State<'_, '_>, number: &Number) -> Result<Value> {
    if let Some(complex) = number.complex {
        return Ok(Value::Complex(complex));
    }
    if let Some(float) = number.float.filter(|_| number.is_float_literal()) {
        return Ok(Value::Float(float));
    }
    match number.int {
        Some(value) => Ok(Value::int(value)),
        None => state.fail(format!("{} overflows int", number.literal)),
    }
}

/// Returns `value` as an argument for `param`.
pub(super) fn converted(state: &State<'_, '_>, value: &Reflected, param: Param) -> Result<Value> {
    let Reflected { value, is_interface } = value;
    if matches!(value, Value::Nil) && !is_interface {
        if param.can_be_nil() {
            return Ok(Value::Nil);
        }
        return state.fail(format!("invalid value; expected {}", param.type_name()));
    }
    if param.accepts(value) {
        return Ok(value.clone());
    }
    if let Value::Pointer(target) = value
        && param.accepts(target)
    {
        return Ok(target.as_ref().clone());
    }
    let got = if matches!(value, Value::Nil) { TYPE_ANY.to_owned() } else { value.type_name() };
    state.fail(format!("wrong type for value; expected {}; got {got}", param.type_name()))
}

pub(super) fn check_count(
    state: &State<'_, '_>,
    name: &str,
    fixed_count: usize,
    is_variadic: bool,
    arguments: Arguments<'_, '_>,
) -> Result<()> {
    let count = arguments.len();
    if is_variadic && count < fixed_count {
        let given = arguments.operands.len();
        return state
            .fail(format!("wrong number of args for {name}: want at least {fixed_count} got {given}"));
    }
    if !is_variadic && count != fixed_count {
        return state.fail(format!("wrong number of args for {name}: want {fixed_count} got {count}"));
    }
    Ok(())
}
