//! Tokens of the lexer, and their names in error messages.
//!
//! Not here: cutting the text into tokens (lexer).

use crate::ast::{AggregateOp, Aggregation, BinaryOp, TopKOp};
use crate::parser::quote::write_go_quoted;

/// A piece of the query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Byte offset of the first byte.
    pub(super) start: usize,
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    End,
    Identifier,
    MetricIdentifier,
    String,
    Number,
    Duration,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    Assign,
    EqualRegex,
    NotEqualRegex,
    At,
    Operator(BinaryOp),
    Aggregator(AggregateOp),
    Word(Word),
}

/// Words with a meaning of their own. Most of them are names too where no such meaning fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Offset,
    Smoothed,
    Anchored,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Bool,
    Fill,
    FillLeft,
    FillRight,
    Start,
    End,
    Step,
    Range,
    MinOf,
    MaxOf,
}

impl Token<'_> {
    /// One past the last byte.
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Name of the token in "unexpected ...".
    pub(super) fn describe(&self) -> String {
        match self.kind {
            TokenKind::End => "end of input".to_owned(),
            TokenKind::Identifier => format!("identifier {}", quoted(self.text)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quoted(self.text)),
            TokenKind::String => format!("string {}", quoted_short(self.text)),
            TokenKind::Number => format!("number {}", quoted_short(self.text)),
            TokenKind::Duration => format!("duration {}", quoted_short(self.text)),
            TokenKind::EqualRegex | TokenKind::NotEqualRegex | TokenKind::At => format!("<op:{}>", self.text),
            TokenKind::Operator(_) => format!("<op:{}>", self.text),
            TokenKind::Aggregator(_) => format!("<aggr:{}>", self.text),
            TokenKind::Word(
                Word::Start | Word::End | Word::Step | Word::Range | Word::MinOf | Word::MaxOf,
            ) => quoted(self.text),
            TokenKind::Word(_) => format!("<{}>", self.text),
            _ => quoted(self.text),
        }
    }

    /// Returns true if the token can be the name of a metric.
    pub(super) fn is_metric_name(&self) -> bool {
        match self.kind {
            TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregator(_) => true,
            TokenKind::Operator(op) => op.is_set(),
            TokenKind::Word(word) => {
                !matches!(word, Word::On | Word::Ignoring | Word::GroupLeft | Word::GroupRight | Word::Bool)
            }
            _ => false,
        }
    }

    /// Returns true if the token can be a label name in a list of labels.
    pub(super) fn is_grouping_label(&self) -> bool {
        match self.kind {
            TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregator(_) => true,
            TokenKind::Operator(op) => op.is_set() || op == BinaryOp::Atan2,
            TokenKind::Word(word) => word != Word::Without,
            _ => false,
        }
    }
}

/// The meaning of a word outside braces, if it has one.
pub(super) fn keyword(text: &str) -> Option<TokenKind> {
    const KEYWORD_BYTES_MAX: usize = 12;
    if text.len() > KEYWORD_BYTES_MAX {
        return None;
    }
    Some(match text.to_ascii_lowercase().as_str() {
        "inf" | "nan" => TokenKind::Number,
        "and" => TokenKind::Operator(BinaryOp::And),
        "or" => TokenKind::Operator(BinaryOp::Or),
        "unless" => TokenKind::Operator(BinaryOp::Unless),
        "atan2" => TokenKind::Operator(BinaryOp::Atan2),
        "sum" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Sum)),
        "avg" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Avg)),
        "count" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Count)),
        "min" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Min)),
        "max" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Max)),
        "group" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Group)),
        "stddev" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Stddev)),
        "stdvar" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Stdvar)),
        "topk" => TokenKind::Aggregator(AggregateOp::Select(TopKOp::Topk)),
        "bottomk" => TokenKind::Aggregator(AggregateOp::Select(TopKOp::Bottomk)),
        "count_values" => TokenKind::Aggregator(AggregateOp::CountValues),
        "quantile" => TokenKind::Aggregator(AggregateOp::Fold(Aggregation::Quantile)),
        "limitk" => TokenKind::Aggregator(AggregateOp::Select(TopKOp::Limitk)),
        "limit_ratio" => TokenKind::Aggregator(AggregateOp::Select(TopKOp::LimitRatio)),
        "offset" => TokenKind::Word(Word::Offset),
        "smoothed" => TokenKind::Word(Word::Smoothed),
        "anchored" => TokenKind::Word(Word::Anchored),
        "by" => TokenKind::Word(Word::By),
        "without" => TokenKind::Word(Word::Without),
        "on" => TokenKind::Word(Word::On),
        "ignoring" => TokenKind::Word(Word::Ignoring),
        "group_left" => TokenKind::Word(Word::GroupLeft),
        "group_right" => TokenKind::Word(Word::GroupRight),
        "bool" => TokenKind::Word(Word::Bool),
        "fill" => TokenKind::Word(Word::Fill),
        "fill_left" => TokenKind::Word(Word::FillLeft),
        "fill_right" => TokenKind::Word(Word::FillRight),
        "start" => TokenKind::Word(Word::Start),
        "end" => TokenKind::Word(Word::End),
        "step" => TokenKind::Word(Word::Step),
        "range" => TokenKind::Word(Word::Range),
        "min_of" => TokenKind::Word(Word::MinOf),
        "max_of" => TokenKind::Word(Word::MaxOf),
        _ => return None,
    })
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_go_quoted(&mut out, text);
    out
}

/// Long literals are cut: the message shows where they start.
fn quoted_short(text: &str) -> String {
    const TEXT_BYTES_MAX: usize = 10;
    const CHARS_SHOWN: usize = 10;
    if text.len() <= TEXT_BYTES_MAX {
        return quoted(text);
    }
    let end = text.char_indices().nth(CHARS_SHOWN).map_or(text.len(), |(idx, _)| idx);
    let mut out = quoted(text.get(..end).unwrap_or(text));
    out.push_str("...");
    out
}
