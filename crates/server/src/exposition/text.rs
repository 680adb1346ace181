//! Families of samples and their text: Prometheus's format 0.0.4 and OpenMetrics 1.0.
//! Invariants: a counter's sample name ends in `_total`; OpenMetrics names the family without it.

use chronolith_model::labels::{is_legacy_label_name, is_legacy_metric_name};

use chronolith_service::metrics::Family;

use crate::json::{put_display, put_float_general};

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Prometheus,
    OpenMetrics,
}

impl TextFormat {
    /// OpenMetrics where the client asks for it.
    pub(crate) fn negotiate(accept: &str) -> TextFormat {
        let wanted = accept.split(',').any(|part| part.trim().starts_with("application/openmetrics-text"));
        if wanted { TextFormat::OpenMetrics } else { TextFormat::Prometheus }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes all families.
pub(crate) fn write(families: &[Family], format: TextFormat, out: &mut Vec<u8>) {
    for family in families {
        let bare = match format {
            TextFormat::OpenMetrics => family.name.strip_suffix("_total").unwrap_or(&family.name),
            TextFormat::Prometheus => &family.name,
        };
        put_display(
            out,
            format_args!("# HELP {bare} {}\n# TYPE {bare} {}\n", family.help, family.kind.as_str()),
        );
        let unit = family.unit();
        if format == TextFormat::OpenMetrics && !unit.is_empty() {
            put_display(out, format_args!("# UNIT {bare} {unit}\n"));
        }
        for sample in &family.samples {
            let labels = sample.labels.iter().map(|(name, value)| (*name, value.as_str()));
            put_line(out, &format!("{}{}", family.name, sample.suffix), labels, sample.value);
            out.push(b'\n');
        }
    }
    if format == TextFormat::OpenMetrics {
        out.extend_from_slice(b"# EOF\n");
    }
}

/// Appends `name{label="value",...} 1.5` without the end of the line. Names that the classic format does not
/// know are quoted inside the braces.
pub(crate) fn put_line<'a>(
    out: &mut Vec<u8>,
    name: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    value: f64,
) {
    let plain = is_legacy_metric_name(name);
    if plain {
        out.extend_from_slice(name.as_bytes());
    }
    let mut first = true;
    if !plain {
        out.push(b'{');
        put_escaped(out, name);
        first = false;
    }
    for (name, value) in labels {
        out.push(if first { b'{' } else { b',' });
        first = false;
        if is_legacy_label_name(name) {
            out.extend_from_slice(name.as_bytes());
        } else {
            put_escaped(out, name);
        }
        out.push(b'=');
        put_escaped(out, value);
    }
    if !first {
        out.push(b'}');
    }
    out.push(b' ');
    put_float_general(out, value);
}

fn put_escaped(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            other => out.push(other),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use chronolith_service::metrics::{FamilyKind, FamilySample};

    use super::*;

    fn counter() -> Family {
        let labels = vec![("code", "2\"0\n".to_owned())];
        Family {
            name: "chronolith_x_total".to_owned(),
            kind: FamilyKind::Counter,
            help: "Things.",
            samples: vec![FamilySample { suffix: "", labels, value: 3.0 }],
        }
    }

    #[test]
    fn both_formats() {
        let text = |format| {
            let mut out = Vec::new();
            write(&[counter()], format, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(TextFormat::Prometheus),
            "# HELP chronolith_x_total Things.\n# TYPE chronolith_x_total counter\nchronolith_x_total{code=\"2\\\"0\\n\"} 3\n"
        );
        assert_eq!(
            text(TextFormat::OpenMetrics),
            "# HELP chronolith_x Things.\n# TYPE chronolith_x counter\nchronolith_x_total{code=\"2\\\"0\\n\"} 3\n# EOF\n"
        );
    }

    #[test]
    fn the_unit_is_in_the_name() {
        let unit = |name: &str| Family { name: name.to_owned(), ..counter() }.unit();
        assert_eq!((unit("chronolith_x_seconds_total"), unit("chronolith_x_bytes")), ("seconds", "bytes"));
        assert_eq!((unit("chronolith_x_total"), unit("chronolith_bytes_read_total")), ("", ""));
        let mut out = Vec::new();
        let family = Family { name: "chronolith_x_bytes_total".to_owned(), samples: Vec::new(), ..counter() };
        write(&[family], TextFormat::OpenMetrics, &mut out);
        assert!(String::from_utf8(out).unwrap().contains("# UNIT chronolith_x_bytes bytes\n"));
    }

    #[test]
    fn names_beyond_the_classic_ones_are_quoted() {
        let mut out = Vec::new();
        put_line(&mut out, "my.metric", [("host.name", "z"), ("a", "b")], 1e-5);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"my.metric","host.name"="z",a="b"} 1e-05"#);
    }

    #[test]
    fn accept_chooses() {
        assert_eq!(TextFormat::negotiate("*/*"), TextFormat::Prometheus);
        let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
        assert_eq!(TextFormat::negotiate(scraper), TextFormat::OpenMetrics);
    }
}
