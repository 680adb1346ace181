//! The typed tree of a query, with positions.
//!
//! Holds: a tree that the parser returned is type-checked: arguments have the types that functions and
//! operators ask for. Positions are byte offsets into the query text.
//! Not here: evaluation.

use chronolith_model::Matcher;

use crate::functions::Function;

/// Bytes `[start, end)` of the query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Type of an expression's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Nothing (not a value of the language; upstream names it in messages).
    None,
    /// One number a step.
    Scalar,
    /// Series with one value a step.
    Vector,
    /// Series with a range of samples a step.
    Matrix,
    /// A text.
    String,
}

impl ValueType {
    /// The word in upstream's messages ("instant vector").
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            ValueType::None => "none",
            ValueType::Scalar => "scalar",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            ValueType::String => "string",
        }
    }
}

/// An expression and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// What an expression is.
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
    /// Its value (seconds for a duration).
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
    /// What is computed.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtModifier {
    /// `@ 1234.5`, in milliseconds.
    Time(i64),
    /// `@ start()`
    Start,
    /// `@ end()`
    End,
}

/// Extended range selectors (experimental upstream).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeExtension {
    /// `anchored`
    Anchored,
    /// `smoothed`
    Smoothed,
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
}

/// A node of a computed duration. Values are seconds.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationNode {
    /// Seconds.
    Number(f64),
    /// `step()`
    Step,
    /// `range()`
    Range,
    /// `-d` (`+d` is dropped)
    Neg(Box<DurationNode>),
    /// `a op b` with op one of `+ - * / % ^`
    Binary(BinaryOp, Box<DurationNode>, Box<DurationNode>),
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
    /// Which function.
    pub function: &'static Function,
    /// Its arguments, checked against the function's types.
    pub args: Vec<Expr>,
}

/// An aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Which.
    pub op: AggregateOp,
    /// First argument of topk, quantile, count_values and the like.
    pub param: Option<Expr>,
    /// What is aggregated.
    pub expr: Expr,
    /// Labels of `by` or `without`, as written.
    pub grouping: Vec<String>,
    /// `without` instead of `by`.
    pub without: bool,
}

/// Aggregation operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in the language")]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    CountValues,
    Quantile,
    Limitk,
    LimitRatio,
}

/// `lhs op rhs`
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    /// Which operator.
    pub op: BinaryOp,
    /// Left side.
    pub lhs: Expr,
    /// Right side.
    pub rhs: Expr,
    /// `bool` after a comparison.
    pub return_bool: bool,
    /// How vectors are matched; `Some` exactly when both sides are vectors.
    pub matching: Option<VectorMatching>,
    /// Where the operator itself stands.
    pub op_span: Span,
}

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in the language")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Unless,
    /// `</` (native histograms)
    TrimUpper,
    /// `>/` (native histograms)
    TrimLower,
}

impl BinaryOp {
    /// `== != < <= > >=`
    #[must_use]
    pub fn is_comparison(self) -> bool {
        use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }

    /// `and or unless`
    #[must_use]
    pub fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// How the sides of a vector operation find each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VectorMatching {
    /// Cardinality.
    pub card: MatchCardinality,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// `on` instead of `ignoring`.
    pub on: bool,
    /// Labels of `group_left`/`group_right` that come over from the "one" side.
    pub include: Vec<String>,
    /// `fill`/`fill_left`: value for a missing left side (experimental).
    pub fill_left: Option<f64>,
    /// `fill`/`fill_right`: value for a missing right side (experimental).
    pub fill_right: Option<f64>,
}

/// Cardinality of a vector operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchCardinality {
    /// Default for arithmetic and comparison.
    #[default]
    OneToOne,
    /// `group_left`
    ManyToOne,
    /// `group_right`
    OneToMany,
    /// `and or unless`
    ManyToMany,
}

/// Sign in front of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnaryOp {
    /// `+`
    Plus,
    /// `-`
    Minus,
}
