//! Content negotiation by `Accept-Encoding` (RFC 9110, 12.5.3): gzip or identity.
//!
//! Invariants: a header that cannot be parsed never causes a coding that its client may not read.
//! gzip is the only coding: every client of Prometheus, InfluxDB and Graphite reads it, and it is what a
//! server may choose among codings of equal weight, as browsers list them.

use axum::http::{HeaderMap, header};

/// Coding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
}

/// Returns true if the client accepts gzip, and does not prefer plain bytes to it.
pub(in crate::http) fn takes_gzip(headers: &HeaderMap) -> bool {
    coding_of(headers) == Coding::Gzip
}

/// The coding for a client. A client without the header gets plain bytes, as in Prometheus, and so does one
/// that accepts neither: an answer that it can refuse helps it more than status 406.
pub(super) fn coding_of(headers: &HeaderMap) -> Coding {
    let values = headers.get_all(header::ACCEPT_ENCODING);
    let mut weights = Weights::default();
    for value in values.iter().filter_map(|value| value.to_str().ok()) {
        for entry in value.split(',') {
            weights.read(entry);
        }
    }
    // `*` stands for every coding without an entry of its own. Identity needs no entry to be acceptable, and
    // is then the last choice.
    let gzip = weights.gzip.or(weights.any).unwrap_or(0);
    let identity = weights.identity.or(weights.any).unwrap_or(0);
    if gzip > 0 && gzip >= identity { Coding::Gzip } else { Coding::Identity }
}

/// Weights in thousandths; `None` without an entry.
#[derive(Default)]
struct Weights {
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    /// Reads `coding` or `coding;q=weight`. An entry with a weight that is not valid does not count.
    fn read(&mut self, entry: &str) {
        let (name, parameter) = entry.split_once(';').unwrap_or((entry, "q=1"));
        let Some(weight) = weight_of(parameter) else { return };
        let name = name.trim();
        let slot = if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            &mut self.gzip
        } else if name.eq_ignore_ascii_case("identity") {
            &mut self.identity
        } else if name == "*" {
            &mut self.any
        } else {
            return;
        };
        // Of several entries of one coding the highest counts.
        *slot = Some(slot.map_or(weight, |known| known.max(weight)));
    }
}

/// A weight from 0 to 1 with at most three decimals, in thousandths.
fn weight_of(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, decimals) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    let is_valid = decimals.len() <= 3 && decimals.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{decimals:0<3}").parse::<u16>().ok().filter(|_| is_valid)?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}
