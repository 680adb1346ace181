//! Operators, operands, calls and aggregations.
//!
//! Invariants: one token is looked at before it is taken, so that a bad character is reported where
//! Prometheus reports it. `context` is the innermost construct that has a message of its own for what does
//! not fit into it.
//! Not here: selectors and modifiers (`selector`), types (`check`).

use crate::ast::{
    Aggregate, AggregateOp, Binary, BinaryOp, Call, Expr, ExprKind, MatchCardinality, NumberLiteral, Span,
    UnaryOp, VectorMatching,
};
use crate::functions::lookup;
use crate::parser::lexer::{Failure, Lexer};
use crate::parser::number::{parse_duration, parse_number};
use crate::parser::options::{NESTING_MAX, OPERATORS_MAX, ParserOptions};
use crate::parser::quote::{unquote, write_go_quoted};
use crate::parser::token::{Token, TokenKind, Word};

/// The rest of a message after "unexpected ...".
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) place: &'static str,
    pub(super) expected: &'static str,
}

const PLAIN: Context = Context { place: "", expected: "" };
const AGGREGATION: Context = Context { place: "aggregation", expected: "" };
const GROUPING_OPEN: Context = Context { place: "grouping opts", expected: "\"(\"" };
const GROUPING_LABEL: Context = Context { place: "grouping opts", expected: "label" };
const GROUPING_NEXT: Context = Context { place: "grouping opts", expected: "\",\" or \")\"" };

/// Binding power of a sign: weaker than `^`, stronger than `*`.
pub(super) const POWER_SIGN: u8 = 6;

pub(super) struct Parser<'a> {
    pub(super) options: ParserOptions,
    lexer: Lexer<'a>,
    peeked: Option<Token<'a>>,
    context: Context,
    depth: usize,
    operator_count: usize,
    /// One past the last byte taken.
    last_end: usize,
}

/// Left binding power of an operator; the right side binds one tighter, but for `^`, which is read from the
/// right.
pub(super) fn binding_power(op: BinaryOp) -> u8 {
    use BinaryOp::{
        Add, And, Atan2, Div, Equal, Greater, GreaterEqual, Less, LessEqual, Mod, Mul, NotEqual, Or, Pow,
        Sub, TrimLower, TrimUpper, Unless,
    };
    match op {
        Or => 1,
        And | Unless => 2,
        Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual | TrimUpper | TrimLower => 3,
        Add | Sub => 4,
        Mul | Div | Mod | Atan2 => 5,
        Pow => 6,
    }
}

/// Least binding power that an operator needs on the right side of `op`.
pub(super) fn right_power(op: BinaryOp) -> u8 {
    binding_power(op) + u8::from(op != BinaryOp::Pow)
}

