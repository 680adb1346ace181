//! Bodies of line protocol: valid ones, corner cases of the grammar, and mutations of both.

use crate::chooser::Chooser;
use crate::schema::BORDER;

/// Lines written by hand; each is a corner of the grammar.
const CORNERS: &str = include_str!("lines.txt");
const NAMES: [&str; 8] = ["m", "m2", "a\\ b", "a\\,b", "\"q\"", "\u{e9}", "a\\b", "a=b"];
const TAGS: [&str; 14] = [
    "",
    ",t=a",
    ",t=a,u=b",
    ",u=b,t=a",
    ",t\\ x=a\\ b",
    ",t=a\\,b",
    ",t=a\\=b",
    ",t=",
    ",t",
    ",t=a,t=b",
    ",=a",
    ",time=a",
    ",t=\"x y\"",
    ",t=a\\",
];
const FIELDS: [&str; 40] = [
    "v=1",
    "v=1i",
    "v=-1i",
    "v=true",
    "v=f",
    "v=\"x\"",
    "v=\"a b,c=d\"",
    "v=\"\\\"\"",
    "v=\"a\\\\\"",
    "w=2,v=1",
    "v=1,v=2",
    "w=1i,x=T",
    "v=1e5",
    "v=.5",
    "v=5.",
    "v=-0",
    "v=1e400",
    "v=+1",
    "v=0x1",
    "v=NaN",
    "v=inf",
    "v=",
    "v",
    "=1",
    "v=1,",
    "v=9223372036854775807i",
    "v=9223372036854775808i",
    "v=\"",
    "v='a'",
    "v=tRUE",
    "v=i",
    "v=1.2.3",
    "time=1",
    "time=1,v=2",
    "v\\ x=1",
    "v\\,x=1",
    "v=\"new\nline\"",
    "v=1i,w=",
    "v=-i",
    "v=1e",
];
const PRECISIONS: [&str; 8] = ["", "n", "ns", "u", "ms", "s", "m", "h"];

/// Body and precision.
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) precision: &'static str,
}

/// One body of some lines.
pub(crate) fn body(chooser: Chooser<'_>) -> Body {
    let c = chooser;
    let corners: Vec<&str> = CORNERS.lines().filter(|line| !line.starts_with("##")).collect();
    let precision = if c.percent(70) { "" } else { *c.pick(&PRECISIONS) };
    let mut bytes = Vec::new();
    for _ in 0..c.between(1, 5) {
        if c.percent(25) {
            bytes.extend_from_slice(unescaped(c.pick::<&str>(&corners)).as_bytes());
        } else {
            bytes.extend_from_slice(line(c, precision).as_bytes());
        }
        let end: &[u8] = c.weighted(&[(30, b"\n" as &[u8]), (1, b"\r\n"), (1, b"\n\n"), (1, b" \n")]);
        bytes.extend_from_slice(end);
    }
    if c.percent(35) {
        mutate(c, &mut bytes);
    }
    Body { bytes, precision }
}

fn line(c: Chooser<'_>, precision: &str) -> String {
    let tags = if c.percent(60) { *c.pick(&TAGS[..5]) } else { *c.pick(&TAGS) };
    let fields = if c.percent(50) { *c.pick(&FIELDS[..13]) } else { *c.pick(&FIELDS) };
    let unit = match precision {
        "" | "n" | "ns" => 1_000_000_000,
        "u" => 1_000_000,
        "ms" => 1000,
        _ => 1,
    };
    let seconds = match precision {
        "m" => BORDER / 60,
        "h" => BORDER / 3600,
        _ => BORDER,
    };
    let time = seconds * unit + c.between(-3, 3);
    let time = match c.below(40) {
        0 => " 9223372036854775806".to_owned(),
        1 => " -9223372036854775806".to_owned(),
        2 => " 9223372036854775807".to_owned(),
        3 => " 1.5".to_owned(),
        4 => String::new(),
        5 => " 0".to_owned(),
        6 => format!(" {time} "),
        7 => format!("  {time}"),
        8 => " x".to_owned(),
        _ => format!(" {time}"),
    };
    format!("{}{tags} {fields}{time}", c.pick(&NAMES))
}

/// The hand-written lines write a newline as `\n` and a carriage return as `\r`.
fn unescaped(line: &str) -> String {
    line.replace("<LF>", "\n").replace("<CR>", "\r").replace("<TAB>", "\t").replace("<NUL>", "\0")
}

fn mutate(c: Chooser<'_>, bytes: &mut Vec<u8>) {
    const ALPHABET: &[u8] = b" ,=\"\\\n\tti10-.ue#\r\0\xff";
    for _ in 0..c.between(1, 3) {
        if bytes.is_empty() {
            return;
        }
        let at = c.below(bytes.len());
        match c.below(4) {
            0 => {
                bytes.remove(at);
            }
            1 => bytes.insert(at, *c.pick(ALPHABET)),
            2 => bytes[at] = *c.pick(ALPHABET),
            _ => {
                let end = (at + c.below(8)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
}
