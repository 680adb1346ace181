//! `html` and `js`: text within documents and scripts.

use super::super::format;
use super::super::text::{Runes, is_printable};
use super::super::value::Value;
use super::environment::{Environment, Failure, printable};

/// Returns the arguments as one text, as they are printed.
pub(super) fn joined(environment: &mut Environment<'_>, arguments: &[Value]) -> Result<Vec<u8>, Failure> {
    let printed: Vec<Value> = arguments.iter().map(printable).collect();
    let bytes_max = environment.meter.output_bytes_max();
    let text = format::print(&printed, bytes_max).map_err(|format::TooLong| environment.meter.too_long())?;
    environment.meter.add_text(text.len())?;
    Ok(text)
}

pub(super) fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            byte => out.push(byte),
        }
    }
    out
}

pub(super) fn js(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    for rune in Runes(text) {
        let source = rest.get(..rune.width_bytes).unwrap_or_default();
        rest = rest.get(rune.width_bytes..).unwrap_or_default();
        match rune.value {
            c @ ('\\' | '\'' | '"') => out.extend_from_slice(format!("\\{c}").as_bytes()),
            c @ ('<' | '>' | '&' | '=' | '\0'..='\x1f') => push_code(&mut out, c),
            c if c.is_ascii() || is_printable(c) => out.extend_from_slice(source),
            c => push_code(&mut out, c),
        }
    }
    out
}

fn push_code(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(format!("\\u{:04X}", u32::from(c)).as_bytes());
}
