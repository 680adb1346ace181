//! Content negotiation of `/federate`, as Prometheus's `expfmt.NegotiateAccept` does it for this endpoint:
//! delimited protobuf or text, whichever the client ranks first; text where it asks for neither.
//! Not here: OpenMetrics, which Prometheus does not federate either; protobuf as text, which no scraper asks
//! for; escaping of names, which stay UTF-8.

use chronolith_model::Histogram;

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Text format 0.0.4.
    Text,
    /// Messages `MetricFamily`, each after its length.
    Protobuf,
}

impl Format {
    /// Chooses a format by the header `Accept`.
    pub(super) fn negotiate(accept: &str) -> Format {
        let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(Clause::parse).collect();
        // Stable: of clauses with equal weights the first counts.
        clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        clauses.iter().find_map(Clause::format).unwrap_or(Format::Text)
    }

    /// Names beyond the classic ones are quoted, which `escaping` announces.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; \
                 escaping=allow-utf-8"
            }
        }
    }

    /// Returns true if the format can express `histogram`. Text has classic histograms only, which those with
    /// custom bounds become.
    pub(super) fn has(self, histogram: &Histogram) -> bool {
        match (self, histogram) {
            (Format::Protobuf, _) => true,
            (Format::Text, Histogram::Int(histogram)) => histogram.is_custom(),
            (Format::Text, Histogram::Float(histogram)) => histogram.is_custom(),
        }
    }
}

/// A media range with its parameters.
struct Clause<'a> {
    kind: &'a str,
    subkind: &'a str,
    params: Vec<(&'a str, &'a str)>,
    weight: f64,
}

impl<'a> Clause<'a> {
    /// `None` if it is no media range, or if the client refuses it.
    fn parse(text: &'a str) -> Option<Clause<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subkind) = parts.next()?.split_once('/')?;
        let params = parts.filter_map(|part| part.split_once('='));
        let params: Vec<_> =
            params.map(|(name, value)| (name.trim(), value.trim().trim_matches('"'))).collect();
        let mut clause = Clause { kind, subkind, params, weight: 1.0 };
        if let Some(weight) = clause.param("q") {
            clause.weight = weight.parse().unwrap_or(1.0);
        }
        (clause.weight > 0.0).then_some(clause)
    }

    fn param(&self, wanted: &str) -> Option<&'a str> {
        self.params.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
    }

    fn format(&self) -> Option<Format> {
        let is = |kind: &str, subkind: &str| {
            self.kind.eq_ignore_ascii_case(kind) && self.subkind.eq_ignore_ascii_case(subkind)
        };
        let is_family = self.param("proto") == Some("io.prometheus.client.MetricFamily")
            && self.param("encoding") == Some("delimited");
        if is("application", "vnd.google.protobuf") && is_family {
            return Some(Format::Protobuf);
        }
        let is_version = self.param("version").is_none_or(|version| version == "0.0.4");
        (is("text", "plain") && is_version).then_some(Format::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOBUF: &str =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[track_caller]
    fn check(accept: &str, want: Format) {
        assert_eq!(Format::negotiate(accept), want, "{accept}");
    }

    #[test]
    fn weights_decide_and_text_is_the_default() {
        for text in ["", "*/*", "text/html", "application/openmetrics-text; version=1.0.0", "text/plain"] {
            check(text, Format::Text);
        }
        check(PROTOBUF, Format::Protobuf);
        // What Prometheus sends with and without native histograms.
        let scrape = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                      text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        check(&format!("{PROTOBUF};q=0.6,{scrape}"), Format::Protobuf);
        check(&format!("{scrape},{PROTOBUF};q=0.1"), Format::Text);
        check(scrape, Format::Text);
        check(&format!("text/plain;q=0.6, {PROTOBUF}; q=0.6"), Format::Text);
        check(&format!("text/plain;version=9;q=0.6, {PROTOBUF}; q=0.5"), Format::Protobuf);
        check(&format!("{PROTOBUF};q=0"), Format::Text);
        check(&PROTOBUF.replace("delimited", "text"), Format::Text);
        check(&PROTOBUF.replace("MetricFamily", "Other"), Format::Text);
        check(&PROTOBUF.replace(';', " ; ").replace("delimited", "\"delimited\""), Format::Protobuf);
        check(";;,/,q=1,text/plain;q=x", Format::Text);
    }
}
