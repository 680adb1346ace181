//! Selectors: a name, and matchers in braces.
//!
//! Holds: a name in front of the braces is the last matcher, so that the checker can tell it from one inside.
//! Not here: ranges, offsets and `@` (postfix).

use chronolith_model::{MatchOp, Matcher};

use crate::ast::{BinaryOp, DurationExpr, Expr, ExprKind, VectorSelector};
use crate::parser::grammar::{Context, Parser, unexpected};
use crate::parser::lexer::Failure;
use crate::parser::quote::unquote;
use crate::parser::token::{Token, TokenKind};

/// Label that holds the name of a metric.
pub(super) const NAME_LABEL: &str = "__name__";

const LONE: Context = Context { place: "", expected: "" };
const MATCHING_NAME: Context = Context { place: "label matching", expected: "identifier or \"}\"" };
const MATCHING_OP: Context = Context { place: "label matching", expected: "label matching operator" };
const MATCHING_VALUE: Context = Context { place: "label matching", expected: "string" };
const MATCHING_NEXT: Context = Context { place: "label matching", expected: "\",\" or \"}\"" };

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

    /// The token behind `name`; nothing is read behind a token that cannot be a name.
    fn peek_after(&mut self, name: &Token<'a>) -> Result<Token<'a>, Failure> {
        match name.kind {
            TokenKind::Identifier | TokenKind::String => self.peek(),
            _ => Err(unexpected(name, MATCHING_NAME)),
        }
    }
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
fn text_of(token: &Token<'_>) -> String {
    match token.kind {
        TokenKind::String => String::from_utf8_lossy(&unquote(token.text)).into_owned(),
        _ => token.text.to_owned(),
    }
}
