//! Frames of Python, of senders with a pickler of their own, and hostile ones.

use super::fixtures::FRAMES;
use super::*;
use crate::carbon::tests::{Decoded, decode_with};

fn decode(frame: &[u8]) -> (Decoded, Result<(), PickleError>) {
    let mut outcome = Ok(());
    let decoded = decode_with(|points| outcome = PickleDecoder::new().decode(frame, points));
    (decoded, outcome)
}

#[track_caller]
fn check(frame: &[u8], want: &[&str]) {
    let (decoded, outcome) = decode(frame);
    assert_eq!(outcome, Ok(()), "{}", frame.escape_ascii());
    assert_eq!(decoded.points, want, "{}", frame.escape_ascii());
    assert_eq!(decoded.refused.total(), 0, "{:?}", decoded.refused);
}

#[track_caller]
fn check_fault(frame: &[u8], want: &str) {
    let (decoded, outcome) = decode(frame);
    assert_eq!(outcome.map_err(|error| error.to_string()), Err(want.to_owned()), "{}", frame.escape_ascii());
    assert!(decoded.points.is_empty());
    assert_eq!(decoded.refused.newest(RefusedReason::BadPickle).map(|line| line.text.as_str()), Some(want));
}

/// Refuses one element of a list, and stores the others.
#[track_caller]
fn check_refused(element: &[u8], reason: RefusedReason, text: &str) {
    let good = b"U\x01gK\x01K\x02\x86\x86";
    let (decoded, outcome) = decode(&[b"](", &good[..], element, good, b"e."].concat());
    assert_eq!(outcome, Ok(()), "{}", element.escape_ascii());
    assert_eq!(decoded.points, ["g 2 @1000", "g 2 @1000"], "{}", element.escape_ascii());
    assert_eq!(decoded.refused.total(), 1);
    assert_eq!(decoded.refused.newest(reason).map(|line| line.text.as_str()), Some(text));
}

#[test]
fn frames_of_python_are_read() {
    for frame in FRAMES {
        let want: [&str; 5] = if frame.name.starts_with("python 3") {
            [
                "a.b 1.5 @1700000000000",
                "a.c -2 @1700000001000",
                "é 70000 @1700000002000",
                "m;a=1;b=2 300 @1700000000000",
                "a.b 1000 @1700000000000",
            ]
        } else {
            [
                "a.b 1.5 @1700000000000",
                "a.c -2 @1700000001000",
                "q'\\x\" 1099511627776 @1700000002000",
                "é 1 @1700000000000",
                "ü.ſ 1000 @1700000000000",
            ]
        };
        check(frame.bytes, &want);
        for end in 0..frame.bytes.len() {
            assert!(decode(&frame.bytes[..end]).1.is_err(), "{} cut at {end}", frame.name);
        }
    }
}

