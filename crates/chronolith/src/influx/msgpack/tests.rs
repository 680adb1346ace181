//! Exact values of rows, responses that end early, and any bytes.

use super::*;

/// Keeps heads and rows as text.
#[derive(Default)]
struct Collected(Vec<String>);

impl RowSink for Collected {
    fn series(&mut self, head: &SeriesHead) -> anyhow::Result<()> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tags: Vec<String> = head.tags.iter().map(|(k, v)| format!("{}={}", text(k), text(v))).collect();
        self.0.push(format!("{} {}", text(&head.name), tags.join(",")));
        Ok(())
    }

    fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        let show = |cell: &Cell| match *cell {
            Cell::Text { .. } => format!("{:?}", row.text(*cell)),
            cell => format!("{cell:?}"),
        };
        self.0.push(row.cells.iter().map(show).collect::<Vec<_>>().join(" "));
        Ok(())
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | u8::try_from(text.len()).expect("short"));
    out.extend_from_slice(text.as_bytes());
}

/// A document with one series of one row with these values.
fn document(columns: &[&str], values: &[&[u8]], is_partial: bool) -> Vec<u8> {
    let mut out = vec![0x81];
    text(&mut out, "results");
    out.extend([0x91, 0x82 + u8::from(is_partial)]);
    text(&mut out, "statement_id");
    out.push(0);
    text(&mut out, "series");
    out.extend([0x91, 0x84]);
    text(&mut out, "name");
    text(&mut out, "m");
    text(&mut out, "tags");
    out.push(0x81);
    text(&mut out, "host");
    text(&mut out, "a");
    text(&mut out, "columns");
    out.push(0x90 | u8::try_from(columns.len()).expect("few"));
    columns.iter().for_each(|column| text(&mut out, column));
    text(&mut out, "values");
    out.extend([0x91, 0x90 | u8::try_from(values.len()).expect("few")]);
    values.iter().for_each(|value| out.extend_from_slice(value));
    if is_partial {
        text(&mut out, "partial");
        out.push(0xc3);
    }
    out
}

const VALUES: [&[u8]; 7] = [
    &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0],
    &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0],
    &[0xa2, 0xff, 0x00],
    &[0xc3],
    &[0xc0],
    &[0xff],
];
const COLUMNS: [&str; 7] = ["time", "u", "f", "s", "b", "n", "i"];

#[test]
fn rows_keep_exact_values() {
    let mut bytes = document(&COLUMNS, &VALUES, true);
    bytes.extend(document(&["time"], &[&[5]], false));
    let mut sink = Collected::default();
    read_response(&*bytes, &mut sink).expect("a response");
    let first = "Integer(-9223372036854775808) Unsigned(18446744073709551615) Float(-0.0) [255, 0] \
                 Boolean(true) Null Integer(-1)";
    assert_eq!(sink.0, ["m host=a", first, "m host=a", "Integer(5)"]);
}

#[test]
fn times_of_both_forms_are_nanoseconds() {
    let extension = |seconds: i64, ns: u32| {
        let mut bytes = vec![0xc7, 12, 5];
        bytes.extend(seconds.to_be_bytes());
        bytes.extend(ns.to_be_bytes());
        bytes
    };
    let (before, last) = (extension(-1, 999_999_999), extension(9_223_372_036, 854_775_806));
    let bytes = document(&["time", "t"], &[&before, &last], false);
    let mut sink = Collected::default();
    read_response(&*bytes, &mut sink).expect("a response");
    assert_eq!(sink.0[1], format!("Integer(-1) Integer({})", i64::MAX - 1));
}

#[test]
fn a_response_that_ends_early_is_an_error() {
    let whole = document(&COLUMNS, &VALUES, false);
    for len in 1..whole.len() {
        let read = read_response(&whole[..len], &mut Collected::default());
        assert!(matches!(read, Err(ResponseError::Transport(_))), "{len} bytes");
    }
    let more = document(&["time"], &[&[5]], true);
    assert!(matches!(read_response(&*more, &mut Collected::default()), Err(ResponseError::Transport(_))));
}

#[test]
fn an_error_of_the_statement_is_reported() {
    let mut bytes = vec![0x81];
    text(&mut bytes, "results");
    bytes.extend([0x91, 0x81]);
    text(&mut bytes, "error");
    text(&mut bytes, "no such thing");
    let read = read_response(&*bytes, &mut Collected::default());
    assert!(matches!(read, Err(ResponseError::Statement(text)) if text == "no such thing"));
}

#[test]
fn any_bytes_are_refused_without_a_panic() {
    for code in 0..=u8::MAX {
        for rest in [0x00, 0x7f, 0xc3, 0xff] {
            let mut bytes = document(&COLUMNS, &VALUES, false);
            for at in 0..bytes.len() {
                let kept = std::mem::replace(&mut bytes[at], code);
                let _ = read_response(&*bytes, &mut Collected::default());
                bytes[at] = kept;
            }
            let _ = read_response(&[code, rest, rest, rest, rest, rest][..], &mut Collected::default());
        }
    }
}
