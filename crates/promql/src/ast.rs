//! Syntax tree of a query, typed, with positions in the text.
//!
//! Invariants: a tree that the parser returned is type-checked: arguments have the types that functions and
//! operators ask for. Positions are byte offsets into the query text.
//! A chain of left-associative operators (`a + b + c + ...`) is as deep as it is long: dropping, cloning,
//! comparing and typing it walk the left side in a loop. Every other nesting is bounded by the parser.
//! Not here: evaluation, printing (`parser::print`).

use std::mem;

pub use chronolith_exec::aggregate::Aggregation;
pub use chronolith_exec::aggregate::topk::TopKOp;
pub use chronolith_exec::arith::BinaryOp;
pub use chronolith_exec::cardinality::Cardinality as MatchCardinality;
pub use chronolith_exec::join::matching::Matching as VectorMatching;
use chronolith_exec::position::Position;
pub use chronolith_exec::rollup::extended::RangeExtension;
use chronolith_model::Matcher;

use crate::functions::Function;
pub use crate::value_type::ValueType;

/// Bytes `[start, end)` of the query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The position that annotations carry.
    pub(crate) fn position(self) -> Position {
        Position(u64::from(self.start) << 32 | u64::from(self.end))
    }

    /// The span of a position.
    pub(crate) fn of(position: Position) -> Span {
        Span { start: (position.0 >> 32) as u32, end: position.0 as u32 }
    }
}

/// An expression and its span in the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Kind of the expression.
    pub kind: ExprKind,
    /// Position of the expression in the text.
    pub span: Span,
}

impl Expr {
    /// Type of the value. Cost: the operators on the left spine.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        let mut expr = self;
        loop {
            match &expr.kind {
                ExprKind::Number(_) => return ValueType::Scalar,
                ExprKind::String(_) => return ValueType::String,
                ExprKind::Selector(_) | ExprKind::Aggregate(_) => return ValueType::Vector,
                ExprKind::Matrix(_) | ExprKind::Subquery(_) => return ValueType::Matrix,
                ExprKind::Call(call) => return call.function.returns,
                ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => expr = inner,
                ExprKind::Binary(binary) if binary.rhs.value_type() == ValueType::Scalar => {
                    expr = &binary.lhs
                }
                ExprKind::Binary(_) => return ValueType::Vector,
            }
        }
    }

    /// The expression within any parentheses around it.
    pub(crate) fn unwrap_parens(&self) -> &Expr {
        let mut expr = self;
        while let ExprKind::Paren(inner) = &expr.kind {
            expr = inner;
        }
        expr
    }

    /// The innermost left operand of a chain of binary operators, and the operators from there outwards.
    pub(crate) fn left_spine(&self) -> (&Expr, Vec<&Binary>) {
        let mut expr = self;
        let mut spine = Vec::new();
        while let ExprKind::Binary(binary) = &expr.kind {
            spine.push(&**binary);
            expr = &binary.lhs;
        }
        spine.reverse();
        (expr, spine)
    }

    /// A zero without a position, which replaces an expression that is moved out.
    pub(crate) fn placeholder() -> Expr {
        let zero = NumberLiteral { value: 0.0, is_duration: false };
        Expr { kind: ExprKind::Number(zero), span: Span::default() }
    }
}

/// Kind of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A number.
    Number(NumberLiteral),
    /// A text. Bytes that are no UTF-8 (Go escapes can write them) are replaced.
    String(String),
    /// `x{a="b"}`
    Selector(VectorSelector),
    /// `x{a="b"}[5m]`
    Matrix(MatrixSelector),
    /// `expr[1h:5m]`
    Subquery(Box<Subquery>),
    /// `f(args)`
    Call(Call),
    /// `sum by (a) (x)`
    Aggregate(Box<Aggregate>),
    /// `a + b`
    Binary(Box<Binary>),
    /// `-a`
    Unary(UnaryOp, Box<Expr>),
    /// `(a)`
    Paren(Box<Expr>),
}

/// A number as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberLiteral {
    /// Value of the literal (seconds for a duration).
    pub value: f64,
    /// Written as a duration (`5m`), which matters for printing.
    pub is_duration: bool,
}

/// `name{matchers} offset d @ t`
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The name in front of the braces, if written there.
    pub name: Option<String>,
    /// All matchers, the one for the name included.
    pub matchers: Vec<Matcher>,
    /// `offset`, 0 if not given; positive looks back.
    pub offset: DurationExpr,
    /// `@`
    pub at: Option<AtModifier>,
    /// `anchored` or `smoothed` (experimental).
    pub extension: Option<RangeExtension>,
}

/// A selector with a range.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSelector {
    /// The selector with its modifiers.
    pub selector: VectorSelector,
    /// Length of the range.
    pub range: DurationExpr,
}

/// A range over a computed vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Subquery {
    /// The inner expression.
    pub expr: Expr,
    /// Length of the range.
    pub range: DurationExpr,
    /// Resolution; the engine's default if not given.
    pub step: Option<DurationExpr>,
    /// `offset`, 0 if not given.
    pub offset: DurationExpr,
    /// `@`
    pub at: Option<AtModifier>,
}

/// `@` modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtModifier {
    /// `@ 1234.5`, in milliseconds.
    Time(i64),
    /// `@ start()`
    Start,
    /// `@ end()`
    End,
}

