//! Content negotiation of `/federate`, as Prometheus's `expfmt.NegotiateAccept` does it for this endpoint:
//! delimited protobuf or text, whichever the client ranks first; text where it asks for neither.
//! The escaping of names is the last known one among the media ranges up to the chosen one.
//! Not here: OpenMetrics, which Prometheus does not federate either; protobuf as text, which no scraper asks
//! for.

use chronolith_model::Histogram;

use super::escaping::Escaping;

/// Parameter of media ranges that names the escaping of names.
const ESCAPING: &str = "escaping";

/// Media type of the text format with an escaping.
macro_rules! text {
    ($escaping:literal) => {
        concat!("text/plain; version=0.0.4; charset=utf-8; escaping=", $escaping)
    };
}

/// Media type of delimited protobuf with an escaping.
macro_rules! protobuf {
    ($escaping:literal) => {
        concat!(
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=",
            $escaping
        )
    };
}

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Text format 0.0.4.
    Text,
    /// Messages `MetricFamily`, each after its length.
    Protobuf,
}

/// Format of an answer and escaping of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub(super) format: Format,
    pub(super) escaping: Escaping,
}

impl Negotiated {
    /// Chooses both by the header `Accept`.
    pub(super) fn of(accept: &str) -> Negotiated {
        let mut clauses: Vec<Clause<'_>> =
            accept.split(',').take(CLAUSE_COUNT_MAX).filter_map(Clause::parse).collect();
        sort_as_prometheus(&mut clauses);
        let mut escaping = Escaping::default();
        for clause in &clauses {
            escaping = clause.param(ESCAPING).and_then(Escaping::of_name).unwrap_or(escaping);
            if let Some(format) = clause.format() {
                return Negotiated { format, escaping };
            }
        }
        Negotiated { format: Format::Text, escaping }
    }

    pub(super) fn content_type(self) -> &'static str {
        match (self.format, self.escaping) {
            (Format::Text, Escaping::AllowUtf8) => text!("allow-utf-8"),
            (Format::Text, Escaping::Underscores) => text!("underscores"),
            (Format::Text, Escaping::Dots) => text!("dots"),
            (Format::Text, Escaping::Values) => text!("values"),
            (Format::Protobuf, Escaping::AllowUtf8) => protobuf!("allow-utf-8"),
            (Format::Protobuf, Escaping::Underscores) => protobuf!("underscores"),
            (Format::Protobuf, Escaping::Dots) => protobuf!("dots"),
            (Format::Protobuf, Escaping::Values) => protobuf!("values"),
        }
    }
}

impl Format {
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

/// Most media ranges of a header that are looked at: sorting takes the square of their number.
const CLAUSE_COUNT_MAX: usize = 64;

/// Puts heavier ranges first, and exact ones before those with `*`, whatever their weights. The order is not
/// transitive, so that it depends on the algorithm: insertion sort, as in Prometheus.
fn sort_as_prometheus(clauses: &mut [Clause<'_>]) {
    for end in 1..clauses.len() {
        let mut at = end;
        while let Some([before, clause]) = at.checked_sub(1).and_then(|start| clauses.get(start..=at)) {
            if !clause.goes_before(before) {
                break;
            }
            clauses.swap(at - 1, at);
            at -= 1;
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

    fn goes_before(&self, other: &Clause<'_>) -> bool {
        self.weight > other.weight
            || self.kind != "*" && other.kind == "*"
            || self.subkind != "*" && other.subkind == "*"
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
        assert_eq!(Negotiated::of(accept).format, want, "{accept}");
    }

    #[test]
    fn weights_decide_and_text_is_the_default() {
        for text in ["", "*/*", "text/html", "application/openmetrics-text; version=1.0.0", "text/plain"] {
            check(text, Format::Text);
        }
        check(PROTOBUF, Format::Protobuf);
        // Header of Prometheus with and without native histograms.
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

    #[track_caller]
    fn check_escaping(accept: &str, want: Escaping) {
        let negotiated = Negotiated::of(accept);
        assert_eq!(negotiated.escaping, want, "{accept}");
        assert!(negotiated.content_type().ends_with(&format!("; escaping={}", want.name())), "{accept}");
    }

    /// Names were sent as UTF-8 whatever the scraper asked for, so one with names of the classic format alone
    /// lost the whole target. The right values are Prometheus 3.16's, but for quotes, which it does not know.
    #[test]
    fn names_are_escaped_unless_the_scraper_takes_utf8() {
        let om = "application/openmetrics-text;version=1.0.0";
        for accept in ["", "*/*", "text/plain", "text/plain;version=0.0.4", "text/html", om, PROTOBUF] {
            check_escaping(accept, Escaping::Underscores);
        }
        for (name, scheme) in [
            ("allow-utf-8", Escaping::AllowUtf8),
            ("underscores", Escaping::Underscores),
            ("dots", Escaping::Dots),
            ("values", Escaping::Values),
            ("\"dots\"", Escaping::Dots),
            ("unknown", Escaping::Underscores),
            ("ALLOW-UTF-8", Escaping::Underscores),
            ("", Escaping::Underscores),
        ] {
            for range in ["text/plain;version=0.0.4", "*/*", om, PROTOBUF] {
                check_escaping(&format!("{range};escaping={name}"), scheme);
                check_escaping(&format!("{range}; escaping={name}; q=0.4"), scheme);
            }
        }
    }

    #[test]
    fn escaping_is_that_of_the_ranges_up_to_the_chosen_one() {
        let check = check_escaping;
        check("application/openmetrics-text;escaping=dots;q=0.5,text/plain;q=0.3", Escaping::Dots);
        check(
            "application/openmetrics-text;escaping=dots;q=0.5,text/plain;escaping=values;q=0.3",
            Escaping::Values,
        );
        check("text/plain;q=0.5,*/*;escaping=allow-utf-8;q=0.2", Escaping::Underscores);
        check("*/*;escaping=values;q=0.5,text/plain;q=0.3", Escaping::Underscores);
        check("text/html;escaping=values,*/*;escaping=allow-utf-8;q=0.2", Escaping::AllowUtf8);
        check("text/plain;escaping=x;q=0.2,text/html;escaping=dots", Escaping::Dots);
    }
}
