//! The decoder against answers that InfluxDB gave, against rendered points, and against the grammar alone.

use chronolith_base::Rng;
use chronolith_model::kind::{integer_of_word, unsigned_of_word};
use chronolith_model::{LabelsBuilder, WordKind, WriteBatch};

use super::grammar::FieldValue;
use super::*;

const NOW_NS: i64 = 1_700_000_123_456_789_012;

/// A value as text: of its kind, without loss.
fn value_text(kind: WordKind, word: u64, text: &[u8]) -> String {
    match kind {
        WordKind::Float => format!("{:?}", f64::from_bits(word)),
        WordKind::Boolean => format!("{}", f64::from_bits(word) == 1.0),
        WordKind::Integer => format!("{}i", integer_of_word(word)),
        WordKind::Unsigned => format!("{}u", unsigned_of_word(word)),
        WordKind::Text => format!("\"{}\"", text.escape_ascii()),
    }
}

fn labels_text(key: chronolith_model::SeriesKey<'_>) -> String {
    let mut builder = LabelsBuilder::new();
    parse_labels(key, &mut builder).expect("a key in a batch is UTF-8");
    let labels = builder.finish();
    labels.iter().map(|(name, value)| format!("{name}={value};")).collect()
}

/// One line per value of the batch: row, labels, value, time.
fn render(batch: &WriteBatch) -> Vec<String> {
    assert_eq!(batch.series.len(), batch.fields.len());
    assert_eq!(batch.series.len(), batch.times.len());
    assert_eq!(batch.series.len(), batch.values.len());
    assert!(batch.rows.is_empty() || batch.rows.len() == batch.series.len());
    assert!(batch.rows.is_sorted());
    let of = |idx: usize| {
        let series = &batch.series[idx];
        assert_eq!(series.samples, idx as u32..idx as u32 + 1);
        let word = batch.values[idx].to_bits();
        let text =
            if batch.kind_of(idx) == WordKind::Text { batch.texts[word as usize].clone() } else { 0..0 };
        let value = value_text(batch.kind_of(idx), word, &batch.raw[text.start as usize..text.end as usize]);
        let row = batch.rows.get(idx).map_or(idx as u32, |row| *row);
        format!("{row} {}{value} @{}", labels_text(batch.key_of(idx)), batch.times[idx])
    };
    (0..batch.series.len()).map(of).collect()
}

fn decode_with(body: &[u8], options: &DecodeOptions) -> (Vec<String>, Refused) {
    let mut batch = new_batch();
    let refused = decode(body.to_vec(), options, &mut batch);
    (render(&batch), refused)
}

/// Returns the values of `body` by a second parser, which follows the grammar alone.
fn by_grammar(body: &[u8], options: &DecodeOptions) -> Vec<String> {
    let (mut out, mut row, mut start) = (Vec::new(), 0, 0);
    while start < body.len() {
        let end = grammar::line_end(body, start);
        let line = &body[grammar::skip_whitespace(&body[..end], start)..end];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        start = end + 1;
        if line.is_empty() || line[0] == b'#' || line.len() > options.line_bytes_max {
            continue;
        }
        let Ok(parsed) = grammar::parse(line, options.precision) else { continue };
        let tags: Vec<_> = grammar::TagPairs::new(labels::split_key(parsed.key).1).collect();
        let reserved: [&[u8]; 4] = [b"time", b"__name__", b"__field__", b"__kind__"];
        if tags.iter().any(|(tag, _)| reserved.contains(&&*labels::tag_of(tag))) {
            continue;
        }
        let mut fields: Vec<(Vec<u8>, &[u8], FieldValue<'_>)> = Vec::new();
        for (field, value) in &parsed.fields {
            let name = labels::field_of(field).into_owned();
            let kind = |value: &FieldValue<'_>| match value {
                FieldValue::Word(kind, _) => *kind,
                FieldValue::Text(_) => WordKind::Text,
            };
            fields.retain(|before| before.0 != name || kind(&before.2) != kind(value));
            if name != b"time" {
                fields.push((name, field, *value));
            }
        }
        let is_long = |value: &FieldValue<'_>| {
            matches!(value, FieldValue::Text(text)
            if labels::unescape(text, b"\"\\").len() > options.text_bytes_max)
        };
        if fields.is_empty() || fields.iter().any(|(_, _, value)| is_long(value)) {
            continue;
        }
        let time = parsed.time_ns.unwrap_or(options.precision.truncate(options.now_ns));
        for (_, field, value) in fields {
            let (kind, text) = match value {
                FieldValue::Word(kind, word) => (kind, value_text(kind, word, b"")),
                FieldValue::Text(text) => {
                    (WordKind::Text, value_text(WordKind::Text, 0, &labels::unescape(text, b"\"\\")))
                }
            };
            let key = chronolith_model::SeriesKey { raw: parsed.key, field, kind };
            out.push(format!("{row} {}{text} @{time}", labels_text(key)));
        }
        row += 1;
    }
    out
}

