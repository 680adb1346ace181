//! Tests of gzip streams: in pieces, of several members, damaged anywhere, and far larger than they look.

use std::io::Write as _;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use super::*;

/// Room for the output of one step.
const STEP_BYTES: usize = 64;

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A member whose header has every optional field.
fn packed_with_fields(bytes: &[u8]) -> Vec<u8> {
    let builder = GzBuilder::new().extra(vec![7; 300]).filename("lines").comment("of a relay").mtime(1);
    let mut encoder = builder.write(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    let member = encoder.finish().expect("memory");
    let header_end = 10 + 2 + 300 + b"lines\0".len() + b"of a relay\0".len();
    let mut header = member[..header_end].to_vec();
    header[3] |= FLAG_HEADER_CRC;
    let mut crc = Crc::new();
    crc.update(&header);
    header.extend_from_slice(&(crc.sum() as u16).to_le_bytes());
    [header, member[header_end..].to_vec()].concat()
}

/// Bytes before the damage or the end of the stream, and the damage.
#[derive(Debug, PartialEq, Eq)]
struct Unpacked {
    bytes: Vec<u8>,
    fault: Option<GzipFault>,
}

/// Decompresses pieces as they arrive, to the end of the stream.
fn unpack(pieces: &[&[u8]]) -> Unpacked {
    let mut stream = GzipStream::new();
    let mut bytes = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let mut out = Vec::with_capacity(STEP_BYTES);
            let room = out.capacity();
            let step = stream.decompress(rest, &mut out);
            assert_eq!(out.capacity(), room, "the output has a bound");
            bytes.extend_from_slice(&out);
            rest = &rest[step.read_bytes..];
            if let Some(damage) = step.damage {
                return Unpacked { bytes, fault: Some(damage.fault) };
            }
            if !step.has_more {
                break;
            }
        }
        assert_eq!(rest, b"", "a step without more has read its input");
    }
    Unpacked { bytes, fault: stream.end().map(|damage| damage.fault) }
}

fn whole(bytes: &[u8]) -> Unpacked {
    Unpacked { bytes: bytes.to_vec(), fault: None }
}

fn lines() -> Vec<u8> {
    (0..40).flat_map(|n| format!("web.host{n}.cpu {} 1000\n", n * n).into_bytes()).collect()
}

#[test]
fn a_stream_is_decompressed_at_every_split() {
    let text = lines();
    let stream = [packed(&text), packed(b""), packed_with_fields(b"last 1 1000\n")].concat();
    let want = whole(&[text.as_slice(), b"last 1 1000\n"].concat());
    assert_eq!(unpack(&[&stream]), want);
    for at in 0..stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(unpack(&[head, tail]), want, "split at {at}");
    }
    let each_byte: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(unpack(&each_byte), want);
}

/// Bytes that have arrived are returned without waiting for more, if the sender flushes.
#[test]
fn flushed_bytes_are_returned_at_once() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let mut stream = GzipStream::new();
    for n in 0..20 {
        let line = format!("a.b.c {n} 1000\n");
        encoder.write_all(line.as_bytes()).expect("memory");
        encoder.flush().expect("memory");
        let mut out = Vec::with_capacity(STEP_BYTES);
        let sent = std::mem::take(encoder.get_mut());
        let step = stream.decompress(&sent, &mut out);
        assert_eq!(String::from_utf8(out), Ok(line));
        assert_eq!(step.damage, None);
    }
}

#[test]
fn a_cut_stream_is_damaged_unless_it_ends_with_a_member() {
    let text = lines();
    let first = packed_with_fields(&text);
    let stream = [first.clone(), packed(b"b 1 1000\n")].concat();
    for len in 0..stream.len() {
        let found = unpack(&[&stream[..len]]);
        let fault = (len != first.len()).then_some(GzipFault::Truncated);
        assert_eq!(found.fault, fault, "cut at {len}");
        let all = [text.as_slice(), b"b 1 1000\n"].concat();
        assert!(all.starts_with(&found.bytes), "cut at {len}");
        assert!(len < first.len() || found.bytes.len() >= text.len(), "cut at {len}");
    }
}

#[test]
fn damage_is_named_by_its_region_and_keeps_the_bytes_before_it() {
    let text = lines();
    let member = packed_with_fields(&text);
    let trailer = member.len() - TRAILER_BYTES;
    let header_checksum = 10 + 2 + 300 + b"lines\0".len() + b"of a relay\0".len();
    for at in 0..member.len() {
        let mut damaged = [packed(b"before 1 1000\n"), member.clone()].concat();
        let start = damaged.len() - member.len();
        damaged[start + at] ^= 0xff;
        let found = unpack(&[&damaged]);
        assert!(found.bytes.starts_with(b"before 1 1000\n"), "flipped at {at}");
        let Some(fault) = found.fault else { panic!("flipped at {at}: {found:?}") };
        let is_expected = match at {
            0..3 => fault == GzipFault::Magic,
            3 => fault == GzipFault::Flags,
            // A wrong length or a missing zero moves the end of the header.
            _ if at < header_checksum + 2 => {
                matches!(fault, GzipFault::HeaderChecksum { .. } | GzipFault::Truncated)
            }
            _ if at < trailer => matches!(
                fault,
                GzipFault::Deflate | GzipFault::Checksum { .. } | GzipFault::Truncated | GzipFault::Magic
            ),
            _ if at < trailer + 4 => matches!(fault, GzipFault::Checksum { .. }),
            _ => matches!(fault, GzipFault::Length { .. }),
        };
        assert!(is_expected, "flipped at {at}: {fault:?}");
    }
}

#[test]
fn bytes_that_are_no_member_are_damage() {
    let garbage = [packed(b"a 1 1000\n"), b"plain 1 1000\n".to_vec()].concat();
    let found = unpack(&[&garbage]);
    assert_eq!(found, Unpacked { bytes: b"a 1 1000\n".to_vec(), fault: Some(GzipFault::Magic) });
    let mut stream = GzipStream::new();
    let step = stream.decompress(&garbage, &mut Vec::with_capacity(STEP_BYTES));
    let text = step.damage.map(|damage| damage.to_string());
    assert_eq!(text.as_deref(), Some("gzip member 2: expected the bytes 1f 8b 08 at its start"));
}

/// A mebibyte of zeros is a kilobyte of gzip: each step returns its bound, and reads what that takes.
#[test]
fn endless_zeros_take_many_steps_of_bounded_output() {
    let zeros = vec![0; 1 << 20];
    let stream = packed(&zeros);
    assert!(stream.len() < 2 << 10, "{} bytes", stream.len());
    assert_eq!(unpack(&[&stream]), whole(&zeros));
}