/// A duration, possibly computed (`5m * 2`, `step()`), positions included for messages.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationExpr {
    /// Milliseconds, checked by the parser.
    Literal(i64),
    /// To be computed when the step and the range of the query are known.
    Computed(Box<DurationNode>, Span),
}

impl DurationExpr {
    /// No time at all.
    pub const ZERO: DurationExpr = DurationExpr::Literal(0);

    /// Span of a computed duration; literals have none.
    #[must_use]
    pub fn span(&self) -> Span {
        match self {
            DurationExpr::Literal(_) => Span::default(),
            DurationExpr::Computed(_, span) => *span,
        }
    }
}

/// A node of a computed duration. Values are seconds.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationNode {
    /// Seconds.
    Number(f64),
    /// Seconds, written with units (`5m`), which matters for printing only.
    Units(f64),
    /// `step()`
    Step,
    /// `range()`
    Range,
    /// `-d` (`+d` is dropped)
    Neg(Box<DurationNode>),
    /// `a op b` with op one of `+ - * / % ^`, and its span
    Binary(BinaryOp, Box<DurationNode>, Box<DurationNode>, Span),
    /// `min_of(a, b)`
    MinOf(Box<DurationNode>, Box<DurationNode>),
    /// `max_of(a, b)`
    MaxOf(Box<DurationNode>, Box<DurationNode>),
    /// `(d)`, kept for printing
    Paren(Box<DurationNode>),
}

/// A function call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The called function.
    pub function: &'static Function,
    /// Arguments of the call, checked against the function's types.
    pub args: Vec<Expr>,
}

/// An aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// The aggregation.
    pub op: AggregateOp,
    /// First argument of topk, quantile, count_values and the like.
    pub param: Option<Expr>,
    /// The operand.
    pub expr: Expr,
    /// Labels of `by` or `without`, as written.
    pub grouping: Vec<String>,
    /// `without` instead of `by`.
    pub without: bool,
}

/// Aggregation operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateOp {
    /// One series per group: `sum`, `avg`, `quantile` and others.
    Fold(Aggregation),
    /// Some series of each group: `topk` and others.
    Select(TopKOp),
    /// `count_values`
    CountValues,
}

impl AggregateOp {
    /// The word in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AggregateOp::Fold(op) => op.name(),
            AggregateOp::Select(op) => op.name(),
            AggregateOp::CountValues => "count_values",
        }
    }

    /// Type of the first of two arguments, `None` for an operator with one argument.
    #[must_use]
    pub fn param_type(self) -> Option<ValueType> {
        match self {
            AggregateOp::Fold(Aggregation::Quantile) | AggregateOp::Select(_) => Some(ValueType::Scalar),
            AggregateOp::CountValues => Some(ValueType::String),
            AggregateOp::Fold(_) => None,
        }
    }

    /// Returns true if `promql-experimental-functions` has to enable it.
    #[must_use]
    pub fn is_experimental(self) -> bool {
        matches!(self, AggregateOp::Select(TopKOp::Limitk | TopKOp::LimitRatio))
    }
}

/// `lhs op rhs`
#[derive(Debug)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// Left side.
    pub lhs: Expr,
    /// Right side.
    pub rhs: Expr,
    /// `bool` after a comparison.
    pub return_bool: bool,
    /// Matching of two vectors; `Some` exactly when both sides are vectors.
    pub matching: Option<VectorMatching>,
    /// Position of the operator. As in Prometheus, it begins with everything but blanks after the span of the
    /// left side: a comment, `anchored`.
    pub op_span: Span,
}

impl Binary {
    /// This node with another left side.
    fn with_lhs(&self, lhs: Expr) -> Binary {
        Binary {
            op: self.op,
            lhs,
            rhs: self.rhs.clone(),
            return_bool: self.return_bool,
            matching: self.matching.clone(),
            op_span: self.op_span,
        }
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let mut lhs = mem::replace(&mut self.lhs, Expr::placeholder());
        while let ExprKind::Binary(binary) = &mut lhs.kind {
            let inner = mem::replace(&mut binary.lhs, Expr::placeholder());
            lhs = inner;
        }
    }
}

impl Clone for Binary {
    fn clone(&self) -> Binary {
        let mut spine = Vec::new();
        let mut lhs = &self.lhs;
        while let ExprKind::Binary(binary) = &lhs.kind {
            spine.push((binary, lhs.span));
            lhs = &binary.lhs;
        }
        let mut copy = lhs.clone();
        while let Some((binary, span)) = spine.pop() {
            copy = Expr { kind: ExprKind::Binary(Box::new(binary.with_lhs(copy))), span };
        }
        self.with_lhs(copy)
    }
}

impl PartialEq for Binary {
    fn eq(&self, other: &Binary) -> bool {
        let mut a = self;
        let mut b = other;
        loop {
            let same = a.op == b.op
                && a.return_bool == b.return_bool
                && a.op_span == b.op_span
                && a.matching == b.matching
                && a.rhs == b.rhs;
            if !same {
                return false;
            }
            match (&a.lhs.kind, &b.lhs.kind) {
                (ExprKind::Binary(left), ExprKind::Binary(right)) if a.lhs.span == b.lhs.span => {
                    (a, b) = (left, right);
                }
                _ => return a.lhs == b.lhs,
            }
        }
    }
}

/// Sign in front of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `+`
    Plus,
    /// `-`
    Minus,
}
