//! Lowering of fields and conditions to expressions of a plan.

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_exec::rows::plan::{self, Literal, MathFn, Operator};

use super::call::lower_call;
use super::scope::Scope;
use crate::ast::{BinaryOp, Call, Chain, Expr, Regex};
use crate::error::SemanticError;
use crate::fold::math_arg_count;

/// Operators of one chain, AND and OR apart: a plan nests them.
const OPERATORS_MAX: usize = 1_000;

/// Columns of a plan and the calls that they contain.
pub(super) struct Columns<'a> {
    scope: &'a Scope<'a>,
    columns: Vec<plan::Column>,
    calls: Vec<plan::Call>,
    /// Index of each call by its text.
    call_idx: HashMap<String, usize>,
}

impl<'a> Columns<'a> {
    /// Room for `field_count` columns.
    pub(super) fn new(scope: &'a Scope<'a>, field_count: usize) -> Columns<'a> {
        Columns {
            scope,
            columns: Vec::with_capacity(field_count),
            calls: Vec::new(),
            call_idx: HashMap::default(),
        }
    }

    pub(super) fn push(&mut self, name: &str, field: &Expr) -> Result<(), SemanticError> {
        let expr = self.field(field)?;
        self.columns.push(plan::Column { name: self.scope.name(name), expr });
        Ok(())
    }

    pub(super) fn finish(self) -> (Vec<plan::Column>, Vec<plan::Call>) {
        (self.columns, self.calls)
    }

    fn field(&mut self, expr: &Expr) -> Result<plan::Expr, SemanticError> {
        match expr {
            Expr::Chain(chain) => {
                check_length(chain.rest.len())?;
                let mut lowered = self.field(&chain.first)?;
                for (op, operand) in &chain.rest {
                    let right = self.field(operand)?;
                    lowered = plan::Expr::Binary(operator(*op)?, Box::new(lowered), Box::new(right));
                }
                Ok(lowered)
            }
            Expr::Paren(inner) => self.field(inner),
            Expr::Call(call) if math_arg_count(&call.name).is_some() => {
                let args: Result<Vec<plan::Expr>, SemanticError> =
                    call.args.iter().map(|arg| self.field(arg)).collect();
                Ok(plan::Expr::Math(math(call)?, args?))
            }
            Expr::Call(call) => self.call(call).map(plan::Expr::Call),
            Expr::Ref(var) => Ok(plan::Expr::Variable(self.scope.variable_of_column(var))),
            literal => literal_of(literal).map(plan::Expr::Literal),
        }
    }

    /// Index of a call, which is added if it is new.
    fn call(&mut self, call: &Call) -> Result<usize, SemanticError> {
        let text = call.to_string();
        if let Some(idx) = self.call_idx.get(&text) {
            return Ok(*idx);
        }
        let lowered = lower_call(call, self.scope)?;
        self.calls.push(lowered);
        self.call_idx.insert(text, self.calls.len() - 1);
        Ok(self.calls.len() - 1)
    }
}

fn check_length(operator_count: usize) -> Result<(), SemanticError> {
    if operator_count <= OPERATORS_MAX {
        return Ok(());
    }
    Err(SemanticError::new(format!("expression of {operator_count} operators, at most {OPERATORS_MAX}")))
}

/// The filter of a condition without bounds of time.
pub(super) fn filter(condition: &Expr, scope: &Scope<'_>) -> Result<plan::Expr, SemanticError> {
    match condition {
        Expr::Chain(chain) => filter_chain(chain, scope),
        Expr::Paren(inner) => filter(inner, scope),
        Expr::Call(call) => {
            let args: Result<Vec<plan::Expr>, SemanticError> =
                call.args.iter().map(|arg| filter(arg, scope)).collect();
            Ok(plan::Expr::Math(math(call)?, args?))
        }
        Expr::Ref(var) => Ok(plan::Expr::Variable(scope.variable_of_condition(var))),
        // No point has a value of that name: comparisons are false.
        Expr::Wildcard(_) => Ok(plan::Expr::Variable(scope.null())),
        literal => literal_of(literal).map(plan::Expr::Literal),
    }
}