fn options() -> DecodeOptions {
    DecodeOptions::new(Precision::Nano, NOW_NS)
}

#[track_caller]
fn check(body: &[u8], want: &[&str]) {
    let (found, refused) = decode_with(body, &options());
    assert_eq!(found, want, "{}", body.escape_ascii());
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(by_grammar(body, &options()), want);
}

#[track_caller]
fn check_refused(line: &[u8], reason: &str) {
    let (found, refused) = decode_with(line, &options());
    assert_eq!(found, <[&str; 0]>::default(), "{}", line.escape_ascii());
    let want = format!("unable to parse '{}': {reason}", fault::text_of(line));
    assert_eq!(refused.answer(0, &StoreRefused::default()).as_deref(), Some(want.as_str()));
    assert_eq!(refused.unparsable_count(), 1);
    // The reason does not depend on the lines around it.
    let body = [b"a v=1 1\n", line, b"\nb v=2 2\n"].concat();
    let (found, refused) = decode_with(&body, &options());
    if grammar::line_end(&body, 8) == 8 + line.len() {
        assert_eq!(found.len(), 2);
        let want = format!("partial write: {want} dropped=0");
        assert_eq!(refused.answer(2, &StoreRefused::default()), Some(want));
    }
}

#[test]
fn usual_lines() {
    check(
        b"cpu,host=h012,region=r03,dc=d07 v=123.4 1700000000000000000\n",
        &["0 __field__=v;__name__=cpu;dc=d07;host=h012;region=r03;123.4 @1700000000000000000"],
    );
    check(
        b"m,t=x a=1,b=2i,c=t,d=\"x y\" 5\nm,t=x a=2 6",
        &[
            "0 __field__=a;__name__=m;t=x;1.0 @5",
            "0 __field__=b;__kind__=int;__name__=m;t=x;2i @5",
            "0 __field__=c;__kind__=bool;__name__=m;t=x;true @5",
            "0 __field__=d;__kind__=text;__name__=m;t=x;\"x y\" @5",
            "1 __field__=a;__name__=m;t=x;2.0 @6",
        ],
    );
    check(b"", &[]);
    check(b"\n\n  \n# v=1\n\t# x\n \x00\n", &[]);
    check(
        b"m v=1 1\nm v=2 2\nm a=1,b=2 3",
        &[
            "0 __field__=v;__name__=m;1.0 @1",
            "1 __field__=v;__name__=m;2.0 @2",
            "2 __field__=a;__name__=m;1.0 @3",
            "2 __field__=b;__name__=m;2.0 @3",
        ],
    );
}

