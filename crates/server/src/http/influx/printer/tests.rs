//! Text forms of results.

use chronolith_influxql::result::{Cell, Message, SeriesHeader};

use super::*;

/// Prints two statements: one with a series of three types, one with an error.
fn print(printer: &mut dyn Printer) -> Vec<u8> {
    let tags = vec![("b".to_owned(), "x,y".to_owned()), ("a".to_owned(), "1".to_owned())];
    let header = SeriesHeader { tags, ..SeriesHeader::new("m", &["time", "v", "s"]) };
    printer.begin_result(0);
    printer.begin_series(&header);
    printer.row(&[Cell::Time(1_500_000_000), Cell::Float(1e21), Cell::Text(b"a<\"\xff")]);
    printer.row(&[Cell::Time(-1), Cell::Integer(-5), Cell::Null]);
    printer.end_series(false);
    printer.end_result(&[Message { level: "warning", text: "note".to_owned() }], false, None);
    printer.begin_result(1);
    printer.end_result(&[], false, Some("failed"));
    printer.end();
    std::mem::take(printer.out())
}

#[track_caller]
fn check(printer: &mut dyn Printer, want: &str) {
    assert_eq!(String::from_utf8_lossy(&print(printer)), want);
}

#[test]
fn json_is_that_of_go() {
    let want = concat!(
        r#"{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"a":"1","b":"x,y"},"#,
        r#""columns":["time","v","s"],"values":[["1970-01-01T00:00:01.5Z",1e+21,"a\u003c\"\ufffd"],"#,
        r#"["1969-12-31T23:59:59.999999999Z",-5,null]]}],"messages":[{"level":"warning","text":"note"}]},"#,
        r#"{"statement_id":1,"error":"failed"}]}"#,
        "\n"
    );
    check(&mut JsonPrinter::new(Epoch::Rfc3339, false), want);
    let text = String::from_utf8(print(&mut JsonPrinter::new(Epoch::Divided(1_000_000), true))).unwrap();
    assert!(
        text.starts_with("{\n    \"results\": [\n        {\n            \"statement_id\": 0,\n"),
        "{text}"
    );
    assert!(text.contains("                        [\n                            1500,\n"), "{text}");
}

#[test]
fn floats_are_the_shortest_that_read_back() {
    for (value, want) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (1e20, "100000000000000000000"),
        // Two texts are as near: the last digit is even.
        (1_813_559_050_390_156.0 + 0.25, "1813559050390156.2"),
        (-1_802_119_782_543_151.0 - 0.25, "-1802119782543151.2"),
        (701.482_116_699_218_8, "701.4821166992188"),
        (2f64.powi(-25), "2.9802322387695312e-8"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::INFINITY, "null"),
    ] {
        let mut printer = JsonPrinter::new(Epoch::Rfc3339, false);
        printer.begin_result(0);
        printer.begin_series(&SeriesHeader::new("", &["v"]));
        printer.row(&[Cell::Float(value)]);
        let text = String::from_utf8(std::mem::take(printer.out())).unwrap();
        assert!(text.ends_with(&format!("[[{want}]")), "{text} {want}");
    }
}

#[test]
fn csv_has_names_and_tags() {
    let want = concat!(
        "name,tags,time,v,s\n",
        "m,\"a=1,b=x\\,y\",1500000000,1000000000000000000000,\"a<\"\"\u{fffd}\"\n",
        "m,\"a=1,b=x\\,y\",-1,-5,\n",
        "error\nfailed\n",
    );
    check(&mut CsvPrinter::new(Epoch::Rfc3339), want);
}

#[test]
fn msgpack_has_times_as_an_extension() {
    let bytes = print(&mut MsgpackPrinter::new(Epoch::Rfc3339));
    assert_eq!(bytes[..9], *b"\x81\xa7results");
    let time = [&[0xc7u8, 12, 5][..], &1i64.to_be_bytes(), &500_000_000u32.to_be_bytes()].concat();
    assert!(bytes.windows(time.len()).any(|window| window == time), "{bytes:x?}");
    assert!(bytes.ends_with(b"\x81\xa5error\xa6failed"), "{bytes:x?}");
}

/// CSV and MessagePack had nanoseconds and extensions whatever `epoch` was.
#[test]
fn epoch_holds_in_csv_and_msgpack() {
    let text = String::from_utf8_lossy(&print(&mut CsvPrinter::new(Epoch::Divided(1_000_000)))).into_owned();
    assert!(text.contains(",1500,1000000000000000000000,"), "{text}");
    let bytes = print(&mut MsgpackPrinter::new(Epoch::Divided(1_000_000)));
    assert!(bytes.windows(4).any(|window| window == [0x93, 0xd1, 0x05, 0xdc]), "{bytes:x?}");
}

/// Times were UTC whatever `tz()` was.
#[test]
fn times_are_in_the_zone_of_the_series() {
    let berlin = chronolith_influxql::time::zone_named("Europe/Berlin");
    for (time_ns, want) in [
        (1_700_438_400_500_000_000, "2023-11-20T01:00:00.5+01:00"),
        (1_690_000_000_000_000_000, "2023-07-22T06:26:40+02:00"),
    ] {
        let header = SeriesHeader { zone: berlin.clone(), ..SeriesHeader::new("", &["time"]) };
        let mut printer = JsonPrinter::new(Epoch::Rfc3339, false);
        printer.begin_result(0);
        printer.begin_series(&header);
        printer.row(&[Cell::Time(time_ns)]);
        let text = String::from_utf8(std::mem::take(printer.out())).unwrap();
        assert!(text.ends_with(&format!("[[\"{want}\"]")), "{text} {want}");
    }
}
