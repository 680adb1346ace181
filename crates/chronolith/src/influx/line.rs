//! Writer of line protocol, with the escapes and number formats of `influx_inspect export`.
//!
//! Invariant: InfluxDB and Chronolith read back the bytes and the values that were written, bit for bit.
//! Not here: reading lines (`chronolith-ingest`).

/// Appends a measurement. Equals signs and quotes are escaped only after a backslash, which would escape
/// them.
pub(crate) fn put_measurement(name: &[u8], out: &mut Vec<u8>) {
    let mut before = 0;
    for &byte in name {
        if matches!(byte, b',' | b' ') || (matches!(byte, b'=' | b'"') && before == b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
        before = byte;
    }
}

/// Appends a tag with the comma before it.
pub(crate) fn put_tag(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(b',');
    put_escaped(key, b", =", out);
    out.push(b'=');
    put_escaped(value, b", =", out);
}

/// Appends a field key.
pub(crate) fn put_field_key(key: &[u8], out: &mut Vec<u8>) {
    put_escaped(key, b",\" =", out);
}

/// Appends a text between quotes.
pub(crate) fn put_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    put_escaped(text, b"\"\\", out);
    out.push(b'"');
}

fn put_escaped(text: &[u8], escaped: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if escaped.contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// Appends an integer with its suffix.
pub(crate) fn put_integer(value: i64, out: &mut Vec<u8>) {
    put_number(value, out);
    out.push(b'i');
}

/// Appends an unsigned integer with its suffix.
pub(crate) fn put_unsigned(value: u64, out: &mut Vec<u8>) {
    put_number(value, out);
    out.push(b'u');
}

/// Appends a boolean.
pub(crate) fn put_boolean(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Appends a time in nanoseconds with the blank before it, and the newline.
pub(crate) fn put_time(time_ns: i64, out: &mut Vec<u8>) {
    out.push(b' ');
    put_number(time_ns, out);
    out.push(b'\n');
}

fn put_number(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

/// Appends a finite float as Go's format `g` does: the shortest digits that are read back as the same bits,
/// with an exponent below -4 and from 6 on.
pub(crate) fn put_float(value: f64, out: &mut Vec<u8>) {
    if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
        return;
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("{digits}e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
    } else {
        put_number(value, out);
    }
}

#[cfg(test)]
mod tests;
