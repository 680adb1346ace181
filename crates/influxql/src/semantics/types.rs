//! Types of expressions.
//!
//! Invariants: an operator on two constants of the types gives a constant of the result's type, except `/`
//! of integers, which is typed as an integer and computed as a float, as in InfluxDB.
//! Not here: types of stored fields (`schema`).

use super::function::result_type;
use crate::ast::{BinaryOp, Chain, DataType, Expr};
use crate::error::SemanticError;

/// Returns the type of an expression whose references are typed; [`DataType::Unknown`] if that depends on
/// fields that do not exist.
///
/// # Errors
/// `type error: ..` for operands that an operator cannot have.
pub fn type_of(expr: &Expr) -> Result<DataType, SemanticError> {
    match expr {
        Expr::Chain(chain) => type_of_chain(chain),
        Expr::Paren(inner) => type_of(inner),
        Expr::Call(call) => {
            let types: Result<Vec<DataType>, SemanticError> = call.args.iter().map(type_of).collect();
            Ok(result_type(&call.name, types?.first().copied().unwrap_or_default()))
        }
        Expr::Ref(var) if var.kind == DataType::AnyField => Ok(DataType::Unknown),
        Expr::Ref(var) => Ok(var.kind),
        Expr::Number(_) => Ok(DataType::Float),
        Expr::Integer(_) => Ok(DataType::Integer),
        Expr::Unsigned(_) => Ok(DataType::Unsigned),
        Expr::Text(_) => Ok(DataType::String),
        Expr::Boolean(_) => Ok(DataType::Boolean),
        _ => Ok(DataType::Unknown),
    }
}

fn type_of_chain(chain: &Chain) -> Result<DataType, SemanticError> {
    let mut left = Operand::of(&chain.first)?;
    for (idx, (op, operand)) in chain.rest.iter().enumerate() {
        let right = Operand::of(operand)?;
        let kind = left.combine(*op, right).map_err(|reason| {
            let rest = chain.rest.iter().take(idx + 1).cloned().collect();
            let failed = Expr::Chain(Box::new(Chain { first: chain.first.clone(), rest }));
            SemanticError::new(format!("type error: {failed:#}: {reason}"))
        })?;
        left = Operand { kind, literal: None };
    }
    Ok(left.kind)
}

/// Type of an operand, and its own kind if it is a number in the text.
struct Operand {
    kind: DataType,
    literal: Option<DataType>,
}

impl Operand {
    fn of(expr: &Expr) -> Result<Operand, SemanticError> {
        let literal = match expr {
            Expr::Integer(_) => Some(DataType::Integer),
            Expr::Unsigned(_) => Some(DataType::Unsigned),
            _ => None,
        };
        Ok(Operand { kind: type_of(expr)?, literal })
    }

    /// Type of the result, or why there is none.
    fn combine(&self, op: BinaryOp, right: Operand) -> Result<DataType, String> {
        use DataType as T;
        let mut kinds = [self.kind, right.kind];
        match kinds {
            [T::Unknown, kind] | [kind, T::Unknown] => return Ok(kind),
            [T::Integer, T::Unsigned] | [T::Unsigned, T::Integer] => {
                let literals = [self.literal, right.literal];
                if literals.contains(&Some(T::Unsigned)) {
                    return Err(format!("cannot use {op} with an integer and unsigned literal"));
                }
                if !literals.contains(&Some(T::Integer)) {
                    let reason = "between an integer and unsigned, an explicit cast is required";
                    return Err(format!("cannot use {op} {reason}"));
                }
                kinds = [T::Unsigned, T::Unsigned];
            }
            _ => {}
        }
        let [left, right] = kinds;
        let incompatible = || Err(format!("incompatible types: {left} and {right}"));
        match op {
            op if op.is_comparison() => Ok(T::Boolean),
            BinaryOp::And | BinaryOp::Or | BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor
                if left == T::Boolean =>
            {
                Ok(T::Boolean)
            }
            op if op.is_bitwise() => match kinds {
                [T::Integer, T::Integer] => Ok(T::Integer),
                [T::Unsigned, T::Unsigned] => Ok(T::Unsigned),
                _ => incompatible(),
            },
            op if op.is_logical() || !left.is_numeric() || !right.is_numeric() => incompatible(),
            _ if kinds.contains(&T::Float) => Ok(T::Float),
            _ => Ok(left),
        }
    }
}
