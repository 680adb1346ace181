//! Selectors: a name, matchers in braces, and the modifiers that may follow an operand: `[range]`,
//! `[range:step]`, `offset`, `@`, `anchored`, `smoothed`.
//!
//! Invariants: a name in front of the braces is the last matcher, so that the checker can tell it from one
//! inside; `offset` and `@` are kept with the innermost selector they belong to, once each.
//! Not here: durations (`duration`).

use chronolith_model::{MatchOp, Matcher};

use crate::ast::{
    AtModifier, BinaryOp, DurationExpr, Expr, ExprKind, MatrixSelector, RangeExtension, Subquery,
    VectorSelector,
};
use crate::parser::duration::DurationPlace;
use crate::parser::grammar::{Context, Parser, start_of, unexpected};
use crate::parser::lexer::Failure;
use crate::parser::number::write_number;
use crate::parser::quote::unquote;
use crate::parser::token::{Token, TokenKind, Word};

/// Label that holds the name of a metric.
pub(super) const NAME_LABEL: &str = "__name__";

const LONE: Context = Context { place: "", expected: "" };
const MATCHING_NAME: Context = Context { place: "label matching", expected: "identifier or \"}\"" };
const MATCHING_OP: Context = Context { place: "label matching", expected: "label matching operator" };
const MATCHING_VALUE: Context = Context { place: "label matching", expected: "string" };
const MATCHING_NEXT: Context = Context { place: "label matching", expected: "\",\" or \"}\"" };
const RANGE: Context =
    Context { place: "subquery or range selector", expected: "number, duration, step(), or range()" };
const RANGE_NEXT: Context = Context { place: "subquery or range", expected: "\":\" or \"]\"" };
const STEP: Context =
    Context { place: "subquery selector", expected: "number, duration, step(), range(), or \"]\"" };
const STEP_NEXT: Context = Context { place: "subquery selector", expected: "\"]\"" };
const OFFSET: Context = Context { place: "offset", expected: "number, duration, step(), or range()" };
const AT: Context = Context { place: "@", expected: "timestamp" };

const MISPLACED: &str =
    "modifier must be preceded by an instant vector selector or range vector selector or a subquery";

impl<'a> Parser<'a> {
    /// A text that is one selector, without modifiers.
    pub(super) fn lone_selector(&mut self) -> Result<VectorSelector, Failure> {
        let token = self.bump()?;
        let expr = match token.kind {
            TokenKind::LeftBrace => self.selector(None, token.start)?,
            _ if token.is_metric_name() => self.named_selector(&token)?,
            _ => return Err(unexpected(&token, LONE)),
        };
        let next = self.bump()?;
        match expr.kind {
            ExprKind::Selector(selector) if next.kind == TokenKind::End => Ok(selector),
            _ => Err(unexpected(&next, LONE)),
        }
    }

    /// A selector that begins with its name, which has been taken.
    pub(super) fn named_selector(&mut self, name: &Token<'a>) -> Result<Expr, Failure> {
        if self.take(TokenKind::LeftBrace)? {
            return self.selector(Some(name.text), name.start);
        }
        let matchers = vec![Matcher::equal(NAME_LABEL, name.text)];
        Ok(self.finish_selector(Some(name.text), matchers, name.start))
    }

    /// Matchers up to `}`; the brace that opens them has been taken.
    pub(super) fn selector(&mut self, name: Option<&str>, start: usize) -> Result<Expr, Failure> {
        let mut matchers = Vec::new();
        while !self.take(TokenKind::RightBrace)? {
            matchers.push(self.matcher()?);
            let next = self.bump()?;
            match next.kind {
                TokenKind::Comma => {}
                TokenKind::RightBrace => break,
                _ => return Err(unexpected(&next, MATCHING_NEXT)),
            }
        }
        matchers.extend(name.map(|name| Matcher::equal(NAME_LABEL, name)));
        Ok(self.finish_selector(name, matchers, start))
    }

    fn finish_selector(&self, name: Option<&str>, matchers: Vec<Matcher>, start: usize) -> Expr {
        let selector = VectorSelector {
            name: name.map(str::to_owned),
            matchers,
            offset: DurationExpr::ZERO,
            at: None,
            extension: None,
        };
        Expr { kind: ExprKind::Selector(selector), span: self.span_from(start) }
    }

