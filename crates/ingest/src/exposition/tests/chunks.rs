//! Bodies in chunks: cut anywhere, cut off anywhere, with bits flipped, and larger than a batch.

use chronolith_base::Rng;

use super::*;

const TEXT: &str = concat!(
    "# HELP h A \\\\ help\n# TYPE h histogram\nh_bucket{le=\"1\",x=\"\u{fc}\\\"\\n\"} 1 1000\nh_bucket{le=\"+Inf\"} 2\n",
    "bad{ 1\n\n {\"a.b\", c=\"d\" , } NaN\nanother bad line\n# TYPE x counter\nx_total +1.5e3\n"
);
const OPEN_METRICS: &str = concat!(
    "# TYPE h histogram\n# UNIT h \nh_bucket{le=\"1\",x=\"\u{fc}\"} 1 1.5 # {t=\"u\"} 1 2\nh_bucket{x=\"\u{fc}\",le=\"+Inf\"} 2\n",
    "h_created{x=\"\u{fc}\"} 12.5\nbad{ 1\n{\"a.b\",c=\"d\"} NaN\n# TYPE x counter\nx_total 1\nx_created 3\n# EOF\n"
);

fn bodies() -> [(Format, &'static str); 2] {
    [(Format::Text, TEXT), (Format::OpenMetrics, OPEN_METRICS)]
}

#[test]
fn chunks_give_the_result_of_the_whole_body() {
    let mut limited = options();
    limited.limits.line_bytes_max = 30;
    for options in [options(), strict(), limited] {
        for (format, body) in bodies() {
            let want = decode(format, &options, body.as_bytes());
            assert!(!want.samples.is_empty());
            for len in 1..body.len() {
                assert_eq!(decode_chunks(format, &options, body.as_bytes().chunks(len)), want, "{len}");
            }
            for at in 0..body.len() {
                let (start, end) = body.as_bytes().split_at(at);
                assert_eq!(decode_chunks(format, &options, [start, end]), want, "{at}");
            }
        }
    }
}

#[test]
fn bodies_that_are_cut_off_have_the_samples_of_their_whole_lines() {
    for (format, body) in bodies() {
        let whole = decode(format, &options(), body.as_bytes());
        for end in 0..body.len() {
            let decoded = decode(format, &options(), &body.as_bytes()[..end]);
            let same = decoded.samples.iter().zip(&whole.samples);
            let name_of = |text: &str| text.split(' ').next().unwrap_or("").to_owned();
            // A line without its newline may be another one, and start times may be missing.
            let same_count = same.take_while(|(a, b)| name_of(a) == name_of(b)).count();
            assert!(decoded.samples.len() - same_count <= 1, "{end}: {:?}", decoded.samples);
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    for (format, body) in bodies() {
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut bytes = body.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                for options in [options(), strict()] {
                    let decoded = decode(format, &options, &bytes);
                    assert!(!decoded.samples.iter().any(|sample| sample.contains("Err")), "{decoded:?}");
                }
            }
        }
    }
}

/// Help texts were bounded by their number alone, so that a body of long ones took gigabytes.
#[test]
fn long_help_texts_end_a_batch() {
    let help = "x".repeat(1 << 16);
    let lines = (0..400).map(|idx| format!("# HELP a{idx} {help}\n# TYPE a{idx} gauge\na{idx} 1\n"));
    let body = lines.collect::<String>();
    let mut decoder = Decoder::new(Format::Text, strict());
    let mut batch = WriteBatch::new(decoder.source());
    let mut at = 0;
    let mut entry_count = 0;
    while at < body.len() {
        at += decoder.feed(&body.as_bytes()[at..], &mut batch).expect("a valid body");
        let bytes: usize = batch.metadata.iter().map(|entry| entry.help.len()).sum();
        assert!(bytes <= super::room::BYTES_SOFT + 2 * help.len(), "{bytes}");
        entry_count += batch.metadata.len();
        batch.clear();
    }
    decoder.finish(&mut batch).expect("a valid body");
    assert_eq!(entry_count + batch.metadata.len(), 400);
}

/// Names, labels and values as a client writes them, and as they are read.
fn arbitrary_line(rng: &Rng, format: Format) -> (String, String) {
    let texts = ["a", "le", "b_c", "x y", "\u{fc}", "q\"q", "back\\slash", "new\nline", "{}", "# EOF", ",="];
    let pick = |rng: &Rng| texts[rng.below(texts.len() as u64) as usize];
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let name = pick(rng);
    let mut pairs: Vec<(String, String)> = Vec::new();
    for idx in 0..rng.below(5) {
        pairs.push((format!("{}{idx}", pick(rng)), pick(rng).to_owned()));
    }
    let value = f64::from_bits(rng.next_u64());
    let value = if value.is_nan() { 1.5 } else { value };
    let time_ms = (rng.next_u64() >> 24).cast_signed();
    let labels: Vec<String> =
        pairs.iter().map(|(name, value)| format!("\"{}\"=\"{}\"", escape(name), escape(value))).collect();
    let joined = labels.join(",");
    let comma = if labels.is_empty() { "" } else { "," };
    let time = match format {
        Format::OpenMetrics => format!("{}.{:03}", time_ms / 1000, time_ms % 1000),
        _ => time_ms.to_string(),
    };
    let line = format!("{{\"{}\"{comma}{joined}}} {value:?} {time}\n", escape(name));
    let mut all: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    all.push(("__name__", name));
    let labels = chronolith_model::Labels::from_pairs(all);
    (line, format!("{labels} {value} @{time_ms}"))
}

#[test]
fn lines_of_any_names_and_values_are_read_as_written() {
    let rng = Rng::from_seed(40);
    for format in [Format::Text, Format::OpenMetrics] {
        let (lines, want): (Vec<String>, Vec<String>) =
            (0..3_000).map(|_| arbitrary_line(&rng, format)).unzip();
        let body = format!("{}# EOF\n", lines.concat());
        let decoded = decode(format, &strict(), body.as_bytes());
        assert_eq!(decoded.error, None);
        assert_eq!(decoded.samples.len(), want.len());
        for (found, want) in decoded.samples.iter().zip(&want) {
            assert_eq!(found, want);
        }
    }
}

#[test]
fn a_body_larger_than_a_batch_keeps_its_start_times() {
    let series_count = 3 * super::room::SERIES_COUNT_SOFT / 2;
    let mut body = String::from("# TYPE a counter\n");
    for idx in 0..series_count {
        body.push_str(&format!("a_total{{i=\"{idx}\"}} 1\na_created{{i=\"{idx}\"}} 5\n"));
    }
    body.push_str("# EOF\n");
    let decoded = decode(Format::OpenMetrics, &strict(), body.as_bytes());
    assert_eq!((decoded.samples.len(), decoded.error), (series_count, None));
    assert!(decoded.samples.iter().all(|sample| sample.ends_with("start 5000")));
}
