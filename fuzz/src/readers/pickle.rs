//! Pickled frames: `FrameBuffer` and `PickleDecoder`.
//!
//! Properties: a refused pickle gives no points; points, pickled in each protocol and read again, are equal;
//! the reader keeps a bounded memory between frames. Not here: sockets.

use chronolith_base::Rng;
use chronolith_ingest::carbon::{FRAME_BYTES_MAX, FrameBuffer, PickleDecoder};

use super::mutate::{insert, offset, pick, token};
use super::points::{Decoded, Point, decode, sent_time};
use super::reader::{Reader, check_equal};

/// Bytes that the reader may keep.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Points of a frame that is written again.
const WRITTEN_MAX: usize = 2000;
/// Bytes of arguments that are varied.
const ARGUMENT: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xff, b'\n', b'L'];

const TOKENS: &[&[u8]] = &[
    b"(",
    b".",
    b"]",
    b")",
    b"}",
    b"N",
    b"a",
    b"e",
    b"l",
    b"t",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x88",
    b"\x89",
    b"\x8f",
    b"\x94",
    b"h\x00",
    b"h\x01",
    b"q\x01",
    b"q\xff",
    b"g1\n",
    b"p1\n",
    b"j\x01\x00\x00\x00",
    b"r\x00\x01\x00\x00",
    b"r\xff\xff\xff\xff",
    b"\x80\x02",
    b"\x80\x06",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    b"K\x05",
    b"M\x01\x02",
    b"J\x00\xf1Se",
    b"J\xff\xff\xff\xff",
    b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"G?\xf8\x00\x00\x00\x00\x00\x00",
    b"G\xff\xf0\x00\x00\x00\x00\x00\x00",
    b"I1700000000\n",
    b"I01\n",
    b"F1.5\n",
    b"Fnan\n",
    b"F1e999\n",
    b"L5L\n",
    b"L99999999999999999999999999999999999999999999L\n",
    b"\x8a\x00",
    b"\x8a\x05\x00\xe8\x76\x48\x17",
    b"\x8a\x11\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
    b"\x8b\x01\x00\x00\x00\x05",
    b"\x8b\xff\xff\xff\x7f",
    b"S'a.b'\n",
    b"S\"\\x41\\n\\\"\"\n",
    b"Va\\u0041\\U0001f4a9\n",
    b"U\x03a.b",
    b"T\x03\x00\x00\x00a.b",
    b"X\x03\x00\x00\x00a.b",
    b"X\xff\xff\xff\xff",
    b"\x8c\x03a.b",
    b"\x8d\x03\x00\x00\x00\x00\x00\x00\x00a.b",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
    b"C\x03a.b",
    b"B\x03\x00\x00\x00a.b",
    b"\x8e\x03\x00\x00\x00\x00\x00\x00\x00a.b",
    b"cos\nsystem\n",
    b"R",
    b"0",
    b"2",
    b"1",
];

/// The reader of pickles.
#[derive(Default)]
pub(super) struct PickleReader {
    decoder: PickleDecoder,
}

impl Reader for PickleReader {
    /// Frames without their lengths, as each protocol writes them.
    fn seeds(&self) -> Vec<Vec<u8>> {
        let points: Vec<Point> = [
            ("a.b", 1_700_000_000_000, 1.5),
            ("a.b", 1_700_000_000_123, -2.0),
            ("m;a=1;b=2", 1000, 1e300),
            ("q'\"\\x", 1_700_000_000_000, f64::INFINITY),
            ("caf\u{e9}.\u{1f4a9} x", 99_999_999_999_000, 0.0),
        ]
        .into_iter()
        .map(|(path, time, value): (&str, i64, f64)| (path.to_owned(), time, value.to_bits()))
        .collect();
        let mut seeds: Vec<Vec<u8>> = Protocol::ALL.iter().map(|protocol| protocol.write(&points)).collect();
        seeds.push(b"]q\x01((U\x03a.bq\x02(J\x00\xf1SeL-2L\ntt(h\x02(I01\nF1.5\nttq\xffe.".to_vec());
        seeds.push(b"(lp1\n(S'a.b'\np2\n(I1700000000\nF1.5\nttp3\na(g2\n(S'1'\nV1\\u0030\nttp4\na.".to_vec());
        seeds.push(b"\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x03a.b\x94K\x05G?\xf8\x00\x00\x00\x00\x00\x00\x86\x94\x86\x94h\x01\x88\x89\x86\x86e.".to_vec());
        seeds
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Inserts opcodes, also many equal ones, and changes arguments.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        let at = offset(rng, input);
        match rng.below(8) {
            0 => {
                let opcode = token(rng, TOKENS);
                let count = 1 + if rng.below(4) == 0 { rng.below(20_000) } else { rng.below(12) };
                insert(input, at, &opcode.repeat(count as usize));
            }
            1 => {
                let tuple =
                    [token(rng, TOKENS), token(rng, TOKENS), token(rng, TOKENS), b"\x86\x86"].concat();
                let end = input.len().saturating_sub(2);
                insert(input, end, &tuple);
            }
            2 => {
                if input.last() != Some(&b'.') {
                    input.push(b'.');
                }
            }
            3 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = *pick(rng, &ARGUMENT);
                }
            }
            _ => insert(input, at, token(rng, TOKENS)),
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        check_frames(input)?;
        let mut outcome = Ok(());
        let found = decode(|points| outcome = self.decoder.decode(input, points))?;
        if self.decoder.heap_bytes() > KEPT_BYTES_MAX {
            return Err(format!("{} bytes are kept", self.decoder.heap_bytes()));
        }
        if let Err(error) = outcome {
            check_equal("points of a refused pickle", &found.points, &Vec::new())?;
            return Ok(error.fault.to_string());
        }
        if found.points.len() <= WRITTEN_MAX {
            self.check_written(&found)?;
        }
        Ok(found.describe())
    }

    fn input_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

