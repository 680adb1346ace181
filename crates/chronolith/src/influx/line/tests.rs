//! Floats as Go writes them; escapes of names and texts.

use super::*;

fn written(write: impl Fn(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn floats_are_written_as_go_does() {
    let check = |value: f64, want: &str| {
        assert_eq!(written(|out| put_float(value, out)), want);
        assert_eq!(want.parse::<f64>().expect("a float").to_bits(), value.to_bits());
    };
    check(0.0, "0");
    check(-0.0, "-0");
    check(100_000.0, "100000");
    check(1_000_000.0, "1e+06");
    check(-1_234_567.5, "-1.2345675e+06");
    check(123_456.789, "123456.789");
    check(1e-4, "0.0001");
    check(1e-5, "1e-05");
    check(0.1 + 0.2, "0.30000000000000004");
    check(f64::MAX, "1.7976931348623157e+308");
    check(5e-324, "5e-324");
}

#[test]
fn names_and_texts_are_escaped() {
    assert_eq!(written(|out| put_measurement(b"a,b c=d\"e", out)), "a\\,b\\ c=d\"e");
    assert_eq!(written(|out| put_measurement(b"a\\=b\\\"", out)), "a\\\\=b\\\\\"");
    assert_eq!(written(|out| put_tag(b"k =", b"v,\"", out)), ",k\\ \\==v\\,\"");
    assert_eq!(written(|out| put_field_key(b"f\"=", out)), "f\\\"\\=");
    assert_eq!(written(|out| put_text(b"a\"\\\n", out)), "\"a\\\"\\\\\n\"");
    assert_eq!(written(|out| put_integer(i64::MIN, out)), "-9223372036854775808i");
    assert_eq!(written(|out| put_unsigned(u64::MAX, out)), "18446744073709551615u");
    assert_eq!(written(|out| put_time(-1, out)), " -1\n");
}