/// A chain from left to right; runs of AND and of OR become balanced trees.
fn filter_chain(chain: &Chain, scope: &Scope<'_>) -> Result<plan::Expr, SemanticError> {
    let mut lowered = None;
    let mut rest = chain.rest.as_slice();
    while let Some(((op, operand), after)) = rest.split_first() {
        let left = match lowered.take() {
            Some(left) => left,
            // A comparison with a span or a time, which no stored value is.
            None if op.is_comparison() && [&chain.first, operand].into_iter().any(is_never_stored) => {
                lowered = Some(plan::Expr::Literal(Literal::Boolean(false)));
                rest = after;
                continue;
            }
            None => filter(&chain.first, scope)?,
        };
        if op.is_logical() {
            let run_len = rest.iter().take_while(|(next, _)| next == op).count();
            let (run, after_run) = rest.split_at(run_len);
            let mut operands = vec![left];
            for (_, operand) in run {
                operands.push(filter(operand, scope)?);
            }
            lowered = balanced(operator(*op)?, operands);
            rest = after_run;
            continue;
        }
        let right = match (op, operand) {
            (BinaryOp::Match | BinaryOp::NotMatch, Expr::Regex(regex)) => {
                lowered = Some(matching(left, regex, *op == BinaryOp::NotMatch)?);
                rest = after;
                continue;
            }
            (op, operand) if op.is_comparison() && is_never_stored(operand) => {
                lowered = Some(plan::Expr::Literal(Literal::Boolean(false)));
                rest = after;
                continue;
            }
            (_, operand) => filter(operand, scope)?,
        };
        check_length(chain.rest.len() - chain.rest.iter().filter(|(op, _)| op.is_logical()).count())?;
        lowered = Some(plan::Expr::Binary(operator(*op)?, Box::new(left), Box::new(right)));
        rest = after;
    }
    lowered.map_or_else(|| filter(&chain.first, scope), Ok)
}

/// Returns true for values that no field has: comparisons with them are false.
fn is_never_stored(expr: &Expr) -> bool {
    matches!(expr, Expr::Duration(_) | Expr::Time(_) | Expr::Nil)
}

fn matching(operand: plan::Expr, regex: &Regex, negated: bool) -> Result<plan::Expr, SemanticError> {
    let compiled = regex.compile().map_err(|error| SemanticError::new(error.to_string()))?;
    Ok(plan::Expr::Match { operand: Box::new(operand), regex: Arc::new(compiled), negated })
}

/// Operands under one operator in a tree of the least depth.
fn balanced(op: Operator, mut operands: Vec<plan::Expr>) -> Option<plan::Expr> {
    while operands.len() > 1 {
        let mut pairs = Vec::with_capacity(operands.len().div_ceil(2));
        let mut rest = operands.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => plan::Expr::Binary(op, Box::new(left), Box::new(right)),
                None => left,
            });
        }
        operands = pairs;
    }
    operands.pop()
}

fn operator(op: BinaryOp) -> Result<Operator, SemanticError> {
    Ok(match op {
        BinaryOp::Or => Operator::Or,
        BinaryOp::And => Operator::And,
        BinaryOp::Eq => Operator::Eq,
        BinaryOp::NotEq => Operator::Ne,
        BinaryOp::Less => Operator::Lt,
        BinaryOp::LessEq => Operator::Le,
        BinaryOp::Greater => Operator::Gt,
        BinaryOp::GreaterEq => Operator::Ge,
        BinaryOp::Add => Operator::Add,
        BinaryOp::Sub => Operator::Sub,
        BinaryOp::BitOr => Operator::BitOr,
        BinaryOp::BitXor => Operator::BitXor,
        BinaryOp::Mul => Operator::Mul,
        BinaryOp::Div => Operator::Div,
        BinaryOp::Mod => Operator::Mod,
        BinaryOp::BitAnd => Operator::BitAnd,
        BinaryOp::Match | BinaryOp::NotMatch => {
            return Err(SemanticError::new(format!("operator {op} needs a regex on its right")));
        }
    })
}

fn literal_of(expr: &Expr) -> Result<Literal, SemanticError> {
    Ok(match expr {
        Expr::Number(number) => Literal::Float(*number),
        Expr::Integer(number) => Literal::Integer(*number),
        Expr::Unsigned(number) => Literal::Unsigned(*number),
        Expr::Boolean(value) => Literal::Boolean(*value),
        Expr::Text(text) => Literal::Text(Arc::from(text.as_bytes())),
        other => return Err(SemanticError::new(format!("{other} is no value of a field or tag"))),
    })
}

fn math(call: &Call) -> Result<MathFn, SemanticError> {
    Ok(match call.name.as_str() {
        "abs" => MathFn::Abs,
        "acos" => MathFn::Acos,
        "asin" => MathFn::Asin,
        "atan" => MathFn::Atan,
        "atan2" => MathFn::Atan2,
        "ceil" => MathFn::Ceil,
        "cos" => MathFn::Cos,
        "exp" => MathFn::Exp,
        "floor" => MathFn::Floor,
        "ln" => MathFn::Ln,
        "log" => MathFn::Log,
        "log2" => MathFn::Log2,
        "log10" => MathFn::Log10,
        "pow" => MathFn::Pow,
        "round" => MathFn::Round,
        "sin" => MathFn::Sin,
        "sqrt" => MathFn::Sqrt,
        "tan" => MathFn::Tan,
        name => return Err(SemanticError::new(format!("undefined function {name}()"))),
    })
}