    fn matcher(&mut self) -> Result<Matcher, Failure> {
        let name = self.bump()?;
        let op = match (name.kind, match_op(self.peek_after(&name)?.kind)) {
            (TokenKind::Identifier | TokenKind::String, Some(op)) => op,
            (TokenKind::String, None) => return Ok(Matcher::equal(NAME_LABEL, &text_of(&name))),
            _ => return Err(unexpected(&self.peek()?, MATCHING_OP)),
        };
        self.bump()?;
        let value = self.bump()?;
        if value.kind != TokenKind::String {
            return Err(unexpected(&value, MATCHING_VALUE));
        }
        Matcher::new(&text_of(&name), op, &text_of(&value))
            .map_err(|error| Failure::new(name.start, error.to_string()))
    }

    /// The token after `name`; nothing is read after a token that cannot be a name.
    fn peek_after(&mut self, name: &Token<'a>) -> Result<Token<'a>, Failure> {
        match name.kind {
            TokenKind::Identifier | TokenKind::String => self.peek(),
            _ => Err(unexpected(name, MATCHING_NAME)),
        }
    }

    /// Everything that follows `expr` and binds to it alone.
    pub(super) fn postfix(&mut self, mut expr: Expr) -> Result<Expr, Failure> {
        let mut level_count = 0;
        loop {
            let token = self.peek()?;
            match token.kind {
                TokenKind::LeftBracket => {
                    self.enter()?;
                    level_count += 1;
                    expr = self.bracket(expr)?;
                }
                TokenKind::Word(Word::Offset) => self.offset(&mut expr)?,
                TokenKind::At => self.at(&mut expr)?,
                TokenKind::Word(Word::Anchored) => {
                    self.extend(&mut expr, &token, RangeExtension::Anchored)?
                }
                TokenKind::Word(Word::Smoothed) => {
                    self.extend(&mut expr, &token, RangeExtension::Smoothed)?
                }
                _ => break,
            }
        }
        for _ in 0..level_count {
            self.leave();
        }
        Ok(expr)
    }

    fn bracket(&mut self, expr: Expr) -> Result<Expr, Failure> {
        let open = self.bump()?;
        let outer = self.enter_context(RANGE);
        let range = self.duration(DurationPlace::Brackets)?;
        let next = self.bump()?;
        let step = match next.kind {
            TokenKind::RightBracket => None,
            TokenKind::Colon => Some(self.step()?),
            _ => return Err(unexpected(&next, RANGE_NEXT)),
        };
        self.leave_context(outer);
        let span = self.span_from(start_of(&expr));
        let kind = match step {
            None => ExprKind::Matrix(MatrixSelector { selector: bare_selector(expr, &open)?, range }),
            Some(step) => {
                let offset = DurationExpr::ZERO;
                ExprKind::Subquery(Box::new(Subquery { expr, range, step, offset, at: None }))
            }
        };
        Ok(Expr { kind, span })
    }

    /// The step between `:` and `]`, the bracket included.
    fn step(&mut self) -> Result<Option<DurationExpr>, Failure> {
        if self.take(TokenKind::RightBracket)? {
            return Ok(None);
        }
        self.enter_context(STEP);
        let step = self.duration(DurationPlace::Brackets)?;
        self.enter_context(STEP_NEXT);
        self.expect(TokenKind::RightBracket)?;
        Ok(Some(step))
    }

    fn offset(&mut self, expr: &mut Expr) -> Result<(), Failure> {
        self.bump()?;
        let outer = self.enter_context(OFFSET);
        let duration = self.duration(DurationPlace::Offset)?;
        self.leave_context(outer);
        let span = self.span_from(start_of(expr));
        let start = start_of(expr);
        let offset = match &mut expr.kind {
            ExprKind::Selector(selector) => &mut selector.offset,
            ExprKind::Matrix(matrix) => &mut matrix.selector.offset,
            ExprKind::Subquery(subquery) => &mut subquery.offset,
            _ => return Err(Failure::new(start, format!("offset {MISPLACED}"))),
        };
        if *offset != DurationExpr::ZERO {
            return Err(Failure::new(start, "offset may not be set multiple times"));
        }
        *offset = duration;
        expr.span = span;
        Ok(())
    }

    fn at(&mut self, expr: &mut Expr) -> Result<(), Failure> {
        self.bump()?;
        let outer = self.enter_context(AT);
        let start = start_of(expr);
        let modifier = match self.peek()?.kind {
            TokenKind::Word(Word::Start) => self.preprocessor(AtModifier::Start)?,
            TokenKind::Word(Word::End) => self.preprocessor(AtModifier::End)?,
            _ => AtModifier::Time(timestamp_ms(self.signed_number()?).map_err(|e| Failure::new(start, e))?),
        };
        self.leave_context(outer);
        let span = self.span_from(start);
        let at = match &mut expr.kind {
            ExprKind::Selector(selector) => &mut selector.at,
            ExprKind::Matrix(matrix) => &mut matrix.selector.at,
            ExprKind::Subquery(subquery) => &mut subquery.at,
            _ => return Err(Failure::new(start, format!("@ {MISPLACED}"))),
        };
        if at.is_some() {
            return Err(Failure::new(start, "@ <timestamp> may not be set multiple times"));
        }
        *at = Some(modifier);
        expr.span = span;
        Ok(())
    }

    /// `start()` and `end()`.
    fn preprocessor(&mut self, modifier: AtModifier) -> Result<AtModifier, Failure> {
        self.bump()?;
        self.expect(TokenKind::LeftParen)?;
        self.expect(TokenKind::RightParen)?;
        Ok(modifier)
    }

    fn extend(&mut self, expr: &mut Expr, token: &Token<'a>, wanted: RangeExtension) -> Result<(), Failure> {
        self.bump()?;
        let start = start_of(expr);
        let word = token.text.to_ascii_lowercase();
        let failed = |what: &str| Err(Failure::new(start, format!("{word} modifier {what}")));
        let extension = match &mut expr.kind {
            ExprKind::Selector(selector) => &mut selector.extension,
            ExprKind::Matrix(matrix) => &mut matrix.selector.extension,
            ExprKind::Subquery(_) => return failed("is not supported for subqueries"),
            _ => return failed("not implemented"),
        };
        if extension.is_some_and(|present| present != wanted) {
            return Err(Failure::new(start, "anchored and smoothed modifiers cannot be used together"));
        }
        // The span does not include the word, as in Prometheus: errors name columns.
        *extension = Some(wanted);
        Ok(())
    }
}

/// The selector before the range.
fn bare_selector(expr: Expr, bracket: &Token<'_>) -> Result<VectorSelector, Failure> {
    let ExprKind::Selector(selector) = expr.kind else {
        return Err(Failure::new(bracket.start, "ranges only allowed for vector selectors"));
    };
    if selector.offset != DurationExpr::ZERO {
        return Err(Failure::new(bracket.start, "no offset modifiers allowed before range"));
    }
    if selector.at.is_some() {
        return Err(Failure::new(bracket.start, "no @ modifiers allowed before range"));
    }
    Ok(selector)
}

/// Milliseconds of `@ seconds`.
fn timestamp_ms(seconds: f64) -> Result<i64, String> {
    const SECONDS_MAX: f64 = i64::MAX as f64;
    if seconds.is_finite() && seconds.abs() < SECONDS_MAX {
        return Ok((seconds * 1000.0).round() as i64);
    }
    let mut message = "timestamp out of bounds for @ modifier: ".to_owned();
    // Writing to a string does not fail.
    let _ = if seconds.is_finite() {
        std::fmt::Write::write_fmt(&mut message, format_args!("{seconds:.6}"))
    } else {
        write_number(&mut message, seconds)
    };
    Err(message)
}

fn match_op(kind: TokenKind) -> Option<MatchOp> {
    match kind {
        TokenKind::Assign => Some(MatchOp::Equal),
        TokenKind::Operator(BinaryOp::NotEqual) => Some(MatchOp::NotEqual),
        TokenKind::EqualRegex => Some(MatchOp::Regex),
        TokenKind::NotEqualRegex => Some(MatchOp::NotRegex),
        _ => None,
    }
}

/// A name or the text of a literal. Labels are UTF-8 here: bytes that are none are replaced.
pub(super) fn text_of(token: &Token<'_>) -> String {
    match token.kind {
        TokenKind::String => String::from_utf8_lossy(&unquote(token.text)).into_owned(),
        _ => token.text.to_owned(),
    }
}
