//! Walks over expressions.
//!
//! Invariants: a chain is walked in a loop, from left to right.

use super::expr::{Chain, Expr, VarRef};

impl Expr {
    /// Returns true if `is_match` holds for the expression or a part of it, outer ones first.
    pub fn any(&self, is_match: &mut impl FnMut(&Expr) -> bool) -> bool {
        if is_match(self) {
            return true;
        }
        match self {
            Expr::Chain(chain) => {
                chain.first.any(is_match) || chain.rest.iter().any(|(_, operand)| operand.any(is_match))
            }
            Expr::Paren(inner) => inner.any(is_match),
            Expr::Call(call) => call.args.iter().any(|arg| arg.any(is_match)),
            _ => false,
        }
    }

    /// Calls `visit` for every reference, in order of the text.
    pub fn for_each_ref<'a>(&'a self, visit: &mut impl FnMut(&'a VarRef)) {
        match self {
            Expr::Chain(chain) => {
                chain.first.for_each_ref(visit);
                chain.rest.iter().for_each(|(_, operand)| operand.for_each_ref(visit));
            }
            Expr::Paren(inner) => inner.for_each_ref(visit),
            Expr::Call(call) => call.args.iter().for_each(|arg| arg.for_each_ref(visit)),
            Expr::Ref(var) => visit(var),
            _ => {}
        }
    }

    /// Returns the expression with `replace` applied to it and its parts, inner ones first. The first error
    /// ends it.
    ///
    /// # Errors
    /// The error of `replace`.
    pub fn try_map<E>(self, replace: &mut impl FnMut(Expr) -> Result<Expr, E>) -> Result<Expr, E> {
        let mapped = match self {
            Expr::Chain(chain) => {
                let Chain { first, rest } = *chain;
                let first = first.try_map(replace)?;
                let rest: Result<Vec<_>, E> =
                    rest.into_iter().map(|(op, operand)| Ok((op, operand.try_map(replace)?))).collect();
                let mut mapped = first;
                for (op, operand) in rest? {
                    mapped = Expr::binary(mapped, op, operand);
                }
                mapped
            }
            Expr::Paren(inner) => Expr::Paren(Box::new(inner.try_map(replace)?)),
            Expr::Call(mut call) => {
                let args: Result<Vec<_>, E> = call.args.into_iter().map(|arg| arg.try_map(replace)).collect();
                call.args = args?;
                Expr::Call(call)
            }
            leaf => leaf,
        };
        replace(mapped)
    }
}
