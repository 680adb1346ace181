//! Tree of one target: calls, path expressions, literals and templates.
//!
//! Invariants: pipes are gone (`a|f(1)` is `f(a,1)`); the tree is at most [`super::NESTING_MAX`] high.
//! Not here: parsing (`parser`), evaluation.

/// A constant argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `none`, in any case.
    None,
    /// `true` or `false`, in any case.
    Bool(bool),
    /// An integer without a fraction.
    Int(i64),
    /// A number with fraction or exponent, an integer beyond 64 bits, or `inf`.
    Float(f64),
    /// The text between the quotes; escapes are kept as they are written.
    Text(String),
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCall {
    /// Name as written.
    pub name: String,
    /// Positional arguments; the left side of a pipe is the first.
    pub args: Vec<Node>,
    /// Keyword arguments in order.
    pub named: Vec<(String, Node)>,
    /// Source text from the name to the closing parenthesis.
    pub raw: String,
}

/// `template(body, ...)`: `$name` and `$1` in path expressions of the body are replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// A call or a path expression.
    pub body: Node,
    /// Values of `$1`, `$2`, ...
    pub positional: Vec<Literal>,
    /// Values of `$name`.
    pub named: Vec<(String, Literal)>,
}

/// A target or an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A constant.
    Literal(Literal),
    /// A path with globs, escapes removed.
    Path(String),
    /// A function.
    Call(Box<FunctionCall>),
    /// A template with its values.
    Template(Box<Template>),
}
