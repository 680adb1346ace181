//! Text of a statement as a tree, so that a failing statement can be reduced.
//!
//! Invariants: each reduction removes an optional part, an item of a list, or what surrounds a part.

use std::fmt;

/// Part of a statement.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    /// Fixed text.
    Text(String),
    /// Parts one after the other.
    Sequence(Vec<Piece>),
    /// Part that may be missing.
    Optional(Box<Piece>),
    /// Parts of which one at least has to stay.
    List(Vec<Piece>, &'static str),
    /// Part with something around it, which may be removed.
    Wrapped {
        /// In front of it.
        before: String,
        /// The part.
        inner: Box<Piece>,
        /// After it.
        after: String,
    },
}

impl Piece {
    pub(crate) fn text(text: impl Into<String>) -> Piece {
        Piece::Text(text.into())
    }

    pub(crate) fn optional(piece: Piece) -> Piece {
        Piece::Optional(Box::new(piece))
    }

    pub(crate) fn optional_text(text: impl Into<String>) -> Piece {
        Piece::optional(Piece::text(text))
    }

    pub(crate) fn wrapped(before: impl Into<String>, inner: Piece, after: impl Into<String>) -> Piece {
        Piece::Wrapped { before: before.into(), inner: Box::new(inner), after: after.into() }
    }

    pub(crate) fn empty() -> Piece {
        Piece::Sequence(Vec::new())
    }

    /// Trees that are smaller by one reduction, the largest reductions first.
    pub(crate) fn reductions(&self) -> Vec<Piece> {
        match self {
            Piece::Text(_) => Vec::new(),
            Piece::Sequence(parts) => replaced(parts, Piece::Sequence),
            Piece::Optional(inner) => {
                let mut out = vec![Piece::empty()];
                out.extend(inner.reductions().into_iter().map(Piece::optional));
                out
            }
            Piece::List(items, separator) => {
                let mut out = Vec::new();
                if items.len() > 1 {
                    out.extend((0..items.len()).map(|removed| {
                        let kept = items.iter().enumerate().filter(|(idx, _)| *idx != removed);
                        Piece::List(kept.map(|(_, item)| item.clone()).collect(), separator)
                    }));
                }
                out.extend(replaced(items, |items| Piece::List(items, separator)));
                out
            }
            Piece::Wrapped { before, inner, after } => {
                let mut out = vec![(**inner).clone()];
                let again = |inner| Piece::wrapped(before.clone(), inner, after.clone());
                out.extend(inner.reductions().into_iter().map(again));
                out
            }
        }
    }
}

fn replaced(parts: &[Piece], wrap: impl Fn(Vec<Piece>) -> Piece) -> Vec<Piece> {
    let mut out = Vec::new();
    for (idx, part) in parts.iter().enumerate() {
        for smaller in part.reductions() {
            let mut parts = parts.to_vec();
            parts[idx] = smaller;
            out.push(wrap(parts));
        }
    }
    out
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Text(text) => f.write_str(text),
            Piece::Sequence(parts) => parts.iter().try_for_each(|part| part.fmt(f)),
            Piece::Optional(inner) => inner.fmt(f),
            Piece::List(items, separator) => {
                for (idx, item) in items.iter().enumerate() {
                    if idx > 0 {
                        f.write_str(separator)?;
                    }
                    item.fmt(f)?;
                }
                Ok(())
            }
            Piece::Wrapped { before, inner, after } => write!(f, "{before}{inner}{after}"),
        }
    }
}
