//! Times of requests: `from`, `until` and `tz` of `/render`, each a line of the input.
//!
//! Properties: a range starts before it ends, and is the same with its ends swapped; a time is one of its
//! ends; case, blanks and underscores have no meaning; an offset alone is that offset from now; the seconds
//! of a time are read as that time. Not here: the comparison with graphite-web (`tools/graphite-oracle`).

use chronolith_base::Rng;
use chronolith_graphite::time::{TIME_BYTES_MAX, interval_seconds, parse_time, request_range, zone_or};
use jiff::tz::TimeZone;

use super::mutate::{insert, offset, pick, token};
use super::reader::{Reader, check_equal, owned};

/// Clock of the reader: a Tuesday in November.
const NOW_S: i64 = 1_700_000_000;
/// Seconds of the years that a time may be of, 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

const SEEDS: &[&[u8]] = &[
    b"-1h30min\nnow\nEurope/Berlin",
    b"noon+1d\n6am_today\nAmerica/New_York",
    b"12:30_20231105\n01:59am 11/05/23\nAmerica/New_York",
    b"20231029\n02:30_20231029\nEurope/Berlin",
    b"teatime yesterday\nmidnight_tomorrow\nAsia/Kathmandu",
    b"monday\nsunday-1w\nPacific/Apia",
    b"january 8\nfeb29+1y\nUTC",
    b"1700000000\n1699999999\n",
    b"-7d\n-6d\nAustralia/Lord_Howe",
    b"12:10pm\n12am\nno/zone",
    b"+1mon-1s\n-5minutes\n",
    b"00010101\n99991231\nPacific/Kiritimati",
    b"10/29/1969\n10/29/70\n",
    "\u{130}stanbul\n\u{ff11}\n\u{1f4a9}".as_bytes(),
];

const TOKENS: &[&[u8]] = &[
    b"-",
    b"+",
    b":",
    b"/",
    b"_",
    b" ",
    b",",
    b"\n",
    b"now",
    b"today",
    b"yesterday",
    b"tomorrow",
    b"noon",
    b"midnight",
    b"teatime",
    b"am",
    b"pm",
    b"12",
    b"00",
    b"59",
    b"24:00",
    b"monday",
    b"sat",
    b"january",
    b"dec",
    b"29",
    b"31",
    b"20240229",
    b"02/29/24",
    b"12/31/9999",
    b"s",
    b"min",
    b"h",
    b"d",
    b"w",
    b"mon",
    b"y",
    b"m",
    b"1",
    b"999999999",
    b"9223372036854775807",
    b"253402300799",
    b"Europe/Berlin",
    b"UTC",
    b"\xc3\xa9",
    b"\xe2\x84\xaa",
];

/// The reader of times.
pub(super) struct TimeReader;

impl Reader for TimeReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        owned(SEEDS)
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Changes a line: a digit, a word, an offset at its end; exchanges lines.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let at = rng.below(lines.len() as u64) as usize;
        match rng.below(5) {
            0 => {
                let digits: Vec<usize> =
                    (0..lines[at].len()).filter(|idx| lines[at][*idx].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    let digit = *pick(rng, &digits);
                    lines[at][digit] = b'0' + rng.below(10) as u8;
                }
            }
            1 => lines[at] = token(rng, TOKENS).to_vec(),
            2 => {
                let end = lines[at].len();
                let sign = *pick(rng, b"+-");
                let number = rng.below(400).to_string();
                let unit = pick(rng, &["s", "min", "h", "d", "w", "mon", "y"]);
                insert(&mut lines[at], end, &[&[sign][..], number.as_bytes(), unit.as_bytes()].concat());
            }
            3 => {
                let other = rng.below(lines.len() as u64) as usize;
                lines.swap(at, other);
            }
            _ => {
                let to = offset(rng, &lines[at]);
                insert(&mut lines[at], to, token(rng, TOKENS));
            }
        }
        *input = lines.join(&b'\n');
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(input);
        let mut lines = text.split('\n');
        let from = lines.next().unwrap_or("");
        let until = lines.next().unwrap_or("");
        let zone = zone_or(lines.next(), &TimeZone::UTC);
        let mut outcome = Vec::new();
        for time in [from, until] {
            outcome.push(check_time(time, &zone)?);
        }
        let range = request_range(Some(from), Some(until), &zone, NOW_S);
        let swapped = request_range(Some(until), Some(from), &zone, NOW_S);
        if let Ok(range) = range {
            if range.start.seconds >= range.end.seconds {
                return Err(format!("a range that does not ascend: {range:?}"));
            }
            let ends = [range.start.seconds, range.end.seconds];
            for time in [from, until] {
                let seconds = parse_time(time, &zone, NOW_S).map_err(|error| error.to_string())?;
                if !ends.contains(&seconds) {
                    return Err(format!("{time:?} is no end of {range:?}"));
                }
            }
            check_equal("ends and swapped ends", &Ok(range), &swapped)?;
        }
        Ok(outcome.join("/"))
    }
}

/// Checks one time. Returns a text about its form.
fn check_time(text: &str, zone: &TimeZone) -> Result<String, String> {
    let read = |text: &str| parse_time(text, zone, NOW_S).map_err(|error| error.to_string());
    let found = read(text);
    // Control characters at the ends are trimmed, but are inside of this spelling.
    if 3 * text.len() <= TIME_BYTES_MAX && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        let spaced: String = text.to_ascii_uppercase().chars().flat_map(|c| [c, '_', ' ']).collect();
        check_equal("in another spelling", &found.as_ref().ok(), &read(&spaced).as_ref().ok())?;
    }
    // Longer intervals are accepted where they are no times.
    if text.starts_with(['+', '-'])
        && text.len() <= TIME_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'_' && byte != b',')
    {
        let offset = interval_seconds(&text.to_ascii_lowercase());
        let moved = offset.ok().map(|offset| NOW_S + offset).filter(|seconds| SECONDS.contains(seconds));
        check_equal("an offset from now", &found.as_ref().ok().copied(), &moved)?;
    }
    let Ok(seconds) = found else {
        let error = found.err().unwrap_or_default();
        return Ok(error.chars().filter(|c| !c.is_ascii_digit()).take(30).collect());
    };
    if !SECONDS.contains(&seconds) {
        return Err(format!("{seconds} s are of no year from 1 to 9999"));
    }
    // Eight digits are a date.
    let digits = seconds.to_string();
    if seconds >= 0 && digits.len() != 8 {
        check_equal("seconds", &read(&digits), &Ok(seconds))?;
    }
    Ok(text.chars().map(kind).collect())
}

/// A letter for the kind of a character.
fn kind(c: char) -> char {
    match c {
        '0'..='9' => '9',
        'a'..='z' | 'A'..='Z' => c.to_ascii_lowercase(),
        c if c.is_ascii() => c,
        _ => '\u{e9}',
    }
}