#[test]
fn every_kind_of_value() {
    for (value, want) in [
        ("1", "1.0"),
        ("-0", "-0.0"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("-.5", "-0.5"),
        ("1e5", "100000.0"),
        ("1E-5", "1e-5"),
        ("1e+5", "100000.0"),
        ("000000000000000000000000001", "1.0"),
        ("00000000000000000000000000000000000001.5", "1.5"),
        ("1e-400", "0.0"),
        ("1i", "1i"),
        ("-0i", "0i"),
        ("-01i", "-1i"),
        ("00001i", "1i"),
        ("9223372036854775807i", "9223372036854775807i"),
        ("-9223372036854775808i", "-9223372036854775808i"),
        ("1u", "1u"),
        ("18446744073709551615u", "18446744073709551615u"),
        ("t", "true"),
        ("T", "true"),
        ("true", "true"),
        ("True", "true"),
        ("TRUE", "true"),
        ("f", "false"),
        ("F", "false"),
        ("false", "false"),
        ("False", "false"),
        ("FALSE", "false"),
        (r#""""#, r#""""#),
        (r#""a\nb\\c\"d""#, r#""a\\nb\\c\"d""#),
        ("\"a\nb\"", r#""a\nb""#),
        ("\"a\\\nb\"", r#""a\\\nb""#),
        ("\"a=b,c d\"", r#""a=b,c d""#),
        (r#""\\""#, r#""\\""#),
        ("\"\0\r\"", r#""\x00\r""#),
        // Bytes after the closing quote: 1.8 cuts the first and the last byte.
        (r#""a"b"#, r#""a\"""#),
        (r#""x"y"z""#, r#""x\"y\"z""#),
        (r#""x""z""#, r#""x\"\"z""#),
    ] {
        let kind = match want.as_bytes() {
            [b'"', ..] => "__kind__=text;",
            [.., b'i'] => "__kind__=int;",
            [.., b'u'] => "__kind__=uint;",
            b"true" | b"false" => "__kind__=bool;",
            _ => "",
        };
        check(format!("m v={value} 1").as_bytes(), &[&format!("0 __field__=v;{kind}__name__=m;{want} @1")]);
    }
    check(b"m v=\"\xff\" 1", &["0 __field__=v;__kind__=text;__name__=m;\"\\xff\" @1"]);
}

#[test]
fn escapes_and_literal_bytes_of_names() {
    for (line, want) in [
        (r"m\=a v=1 1", "__field__=v;__name__=m=a;"),
        (r#"m\"a v=1 1"#, "__field__=v;__name__=m\"a;"),
        (r"m\\\,a v=1 1", r"__field__=v;__name__=m\\,a;"),
        (r"e4\\\ x v=1 1", r"__field__=v;__name__=e4\\ x;"),
        (r"q,t=\=x v=1 1", "__field__=v;__name__=q;t==x;"),
        (r"cpu,a==x v=1 1", "__field__=v;__name__=cpu;a==x;"),
        (r#"q,t\"=a v=1 1"#, "__field__=v;__name__=q;t\\\"=a;"),
        (r#"k a\"b=1 1"#, "__field__=a\"b;__name__=k;"),
        (r"k c\,d=1 1", "__field__=c,d;__name__=k;"),
        (r"k e\=f=1 1", "__field__=e=f;__name__=k;"),
        (r"k g\ h=1 1", "__field__=g h;__name__=k;"),
        (r"k x\y=1 1", r"__field__=x\y;__name__=k;"),
        (r"e2,a\\,b=1 v=1 1", r"__field__=v;__name__=e2;a\,b=1;"),
        (r"e3,a\\=b=1 v=1 1", r"__field__=v;__name__=e3;a\=b=1;"),
        (r"e34,a\ b=c\ d v=1 1", "__field__=v;__name__=e34;a b=c d;"),
        (r"m \==1 1", "__field__==;__name__=m;"),
        (r"e \ =1 1", "__field__= ;__name__=e;"),
        ("\"m\" \"v\"=1 1", "__field__=\"v\";__name__=\"m\";"),
        ("e20 \"=1 1", "__field__=\";__name__=e20;"),
        ("z\"z v=1 1", "__field__=v;__name__=z\"z;"),
        ("m,_field=a v=1 1", "__field__=v;__name__=m;_field=a;"),
        ("m,a=\u{e4} v=1 1", "__field__=v;__name__=m;a=\u{e4};"),
        ("m\0x v=1 1", "__field__=v;__name__=m\0x;"),
        ("e31\t v=1 1", "__field__=v;__name__=e31\t;"),
        ("m\\\nn v=1 1", "__field__=v;__name__=m\\\nn;"),
        ("m,t=a\\\nb v=1 1", "__field__=v;__name__=m;t=a\\\nb;"),
        (" \t\0m2 v=1 1", "__field__=v;__name__=m2;"),
        ("m  v=1 1", "__field__=v;__name__=m;"),
        ("m \t v=1 1", "__field__=v;__name__=m;"),
        ("m v=1  1  ", "__field__=v;__name__=m;"),
        ("m v=1 \t1", "__field__=v;__name__=m;"),
        ("m,a=1  v=1 1 ", "__field__=v;__name__=m;a=1;"),
        ("m time=5,v=1 1", "__field__=v;__name__=m;"),
        ("m v=2,v=1 1", "__field__=v;__name__=m;"),
        (r#"m \"v=2,"v=1 1"#, "__field__=\"v;__name__=m;"),
        ("m v=1 0000000000000000000000001", "__field__=v;__name__=m;"),
    ] {
        check(line.as_bytes(), &[&format!("0 {want}1.0 @1")]);
    }
    // A field of two types is there in both: the store refuses the point, as InfluxDB does.
    let both = ["0 __field__=v;__kind__=int;__name__=m;2i @1", "0 __field__=v;__name__=m;1.0 @1"];
    for line in ["m v=2i,v=1 1", "m v=3,v=2i,v=1 1", "m v=1i,v=2i,v=1 1", "m time=1,v=2i,v=1 1"] {
        check(line.as_bytes(), &both);
    }
    // The order of tags is no part of the series.
    let (found, _) = decode_with(b"m,b=1,a=2 v=1 1\nm,a=2,b=1 v=1 1", &options());
    assert_eq!(found[0][1..], found[1][1..]);
    // Quotes in comments and backslashes hide newlines, as in 1.8.
    check(b"# c x=\"1\nafter v=1 1\n\"", &[]);
    check(
        b"m v=1 1\n\\\ne17 a=1 1",
        &["0 __field__=v;__name__=m;1.0 @1", "1 __field__=a;__name__=\\\ne17;1.0 @1"],
    );
}

/// Lines and the reasons that InfluxDB gives for them.
const REFUSED_LINES: &[(&str, &str)] = &[
    (r"cpu,a=x\ v=1", "invalid tag format"),
    (r"k a\\=1 1", r"invalid value: field-key=a\\=1"),
    (r"e4\\ v=1 1", "invalid field format"),
    (r#"s v="a" b 1"#, "bad timestamp"),
    (r#"s v="a"="b" 1"#, "invalid field format"),
    ("m v=1\t1", "invalid number"),
    ("m v=1 1\t", "bad timestamp"),
    ("m, a=1 v=1", "missing tag key"),
    ("m,a=b ,c=d v=1", "invalid boolean"),
    ("m =1", "missing field key"),
    ("m v=", "missing field value"),
    ("m v=,a=1", "missing field value"),
    ("m v", "invalid field format"),
    ("m v=1,", "invalid field format"),
    ("m v=1,a", "invalid field format"),
    ("m,a=1 ", "invalid field format"),
    ("m,a=1", "missing fields"),
    ("m", "missing fields"),
    (",a=1 v=1", "missing measurement"),
    ("m v=1 1 x", "point is invalid"),
    ("m v=1 1#x", "bad timestamp"),
    ("m v=nan", "invalid number"),
    ("m v=NaN", "invalid number"),
    ("m v=inf", "invalid boolean"),
    ("m v=-inf", "invalid number"),
    ("m v=+1", "invalid boolean"),
    ("m v=1.2.3", "invalid number"),
    ("m v=-", "invalid number"),
    ("m v=-.", "invalid number"),
    ("m v=.", "invalid number"),
    ("m v=1e", "invalid float"),
    ("m v=1e400", "invalid float"),
    ("m v=-e5", "invalid float"),
    ("m v=1i1", "invalid number"),
    ("m v=0x1", "invalid number"),
    ("m v=-i", "invalid number"),
    ("m v=1u1", "invalid number"),
    ("m v=-1u", "invalid number"),
    ("m v=1.0i", "invalid number"),
    ("m v=1e3i", "invalid number"),
    ("m v=i", "invalid boolean"),
    ("m v=tr", "invalid boolean"),
    ("m v=tRUE", "invalid boolean"),
    ("m v='a'", "invalid boolean"),
    ("m v=\"a", "unbalanced quotes"),
    ("m,b=1,a=1,b=2 v=1", "duplicate tags"),
    ("m,a=1,a=2 v=1", "duplicate tags"),
    ("m v=1\r", "invalid number"),
    ("m v=1 1\r", "bad timestamp"),
    ("bad", "missing fields"),
    ("m \"v=\"=1 1", "unbalanced quotes"),
    ("m a=\"x\",b=\"y 1", "unbalanced quotes"),
    ("m v=1,,a=2", "invalid field format"),
    ("m v=1,=2", "missing field key"),
    ("m v==1", "invalid boolean"),
    ("m v=1=2", "invalid number"),
    ("m v=t=1", "invalid boolean"),
    (r"e\ =1", "missing fields"),
    (r"m \=1", "invalid field format"),
    ("m ,v=1 1", "invalid field format"),
    ("m\\", "missing fields"),
    ("\\", "missing fields"),
    ("m,", "missing tag key"),
    ("m,a", "missing tag value"),
    ("m,a=", "missing tag value"),
    ("m,=b v=1", "missing tag key"),
    ("m,a=1,b v=1", "missing tag value"),
    ("m,a=1, v=1", "missing tag key"),
    ("m,a=1,=1 v=1", "missing tag key"),
    ("m v=1 --1", "bad timestamp"),
    ("m v=1 +1", "bad timestamp"),
    ("m v=1 1e3", "bad timestamp"),
    ("m v=1 1.5", "bad timestamp"),
    ("m v=1\0", "invalid number"),
    ("m v=1 1\0", "bad timestamp"),
    ("m a=1 ,b=2 1", "bad timestamp"),
    ("m a=1, b=2 1", "invalid field format"),
    (r"m a=1\,b=2", "invalid number"),
    (r"m a=t\,b=2", "invalid boolean"),
    (r#"m a="x"\,b=2 1"#, "invalid field format"),
    (r"m,a=\ v=1 1", "invalid tag format"),
    (r"m,\=1 v=1", "missing tag value"),
    (r"m,a=\", "missing fields"),
    (r#"m v="a\"#, "unbalanced quotes"),
    (r#"m v="a\" 1"#, "unbalanced quotes"),
    (r"m a\", "invalid field format"),
    ("m ,=1 1", "missing field key"),
    ("m,a=b,c=d=e v=1 1", "invalid tag format"),
];

#[test]
fn reasons_are_those_of_influxdb() {
    for (line, reason) in REFUSED_LINES {
        check_refused(line.as_bytes(), reason);
    }
    let range = "value out of range";
    for (line, reason) in [
        (
            "m v=9223372036854775808i",
            "unable to parse integer 9223372036854775808: strconv.ParseInt: parsing \"9223372036854775808\": ",
        ),
        (
            "m v=-9223372036854775809i",
            "unable to parse integer -9223372036854775809: strconv.ParseInt: parsing \"-9223372036854775809\": ",
        ),
        (
            "m v=18446744073709551616u",
            "unable to parse unsigned 18446744073709551616: strconv.ParseUint: parsing \"18446744073709551616\": ",
        ),
        ("m v=1 99999999999999999999", "strconv.ParseInt: parsing \"99999999999999999999\": "),
    ] {
        check_refused(line.as_bytes(), &format!("{reason}{range}"));
    }
    check_refused(b"m v=1 -", "strconv.ParseInt: parsing \"-\": invalid syntax");
    check_refused(b"m v=1 - 1", "strconv.ParseInt: parsing \"-\": invalid syntax");
    let outside = "time outside range -9223372036854775806 - 9223372036854775806";
    check_refused(b"m v=1 9223372036854775807", outside);
    check_refused(b"m v=1 -9223372036854775807", outside);
}

#[test]
fn names_that_are_not_utf8_are_refused_by_byte() {
    check_refused(b"\xff v=1 1", "invalid UTF-8: byte 0xff at offset 0");
    check_refused(b"m,a=x\xe4 v=1 1", "invalid UTF-8: byte 0xe4 at offset 5");
    check_refused(b"m v=\"\xff\",\xe4=1 1", "invalid UTF-8: byte 0xe4 at offset 8");
}

#[test]
fn keys_have_a_limit() {
    let line = |len: usize| [b"m".repeat(len), b" v=1 1".to_vec()].concat();
    let reason_of = |line: &[u8]| {
        let (found, refused) = decode_with(line, &options());
        assert_eq!(refused.unparsable[ParseReason::KeyTooLong as usize], u64::from(found.is_empty()));
        refused.messages.rsplit_once(": ").map(|(_, reason)| reason.to_owned())
    };
    assert_eq!(reason_of(&line(65_530)), None);
    assert_eq!(reason_of(&line(65_531)).as_deref(), Some("65536 > 65535"));
    assert_eq!(reason_of(&line(65_536)).as_deref(), Some("65536 > 65535"));
    // Tags and the field count, with four bytes between them.
    let tagged = |field: &str| [b"m,a=", &*b"x".repeat(65_524), b" v=1,", field.as_bytes(), b"=2 1"].concat();
    assert_eq!(reason_of(&tagged("vvv")), None);
    assert_eq!(reason_of(&tagged("vvvv")).as_deref(), Some("65536 > 65535"));
}

#[test]
fn times_by_precision() {
    for (name, time, want) in [
        ("", "1", Some(1)),
        ("n", "-1", Some(-1)),
        ("ns", "9223372036854775806", Some(i64::MAX - 1)),
        ("ns", "-9223372036854775806", Some(i64::MIN + 2)),
        ("u", "1", Some(1_000)),
        ("ms", "-3", Some(-3_000_000)),
        ("s", "2", Some(2_000_000_000)),
        ("m", "1", Some(60_000_000_000)),
        ("h", "-1", Some(-3_600_000_000_000)),
        ("s", "9223372036", Some(9_223_372_036_000_000_000)),
        ("s", "9223372037", None),
        ("h", "2562048", None),
        ("u", "9223372036854775806", None),
        ("", "", Some(NOW_NS)),
        ("u", "", Some(1_700_000_123_456_789_000)),
        ("ms", "", Some(1_700_000_123_456_000_000)),
        ("s", "", Some(1_700_000_123_000_000_000)),
        ("m", "", Some(1_700_000_100_000_000_000)),
        ("h", "", Some(1_699_999_200_000_000_000)),
    ] {
        let options = DecodeOptions::new(Precision::of_write(name).unwrap(), NOW_NS);
        let (found, refused) = decode_with(format!("m v=1 {time}").as_bytes(), &options);
        match want {
            Some(want) => assert_eq!(found, [format!("0 __field__=v;__name__=m;1.0 @{want}")]),
            None => assert_eq!(refused.unparsable[ParseReason::TimeRange as usize], 1, "{name} {time}"),
        }
    }
    let message = "invalid precision \"us\" (use n, u, ms, s, m or h)";
    assert_eq!(Precision::of_write("us"), Err(message.to_owned()));
    assert_eq!(Precision::of_write_v2("us"), Ok(Precision::Micro));
    let message = "invalid precision \"m\" (use ns, us, ms or s)";
    assert_eq!(Precision::of_write_v2("m"), Err(message.to_owned()));
    assert_eq!(Precision::Hour.truncate(-1), -3_600_000_000_000);
}

#[test]
fn dropped_lines_and_the_order_of_causes() {
    let answer = |body: &str, stored: u64, store: &StoreRefused| {
        decode_with(body.as_bytes(), &options()).1.answer(stored, store)
    };
    let none = StoreRefused::default();
    for (line, want) in [
        ("m,time=1 v=1", "invalid tag key: input tag \"time\" on measurement \"m\" is invalid"),
        (r"a\ m,__kind__=1 v=1", "invalid tag key: input tag \"__kind__\" on measurement \"a m\" is invalid"),
        ("m time=1", "invalid field name: input field \"time\" on measurement \"m\" is invalid"),
        ("m time=1,time=2i 4", "invalid field name: input field \"time\" on measurement \"m\" is invalid"),
    ] {
        assert_eq!(answer(line, 0, &none), Some(format!("partial write: {want} dropped=1")));
        let body = format!("m v=1 1\nbad\n{line}\n{line}\n");
        assert_eq!(answer(&body, 1, &none), Some(format!("partial write: {want} dropped=2")));
    }
    assert_eq!(answer("m v=1 1\nm time=1,v=2 1", 2, &none), None);
    let bad = "unable to parse 'bad': missing fields\nunable to parse 'bad2': missing fields";
    assert_eq!(answer("bad\nbad2", 0, &none), Some(bad.to_owned()));
    let partial = format!("partial write: {bad} dropped=0");
    assert_eq!(answer("m v=1 1\nbad\nm v=2 2\nbad2", 2, &none), Some(partial));
    // The tag is named first, although its line comes last; the field of a conflict comes after a bad field.
    let tag = "partial write: invalid tag key: input tag \"time\" on measurement \"b\" is invalid dropped=2";
    assert_eq!(answer("a time=1\nb,time=1 v=1", 0, &none), Some(tag.to_owned()));
    let points = |message: &str, count| Some(DroppedPoints { message: message.to_owned(), count });
    let conflict = conflict_text("v", "m", WordKind::Integer, WordKind::Float);
    let store = StoreRefused { conflict: points(&conflict, 3), beyond_retention_count: 9, ..none.clone() };
    let want = "partial write: field type conflict: input field \"v\" on measurement \"m\" is type integer, already exists as type float dropped=3";
    assert_eq!(answer("m v=1i 1\nbad", 1, &store), Some(want.to_owned()));
    let want =
        "partial write: invalid field name: input field \"time\" on measurement \"m\" is invalid dropped=4";
    assert_eq!(answer("m v=1i 1\nm time=1", 1, &store), Some(want.to_owned()));
    let limit = StoreRefused { series_limit: points("max-series", 2), ..store };
    assert_eq!(answer("m time=1", 5, &limit), Some("partial write: max-series dropped=6".to_owned()));
    let retention = StoreRefused { beyond_retention_count: 7, ..none };
    let want = "partial write: points beyond retention policy dropped=7";
    assert_eq!(answer("m v=1 1\nbad", 7, &retention), Some(want.to_owned()));
}

#[test]
fn conflicts_name_field_and_measurement_without_escapes() {
    let mut batch = new_batch();
    let body = b"a\\ b,t=x x\\,y=1i,z=2 1\nm v=1 1".to_vec();
    assert!(decode(body, &options(), &mut batch).is_empty());
    assert_eq!(point_count(&batch), 2);
    let want = "field type conflict: input field \"x,y\" on measurement \"a b\" is type integer, already exists as type string";
    assert_eq!(conflict_of(&batch, 0, WordKind::Text), want);
    assert!(decode(b"m v=1 1\nm v=1 2".to_vec(), &options(), &mut batch).is_empty());
    assert_eq!(point_count(&batch), 2);
    assert!(decode(b"bad".to_vec(), &options(), &mut batch).dropped_count() == 0);
    assert_eq!(point_count(&batch), 0);
}

#[test]
fn limits_of_lines_and_texts() {
    let options = DecodeOptions { line_bytes_max: 20, text_bytes_max: 3, ..options() };
    let (found, refused) =
        decode_with(b"m v=1 12345678901234\nm v=1 123456789012345\nm v=111111111111111", &options);
    assert_eq!(found.len(), 2);
    assert_eq!(
        refused.messages,
        "unable to parse 'm v=1 123456789012345': max line length exceeded: 21 > 20"
    );
    assert_eq!(refused.unparsable[ParseReason::LineTooLong as usize], 1);
    let (found, refused) = decode_with(b"m v=\"abc\" 1\nm v=\"abcd\" 1\nm v=\"ab\\\"\" 1", &options);
    assert_eq!(found.len(), 2);
    let want = "partial write: input field \"v\" on measurement \"m\" is too long, 4 > 3 dropped=1";
    assert_eq!(refused.answer(2, &StoreRefused::default()).as_deref(), Some(want));
}

#[test]
fn messages_are_bounded() {
    let (_, refused) = decode_with(&b"bad\n".repeat(5_000), &options());
    assert_eq!(refused.unparsable_count(), 5_000);
    let answer = refused.answer(0, &StoreRefused::default()).unwrap();
    assert!(answer.ends_with("\nunable to parse 4000 more lines"));
    assert!(answer.len() < 64 << 10);
    let long = b"x".repeat(1 << 20);
    let (_, refused) = decode_with(&long, &options());
    let answer = refused.answer(0, &StoreRefused::default()).unwrap();
    assert!(answer.ends_with("xxx...': missing fields") && answer.len() < 70 << 10);
}

/// Fields of one line are compared with each other only while that is cheap.
#[test]
fn lines_of_many_fields() {
    let fields: Vec<String> = (0..5_000).map(|idx| format!("f{}={idx}", idx % 4_000)).collect();
    let body = format!("m {} 1\nm {} 2", fields.join(","), fields[..3_000].join(","));
    let (found, refused) = decode_with(body.as_bytes(), &options());
    assert!(refused.is_empty());
    assert_eq!(found.len(), 7_000);
    assert_eq!(found, by_grammar(body.as_bytes(), &options()));
}

/// Pieces that meet in generated bodies; most are delimiters and ends of tokens.
const PIECES: [&str; 44] = [
    "m",
    "cpu",
    ",",
    ",",
    "=",
    "=",
    " ",
    " ",
    "\n",
    "\n",
    "\"",
    "\"",
    "\\",
    "\\",
    "a",
    "b=1",
    "v=",
    "1",
    "-",
    ".",
    "e",
    "i",
    "u",
    "t",
    "true",
    "F",
    "0",
    "12345678901234567890",
    "time",
    "__name__",
    "\t",
    "\0",
    "\r",
    "#",
    "\u{e4}",
    "host=h1",
    ",t=x",
    " v=1.5",
    " 1700000000000000000\n",
    "v=\"x y\"",
    "9223372036854775807",
    "e400",
    "N",
    "n",
];

fn generated_body(rng: &Rng) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..rng.below(40) {
        if rng.below(6) == 0 {
            body.extend_from_slice(b"\ncpu,host=a,x=y v=1,w=\"t\",z=2i 17\n");
        } else {
            body.extend_from_slice(PIECES[rng.below(PIECES.len() as u64) as usize].as_bytes());
        }
        if rng.below(60) == 0 {
            body.push(rng.next_u64() as u8);
        }
    }
    body
}

#[test]
fn the_fast_walk_finds_what_the_grammar_finds() {
    let rng = Rng::from_seed(11);
    let (mut value_count, mut refused_count) = (0, 0);
    for _ in 0..60_000 {
        let body = generated_body(&rng);
        let (found, refused) = decode_with(&body, &options());
        assert_eq!(found, by_grammar(&body, &options()), "{}", body.escape_ascii());
        value_count += found.len();
        refused_count += refused.unparsable_count();
    }
    assert!(value_count > 50_000 && refused_count > 50_000, "{value_count} {refused_count}");
}

/// Lines of every form that the fast walk knows.
const SOUND_LINES: [&str; 8] = [
    "cpu,host=a,x=y v=1,w=\"t\",z=2i 17\n",
    "m v=1\n",
    "m\\ n,a\\=b=c\\,d,\u{e4}=\u{f6} f\\ g=1.5e3,h=\"x \\\"y\\\\\" -5\n",
    "=m\\,\"q\",t=\\= \"k\"=t,b=F 9223372036854775806\n",
    "z,b=1,a=2 x=\"a\nb,c=d e\",y=18446744073709551615u,u=-1i\n",
    "# a comment\n",
    "  lead v=1  2 \n",
    "m a\\\"b=1,a\"b=2,time=3 1\n",
];

/// Sound lines with a few bytes replaced, inserted or removed.
fn mutated_body(rng: &Rng) -> Vec<u8> {
    const BYTES: &[u8] = b" ,=\"\\\n\t0a.-eit\xc3\xff\0_#";
    let mut body = Vec::new();
    for _ in 0..1 + rng.below(5) {
        body.extend_from_slice(SOUND_LINES[rng.below(8) as usize].as_bytes());
    }
    for _ in 0..rng.below(4) {
        let at = rng.below(body.len() as u64) as usize;
        let byte = BYTES[rng.below(BYTES.len() as u64) as usize];
        match rng.below(3) {
            0 => body[at] = byte,
            1 => body.insert(at, byte),
            _ => drop(body.remove(at)),
        }
    }
    body
}

fn check_mutated(seed: u64, round_count: u64) -> usize {
    let rng = Rng::from_seed(seed);
    let mut value_count = 0;
    for round in 0..round_count {
        let body = mutated_body(&rng);
        let line_bytes_max = if round % 8 == 0 { 30 } else { 1 << 20 };
        let options = DecodeOptions { line_bytes_max, text_bytes_max: 5, ..options() };
        let (found, _) = decode_with(&body, &options);
        assert_eq!(found, by_grammar(&body, &options), "{}", body.escape_ascii());
        value_count += found.len();
    }
    value_count
}

#[test]
fn mutated_lines_are_read_as_the_grammar_reads_them() {
    let value_count = check_mutated(14, 40_000);
    assert!(value_count > 100_000, "{value_count}");
}

/// `LINE_FUZZ_ROUNDS=100000000 cargo test --release -p chronolith-ingest line_fuzz -- --ignored`
#[test]
#[ignore = "as long as LINE_FUZZ_ROUNDS says"]
fn line_fuzz() {
    let of_env = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seed, round_count) = (of_env("LINE_FUZZ_SEED", 1), of_env("LINE_FUZZ_ROUNDS", 1_000_000));
    check_mutated(seed, round_count);
}

#[test]
fn random_bytes_never_panic() {
    let rng = Rng::from_seed(12);
    for round in 0..20_000 {
        let mut body = vec![0; rng.below(200) as usize];
        rng.fill(&mut body);
        if round % 2 == 0 {
            body.iter_mut().for_each(|byte| *byte = b" ,=\"\\\n\tm1t"[usize::from(*byte) % 10]);
        }
        let (found, _) = decode_with(&body, &options());
        assert_eq!(found, by_grammar(&body, &options()), "{}", body.escape_ascii());
    }
}

/// Appends `text` with a backslash before each of `escapes`.
fn put_escaped(text: &str, escapes: &str, out: &mut String) {
    for letter in text.chars() {
        if escapes.contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
}

fn random_name(rng: &Rng) -> String {
    const LETTERS: [&str; 14] =
        ["a", "b", "c", "d", "e", "_", "-", "1", " ", ",", "=", "\u{e4}", "\u{1f600}", "'"];
    let bound = if rng.below(3) == 0 { 14 } else { 8 };
    (0..1 + rng.below(8)).map(|_| LETTERS[rng.below(bound) as usize]).collect()
}

#[test]
fn rendered_points_round_trip() {
    let rng = Rng::from_seed(13);
    for round in 0..20_000 {
        let (name, time) = (random_name(&rng), rng.next_u64().cast_signed() >> rng.below(63));
        let Some(time) = Precision::Nano.to_ns(time) else { continue };
        let mut tags: Vec<(String, String)> = Vec::new();
        for _ in 0..rng.below(5) {
            let (tag, value) = (random_name(&rng), random_name(&rng));
            if tags.iter().all(|(before, _)| *before != tag) {
                tags.push((tag, value));
            }
        }
        let mut line = String::new();
        put_escaped(&name, ", ", &mut line);
        for (tag, value) in &tags {
            line.push(',');
            put_escaped(tag, ", =", &mut line);
            line.push('=');
            put_escaped(value, ", =", &mut line);
        }
        line.push(' ');
        let mut want = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let field = random_name(&rng);
            if seen.contains(&field) {
                continue;
            }
            line.push_str(if seen.is_empty() { "" } else { "," });
            put_escaped(&field, ", =", &mut line);
            line.push('=');
            let bits = rng.next_u64() >> rng.below(64);
            let (kind, text) = match rng.below(5) {
                0 => ("bool", format!("{}", bits.is_multiple_of(2))),
                1 => ("int", format!("{}i", bits.cast_signed())),
                2 => ("uint", format!("{bits}u")),
                3 => ("text", format!("\"{}\"", random_name(&rng).escape_default())),
                _ => ("", format!("{:?}", bits as f64 / 1000.0)),
            };
            if kind == "text" {
                let plain = random_name(&rng).replace('\'', "\"").replace('-', "\\").replace('_', "\n");
                line.push('"');
                put_escaped(&plain, "\"\\", &mut line);
                line.push('"');
                want.push((field.clone(), kind, format!("\"{}\"", plain.as_bytes().escape_ascii())));
            } else {
                line.push_str(&text);
                want.push((field.clone(), kind, text));
            }
            seen.push(field);
        }
        line.push_str(&format!(" {time}"));
        let labels = |field: &str, kind: &str| {
            let mut builder = LabelsBuilder::new();
            builder.push("__name__", &name);
            builder.push("__field__", field);
            if !kind.is_empty() {
                builder.push("__kind__", kind);
            }
            tags.iter().for_each(|(tag, value)| builder.push(tag, value));
            builder.sort();
            builder.finish().iter().map(|(name, value)| format!("{name}={value};")).collect::<String>()
        };
        let want: Vec<String> = (want.iter())
            .map(|(field, kind, value)| format!("0 {}{value} @{time}", labels(field, kind)))
            .collect();
        let (found, refused) = decode_with(line.as_bytes(), &options());
        assert_eq!(found, want, "round {round}: {line}");
        assert!(refused.is_empty());
    }
}
