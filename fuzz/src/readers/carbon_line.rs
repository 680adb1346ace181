//! Plaintext lines: `LineDecoder`.
//!
//! Properties: an input in one piece and in pieces gives the same points and counts; the points, written as
//! lines, are read as the same points. Not here: sockets.

use chronolith_base::Rng;
use chronolith_ingest::carbon::{INPUT_BYTES_MAX, InputEnd, LINE_BYTES_MAX, LineDecoder, PointWriter};

use super::mutate::{insert, offset, pick, token};
use super::points::{Decoded, decode, sent_time};
use super::reader::{Reader, check_equal, owned};

const SEEDS: &[&[u8]] = &[
    b"a.b.c 1.5 1700000000\n",
    b"a.b.c 1.5 1700000000\r\na.b.d -2e3 1700000000123\r\n",
    b"disk.used;host=x;dc=y 7 1700000000\ndisk.used;dc=y;host=x 8 1700000001\n",
    b"m{host=\"x y\",dc=\"a\\\"b\"} 1 1700000000\nm{a=\"b\"} 2 N\n",
    b"\t a..b.  +.5e-3\t-1 \n.c. 1_000 1700000000.9\n~x 1\n",
    b"a nan 1700000000\nb inf 1700000000\nc -Infinity 1\nd x 1\ne 1 x\nf 1 1 1\ng\n\n",
    b"m;name=q;a=b 1 1700000000\nm;=x 1 1700000000\nm;a=~b 1 1\nm;a=b;a=c 2 2\nm;__name__=x 1 1\n",
    "caf\u{e9}.\u{1f4a9};k=\u{df} 1 1700000000\n\u{a0}x 1 1\n".as_bytes(),
    b"a.b 1 99999999999\na.b 1 100000000000\na.b 1 9999999999999\na.b 1 0\na.b 1 -5\nx 1e999 1\n",
    b"last.line 12345678901234567890 1700000000",
    b"nul\x00 1 1\n\xff\xfe 1 1\n... 1 1\n",
];

const TOKENS: &[&[u8]] = &[
    b" ",
    b"\t",
    b"\n",
    b"\r\n",
    b"\x0b",
    b"\x1f",
    b".",
    b"..",
    b";",
    b"=",
    b";a=b",
    b";name=x",
    b"{a=\"b\"}",
    b"{",
    b"\"}",
    b"\\\"",
    b"~",
    b"nan",
    b"inf",
    b"-1",
    b"N",
    b"1e9",
    b"1_0",
    b"1700000000",
    b"1700000000123",
    b"a.b 1 1700000000\n",
    b"\x00",
    b"\x7f",
    b"\xc3",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
];

/// Pieces of an input at most.
const PIECES_MAX: u64 = 6;
/// Lengths near the limits of lines and nodes.
const LENGTHS: [usize; 7] = [1023, 1024, 1025, 4090, 4096, 4097, 9000];

/// The reader of lines.
pub(super) struct LineReader;

impl Reader for LineReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        owned(SEEDS)
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Changes a field: its end, its length, its place.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        let is_separator = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b';' | b'=' | b'.');
        let separators: Vec<usize> = (0..input.len()).filter(|at| is_separator(&input[*at])).collect();
        if separators.is_empty() {
            return input.extend_from_slice(b" 1 1700000000\n");
        }
        let at = *pick(rng, &separators);
        match rng.below(6) {
            0 => {
                input.remove(at);
            }
            1 => input[at] = *pick(rng, b" \t\n\r;=."),
            2 => insert(input, at, token(rng, TOKENS)),
            3 => insert(input, at, &vec![*pick(rng, b"a.0 "); *pick(rng, &LENGTHS)]),
            4 => {
                let line: Vec<u8> = input.split(|byte| *byte == b'\n').next().unwrap_or(&[]).to_vec();
                insert(input, at, &[&b"\n"[..], &line, b"\n"].concat());
            }
            _ => {
                let end = separators.iter().copied().find(|end| *end > at).unwrap_or(input.len());
                let field = input[at..end].to_vec();
                let to = *pick(rng, &separators);
                insert(input, to, &field);
            }
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let whole = decode(|points| {
            LineDecoder::new().decode(input, InputEnd::Closed, points);
        })?;
        // Lines of blanks are neither; a line that is too long is one.
        let line_count = input.split(|byte| *byte == b'\n').count() as u64;
        if whole.points.len() as u64 + whole.refused_count() > line_count {
            return Err(format!("more points than {line_count} lines"));
        }
        let rng = Rng::from_seed(input.len() as u64);
        let pieces = decode(|points| decode_in_pieces(input, &rng, points))?;
        check_equal("in one piece and in pieces", &whole, &pieces)?;
        // Times and values may be longer than they were.
        let text = lines(&whole);
        if text.lines().all(|line| line.len() <= LINE_BYTES_MAX) {
            let again = decode(|points| decode_all(text.as_bytes(), points))?;
            check_equal("read, written and read", &whole.points, &again.points)?;
        }
        Ok(whole.describe())
    }

    fn input_bytes_max(&self) -> usize {
        INPUT_BYTES_MAX
    }
}

/// Decodes as the server does: unread bytes go in front of the next piece.
fn decode_in_pieces(input: &[u8], rng: &Rng, points: &mut PointWriter<'_>) {
    let mut ends: Vec<usize> = (0..rng.below(PIECES_MAX)).map(|_| offset(rng, input)).collect();
    ends.push(input.len());
    ends.sort_unstable();
    let mut decoder = LineDecoder::new();
    let mut start = 0;
    for end in ends {
        start += decoder.decode(&input[start..end], InputEnd::Open, points);
        assert!(end - start <= LINE_BYTES_MAX, "unread bytes");
    }
    decoder.decode(&input[start..], InputEnd::Closed, points);
}

/// Decodes a text of any length in pieces of lines.
fn decode_all(text: &[u8], points: &mut PointWriter<'_>) {
    let mut decoder = LineDecoder::new();
    let mut start = 0;
    while start < text.len() {
        let end = (start + INPUT_BYTES_MAX).min(text.len());
        start += decoder.decode(&text[start..end], InputEnd::Open, points);
    }
}

fn lines(decoded: &Decoded) -> String {
    let line = |point: &(String, i64, u64)| {
        let value = f64::from_bits(point.2);
        format!("{} {value:?} {}\n", point.0, sent_time(point.1))
    };
    decoded.points.iter().map(line).collect()
}
