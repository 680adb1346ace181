//! Arbitrary bytes and mutated inputs: nothing panics, and every point is stored or counted as refused.

use chronolith_base::Rng;

use super::decode_with;
use crate::carbon::{
    AggregationRules, InputEnd, LineDecoder, PickleDecoder, RefusedReason, RewriteRules, Schemas,
    decode_metrics,
};

/// Bytes of `alphabet` at random, or any bytes.
fn random_bytes(rng: &Rng, alphabet: &[u8], len: u64) -> Vec<u8> {
    let byte = |_| match rng.below(8) {
        0 => rng.below(256) as u8,
        _ => alphabet[rng.below(alphabet.len() as u64) as usize],
    };
    (0..rng.below(len)).map(byte).collect()
}

/// Changes, removes, repeats or inserts some bytes.
fn mutate(rng: &Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(4) {
            0 if at < bytes.len() => bytes[at] = rng.below(256) as u8,
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            2 => {
                let part: Vec<u8> = bytes[at..].iter().copied().take(rng.below(40) as usize).collect();
                bytes.splice(at..at, part);
            }
            _ => bytes.insert(at, rng.below(256) as u8),
        }
    }
}

/// Runs `read` over random bytes and over mutations of valid inputs.
fn check_no_panic(seed: u64, alphabet: &[u8], valid: &[&[u8]], mut read: impl FnMut(&[u8])) {
    let rng = Rng::from_seed(seed);
    for _ in 0..3_000 {
        read(&random_bytes(&rng, alphabet, 300));
        let mut bytes = valid[rng.below(valid.len() as u64) as usize].to_vec();
        mutate(&rng, &mut bytes);
        read(&bytes);
    }
}

/// Each line of arbitrary bytes is stored, ignored as blank, or refused by one reason.
#[test]
fn arbitrary_lines_are_stored_or_refused() {
    let valid: [&[u8]; 4] = [
        b"a.b.c 1.5 1700000000\n",
        b"m;b=2;a=1 -7 1700000000123\r\n",
        b"m{a=\"b\",c=\"d\"} 1e3 -1\n\tx\t5\n",
        "\u{e9}..x nan N\n".as_bytes(),
    ];
    check_no_panic(1, b"a.b;={}\"~ \t\r\n0123456789-+eE_infN", &valid, |bytes| {
        let decoded = decode_with(|points| {
            assert_eq!(LineDecoder::new().decode(bytes, InputEnd::Closed, points), bytes.len());
        });
        let is_blank = |line: &&[u8]| {
            line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c | 0x1c..=0x1f))
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !is_blank(line)).count();
        assert_eq!(
            decoded.points.len() as u64 + decoded.refused.total(),
            lines as u64,
            "{}",
            bytes.escape_ascii()
        );
    });
}

#[test]
fn arbitrary_pickles_are_points_or_errors() {
    let valid = pickle_fixtures();
    let valid: Vec<&[u8]> = valid.iter().map(Vec::as_slice).collect();
    let mut decoder = PickleDecoder::new();
    check_no_panic(2, b"()]ae.tKJGUXq\x00h\x01\x80\x85\x86\x87\x94\x8c01", &valid, |bytes| {
        let mut outcome = Ok(());
        let decoded = decode_with(|points| outcome = decoder.decode(bytes, points));
        assert!(outcome.is_ok() || decoded.points.is_empty());
        assert_eq!(decoded.refused.count(RefusedReason::BadPickle), u64::from(outcome.is_err()));
    });
}

fn pickle_fixtures() -> Vec<Vec<u8>> {
    crate::carbon::pickle::fixtures::FRAMES.iter().map(|frame| frame.bytes.to_vec()).collect()
}

#[test]
fn arbitrary_metrics_are_points_or_errors() {
    let valid: [&[u8]; 1] =
        [br#"[{"name":"a.b","interval":10,"value":1.5,"time":1700000000,"mtype":"gauge","tags":["a=b"]}]"#];
    check_no_panic(3, b"[]{}\":,0123456789.e-truefalsnu\\ ", &valid, |bytes| {
        decode_with(|points| drop(decode_metrics(bytes, points)));
    });
}

#[test]
fn arbitrary_files_are_rules_or_errors() {
    let valid: [&[u8]; 3] = [
        b"[a]\npattern = ^a\\.(?P<n>b+){2}$\nretentions = 10s:1d:2h,1m:30d\nreorderBuffer = 5\n",
        b"[a]\npattern: [^.]+$\nxFilesFactor = 0.5\naggregationMethod = avg,max\n",
        b"[a]\npattern = ^(a)\\.(.*)\nname = \\2${1}\nlabels =\n  x: \\1\n[b]\npattern=b\naction=drop\n",
    ];
    check_no_panic(4, b"[]=:%\n #;\\(){}?*+|^$.<>ab01s,", &valid, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let path = "a.b.c;x=y";
        drop(Schemas::parse(&text).map(|(schemas, _)| schemas.match_path(path).is_some()));
        drop(AggregationRules::parse(&text).map(|(rules, _)| rules.match_path(path).is_some()));
        drop(RewriteRules::parse(&text).map(|(rules, _)| rules.apply(path).0));
    });
}

/// Both readers of lines agree: the usual form and the field-by-field one.
#[test]
fn usual_lines_are_read_as_field_by_field() {
    let rng = Rng::from_seed(5);
    let pick = |texts: &[&str]| texts[rng.below(texts.len() as u64) as usize].to_owned();
    for _ in 0..5_000 {
        let path =
            pick(&["a", "a.b", "a..b", ".a", "a.", "m;a=1;b=2", "m;b=2;a=1", "m;", "m;a=1;a=1", "...", "~a"]);
        let value = pick(&["1", "-1.5", "1e3", "nan", "", ".", "1_0", "12345678901234567890"]);
        let time = pick(&["1700000000", "1700000000123", "0", "17000000001234", "-1", "", "1.5", "x"]);
        let end = pick(&["\n", "\r\n", " \n", "\r\r\n"]);
        let usual = decode_with(|points| {
            let line = format!("{path} {value} {time}{end}");
            LineDecoder::new().decode(line.as_bytes(), InputEnd::Closed, points);
        });
        let other = decode_with(|points| {
            // A tab is never of the usual form.
            let line = format!("{path}\t{value}\t{time}{end}");
            LineDecoder::new().decode(line.as_bytes(), InputEnd::Closed, points);
        });
        assert_eq!(usual.points, other.points, "{path} {value} {time}");
        assert_eq!(usual.refused.total(), other.refused.total());
    }
}
