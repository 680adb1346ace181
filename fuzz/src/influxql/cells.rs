//! Cells of two answers side by side, for rules that look at more than the first difference.

use crate::compare::print;
use crate::json::Json;

/// Cell that differs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    /// Index of its column; 0 is the time.
    pub(crate) column: usize,
    pub(crate) ours: Json,
    pub(crate) theirs: Json,
    /// The rows.
    pub(crate) our_row: Vec<Json>,
    pub(crate) their_row: Vec<Json>,
    /// Tags of the series.
    pub(crate) tags: Json,
}

/// Value of a member.
pub(crate) fn member<'j>(of: &'j Json, name: &str) -> Option<&'j Json> {
    match of {
        Json::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
        _ => None,
    }
}

/// Series of all results of an answer.
pub(crate) fn series(answer: &Json) -> Vec<&Json> {
    let documents = answer.items().iter();
    let results = documents.filter_map(|document| member(document, "results")).flat_map(Json::items);
    results.filter_map(|result| member(result, "series")).flat_map(Json::items).collect()
}

/// Rows of a series.
pub(crate) fn rows(series: &Json) -> &[Json] {
    member(series, "values").map_or(&[], Json::items)
}

/// Rows of all series of an answer.
pub(crate) fn all_rows(answer: &Json) -> Vec<&Json> {
    series(answer).into_iter().flat_map(rows).collect()
}

/// Cells that differ; `None` if series, columns or numbers of rows do.
pub(crate) fn differing(ours: &Json, theirs: &Json) -> Option<Vec<Cell>> {
    let (ours, theirs) = (series(ours), series(theirs));
    let mut out = Vec::new();
    if ours.len() != theirs.len() {
        return None;
    }
    for (a, b) in ours.iter().zip(&theirs) {
        let is_same = ["name", "tags", "columns"].iter().all(|name| member(a, name) == member(b, name));
        if !is_same || rows(a).len() != rows(b).len() {
            return None;
        }
        for (our_row, their_row) in rows(a).iter().zip(rows(b)) {
            for (column, (ours, theirs)) in our_row.items().iter().zip(their_row.items()).enumerate() {
                if ours != theirs {
                    out.push(Cell {
                        column,
                        ours: ours.clone(),
                        theirs: theirs.clone(),
                        our_row: our_row.items().to_vec(),
                        their_row: their_row.items().to_vec(),
                        tags: member(a, "tags").cloned().unwrap_or(Json::Null),
                    });
                }
            }
        }
    }
    Some(out)
}

/// Returns true if both have the same rows but for their times and their order.
pub(crate) fn same_but_for_times(ours: &Json, theirs: &Json) -> bool {
    let rows_of = |answer: &Json| {
        let mut out = Vec::new();
        for series in series(answer) {
            let head = ["name", "tags", "columns"].map(|name| member(series, name).map(print));
            out.extend(rows(series).iter().map(|row| {
                let values = row.items().iter().skip(1).map(print).collect::<Vec<_>>();
                (head.clone(), values)
            }));
        }
        out.sort();
        out
    };
    rows_of(ours) == rows_of(theirs)
}

/// Returns true if ours lists all that theirs lists: rows of lists by name, series by tags and columns.
pub(crate) fn lists_all(ours: &Json, theirs: &Json) -> bool {
    let ours = series(ours);
    series(theirs).into_iter().all(|wanted| {
        let is_same =
            |own: &&&Json| member(own, "name") == member(wanted, "name") && tags(own) == tags(wanted);
        ours.iter().filter(is_same).any(|own| contains_series(own, wanted))
    })
}

/// Tags of a series that have a value.
fn tags(series: &Json) -> Vec<&(String, Json)> {
    match member(series, "tags") {
        Some(Json::Object(tags)) => {
            tags.iter().filter(|(_, value)| *value != Json::Text(String::new())).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns true if both have the same rows, in another order.
pub(crate) fn same_but_for_order(ours: &Json, theirs: &Json) -> bool {
    let sorted = |answer: &Json| {
        let mut rows: Vec<String> = all_rows(answer).into_iter().map(print).collect();
        rows.sort();
        rows
    };
    series(ours).len() == series(theirs).len() && sorted(ours) == sorted(theirs)
}

/// Returns true if each row of `wanted` is in `own`, whose other columns may be any.
fn contains_series(own: &Json, wanted: &Json) -> bool {
    let names = |series: &Json| member(series, "columns").map_or(Vec::new(), |names| names.items().to_vec());
    let own_names = names(own);
    let places: Option<Vec<usize>> =
        names(wanted).iter().map(|name| own_names.iter().position(|own| own == name)).collect();
    let Some(places) = places else { return false };
    let own_rows: Vec<Vec<Option<&Json>>> =
        rows(own).iter().map(|row| places.iter().map(|place| row.items().get(*place)).collect()).collect();
    rows(wanted)
        .iter()
        .all(|row| own_rows.iter().any(|own| own.iter().copied().eq(row.items().iter().map(Some))))
}
