//! Pieces against the whole body, and their memory against its bound.

use std::borrow::Cow;

use chronolith_base::{MemoryBudget, Rng};
use chronolith_model::{BatchSeries, WordKind};

use super::super::grammar::FieldValue;
use super::super::memory::{FIELD_BYTES, GROWTH_FACTOR, LINE_FIELD_BYTES, memory_bytes};
use super::super::{Precision, decode, new_batch};
use super::*;

fn options() -> DecodeOptions {
    DecodeOptions::new(Precision::of_write("").expect("the default"), 1_700_000_000_000_000_000)
}

/// Renders everything of a batch as lines, with the ranges resolved.
fn render(batch: &WriteBatch, out: &mut Vec<String>) {
    let mut row_before = None;
    for idx in 0..batch.series.len() {
        let key = batch.key_of(idx);
        let row = batch.rows.get(idx).copied().unwrap_or(idx as u32);
        let is_same_line = row_before.replace(row) == Some(row);
        let value = match key.kind {
            WordKind::Text => {
                let text = batch.texts[batch.values[idx].to_bits() as usize].clone();
                batch.raw[text.start as usize..text.end as usize].escape_ascii().to_string()
            }
            _ => format!("{:x}", batch.values[idx].to_bits()),
        };
        let raw = key.raw.escape_ascii();
        let field = key.field.escape_ascii();
        out.push(format!("{is_same_line} {raw} {field} {:?} {value} {}", key.kind, batch.times[idx]));
    }
}

/// Heap bytes of the columns and of what the body has grown by.
fn heap_bytes(batch: &WriteBatch, body_len: usize) -> u64 {
    let columns = batch.series.capacity() * size_of::<BatchSeries>()
        + batch.kinds.capacity()
        + (batch.fields.capacity() + batch.texts.capacity()) * 8
        + (batch.times.capacity() + batch.values.capacity()) * 8
        + batch.rows.capacity() * 4;
    (columns + batch.raw.capacity().saturating_sub(body_len)) as u64
}

/// Decodes in pieces; returns their number. No piece may take more memory than its reservation.
#[track_caller]
fn check(body: &str) -> usize {
    let mut whole = new_batch();
    let want_refused = decode(body.as_bytes().to_vec(), &options(), &mut whole);
    let mut want = Vec::new();
    render(&whole, &mut want);

    let budget = MemoryBudget::new("test", u64::MAX);
    let mut held = budget.reserve(memory_bytes(body.len())).expect("room");
    let mut bytes = body.as_bytes().to_vec();
    bytes.shrink_to_fit();
    let mut pieces = BodyPieces::new(bytes);
    let mut batch = new_batch();
    let (mut found, mut count) = (Vec::new(), 0);
    while pieces.next_piece(&options(), &mut held, &mut batch).expect("room") {
        let heap = heap_bytes(&batch, body.len());
        assert!(heap <= held.bytes(), "{heap} bytes of columns, {} reserved", held.bytes());
        render(&batch, &mut found);
        pieces.take_back(&mut batch);
        count += 1;
    }
    assert_eq!(found, want);
    assert_eq!(pieces.into_refused(), want_refused);
    count
}

#[test]
fn a_usual_batch_is_one_piece() {
    let line = |idx: usize| format!("cpu,host=h{idx},region=r1,dc=d1 usage=12.5 17000000000{idx:08}\n");
    let body: String = (0..10_000).map(line).collect();
    assert_eq!(check(&body), 1);
}

/// Columns of tiny fields took twelve times the body; the reserved memory was twice the body.
#[test]
fn tiny_fields_are_cut_into_pieces() {
    let fields: Vec<String> = (0..20).map(|idx| format!("{}=1", char::from(b'a' + idx))).collect();
    let body = format!("m {}\n", fields.join(",")).repeat(20_000);
    let count = check(&body);
    assert!(count > 10, "{count} pieces of {} bytes", body.len());
    let body = "m a=\"\\\"\\\"\\\"\\\"\"\nbad\nm,t=\"x b=\"\n\",c=2i 5\n".repeat(20_000);
    assert!(check(&body) > 1);
}

#[test]
fn a_line_of_many_fields_is_reserved_before_it_is_parsed() {
    let fields: Vec<String> = (0..100_000).map(|idx| format!("f{idx}=1")).collect();
    let body = format!("m v=1\nm {}\n", fields.join(","));
    assert_eq!(check(&body), 1);
    let budget = MemoryBudget::new("test", memory_bytes(body.len()) + 1000);
    let mut held = budget.reserve(memory_bytes(body.len())).expect("room");
    let mut pieces = BodyPieces::new(body.into_bytes());
    let error = pieces.next_piece(&options(), &mut held, &mut new_batch());
    assert!(error.is_err_and(|error| error.asked_bytes > 10_000_000));
    let listed = 2 * size_of::<(&[u8], FieldValue<'_>)>();
    let stored = size_of::<(Cow<'_, [u8]>, usize, &[u8], FieldValue<'_>)>() + listed / 2;
    assert!((listed + stored) as u64 + GROWTH_FACTOR * FIELD_BYTES <= LINE_FIELD_BYTES);
}

#[test]
fn random_bodies_have_the_same_lines_in_pieces() {
    let rng = Rng::from_seed(7);
    let parts = [
        "m v=1",
        "m,a=b v=1i,w=t",
        "m s=\"x\ny\"",
        "m s=\"a\\\"b\"",
        "bad",
        "# c",
        "",
        "m v=1 7",
        "m,t",
        "m a=1,a=2",
        "m \\\\=1",
        "m,time=1 v=1",
    ];
    for _ in 0..20 {
        let count = 5_000 + rng.below(20_000);
        let lines: Vec<&str> = (0..count).map(|_| parts[rng.below(parts.len() as u64) as usize]).collect();
        check(&lines.join("\n"));
    }
}
