//! Choice of the format by Content-Type, as Prometheus makes it.
//!
//! Not here: negotiation by a scraper's Accept header.

/// Exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus's text format 0.0.4.
    Text,
    /// OpenMetrics 1.0, and 0.0.1, which Prometheus reads alike.
    OpenMetrics,
    /// Messages `io.prometheus.client.MetricFamily`, each after its length.
    Protobuf,
}

impl Format {
    /// Returns the media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain",
            Format::OpenMetrics => "application/openmetrics-text",
            Format::Protobuf => "application/vnd.google.protobuf",
        }
    }
}

/// Format of a body, and the reason if it is the fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatChoice {
    /// Format.
    pub format: Format,
    /// Reason for the fallback, for the log.
    pub warning: Option<String>,
}

/// No format follows from the Content-Type, and there is no fallback.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContentTypeError(String);

/// Version of OpenMetrics that Prometheus reads with a feature flag alone.
const VERSION_UNSUPPORTED: &str = "2.0.0";

/// Chooses the format of a body by its Content-Type; `fallback` is the format where that is missing or
/// unknown.
///
/// # Errors
/// [`ContentTypeError`] without a fallback.
pub fn choose_format(content_type: &str, fallback: Option<Format>) -> Result<FormatChoice, ContentTypeError> {
    let found = if content_type.is_empty() {
        Err("non-compliant scrape target sending blank Content-Type".to_owned())
    } else {
        known_format(content_type)
    };
    match (found, fallback) {
        (Ok(format), _) => Ok(FormatChoice { format, warning: None }),
        (Err(why), Some(format)) => {
            let warning = format!("{why}, using fallback_scrape_protocol {:?}", format.media_type());
            Ok(FormatChoice { format, warning: Some(warning) })
        }
        (Err(why), None) => {
            Err(ContentTypeError(format!("{why} and no fallback_scrape_protocol specified for target")))
        }
    }
}

fn known_format(content_type: &str) -> Result<Format, String> {
    let mut parts = content_type.split(';');
    let media_type = parts.next().unwrap_or("").trim().to_ascii_lowercase();
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
    let is_valid = match media_type.split_once('/') {
        Some((kind, subtype)) => is_token(kind) && is_token(subtype),
        None => is_token(&media_type),
    };
    if !is_valid {
        return Err(format!("cannot parse Content-Type {content_type:?}"));
    }
    let [text, open_metrics, protobuf] =
        [Format::Text, Format::OpenMetrics, Format::Protobuf].map(Format::media_type);
    match media_type.as_str() {
        known if known == text => Ok(Format::Text),
        known if known == protobuf => Ok(Format::Protobuf),
        known if known == open_metrics => {
            let named = parts.filter_map(|part| part.split_once('='));
            let mut versions = named
                .filter(|(name, _)| name.trim().eq_ignore_ascii_case("version"))
                .map(|(_, value)| value.trim().trim_matches('"'));
            if versions.next() == Some(VERSION_UNSUPPORTED) {
                return Err(format!(
                    "received OpenMetrics 2.0 Content-Type {content_type:?}, which is not supported"
                ));
            }
            Ok(Format::OpenMetrics)
        }
        _ => Err(format!("received unsupported Content-Type {content_type:?}")),
    }
}

/// Returns true for bytes of tokens of MIME.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`{|}~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_follow_from_the_content_type() {
        for (content_type, want) in [
            ("text/plain", Format::Text),
            ("text/plain; version=0.0.4; charset=utf-8", Format::Text),
            (" Text/Plain ;x", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", Format::OpenMetrics),
            (
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                Format::Protobuf,
            ),
        ] {
            let chosen = choose_format(content_type, None);
            assert_eq!(chosen, Ok(FormatChoice { format: want, warning: None }), "{content_type}");
        }
    }

    #[test]
    fn unknown_types_take_the_fallback() {
        for content_type in [
            "",
            "text/html",
            "application/openmetrics-text; version=2.0.0",
            "application/openmetrics-text;Version=\"2.0.0\"",
            "text/",
            ";",
        ] {
            let refused = choose_format(content_type, None).expect_err("no fallback").to_string();
            assert!(refused.ends_with("no fallback_scrape_protocol specified for target"), "{refused}");
            let chosen = choose_format(content_type, Some(Format::Text)).expect("a fallback");
            assert_eq!(chosen.format, Format::Text);
            let warning = chosen.warning.expect("a reason");
            assert!(warning.ends_with(r#"using fallback_scrape_protocol "text/plain""#), "{warning}");
        }
    }
}
