//! Labels of the simulated series: a pure function of their number and owner.

use chronolith_model::{KIND_LABEL, Labels, WordKind};

/// Returns the kind of the words of series `number`.
pub(crate) fn kind_of(number: u32) -> WordKind {
    match number % 13 {
        2 => WordKind::Integer,
        5 => WordKind::Boolean,
        7 => WordKind::Unsigned,
        10 => WordKind::Text,
        _ => WordKind::Float,
    }
}

/// Returns the labels of series `number` with the label of its kind, which only writers use.
pub(crate) fn typed(labels: &Labels, number: u32) -> Labels {
    let mut builder = labels.to_builder();
    builder.set(KIND_LABEL, kind_of(number).label_value());
    builder.finish()
}

/// Returns the labels of series `number`; `owner` is a label if several ledgers share a tenant.
pub(crate) fn labels_of(owner: Option<usize>, number: u32) -> Labels {
    let (name, id, job) = (format!("m{}", number % 7), number.to_string(), format!("j{}", number % 3));
    let (zone, long) = (format!("z{}", number % 4), "long ".repeat(60));
    let owner = owner.map(|owner| owner.to_string());
    let mut pairs: Vec<(&str, &str)> = vec![("__name__", &name), ("id", &id), ("job", &job)];
    if number.is_multiple_of(5) {
        pairs.push(("zone", &zone));
    }
    if number.is_multiple_of(11) {
        pairs.push(("größe", "weiß ☃ \"\\\n"));
    }
    if number.is_multiple_of(97) {
        pairs.push(("long", &long));
    }
    if let Some(owner) = &owner {
        pairs.push(("owner", owner));
    }
    Labels::from_pairs(pairs)
}
