//! View of typed series for PromQL: the reserved label of the kind is hidden, and series of all kinds are
//! numbers.
//!
//! Invariants: series of one kind are selected apart from other kinds and stay sorted without the label;
//! a source without typed series is asked exactly what the reader asked.
//! Not here: the kinds and their label (`model::kind`), the merge of the sources.

use std::borrow::Cow;

use chronolith_model::query::{ColumnType, map_series};
use chronolith_model::{KIND_LABEL, MatchOp, Matcher, SeriesBatches, SeriesRead, WordKind};

use super::merged::truncated;
use super::words::TypedSource;

/// Returns the matchers on labels that readers see; `None` if the others select no series, because a hidden
/// label matches like a missing one.
pub(super) fn visible(matchers: &[Matcher]) -> Option<Cow<'_, [Matcher]>> {
    let is_hidden = |matcher: &&Matcher| *matcher.name == *KIND_LABEL;
    if !matchers.iter().any(|matcher| is_hidden(&matcher)) {
        return Some(Cow::Borrowed(matchers));
    }
    let selects_all = matchers.iter().filter(is_hidden).all(Matcher::matches_empty);
    selects_all.then(|| matchers.iter().filter(|matcher| !is_hidden(matcher)).cloned().collect())
}

/// Returns the first `limit` names that readers see; 0 = all.
pub(super) fn visible_names(mut names: Vec<String>, limit: usize) -> Vec<String> {
    names.retain(|name| name != KIND_LABEL);
    truncated(names, limit)
}

/// Returns the kinds to select apart in a source, of those that can be read as `column_type`: all of them if
/// it has typed series, else `None` for floats, which are all its series.
pub(super) fn kinds_in(
    has_typed_series: bool,
    column_type: ColumnType,
) -> impl Iterator<Item = Option<WordKind>> {
    let typed = WordKind::ALL.into_iter().filter(move |_| has_typed_series);
    let untyped = (!has_typed_series).then_some(None);
    let has_type = move |kind: &Option<WordKind>| match column_type {
        ColumnType::Float => *kind != Some(WordKind::Text),
        ColumnType::Histogram => matches!(kind, None | Some(WordKind::Float)),
        ColumnType::Boolean => *kind == Some(WordKind::Boolean),
        ColumnType::Integer => *kind == Some(WordKind::Integer),
        ColumnType::Unsigned => *kind == Some(WordKind::Unsigned),
        ColumnType::Text => *kind == Some(WordKind::Text),
    };
    typed.map(Some).chain(untyped).filter(has_type)
}

/// Adds matchers for series of `kind`, unless it is `None`. Series with a label value of a later version are
/// selected with the floats and keep their label.
pub(super) fn with_kind(matchers: &[Matcher], kind: Option<WordKind>) -> Cow<'_, [Matcher]> {
    let of_kind = |op, kind: WordKind| {
        Matcher::new(KIND_LABEL, op, kind.label_value()).expect("no regex that could be invalid")
    };
    let added: Vec<Matcher> = match kind {
        None => return Cow::Borrowed(matchers),
        Some(WordKind::Float) => {
            WordKind::LABELED.into_iter().map(|other| of_kind(MatchOp::NotEqual, other)).collect()
        }
        Some(kind) => vec![of_kind(MatchOp::Equal, kind)],
    };
    matchers.iter().cloned().chain(added).collect()
}

/// Adds a matcher that leaves out series of texts, if a source has typed series.
pub(super) fn without_texts(matchers: &[Matcher], has_typed_series: bool) -> Cow<'_, [Matcher]> {
    if !has_typed_series {
        return Cow::Borrowed(matchers);
    }
    let text = WordKind::Text.label_value();
    let no_text = Matcher::new(KIND_LABEL, MatchOp::NotEqual, text).expect("no regex that could be invalid");
    matchers.iter().cloned().chain([no_text]).collect()
}

/// Returns the series of `kind` without the label of the kind, to be read as `column_type`.
pub(super) fn without_label(
    kind: Option<WordKind>,
    column_type: ColumnType,
    batches: Box<dyn SeriesBatches>,
) -> Box<dyn SeriesBatches> {
    match kind {
        None | Some(WordKind::Float) => batches,
        Some(kind) => map_series(batches, move |SeriesRead { labels, samples }| SeriesRead {
            labels: labels.filtered(|name| name != KIND_LABEL),
            samples: Box::new(TypedSource { words: samples, kind, column_type }),
        }),
    }
}