/// `by (...)` or `without (...)`.
struct Grouping {
    labels: Vec<String>,
    without: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, options: ParserOptions) -> Parser<'a> {
        Parser {
            options,
            lexer: Lexer::new(text, options),
            peeked: None,
            context: PLAIN,
            depth: 0,
            operator_count: 0,
            last_end: 0,
        }
    }

    /// The whole text as one expression.
    pub(super) fn query(&mut self) -> Result<Expr, Failure> {
        if self.peek()?.kind == TokenKind::End {
            return Err(Failure::new(0, "no expression found in input"));
        }
        let expr = self.expr(0)?;
        self.expect(TokenKind::End)?;
        Ok(expr)
    }

    /// An expression of operators that bind with `power_min` or more.
    pub(super) fn expr(&mut self, power_min: u8) -> Result<Expr, Failure> {
        self.enter()?;
        let mut lhs = self.signed()?;
        while let TokenKind::Operator(op) = self.peek()?.kind {
            if binding_power(op) < power_min {
                break;
            }
            lhs = self.binary(lhs, op)?;
        }
        self.leave();
        Ok(lhs)
    }

    fn signed(&mut self) -> Result<Expr, Failure> {
        let token = self.peek()?;
        let Some(sign) = sign_of(token.kind) else { return self.operand() };
        self.bump()?;
        let mut operand = self.expr(POWER_SIGN)?;
        let span = Span { start: offset(token.start), end: operand.span.end };
        if let ExprKind::Number(literal) = &mut operand.kind {
            if sign == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            operand.span = span;
            return Ok(operand);
        }
        Ok(Expr { kind: ExprKind::Unary(sign, Box::new(operand)), span })
    }

    fn binary(&mut self, lhs: Expr, op: BinaryOp) -> Result<Expr, Failure> {
        let token = self.bump()?;
        self.operator_count += 1;
        if self.operator_count > OPERATORS_MAX {
            return Err(Failure::new(token.start, format!("query has more than {OPERATORS_MAX} operators")));
        }
        let return_bool = self.take_word(Word::Bool)?;
        let matching = self.matching()?;
        let rhs = self.expr(right_power(op))?;
        let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
        if fills && !self.options.binop_fill_modifiers {
            let message = "binop fill modifiers are experimental and not enabled";
            return Err(Failure::new(start_of(&lhs), message));
        }
        let span = Span { start: lhs.span.start, end: rhs.span.end };
        let op_start = self.lexer.behind_blanks(lhs.span.end as usize);
        let op_span = Span { start: offset(op_start), end: offset(token.end()) };
        let binary = Binary { op, lhs, rhs, return_bool, matching: Some(matching), op_span };
        Ok(Expr { kind: ExprKind::Binary(Box::new(binary)), span })
    }

    fn matching(&mut self) -> Result<VectorMatching, Failure> {
        let mut matching = VectorMatching::default();
        let word = self.peek()?.kind;
        if matches!(word, TokenKind::Word(Word::On | Word::Ignoring)) {
            self.bump()?;
            matching.on = word == TokenKind::Word(Word::On);
            matching.labels = self.label_list()?;
            if self.take_word(Word::GroupLeft)? {
                matching.card = MatchCardinality::ManyToOne;
            } else if self.take_word(Word::GroupRight)? {
                matching.card = MatchCardinality::OneToMany;
            }
            if matching.card != MatchCardinality::OneToOne {
                let next = self.peek()?;
                if next.kind == TokenKind::LeftParen {
                    matching.include = self.label_list()?;
                } else if !starts_operand(&next) {
                    return Err(unexpected(&next, GROUPING_OPEN));
                }
            }
        }
        if let Some(both) = self.fill(Word::Fill)? {
            matching.fill_left = Some(both);
            matching.fill_right = Some(both);
            return Ok(matching);
        }
        matching.fill_left = self.fill(Word::FillLeft)?;
        matching.fill_right = self.fill(Word::FillRight)?;
        if matching.fill_left.is_none() && matching.fill_right.is_some() {
            matching.fill_left = self.fill(Word::FillLeft)?;
        }
        Ok(matching)
    }

    /// Parses `word(number)`; `None` if the next token is not `word`.
    fn fill(&mut self, word: Word) -> Result<Option<f64>, Failure> {
        if !self.take_word(word)? {
            return Ok(None);
        }
        self.expect(TokenKind::LeftParen)?;
        let value = self.signed_number()?;
        self.expect(TokenKind::RightParen)?;
        Ok(Some(value))
    }

    /// A number or duration with at most one sign.
    pub(super) fn signed_number(&mut self) -> Result<f64, Failure> {
        let token = self.bump()?;
        let (sign, token) = match sign_of(token.kind) {
            Some(sign) => (sign, self.bump()?),
            None => (UnaryOp::Plus, token),
        };
        let value = match token.kind {
            TokenKind::Number | TokenKind::Duration => number_literal(&token)?.value,
            _ => return Err(unexpected(&token, self.context)),
        };
        Ok(if sign == UnaryOp::Minus { -value } else { value })
    }

    fn operand(&mut self) -> Result<Expr, Failure> {
        let token = self.bump()?;
        let expr = match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                Expr { kind: ExprKind::Number(number_literal(&token)?), span: token_span(&token) }
            }
            TokenKind::String => {
                let text = String::from_utf8_lossy(&unquote(token.text)).into_owned();
                Expr { kind: ExprKind::String(text), span: token_span(&token) }
            }
            TokenKind::LeftParen => {
                let inner = self.expr(0)?;
                self.expect(TokenKind::RightParen)?;
                Expr { kind: ExprKind::Paren(Box::new(inner)), span: self.span_from(token.start) }
            }
            TokenKind::LeftBrace => self.selector(None, token.start)?,
            TokenKind::Aggregator(op) if self.opens_aggregation()? => self.aggregate(op, &token)?,
            _ if is_function_name(token.kind) && self.peek()?.kind == TokenKind::LeftParen => {
                self.call(&token)?
            }
            _ if token.is_metric_name() => self.named_selector(&token)?,
            _ => return Err(unexpected(&token, self.context)),
        };
        self.postfix(expr)
    }

    fn opens_aggregation(&mut self) -> Result<bool, Failure> {
        let kind = self.peek()?.kind;
        Ok(matches!(kind, TokenKind::LeftParen | TokenKind::Word(Word::By | Word::Without)))
    }

    fn aggregate(&mut self, op: AggregateOp, token: &Token<'a>) -> Result<Expr, Failure> {
        let outer = self.enter_context(AGGREGATION);
        let mut grouping = self.grouping()?;
        let mut args = self.call_args()?;
        if grouping.is_none() {
            grouping = self.grouping()?;
        }
        self.leave_context(outer);
        let failed = |message: String| Err(Failure::new(token.start, message));
        let arg_count = args.len();
        let Some(expr) = args.pop() else {
            return failed("no arguments for aggregate expression provided".to_owned());
        };
        if op.is_experimental() && !self.options.experimental_functions {
            let flag = "--enable-feature=promql-experimental-functions";
            return failed(format!("{}() is experimental and must be enabled with {flag}", op.as_str()));
        }
        let wanted = 1 + usize::from(op.param_type().is_some());
        if arg_count != wanted {
            let what = "wrong number of arguments for aggregate expression provided";
            return failed(format!("{what}, expected {wanted}, got {arg_count}"));
        }
        let grouping = grouping.unwrap_or(Grouping { labels: Vec::new(), without: false });
        let aggregate =
            Aggregate { op, param: args.pop(), expr, grouping: grouping.labels, without: grouping.without };
        Ok(Expr { kind: ExprKind::Aggregate(Box::new(aggregate)), span: self.span_from(token.start) })
    }

    fn grouping(&mut self) -> Result<Option<Grouping>, Failure> {
        let without = match self.peek()?.kind {
            TokenKind::Word(Word::By) => false,
            TokenKind::Word(Word::Without) => true,
            _ => return Ok(None),
        };
        self.bump()?;
        Ok(Some(Grouping { labels: self.label_list()?, without }))
    }

    fn label_list(&mut self) -> Result<Vec<String>, Failure> {
        let outer = self.enter_context(GROUPING_OPEN);
        self.expect(TokenKind::LeftParen)?;
        let mut labels = Vec::new();
        while self.peek()?.kind != TokenKind::RightParen {
            let token = self.bump()?;
            labels.push(grouping_label(&token)?);
            let next = self.peek()?;
            match next.kind {
                TokenKind::Comma => self.bump()?,
                TokenKind::RightParen => break,
                _ => return Err(unexpected(&next, GROUPING_NEXT)),
            };
        }
        self.bump()?;
        self.leave_context(outer);
        Ok(labels)
    }

    fn call(&mut self, name: &Token<'a>) -> Result<Expr, Failure> {
        let args = self.call_args()?;
        let Some(function) = lookup(name.text) else {
            return Err(Failure::new(name.start, format!("unknown function with name \"{}\"", name.text)));
        };
        if function.experimental && !self.options.experimental_functions {
            return Err(Failure::new(name.start, format!("function \"{}\" is not enabled", name.text)));
        }
        Ok(Expr { kind: ExprKind::Call(Call { function, args }), span: self.span_from(name.start) })
    }

    fn call_args(&mut self) -> Result<Vec<Expr>, Failure> {
        self.expect(TokenKind::LeftParen)?;
        let mut args = Vec::new();
        if self.take(TokenKind::RightParen)? {
            return Ok(args);
        }
        loop {
            args.push(self.expr(0)?);
            let token = self.bump()?;
            match token.kind {
                TokenKind::RightParen => return Ok(args),
                TokenKind::Comma => {
                    if !starts_operand(&self.peek()?) {
                        let message = "trailing commas not allowed in function call args";
                        return Err(Failure::new(token.start, message));
                    }
                }
                _ => return Err(unexpected(&token, self.context)),
            }
        }
    }

    /// The next token, left where it is.
    pub(super) fn peek(&mut self) -> Result<Token<'a>, Failure> {
        if let Some(token) = self.peeked {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.peeked = Some(token);
        Ok(token)
    }

    /// The token after the next one.
    pub(super) fn peek_second(&mut self) -> Result<Token<'a>, Failure> {
        self.peek()?;
        let mut ahead = self.lexer;
        ahead.next()
    }

    /// Takes the next token.
    pub(super) fn bump(&mut self) -> Result<Token<'a>, Failure> {
        let token = self.peek()?;
        self.peeked = None;
        self.last_end = token.end();
        Ok(token)
    }

    /// Takes the next token if it is `kind`.
    pub(super) fn take(&mut self, kind: TokenKind) -> Result<bool, Failure> {
        let fits = self.peek()?.kind == kind;
        if fits {
            self.bump()?;
        }
        Ok(fits)
    }

    fn take_word(&mut self, word: Word) -> Result<bool, Failure> {
        self.take(TokenKind::Word(word))
    }

    /// Takes the next token, which must be `kind`.
    pub(super) fn expect(&mut self, kind: TokenKind) -> Result<Token<'a>, Failure> {
        let token = self.bump()?;
        if token.kind == kind { Ok(token) } else { Err(unexpected(&token, self.context)) }
    }

    pub(super) fn context(&self) -> Context {
        self.context
    }

    /// Sets the context and returns the one around it, which the caller puts back.
    pub(super) fn enter_context(&mut self, context: Context) -> Context {
        std::mem::replace(&mut self.context, context)
    }

    pub(super) fn leave_context(&mut self, outer: Context) {
        self.context = outer;
    }

    /// Counts a level of nesting.
    pub(super) fn enter(&mut self) -> Result<(), Failure> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            let message = format!("expression is nested more than {NESTING_MAX} levels deep");
            return Err(Failure::new(self.last_end, message));
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn span_from(&self, start: usize) -> Span {
        Span { start: offset(start), end: offset(self.last_end) }
    }
}