/// brubeck: protocol 1 without PROTO, and a memo of one byte that wraps.
#[test]
fn frames_of_brubeck_are_read() {
    let mut frame = b"]q\x00(".to_vec();
    let mut memo = 0u8;
    let mut put = |frame: &mut Vec<u8>| {
        memo = memo.wrapping_add(1);
        frame.extend_from_slice(&[b'q', memo]);
    };
    let mut want = Vec::new();
    for idx in 0..400u32 {
        let name = format!("brubeck.m{idx}");
        frame.extend_from_slice(&[b'(', b'U', name.len() as u8]);
        frame.extend_from_slice(name.as_bytes());
        put(&mut frame);
        frame.extend_from_slice(b"(J");
        frame.extend_from_slice(&(1_700_000_000 + idx).to_le_bytes());
        frame.push(b'G');
        frame.extend_from_slice(&(f64::from(idx) / 4.0).to_be_bytes());
        frame.push(b't');
        put(&mut frame);
        frame.push(b't');
        put(&mut frame);
        want.push(format!("{name} {} @{}000", f64::from(idx) / 4.0, 1_700_000_000 + idx));
    }
    frame.extend_from_slice(b"e.");
    check(&frame, &want.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn other_forms_of_lists_and_numbers_are_read() {
    // As carbon-relay-ng's encoder: MARK ... LIST, texts of four bytes of length, a long of one byte.
    check(
        b"\x80\x02(X\x01\x00\x00\x00a\x8a\x04\x00\xf1SeG@\x00\x00\x00\x00\x00\x00\x00\x86\x86l.",
        &["a 2 @1700000000000"],
    );
    check(b"((S'a.b'\n(I9\nF2.5\nttl.", &["a.b 2.5 @9000"]);
    check(b"((S\"a\\x62\\\\\"\n(L9L\nI01\nttt.", &["ab\\ 1 @9000"]);
    check(b"](]U\x01aa](K\x09K\x01eae.", &["a 1 @9000"]);
    check(b"](B\x01\x00\x00\x00aK\x09\x88\x86\x86\x8d\x01\x00\x00\x00\x00\x00\x00\x00bK\x09\x8b\x01\x00\x00\x00\xff\x86\x86e.", &["a 1 @9000", "b -1 @9000"]);
    check(b"](Va\\u00e9\\U0001f600\nK\x09K\x01\x86\x86e.", &["aé😀 1 @9000"]);
    check(b"].", &[]);
    check(b").", &[]);
    check(b"](U\x01a(J\xff\xff\xff\xffK\x01t\x86e.", &["a 1 @1234567"]);
    check(b"](U\x01aU\x02-1U\x03inf\x86\x86e.", &["a inf @1234567"]);
}

#[test]
fn a_bad_element_refuses_itself_alone() {
    check_refused(b"K\x07", RefusedReason::BadTuple, "7");
    check_refused(b"N", RefusedReason::BadTuple, "None");
    check_refused(b"U\x02ab", RefusedReason::BadTuple, "'ab'");
    check_refused(b"U\x01a\x85", RefusedReason::BadTuple, "('a')");
    check_refused(b"U\x01aK\x01K\x02\x87", RefusedReason::BadTuple, "('a', 1, 2)");
    check_refused(b"U\x01aK\x01\x85\x86", RefusedReason::BadTuple, "('a', (1))");
    check_refused(b"K\x01K\x01K\x01\x86\x86", RefusedReason::BadTuple, "(1, (1, 1))");
    check_refused(b"U\x01aK\x01U\x01x\x86\x86", RefusedReason::BadValue, "('a', (1, 'x'))");
    check_refused(b"U\x01aK\x01N\x86\x86", RefusedReason::BadValue, "('a', (1, None))");
    check_refused(b"U\x01aU\x01xK\x01\x86\x86", RefusedReason::BadTime, "('a', ('x', 1))");
    check_refused(b"U\x01a)K\x01\x86\x86", RefusedReason::BadTime, "('a', ((...), 1))");
    check_refused(b"U\x01aK\x00K\x01\x86\x86", RefusedReason::TimeRange, "('a', (0, 1))");
    check_refused(b"U\x01aK\x01U\x03nan\x86\x86", RefusedReason::Nan, "('a', (1, 'nan'))");
    check_refused(b"U\x00K\x01K\x01\x86\x86", RefusedReason::EmptyPath, "('', (1, 1))");
    check_refused(b"U\x02..K\x01K\x01\x86\x86", RefusedReason::EmptyPath, "('..', (1, 1))");
    check_refused(b"U\x02a\nK\x01K\x01\x86\x86", RefusedReason::ControlByte, "('a\n', (1, 1))");
    check_refused(b"U\x01\xffK\x01K\x01\x86\x86", RefusedReason::InvalidUtf8, "('\u{fffd}', (1, 1))");
    // An integer of 136 bits is no time.
    check_refused(
        &[b"U\x01a\x8a\x11", &[1; 17][..], b"K\x01\x86\x86"].concat(),
        RefusedReason::BadTime,
        "('a', (None, 1))",
    );
}

#[test]
fn other_opcodes_refuse_the_frame_by_name() {
    check_fault(b"cos\nsystem\n(S'ls'\ntR.", "pickle: opcode GLOBAL (0x63) is not allowed at byte 0");
    check_fault(b"]0.", "pickle: opcode POP (0x30) is not allowed at byte 1");
    check_fault(
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "pickle: opcode STACK_GLOBAL (0x93) is not allowed at byte 14",
    );
    check_fault(b"]R.", "pickle: opcode REDUCE (0x52) is not allowed at byte 1");
    check_fault(b"\xff.", "pickle: opcode unassigned (0xff) is not allowed at byte 0");
    check_fault(b"}K\x01K\x02s.", "pickle: opcode SETITEM (0x73) is not allowed at byte 5");
}

#[test]
fn broken_frames_are_errors() {
    check_fault(b"", "pickle: the pickle is cut off at byte 0");
    check_fault(b"]", "pickle: the pickle is cut off at byte 1");
    check_fault(b".", "pickle: the stack has too few values at byte 0");
    check_fault(b"K\x01.", "pickle: the value is no list at byte 2");
    check_fault(b"N.", "pickle: the value is no list at byte 1");
    check_fault(b"\x80\x06].", "pickle: protocol 6 is not 0 to 5 at byte 0");
    check_fault(b"]e.", "pickle: there is no mark at byte 1");
    check_fault(b"t.", "pickle: there is no mark at byte 0");
    check_fault(b"a.", "pickle: the stack has too few values at byte 0");
    check_fault(b"K\x01K\x02a.", "pickle: the value is no list at byte 4");
    check_fault(b"](K\x01\x86.", "pickle: the stack has too few values at byte 4");
    check_fault(b"(a.", "pickle: the stack has too few values at byte 1");
    check_fault(b"](.", "pickle: the stack has too few values at byte 2");
    check_fault(b"h\x01.", "pickle: memo 1 was not stored at byte 0");
    check_fault(b"]r\xff\xff\xff\xff.", "pickle: memo 4294967295 is out of order at byte 1");
    check_fault(b"X\xff\xff\xff\xffa", "pickle: the pickle is cut off at byte 0");
    check_fault(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa", "pickle: the pickle is cut off at byte 0");
    check_fault(b"Ix\n.", "pickle: integer is not valid at byte 0");
    check_fault(b"Fx\n.", "pickle: float is not valid at byte 0");
    check_fault(b"S'a\n.", "pickle: text is not valid at byte 0");
    check_fault(b"S'\\x4'\n.", "pickle: text is not valid at byte 0");
    check_fault(b"V\\ud800\n.", "pickle: text is not valid at byte 0");
    check_fault(b"px\n.", "pickle: memo is not valid at byte 0");
    check_fault(b"((((((((((.", "pickle: values are nested deeper than 8 at byte 8");
    check_fault(b"]\x85\x85\x85\x85\x85\x85\x85\x85.", "pickle: values are nested deeper than 8 at byte 8");
    check_fault(&[b']'; 1000], "pickle: the frame has too many values for its length at byte 564");
}

/// A list that has itself as an element is not followed.
#[test]
fn a_list_within_itself_ends() {
    let (decoded, outcome) = decode(b"]q\x00h\x00ah\x00a.");
    assert_eq!(outcome, Ok(()));
    assert_eq!(decoded.refused.count(RefusedReason::BadTuple), 2);
}

/// Many references to one long path: bytes of paths are bounded by the length of the frame.
#[test]
fn references_of_the_memo_do_not_multiply_the_bytes_of_paths() {
    let path = "p".repeat(900);
    let mut frame = b"](X\x84\x03\x00\x00".to_vec();
    frame.extend_from_slice(path.as_bytes());
    frame.extend_from_slice(b"q\x00K\x01K\x02\x86q\x01\x86q\x02");
    for _ in 0..20_000 {
        frame.extend_from_slice(b"h\x02");
    }
    frame.extend_from_slice(b"e.");
    let mut batch = crate::carbon::new_batch();
    let mut refused = crate::carbon::Refused::default();
    let mut points = PointWriter::new(&mut batch, &mut refused, 1).with_prefix("a.");
    assert_eq!(PickleDecoder::new().decode(&frame, &mut points), Ok(()));
    assert!(batch.raw.len() <= 33 * frame.len(), "{}", batch.raw.len());
    assert_eq!(batch.series.len() as u64 + refused.total(), 20_001);
    assert_eq!(refused.count(RefusedReason::LineTooLong), refused.total());
}

#[test]
fn memory_is_a_multiple_of_the_frame() {
    let size = FRAME_BYTES_MAX;
    let lists = [vec![b']'; size / 2 - 8], vec![b'.'; 1]].concat();
    let values = [b"](".to_vec(), vec![b'N'; size / 2 - 64], b"e.".to_vec()].concat();
    for frame in [lists, values] {
        let mut machine = Machine::default();
        assert!(machine.run(&frame).is_err() || machine.heap_bytes() > 0);
        assert!(machine.heap_bytes() <= 96 * frame.len() / 2, "{}", machine.heap_bytes());
        machine.release();
        assert!(machine.heap_bytes() <= 2 << 20, "{}", machine.heap_bytes());
    }
}

#[test]
fn frames_are_found_in_any_cut_of_the_stream() {
    let frames: [&[u8]; 4] = [b"one", b"", &[7; 300], b"four"];
    let mut stream = Vec::new();
    for frame in frames {
        stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        stream.extend_from_slice(frame);
    }
    for piece_bytes in 1..stream.len() {
        let mut buffer = FrameBuffer::new();
        let mut found: Vec<Vec<u8>> = Vec::new();
        for piece in stream.chunks(piece_bytes) {
            buffer.push(piece);
            while let Some(frame) = buffer.next_frame().expect("no frame is too long") {
                found.push(frame.to_vec());
            }
        }
        assert_eq!(found, frames);
        assert!(buffer.is_at_frame_start());
    }
    let mut buffer = FrameBuffer::new();
    buffer.push(&[0, 0, 0]);
    assert_eq!(buffer.next_frame(), Ok(None));
    assert!(!buffer.is_at_frame_start());
}

#[test]
fn a_frame_of_more_than_a_mebibyte_ends_the_connection() {
    let mut buffer = FrameBuffer::new();
    buffer.push(&(FRAME_BYTES_MAX as u32 + 1).to_be_bytes());
    let error = FrameTooLong { found: FRAME_BYTES_MAX + 1 };
    assert_eq!(buffer.next_frame(), Err(error));
    assert_eq!(buffer.next_frame(), Err(error));
    assert_eq!(error.to_string(), "pickle frame has 1048577 bytes, at most 1048576");
    let mut buffer = FrameBuffer::new();
    buffer.push(&(FRAME_BYTES_MAX as u32).to_be_bytes());
    buffer.push(&vec![0; FRAME_BYTES_MAX]);
    assert!(buffer.next_frame().is_ok_and(|frame| frame.is_some_and(|frame| frame.len() == FRAME_BYTES_MAX)));
}
