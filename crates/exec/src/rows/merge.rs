//! Merge of the points of several members by time.
//!
//! Invariants: points of equal times stay in the order of their members.

use std::cmp::Reverse;

use super::column::RowColumn;
use super::plan::Order;
use super::points::PointColumns;

/// Merges points of members that are in the order of the plan. The points of each ascend.
pub(crate) fn merge_members(mut members: Vec<PointColumns>, order: Order) -> PointColumns {
    members.retain(|points| !points.times.is_empty());
    let merged = match members.len() {
        0 => return PointColumns::default(),
        1 => members.remove(0),
        _ => concatenate(&members),
    };
    let is_sorted = match order {
        Order::Ascending => merged.times.is_sorted(),
        Order::Descending => merged.times.is_sorted_by(|a, b| a >= b),
    };
    if is_sorted {
        return merged;
    }
    let mut merged = merged;
    let mut rows: Vec<u32> = (0..merged.times.len() as u32).collect();
    let times = &merged.times;
    // Stable, and fast where the input consists of sorted runs.
    match order {
        Order::Ascending => rows.sort_by_key(|row| times[*row as usize]),
        Order::Descending => rows.sort_by_key(|row| Reverse(times[*row as usize])),
    }
    merged.keep(&rows);
    merged
}

/// Bytes that a merge of members needs besides them: the concatenation, its order, and the sorted rows.
pub(crate) fn merge_bytes(members: &[PointColumns]) -> usize {
    let bytes: usize = members.iter().map(PointColumns::heap_bytes).sum();
    let rows: usize = members.iter().map(|points| points.times.len()).sum();
    if members.len() < 2 { 0 } else { 3 * bytes + 2 * rows * size_of::<u32>() }
}

fn concatenate(members: &[PointColumns]) -> PointColumns {
    let column_count = members.first().map_or(0, |points| points.columns.len());
    let mut out = PointColumns { times: Vec::new(), columns: vec![None; column_count] };
    out.times = members.iter().flat_map(|points| points.times.iter().copied()).collect();
    for (idx, column) in out.columns.iter_mut().enumerate() {
        let Some(first) = members.iter().find_map(|points| points.columns[idx].as_ref()) else { continue };
        let column_type = first.values.column_type();
        let mut all = RowColumn::new(column_type);
        for points in members {
            match &points.columns[idx] {
                Some(more) => all.append(more),
                None => all.append(&RowColumn::nulls(column_type, points.times.len())),
            }
        }
        *column = Some(all);
    }
    out
}