/// Positions fit because the query's bytes are limited.
pub(super) fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Byte offset of the first byte.
pub(super) fn start_of(expr: &Expr) -> usize {
    expr.span.start as usize
}

pub(super) fn token_span(token: &Token<'_>) -> Span {
    Span { start: offset(token.start), end: offset(token.end()) }
}

pub(super) fn unexpected(token: &Token<'_>, context: Context) -> Failure {
    let mut message = format!("unexpected {}", token.describe());
    if !context.place.is_empty() {
        message.push_str(" in ");
        message.push_str(context.place);
    }
    if !context.expected.is_empty() {
        message.push_str(", expected ");
        message.push_str(context.expected);
    }
    Failure::new(token.start, message)
}

pub(super) fn sign_of(kind: TokenKind) -> Option<UnaryOp> {
    match kind {
        TokenKind::Operator(BinaryOp::Add) => Some(UnaryOp::Plus),
        TokenKind::Operator(BinaryOp::Sub) => Some(UnaryOp::Minus),
        _ => None,
    }
}

/// The value of a number or duration token.
pub(super) fn number_literal(token: &Token<'_>) -> Result<NumberLiteral, Failure> {
    let is_duration = token.kind == TokenKind::Duration;
    let value = if is_duration { parse_duration(token.text) } else { parse_number(token.text) };
    let value = value.map_err(|message| Failure::new(token.start, message))?;
    Ok(NumberLiteral { value, is_duration })
}

