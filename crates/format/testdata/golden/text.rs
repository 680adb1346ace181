//! Reads the OpenMetrics subset that golden texts and tests use: `name{label="value"} value
//! seconds[.millis]`.

use std::collections::BTreeMap;

use chronolith_model::Labels;

/// Samples of each series, in the order of the text.
pub(crate) type Series = BTreeMap<Labels, Vec<(i64, f64)>>;

/// All series of `text`.
pub(crate) fn parse(text: &str) -> Series {
    let mut out = Series::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (rest, seconds) = line.rsplit_once(' ').unwrap();
        let (series, value) = rest.rsplit_once(' ').unwrap();
        out.entry(parse_labels(series)).or_default().push((parse_ms(seconds), value.parse().unwrap()));
    }
    out
}

fn parse_ms(seconds: &str) -> i64 {
    let (whole, millis) = seconds.split_once('.').unwrap_or((seconds, "0"));
    whole.parse::<i64>().unwrap() * 1000 + millis.parse::<i64>().unwrap()
}

/// `name{a="b",c="d"}` or `{__name__="name", a="b"}`, with Go's escapes of quotes, backslashes and line ends.
pub(crate) fn parse_labels(text: &str) -> Labels {
    let (name, mut rest) = match text.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
        None => (text, ""),
    };
    let mut pairs = vec![("__name__".to_owned(), name.to_owned())];
    pairs.retain(|(_, name)| !name.is_empty());
    while let Some((label, quoted)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = quoted.chars();
        while let Some(c) = chars.next().filter(|c| *c != '"') {
            value.push(match c {
                '\\' => match chars.next().unwrap() {
                    'n' => '\n',
                    other => other,
                },
                c => c,
            });
        }
        pairs.push((label.trim_start_matches([',', ' ']).to_owned(), value));
        rest = chars.as_str();
    }
    Labels::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())))
}