impl PickleReader {
    fn check_written(&mut self, found: &Decoded) -> Result<(), String> {
        for protocol in Protocol::ALL {
            let frame = protocol.write(&found.points);
            if frame.len() > FRAME_BYTES_MAX {
                continue;
            }
            let mut outcome = Ok(());
            let again = decode(|points| outcome = self.decoder.decode(&frame, points))?;
            outcome.map_err(|error| format!("{protocol:?} is refused: {error}"))?;
            check_equal("read, written and read", &found.points, &again.points)?;
        }
        Ok(())
    }
}

/// Checks that a stream of this frame and another one is split, at whatever byte it is cut.
fn check_frames(input: &[u8]) -> Result<(), String> {
    let length = u32::try_from(input.len()).map_err(|error| error.to_string())?;
    let stream = [&length.to_be_bytes()[..], input, &[0, 0, 0, 1, b'.']].concat();
    let mut buffer = FrameBuffer::new();
    let mut frames = Vec::new();
    let (first, second) = stream.split_at(input.len().min(stream.len() / 2));
    for piece in [first, second] {
        buffer.push(piece);
        while let Some(frame) = buffer.next_frame().map_err(|error| error.to_string())? {
            frames.push(frame.to_vec());
        }
    }
    if frames.len() != 2 || frames[0] != input || frames[1] != b"." || !buffer.is_at_frame_start() {
        return Err("frames of a stream".to_owned());
    }
    // Any bytes are a stream, too.
    buffer.push(input);
    while let Ok(Some(_)) = buffer.next_frame() {}
    Ok(())
}

/// Protocols of pickles that are written.
#[derive(Debug, Clone, Copy)]
enum Protocol {
    /// Lines of text.
    Text,
    /// As brubeck: marks, a list without PROTO.
    Marks,
    /// As carbon-relay.
    Tuples,
    /// Python's of today.
    Frames,
}

impl Protocol {
    const ALL: [Protocol; 4] = [Protocol::Text, Protocol::Marks, Protocol::Tuples, Protocol::Frames];

    /// Returns the pickle of a list of points.
    fn write(self, points: &[Point]) -> Vec<u8> {
        let mut out = match self {
            Protocol::Text => b"(lp0\n".to_vec(),
            Protocol::Marks => b"](".to_vec(),
            Protocol::Tuples => b"\x80\x02]q\x00(".to_vec(),
            Protocol::Frames => b"\x80\x04]\x94(".to_vec(),
        };
        points.iter().for_each(|point| self.write_point(point, &mut out));
        out.extend_from_slice(if let Protocol::Text = self { b"." } else { b"e." });
        out
    }

    fn write_point(self, (path, time_ms, bits): &Point, out: &mut Vec<u8>) {
        let value = f64::from_bits(*bits);
        let time = sent_time(*time_ms);
        let length = (path.len() as u32).to_le_bytes();
        let text_with = |opcode: &[u8], length: &[u8]| [opcode, length, path.as_bytes()].concat();
        let binary_value = [&b"G"[..], &value.to_be_bytes()].concat();
        match self {
            Protocol::Text => {
                let text = format!("(V{}\n(I{time}\nF{value:?}\ntta", escaped(path));
                out.extend_from_slice(text.as_bytes());
            }
            Protocol::Marks => {
                out.extend(text_with(b"(T", &length));
                out.extend(format!("(L{time}L\n").bytes());
                out.extend(binary_value);
                out.extend_from_slice(b"tt");
            }
            Protocol::Tuples => {
                out.extend(text_with(b"X", &length));
                out.extend([&b"\x8a\x08"[..], &time.to_le_bytes()].concat());
                out.extend(binary_value);
                out.extend_from_slice(b"\x86\x86");
            }
            Protocol::Frames => {
                out.extend(text_with(b"\x8d", &u64::from(u32::from_le_bytes(length)).to_le_bytes()));
                out.extend([&b"G"[..], &(time as f64).to_be_bytes()].concat());
                out.extend(binary_value);
                out.extend_from_slice(b"\x86\x94\x86\x94");
            }
        }
    }
}

/// Returns a text as protocol 0 writes it.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '\\' | '\n' | '\r' | '\0' | '\x1a' | '\u{80}'.. => {
                out.push_str(&format!("\\U{:08x}", char as u32))
            }
            _ => out.push(char),
        }
    }
    out
}
