//! Content negotiation by `Accept-Encoding` (RFC 9110, 12.5.3): zstd, gzip or identity.
//!
//! Invariants: a header that cannot be parsed never causes a coding that its client may not read; among
//! codings of equal weight the cheapest for the server is sent.
//! Not here: Brotli and deflate (ADR 0105).

use axum::http::{HeaderMap, Method, header};

/// Coding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    /// The value of `Content-Encoding`; `None` for plain bytes.
    pub(super) fn token(self) -> Option<&'static str> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some("gzip"),
            Coding::Zstd => Some("zstd"),
        }
    }
}

/// Returns true if content that is stored as gzip is to be sent so: the client prefers no other coding.
pub(in crate::http) fn takes_stored_gzip(headers: &HeaderMap) -> bool {
    let weights = Weights::of(headers);
    let gzip = weights.gzip();
    gzip > 0 && gzip >= weights.identity() && gzip >= weights.zstd()
}

/// The coding in which the answer to a request is printed: none for HEAD, whose answer is dropped.
pub(in crate::http) fn printed_coding(method: &Method, headers: &HeaderMap) -> Coding {
    if *method == Method::HEAD { Coding::Identity } else { coding_of(headers) }
}

/// The coding for a client. A client without the header gets plain bytes, as in Prometheus, and so does one
/// that accepts none of the codings: an answer that it can refuse helps it more than status 406.
pub(super) fn coding_of(headers: &HeaderMap) -> Coding {
    let weights = Weights::of(headers);
    let compressed = weights.zstd().max(weights.gzip());
    if compressed == 0 || compressed < weights.identity() {
        return Coding::Identity;
    }
    if weights.zstd() == compressed { Coding::Zstd } else { Coding::Gzip }
}

/// Weights in thousandths; `None` without an entry.
#[derive(Default)]
struct Weights {
    zstd: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn of(headers: &HeaderMap) -> Weights {
        let values = headers.get_all(header::ACCEPT_ENCODING);
        let mut weights = Weights::default();
        for value in values.iter().filter_map(|value| value.to_str().ok()) {
            for entry in value.split(',') {
                weights.read(entry);
            }
        }
        weights
    }

    /// Weight of gzip; `*` stands for every coding without an entry of its own.
    fn gzip(&self) -> u16 {
        self.gzip.or(self.any).unwrap_or(0)
    }

    /// Weight of zstd. Many clients that send `*` cannot read it, so `*` means zstd only where the client
    /// refuses everything else.
    fn zstd(&self) -> u16 {
        let is_last_choice = self.gzip == Some(0) && self.identity == Some(0);
        self.zstd.or(self.any.filter(|_| is_last_choice)).unwrap_or(0)
    }

    /// Weight of plain bytes, which need no entry to be acceptable, and are then the last choice.
    fn identity(&self) -> u16 {
        self.identity.or(self.any).unwrap_or(0)
    }

    /// Reads `coding` or `coding;q=weight`. An entry with a weight that is not valid does not count.
    fn read(&mut self, entry: &str) {
        let (name, parameter) = entry.split_once(';').unwrap_or((entry, "q=1"));
        let Some(weight) = weight_of(parameter) else { return };
        let name = name.trim();
        let slot = if name.eq_ignore_ascii_case("zstd") {
            &mut self.zstd
        } else if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            &mut self.gzip
        } else if name.eq_ignore_ascii_case("identity") {
            &mut self.identity
        } else if name == "*" {
            &mut self.any
        } else {
            return;
        };
        // The highest weight counts if a coding has several entries.
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