fn is_function_name(kind: TokenKind) -> bool {
    match kind {
        TokenKind::Identifier => true,
        TokenKind::Word(word) => {
            matches!(word, Word::Start | Word::End | Word::Step | Word::Range | Word::MinOf | Word::MaxOf)
        }
        _ => false,
    }
}

fn starts_operand(token: &Token<'_>) -> bool {
    use TokenKind::{Duration, LeftBrace, LeftParen, Number, String};
    matches!(token.kind, Duration | LeftBrace | LeftParen | Number | String)
        || sign_of(token.kind).is_some()
        || token.is_metric_name()
}

fn grouping_label(token: &Token<'_>) -> Result<String, Failure> {
    if token.is_grouping_label() {
        return Ok(token.text.to_owned());
    }
    if token.kind != TokenKind::String {
        return Err(unexpected(token, GROUPING_LABEL));
    }
    match String::from_utf8(unquote(token.text)) {
        Ok(label) if !label.is_empty() => Ok(label),
        Ok(_) => Err(Failure::new(token.start, "invalid label name for grouping: \"\"")),
        Err(e) => {
            let mut message = "invalid label name for grouping: ".to_owned();
            write_quoted_bytes(&mut message, e.as_bytes());
            Err(Failure::new(token.start, message))
        }
    }
}

/// As [`write_go_quoted`]; bytes that are no text are written as `\xff`.
fn write_quoted_bytes(out: &mut String, bytes: &[u8]) {
    let mut quoted = String::new();
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        quoted.clear();
        write_go_quoted(&mut quoted, chunk.valid());
        out.push_str(quoted.trim_matches('"'));
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
}
